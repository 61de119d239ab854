#include "brokers/kafka/receive/delivery.h"

#include "consumer/message_time.h"

namespace outbox::consumer::kafka {
namespace {

std::string place_of(const Record& record) {
    return std::string(record.topic()) + "/" + std::to_string(record.partition()) + "/" +
           std::to_string(record.offset());
}

std::string name_by(const Record& record, std::string_view id) {
    if (fault_of_id(id).empty()) return std::string(id);
    // What tells it apart is at the end.
    std::string name = place_of(record) + "@" + std::to_string(record.time_ms());
    if (name.size() > kMaxIdBytes) name.erase(0, name.size() - kMaxIdBytes);
    return name;
}

}  // namespace

std::string name_of(const Record& record) {
    return name_by(record, record.id());
}

std::vector<std::string> names_of(const Record& record) {
    std::vector<std::string> names = record.ids_by_formats();
    for (std::string& name : names) name = name_by(record, name);
    return names;
}

RecordDelivery::RecordDelivery(Record record, std::string name, bool by_offset)
    : record_(std::move(record)),
      name_(std::move(name)),
      headers_(record_.headers_json()),
      by_offset_(by_offset) {}

spi::EventView RecordDelivery::event() const {
    spi::EventView event;
    event.position = record_.offset();
    event.id = name_;
    event.topic = record_.topic();
    event.key = record_.key();
    event.payload = record_.payload();
    event.headers = headers_;
    return event;
}

std::vector<std::string> RecordDelivery::other_ids() const {
    return consumer::other_ids(record_.header_id(), name_);
}

std::optional<ErrorInfo> RecordDelivery::fault() const {
    std::string fault = record_.fault();
    if (fault.empty()) {
        fault = fault_of_id(record_.id());
        if (fault.empty()) return std::nullopt;
        fault += "; the relay writes it into the header id in formats raw and debezium";
    }
    return ErrorInfo{ErrorCode::kInvalidEvent,
                     Advice::kDeadLetter,
                     {},
                     "the record " + place_of(record_) + " " + fault};
}

std::string RecordDelivery::lane() const {
    std::string partition =
        std::string(record_.topic()) + "/" + std::to_string(record_.partition());
    if (by_offset_) return partition;
    if (record_.key().empty()) return place_of(record_);
    return partition + "=" + std::string(record_.key());
}

}  // namespace outbox::consumer::kafka
