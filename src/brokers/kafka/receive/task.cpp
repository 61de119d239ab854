#include "brokers/kafka/receive/task.h"

#include <algorithm>
#include <utility>

#include "consumer/applying.h"
#include "consumer/message_time.h"
#include "core/utf8.h"

namespace outbox::consumer::kafka {
namespace {

std::string place_of(const Record& record) {
    return std::string(record.topic()) + "/" + std::to_string(record.partition()) + "/" +
           std::to_string(record.offset());
}

// Why a text is no id; empty: it is one.
std::string fault_of(std::string_view id) {
    if (id.empty()) {
        return "has no header id, so a repeat could not be told from a new one; the relay writes "
               "it in format raw";
    }
    if (id.size() > kMaxIdBytes) {
        return "has a header id of " + std::to_string(id.size()) + " bytes; an id has at most 255";
    }
    const bool has_nul = std::find(id.begin(), id.end(), '\0') != id.end();
    return has_nul || !is_utf8(id) ? "has a header id that is not UTF-8 or holds a NUL" : "";
}

// Offsets of a partition go in their order; otherwise those of a key do, and a record without key
// waits for none.
std::string lane_of(const Record& record, bool by_offset) {
    std::string partition = std::string(record.topic()) + "/" + std::to_string(record.partition());
    if (by_offset) return partition;
    if (record.key().empty()) return place_of(record);
    return partition + "=" + std::string(record.key());
}

}  // namespace

std::string name_of(const Record& record) {
    if (fault_of(record.id()).empty()) return std::string(record.id());
    // What tells it apart is at the end.
    std::string name = place_of(record) + "@" + std::to_string(record.time_ms());
    if (name.size() > kMaxIdBytes) name.erase(0, name.size() - kMaxIdBytes);
    return name;
}

Task::Task(Record taken, std::shared_ptr<Partition> from, bool by_offset)
    : record(std::move(taken)),
      partition(std::move(from)),
      name(name_of(record)),
      number(partition->take({record.offset(), name})),
      lane(lane_of(record, by_offset)),
      headers(record.headers_json()),
      bytes(record.bytes() + headers.size()) {}

spi::EventView Task::event() const {
    spi::EventView event;
    event.position = record.offset();
    event.id = name;
    event.topic = record.topic();
    event.key = record.key();
    event.payload = record.payload();
    event.headers = headers;
    return event;
}

Message Task::message() const {
    return message_of(event(), attempts + 1);
}

std::optional<ErrorInfo> Task::id_fault() const {
    const std::string fault = fault_of(record.id());
    if (fault.empty()) return std::nullopt;
    return ErrorInfo{ErrorCode::kInvalidEvent,
                     Advice::kDeadLetter,
                     {},
                     "the record " + place_of(record) + " " + fault};
}

}  // namespace outbox::consumer::kafka
