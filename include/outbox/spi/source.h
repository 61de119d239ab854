#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

namespace outbox::spi {

struct ReadLimits {
    std::size_t max_events = 0;
    /// Reading stops after the event that reaches this; a single larger event is still read.
    std::size_t max_bytes = 0;
};

/// Where a reader takes events from, for people.
struct ReadPath {
    std::string path;    ///< "polling" or "stream".
    std::string reason;  ///< Why it is not the faster one; empty where it is.

    friend bool operator==(const ReadPath&, const ReadPath&) = default;
};

/// One route's view of the unfinished rows. Used by one thread; calls block on the database.
///
/// Order: of two events of one key whose transactions were serialised before the events were
/// inserted, the earlier one is returned by the same or an earlier call and earlier in the batch.
class Reader {
  public:
    Reader() = default;
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    virtual ~Reader() = default;

    /// Appends the next unfinished events that this reader has not returned yet, in the order of
    /// their positions or of their commits, and the holes closed since the last call. Does not wait
    /// for new rows: none appended and ok means that there is none now. After an error the batch is
    /// unchanged, the connection is rebuilt by the next call, and nothing is skipped.
    virtual Status read(const ReadLimits& limits, EventBatch& out) = 0;

    /// Reads these events again, in position order; positions whose row is gone are left out.
    virtual Status fetch(std::span<const Position> positions, EventBatch& out) = 0;

    /// These positions were recorded and will not be asked for again.
    virtual void forget(std::span<const Position> positions) = 0;

    /// Forgets every mark: the next `read` starts from the oldest unfinished row.
    virtual void rewind() = 0;

    enum class Waited : std::uint8_t {
        kCannot,  ///< This reader has to be asked; the caller waits in its own way.
        kTime,    ///< The time is over.
        kReady,   ///< There is something to read.
    };
    /// Waits until there is something to read, at most `max_wait`.
    virtual Waited wait(std::chrono::milliseconds /*max_wait*/) { return Waited::kCannot; }

    /// Where events come from, if that changed since the last call.
    virtual std::optional<ReadPath> new_path() { return std::nullopt; }

    /// Bytes of the database's log that were written and not read yet, at most some seconds ago; 0
    /// while events do not come from it.
    [[nodiscard]] virtual std::int64_t lag_bytes() const { return 0; }
    /// Bytes of its log that the database keeps for these events to come from it.
    [[nodiscard]] virtual std::int64_t kept_bytes() const { return 0; }
};

/// A failing event's state, kept so that a restarted relay goes on where it was.
struct Delivery {
    std::string route;
    Position position = 0;
    std::string event_id;
    std::string key;
    std::uint32_t attempts = 0;
    std::int64_t next_attempt_us = 0;  ///< Unix epoch, microseconds.
    std::string error_code;
    std::string error;
};

/// An event given up on. Holds a whole copy of the event: its row may go.
struct DeadLetter {
    std::int64_t dead_id = 0;  ///< Given by the store.
    std::string route;
    Position position = 0;
    std::uint32_t attempts = 0;
    std::string error_code;
    std::string error;
    EventBatch event;  ///< Holds exactly one event.
};

/// The finished positions of one route, for the checkpoint. `ranges` are ascending and disjoint.
struct Checkpoint {
    std::string route;
    std::vector<PositionRange> ranges;
};

/// What one recorder transaction writes: all of it or nothing.
struct RecordBatch {
    std::uint64_t epoch = 0;                ///< The writer's lease epoch.
    std::vector<Position> published;        ///< Every route has finished these: delete or mark.
    std::vector<Position> dead_positions;   ///< Finished, but dead in at least one route: end state
                                            ///< DEAD or FAILED where the owner's table has one.
    std::vector<Checkpoint> checkpoints;    ///< Replaces the ledger of each named route.
    std::vector<Delivery> failed;           ///< Upserts; an attempt was counted.
    std::vector<DeadLetter> dead;           ///< Inserts; removes the delivery state.
    std::vector<std::int64_t> redelivered;  ///< Dead letters (by dead_id) delivered after a retry.
    std::vector<Delivery> failed_again;     ///< Retried dead letters (position = dead_id) that
                                            ///< failed for good once more.
    [[nodiscard]] bool empty() const {
        return published.empty() && dead_positions.empty() && checkpoints.empty() &&
               failed.empty() && dead.empty() && redelivered.empty() && failed_again.empty();
    }
};

/// What a relay tells people of a route through the database (table outbox_route_stats).
struct RouteFigures {
    std::string route;
    std::uint64_t published = 0;  ///< Since the figures were saved last; added to the total.
    std::uint64_t dead = 0;       ///< Likewise.
    std::string circuit;          ///< "closed", "open", "half_open".
    std::string last_error;       ///< Empty: none since the start.
    double rate_per_s = 0;        ///< Events published per second, over the last seconds.
    ReadPath path;                ///< Where the route's events come from now.
};

/// Writes outcomes. Used by one thread; calls block on the database until the commit is durable.
class Recorder {
  public:
    Recorder() = default;
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;
    virtual ~Recorder() = default;

    /// One transaction. Everything but `published` is written only while the lease still has
    /// `batch.epoch`; else nothing is written and the error is `kLeaseLost`. After another error
    /// the outcome may be unknown: recording the same batch again is safe.
    virtual Status record(const RecordBatch& batch) = 0;

    /// Removes again what `record` was to remove and did not find, as it was not visible yet. To be
    /// called often; how many are left.
    virtual Result<std::size_t> retry_removals() { return std::size_t{0}; }

    /// Moves up to `limit` delayed events that are due into the outbox table, oldest first.
    /// Returns how many were moved.
    virtual Result<std::size_t> move_due(std::uint64_t epoch, std::size_t limit) = 0;

    /// Removes finished rows older than `retention` from tables that keep them, up to `limit`.
    virtual Result<std::size_t> prune(std::chrono::seconds retention, std::size_t limit) = 0;
    /// How many rows `prune` would remove without a limit. Changes nothing.
    virtual Result<std::int64_t> prunable(std::chrono::seconds retention) = 0;

    /// State of failing events of a route, and its ledger, as a fresh owner needs them.
    virtual Result<std::vector<Delivery>> load_deliveries(std::string_view route) = 0;
    virtual Result<std::vector<PositionRange>> load_ledger(std::string_view route) = 0;

    /// Dead letters of the route that an operator asked to deliver again, oldest first.
    virtual Result<std::vector<DeadLetter>> load_redeliveries(std::string_view route,
                                                              std::size_t limit) = 0;

    /// Keys of the route's dead letters, for routes whose dead letters block their key.
    virtual Result<std::vector<std::string>> load_dead_keys(std::string_view route) = 0;

    /// Adds to the figures that `outbox status` shows of each route.
    virtual Status save_figures(std::uint64_t epoch, std::span<const RouteFigures> figures) = 0;

    /// Figures for metrics and health; `dead` counts dead letters.
    struct Stats {
        std::int64_t backlog = 0;
        double oldest_age_s = 0;
        std::int64_t failing = 0;
        std::int64_t dead = 0;
        std::int64_t scheduled = 0;
    };
    virtual Result<Stats> stats() = 0;
};

/// The right to relay. Used by one thread; calls block on the database.
class LeaseStore {
  public:
    LeaseStore() = default;
    LeaseStore(const LeaseStore&) = delete;
    LeaseStore& operator=(const LeaseStore&) = delete;
    virtual ~LeaseStore() = default;

    /// Takes the lease if it is free, expired, or its owner's backend is gone. The new epoch, or
    /// none while another owner holds it.
    virtual Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                         std::chrono::milliseconds ttl) = 0;
    /// False: the lease is lost (another epoch).
    virtual Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) = 0;
    /// Frees the lease at once if it still has this epoch.
    virtual Status release(std::uint64_t epoch) = 0;
};

/// An event that was published and that the database does not know (any more).
struct Ghost {
    Position position = 0;
    std::string id;  ///< Empty: not known.
};

/// One line of what `relay --check` found.
struct Finding {
    bool problem = false;  ///< True: the relay cannot run like this.
    std::string text;      ///< What was found, and the remedy where there is one.
};

/// A database with an outbox table. Thread-safe: each `open_*` result has a connection of its own,
/// and must not outlive the source.
class Source {
  public:
    Source() = default;
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;
    virtual ~Source() = default;

    /// The table as users name it, for logs, the lease and default topics.
    [[nodiscard]] virtual std::string table_name() const = 0;

    /// Positions are identities that outlive the process; false for tables without one, whose
    /// positions are made up by the reader and whose ledger cannot be checkpointed.
    [[nodiscard]] virtual bool stable_positions() const = 0;

    virtual Result<std::unique_ptr<Reader>> open_reader(const std::string& route) = 0;
    virtual Result<std::unique_ptr<Recorder>> open_recorder() = 0;
    virtual Result<std::unique_ptr<LeaseStore>> open_lease() = 0;

    /// Published events that the database lost since, as a standby was promoted that had not
    /// received them, or an older state restored; those that this process published and removed
    /// last. To be asked when a term begins; tells of each change once.
    virtual Result<std::vector<Ghost>> ghosts() { return std::vector<Ghost>{}; }

    /// What a relay would meet here: rights, columns, indexes, order promised or not.
    virtual Result<std::vector<Finding>> check() = 0;
};

}  // namespace outbox::spi
