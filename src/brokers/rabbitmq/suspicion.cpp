#include "brokers/rabbitmq/suspicion.h"

#include "brokers/rabbitmq/message.h"

namespace outbox::rabbitmq {

Suspicion::Kind Suspicion::kind_of(const spi::Record& record, Time now) const {
    if (record.value.size() >= refused_bytes_) return Kind::kRefused;
    if (refused_.empty() && now >= careful_until_) return Kind::kProven;
    const std::string_view key = routing_key_of(record);
    if (!refused_.empty() && refused_.contains(std::string(key))) return Kind::kRefused;
    return now < careful_until_ && !passed_.has(key) ? Kind::kUnproven : Kind::kProven;
}

bool Suspicion::is_known(const spi::Record& record) const {
    return record.value.size() < refused_bytes_ && known_.has(routing_key_of(record));
}

void Suspicion::passed(const spi::Record& record) {
    if (record.value.size() >= refused_bytes_) refused_bytes_ = SIZE_MAX;
    const std::string_view key = routing_key_of(record);
    known_.add(key);
    if (careful_until_ == Time()) return;  // Nothing was ever refused.
    passed_.add(key);
    if (!refused_.empty()) refused_.erase(std::string(key));
}

void Suspicion::refused_key(std::string_view routing_key, bool surprised, Time now) {
    if (surprised) passed_.clear();
    careful_until_ = now + kCareful;
    passed_.remove(routing_key);
    known_.remove(routing_key);
    if (!refused_.emplace(routing_key).second) return;
    order_.emplace_back(routing_key);
    while (order_.size() > kMostRefused) {
        refused_.erase(order_.front());
        order_.pop_front();
    }
}

}  // namespace outbox::rabbitmq
