#include "brokers/kafka/receive/partition.h"

#include <algorithm>
#include <utility>

#include "core/sql_text.h"

namespace outbox::consumer::kafka {

std::string begin_at_zero_sql(const std::string& consumer, const TopicPartition& where) {
    return "INSERT INTO outbox_inbox_offsets (consumer, topic, partition, next_offset) VALUES (" +
           quote_literal(consumer) + ", " + quote_literal(where.topic) + ", " +
           std::to_string(where.partition) +
           ", 0) ON CONFLICT (consumer, topic, partition) DO UPDATE SET next_offset = 0, "
           "cluster_id = '', last_id = NULL";
}

std::uint64_t Partition::take(Witness record) {
    slots_.push_back({std::move(record), false});
    return first_number_ + slots_.size() - 1;
}

void Partition::finish(std::uint64_t number) {
    slots_[number - first_number_].finished = true;
    while (!slots_.empty() && slots_.front().finished) {
        next_ = slots_.front().record.offset + 1;
        last_ = std::move(slots_.front().record);
        slots_.pop_front();
        ++first_number_;
    }
}

std::optional<OffsetStep> Partition::step_after(const spi::EventView& event) const {
    return OffsetStep{.topic = where.topic,
                      .partition = where.partition,
                      .expected = expected,
                      .next = event.position + 1,
                      .cluster_id = cluster_id,
                      .last_id = event.id};
}

std::optional<Partition::Finished> Partition::to_commit() {
    auto next = next_;
    if (slots_.empty() && end_ && end_ > next) next = end_;
    if (next == told_) return std::nullopt;
    told_ = next;
    return Finished{*next, last_};
}

std::int64_t Partition::wanted() const {
    return std::max({begin, last_read + 1, end_.value_or(0)});
}

}  // namespace outbox::consumer::kafka
