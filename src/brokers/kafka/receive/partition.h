#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "brokers/kafka/receive/client.h"
#include "consumer/broker_store.h"
#include "consumer/workers/delivery.h"

namespace outbox::consumer::kafka {

struct Witness {
    std::int64_t offset = 0;
    std::string id;
};

/// The partitions that are assigned; records under way keep theirs while it is taken away.
class Partition;
using Partitions = std::map<TopicPartition, std::shared_ptr<Partition>>;

/// What has a consumer begin with the first record of a partition.
std::string begin_at_zero_sql(const std::string& consumer, const TopicPartition& where);

/// What is under way in one assigned partition. Guarded by the consumer's mutex.
class Partition final : public Origin {
  public:
    explicit Partition(TopicPartition place) : where(std::move(place)) {}

    /// A record was taken; its number, for `finish`.
    std::uint64_t take(Witness record);
    /// The record is applied, a repeat, or given up on.
    void finish(std::uint64_t number) override;
    /// All below was read, what is no record included.
    void reached_end(std::int64_t offset) { end_ = offset; }

    struct Finished {
        std::int64_t next = 0;        ///< All below it is finished.
        std::optional<Witness> last;  ///< The last record that is.
    };
    /// Where it is another one than that which was told last.
    [[nodiscard]] std::optional<Finished> to_commit();
    /// What was told may not have arrived.
    void tell_again() { told_.reset(); }
    /// From where on the log has to be there still.
    [[nodiscard]] std::int64_t wanted() const;
    [[nodiscard]] std::optional<std::int64_t> next() const { return next_; }
    [[nodiscard]] std::size_t unfinished() const { return slots_.size(); }

    /// What was met first, where reading began with what comes: Kafka is to be told, or a group
    /// that has finished nothing begins with what comes once more.
    void begins_at(std::int64_t offset) {
        if (first.offset == kEnd) next_ = first.offset = offset;
    }
    /// Where it goes on is to be asked anew; what was taken of it is dropped.
    void mark_misplaced() override { misplaced = taken_away = true; }
    [[nodiscard]] std::optional<OffsetStep> step_after(const spi::EventView& event) const override;
    void moved_to(std::int64_t next) override { expected = next; }

    const TopicPartition where;
    bool paused = false;  ///< Not read while too much of it is parked.

    Start first;             ///< Where it began, or begins where nothing else is known.
    std::int64_t begin = 0;  ///< Where it began: at this offset, or at the log's beginning.
    std::int64_t last_read = -1;
    /// The last record that is known to be of the log; it has to be there still when more came.
    std::optional<Witness> proof;

    // Offset modes.
    std::optional<std::int64_t> expected;  ///< The offset in the database.
    std::string cluster_id;                ///< Whose log it is.
    /// The record before `begin`, to be met first: so the log is known to be the same.
    std::optional<Witness> witness;
    bool misplaced = false;    ///< Where it goes on is to be asked again.
    bool log_changed = false;  ///< And this is known: at the beginning of another log.
    bool held = false;         ///< Not read: its log is another than the database knows.
    std::optional<LogPlace> held_at;
    Client::Extent held_extent;  ///< Of its log, then.

  private:
    struct Slot {
        Witness record;
        bool finished;
    };
    std::deque<Slot> slots_;  // from the lowest unfinished one on
    std::uint64_t first_number_ = 0;
    std::optional<std::int64_t> next_;
    std::optional<Witness> last_;      // the record before it
    std::optional<std::int64_t> end_;  // of the log, where nothing came since
    std::optional<std::int64_t> told_;
};

}  // namespace outbox::consumer::kafka
