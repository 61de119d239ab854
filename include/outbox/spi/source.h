#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>
#include <outbox/spi/row_shape.h>

namespace outbox::spi {

/// How much one read may return, and of whom.
struct ReadLimits {
    std::size_t max_events = 0;
    /// Reading stops after the event that reaches this; a single larger event is still read.
    std::size_t max_bytes = 0;
    /// Of these tenants nothing is sent now: of their events the positions suffice, in
    /// `EventBatch::aside`. Events without a tenant have the name of the default one. A reader that
    /// gains nothing by it returns their events as any others. Valid during the call.
    std::span<const std::string> aside = {};
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
    bool unmatched = false;  ///< No route took it, and `route` only keeps it: it blocks no key.
    EventBatch event;        ///< Holds exactly one event.
};

/// A key that dead letters block. Keys are a tenant's own.
struct DeadKey {
    std::string tenant_id;  ///< Empty: the one that events have by default.
    std::string key;

    friend auto operator<=>(const DeadKey&, const DeadKey&) = default;
};

/// A route that a term serves: its stable name, and names that it may have had in side tables of
/// earlier versions.
struct RouteName {
    std::string name;
    std::vector<std::string> former;
    std::string filter = {};  ///< Differs from an earlier term's where its filter does.
};

/// What the database knows of a route when a term begins.
struct RouteBeginning {
    /// Its ledger: what it has finished and whose rows are still there. Empty where positions are
    /// not stable; the reader then leaves out what is finished.
    PositionSet finished;
    std::string destination;  ///< What its destination calls itself; empty: not known yet.
    /// What destinations may remember its events under: the same for as long as an id means the
    /// same event and the route has not begun anew, whatever it is called.
    std::string producer = {};
    /// Of a source that keeps its rows: no event at or below it is still to come, and `finished`
    /// has all that lies there and may be read.
    Position settled = 0;
};

/// What a term begins with. `notes` are for people: what was set aside or taken over.
struct Beginning {
    std::vector<RouteBeginning> routes;  ///< In the order that was asked for.
    std::vector<std::string> notes;
};

/// The error of `Recorder::begin` for a known route with unfinished events that is not configured.
/// `whose` names the relays in whose ledgers it is, as arguments of a command (" --tenant acme").
[[nodiscard]] ErrorInfo route_gone(const std::string& route, const std::string& destination,
                                   std::span<const std::string> configured,
                                   std::span<const std::string> whose);

/// The error of a route whose destination calls itself otherwise than the ledger says; `whose` is
/// the relay's.
[[nodiscard]] ErrorInfo destination_changed(const std::string& route, const std::string& was,
                                            const std::string& is, const std::string& whose);

/// What a route has finished: acknowledged, not wanted by it, or dead.
struct Finished {
    std::size_t route = 0;  ///< Index in what `Recorder::begin` was given.
    std::vector<Position> positions;
    /// Those of `positions` that the route only passed over: they are unfinished again when filters
    /// change. Empty where there is no other route.
    std::vector<Position> passed = {};
};

/// What one recorder transaction writes: all of it or nothing.
struct RecordBatch {
    std::uint64_t epoch = 0;                ///< The writer's lease epoch.
    std::vector<Finished> finished;         ///< Goes into the routes' ledgers.
    std::vector<Delivery> failed;           ///< Upserts; an attempt was counted.
    std::vector<DeadLetter> dead;           ///< Inserts; removes the delivery state.
    std::vector<std::int64_t> redelivered;  ///< Dead letters (by dead_id) delivered after a retry.
    std::vector<Delivery> failed_again;     ///< Retried dead letters (position = dead_id) that
                                            ///< failed for good once more.
    /// What routes' destinations call themselves, met for the first time: by route index.
    std::vector<std::pair<std::size_t, std::string>> destinations;
    [[nodiscard]] bool empty() const {
        return finished.empty() && failed.empty() && dead.empty() && redelivered.empty() &&
               failed_again.empty() && destinations.empty();
    }
};

/// What `Recorder::remove` took out of the table and the ledgers.
struct Removed {
    std::vector<Position> positions;
    std::size_t left =
        0;  ///< Named, now or before, and not tried or not there yet; each call tries.
    std::string refusal;   ///< What the table said to the removal of rows that it does not let go.
    std::size_t kept = 0;  ///< Rows that it keeps, each asked for alone.
};

/// What a relay tells people of a route through the database (table outbox_route_stats).
struct SavedStats {
    std::string route;
    std::uint64_t published = 0;        ///< Since it was saved last; added to the total.
    std::uint64_t dead = 0;             ///< Likewise.
    std::string circuit;                ///< "closed", "open", "half_open".
    std::string last_error;             ///< Empty: none since the start.
    std::int64_t last_error_at_us = 0;  ///< Unix epoch, microseconds.
    double rate_per_s = 0;              ///< Events published per second, over the last seconds.
    ReadPath path;                      ///< Where the route's events come from now.
    /// Of a source that keeps its rows: see `RouteBeginning`. What was told before goes along:
    /// where the database has another one by now, somebody set it back, and it stays.
    Position settled = 0;
    Position settled_before = 0;
};

/// Writes outcomes. Used by one thread; calls block on the database until the commit is durable.
/// A term may use several, for the calls on the path of events, for removals and for chores.
class Recorder {
  public:
    Recorder() = default;
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;
    virtual ~Recorder() = default;

    /// The first call of a term's first recorder: makes the routes known and returns what the
    /// last owner left of them. A new route begins with what not every known one has finished, and
    /// one whose filter changed has not finished what it passed over by the old one; nor has the
    /// first, which answers for events that nobody wants, where any route's filter or the first
    /// itself is another, unless somebody took the event. An error with advice `kStop` says what
    /// has to be settled by a person, such as a ledger that speaks of another table, or a route
    /// that is known and not named here with events left.
    virtual Result<Beginning> begin(std::uint64_t epoch, std::span<const RouteName> routes) = 0;

    /// What the destinations of these routes are known to call themselves; empty: not known.
    virtual Result<std::vector<std::string>> destinations(std::span<const std::string> routes) = 0;

    /// One transaction, written only while the lease still has `batch.epoch`; else nothing is
    /// written and the error is `kLeaseLost`. What it records as finished is not sent again by any
    /// owner. Where positions are not stable it ends the rows that every route has finished, too.
    /// After another error the outcome may be unknown: recording the same batch again is safe.
    virtual Status record(const RecordBatch& batch) = 0;

    /// Removes the rows of positions that every route has finished and that are recorded, and takes
    /// them out of the ledgers, in one transaction that is fenced as `record` is. Safe to repeat.
    /// Only where positions are stable.
    virtual Result<Removed> remove(std::uint64_t epoch, std::span<const Position> positions) = 0;

    /// Takes out of the ledgers what somebody else has removed from the table, and ends rows that
    /// are recorded and could not be ended at once; forgets attempts of events whose rows were
    /// deleted before a reader of this owner saw them. To be called each second or so. Returns the
    /// lowest position that is there, as far as it is known; 0: not known.
    virtual Result<Position> tidy(std::uint64_t /*epoch*/) { return Position{0}; }

    /// Moves up to `limit` delayed events that are due into the outbox table, oldest first.
    /// Returns how many were moved.
    virtual Result<std::size_t> move_due(std::uint64_t epoch, std::size_t limit) = 0;

    /// Removes finished rows older than `retention` from tables that keep them, up to `limit`; or
    /// whole segments of such rows, however many those have, which may take seconds.
    virtual Result<std::size_t> prune(std::chrono::seconds retention, std::size_t limit) = 0;
    /// How many rows `prune` would remove without a limit. Changes nothing.
    virtual Result<std::int64_t> prunable(std::chrono::seconds retention) = 0;

    /// State of failing events of a route, as a fresh owner needs it.
    virtual Result<std::vector<Delivery>> load_deliveries(std::string_view route) = 0;

    /// Dead letters of the route that an operator asked to deliver again, behind `after_dead_id`,
    /// oldest first.
    virtual Result<std::vector<DeadLetter>> load_redeliveries(std::string_view route,
                                                              std::int64_t after_dead_id,
                                                              std::size_t limit) = 0;

    /// Keys of the route's dead letters, for routes whose dead letters block their key.
    virtual Result<std::vector<DeadKey>> load_dead_keys(std::string_view route) = 0;

    /// Tenants of which nothing is to be sent now.
    virtual Result<std::vector<std::string>> load_paused_tenants() {
        return std::vector<std::string>{};
    }

    /// Adds to the figures that `outbox status` shows of each route.
    virtual Status save_stats(std::uint64_t epoch, std::span<const SavedStats> stats) = 0;

    /// Figures for metrics and health; `dead` counts dead letters.
    struct Stats {
        std::int64_t backlog = 0;
        bool estimated = false;  ///< The backlog: counting it takes long.
        /// The backlog leaves out rows that every route has finished and that are still there.
        bool without_finished = false;
        std::int64_t at_least =
            0;  ///< So many wait for certain, where the backlog has finished ones.
        double oldest_age_s = 0;
        std::int64_t failing = 0;
        std::int64_t dead = 0;
        std::int64_t scheduled = 0;
        /// Finished rows that could not be marked or removed yet, as somebody holds them or as the
        /// owner's table refuses it; `refusal` is what that said last.
        std::int64_t owed = 0;
        std::string refusal;
        /// The same of delayed events that are due and that the outbox table does not take
        /// (PostgreSQL: they count as owed, too).
        std::string due_refusal;
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

    /// Tells people that this relay waits for the lease, with these routes; to be said again every
    /// few seconds. No routes: it waits no more.
    virtual Status stand_by(const std::string& /*owner*/, std::span<const std::string> /*routes*/) {
        return {};
    }
};

/// An event that was published and that the database does not know (any more).
struct Ghost {
    Position position = 0;
    std::string id;  ///< Empty: not known.
};

/// One line of what `outbox doctor` and `relay --check` found.
struct Finding {
    enum class Grade : std::uint8_t {
        kOk,
        kWarn,  ///< It works, and something is lost by it: speed, order, room on a disk.
        kFail,  ///< The relay cannot run like this.
    };
    Grade grade = Grade::kOk;
    std::string text;  ///< "WHAT: " and what was found, with the remedy where there is one.
    /// What mends it, where SQL does, without the last semicolon: one statement, or a transaction
    /// with its BEGIN and COMMIT. Its owner may run it.
    std::string sql;
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
    /// positions are made up by the reader.
    [[nodiscard]] virtual bool stable_positions() const = 0;

    /// Finished rows stay, and no recorder removes them one by one. Only where positions are
    /// stable.
    [[nodiscard]] virtual bool keeps_rows() const { return false; }

    /// How its rows look, as they were when the source was made.
    [[nodiscard]] virtual RowShape shape() const { return {}; }

    /// Several recorders may write at once; else one thread had better use them in turn.
    [[nodiscard]] virtual bool writes_concurrently() const { return true; }

    /// A term begins; all that the last one had is closed.
    virtual void begin_term() {}

    /// A reader of what `route` has not finished: rows at positions of `finished` are passed over.
    virtual Result<std::unique_ptr<Reader>> open_reader(const std::string& route,
                                                        PositionSet finished) = 0;
    virtual Result<std::unique_ptr<Recorder>> open_recorder() = 0;
    virtual Result<std::unique_ptr<LeaseStore>> open_lease() = 0;

    /// Published events that the database lost since, as a standby was promoted that had not
    /// received them, or an older state restored; those that this process published and removed
    /// last. To be asked when a term begins; tells of each change once.
    virtual Result<std::vector<Ghost>> ghosts() { return std::vector<Ghost>{}; }

    /// What `Recorder::begin` would return now, whoever has the lease. Writes nothing.
    virtual Result<Beginning> preview(std::span<const RouteName> routes) {
        return Beginning{std::vector<RouteBeginning>(routes.size()), {}};
    }

    /// What a relay would meet here: rights, columns, indexes, order promised or not.
    virtual Result<std::vector<Finding>> check() = 0;
};

}  // namespace outbox::spi
