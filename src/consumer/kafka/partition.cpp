#include "consumer/kafka/partition.h"

namespace outbox::consumer::kafka {

std::uint64_t Partition::take(std::int64_t offset) {
    slots_.push_back({offset, false});
    return first_number_ + slots_.size() - 1;
}

void Partition::finish(std::uint64_t number) {
    slots_[number - first_number_].finished = true;
    while (!slots_.empty() && slots_.front().finished) {
        next_ = slots_.front().offset + 1;
        slots_.pop_front();
        ++first_number_;
    }
}

std::optional<std::int64_t> Partition::to_commit() {
    if (next_ == told_) return std::nullopt;
    told_ = next_;
    return told_;
}

}  // namespace outbox::consumer::kafka
