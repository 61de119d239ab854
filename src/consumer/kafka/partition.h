#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "consumer/kafka/client.h"
#include "consumer/log_store.h"

namespace outbox::consumer::kafka {

struct Amount {
    std::size_t records = 0;
    std::size_t bytes = 0;
};

struct Witness {
    std::int64_t offset = 0;
    std::string id;
};

/// What has a consumer begin with the first record of a partition.
std::string begin_at_zero_sql(const std::string& consumer, const TopicPartition& where);

/// What is under way in one assigned partition. Guarded by the consumer's mutex.
class Partition {
  public:
    explicit Partition(TopicPartition place) : where(std::move(place)) {}

    /// A record was taken; its number, for `finish`.
    std::uint64_t take(std::int64_t offset);
    /// The record is applied, a repeat, or given up on.
    void finish(std::uint64_t number);

    /// The offset below which all is finished, where it is above the one last told.
    [[nodiscard]] std::optional<std::int64_t> to_commit();
    [[nodiscard]] std::optional<std::int64_t> next() const { return next_; }
    [[nodiscard]] std::size_t unfinished() const { return slots_.size(); }

    /// Where it goes on is to be asked anew; what was taken of it is dropped.
    void mark_misplaced() { misplaced = taken_away = true; }

    const TopicPartition where;
    bool taken_away = false;  ///< Queued records of it are dropped.
    std::size_t in_transaction = 0;
    Amount parked;        ///< What waits behind failing records of its key.
    bool paused = false;  ///< Not read while too much of it is parked.

    // Offset modes.
    std::optional<std::int64_t> expected;  ///< The offset in the database.
    std::string cluster_id;                ///< Whose log it is.
    std::int64_t begin = 0;                ///< `expected` as it was at first.
    /// The record before `begin`, to be met first: so the log is known to be the same.
    std::optional<Witness> witness;
    std::int64_t last_read = -1;
    /// The last record that is known to be of the log; it has to be there still when more came.
    std::optional<Witness> proof;
    bool misplaced = false;  ///< Where it goes on is to be asked of the database again.
    bool held = false;       ///< Not read: its log is another than the database knows.
    std::optional<LogPlace> held_at;
    Client::Extent held_extent;  ///< Of its log, then.

  private:
    struct Slot {
        std::int64_t offset;
        bool finished;
    };
    std::deque<Slot> slots_;  // from the lowest unfinished one on
    std::uint64_t first_number_ = 0;
    std::optional<std::int64_t> next_;
    std::optional<std::int64_t> told_;
};

}  // namespace outbox::consumer::kafka
