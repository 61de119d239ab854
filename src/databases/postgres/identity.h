#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "core/mutex.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/replication.h"
#include "databases/postgres/source/published.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// Since when the server counts: as of its last crash, or of its beginning. Clean restarts keep
/// it. The older of two kinds, as an operator may begin one of them anew.
inline constexpr std::string_view kStatisticsSince =
    "least(pg_stat_get_bgwriter_stat_reset_time(), (SELECT stats_reset FROM pg_stat_archiver))";

/// What an owner of the lease wrote into its row last.
struct LeaseWritten {
    std::uint64_t epoch = 0;
    std::int64_t expires_us = 0;   ///< By the database's clock, Unix epoch.
    std::int64_t acquired_us = 0;  ///< Tells owners apart, whose names may be equal.
};

/// Which cluster, which life of it and which table a term of the relay works on: what it remembers
/// of positions means nothing elsewhere. Each new connection that reads or writes for a term is
/// compared with it before its first statement. Shared by them; thread-safe.
///
/// Errors have advice `kStop`, as nothing else may be done on behalf of the term:
/// `kServerChanged` (another timeline, an end of the log that lies behind the one seen, a lease as
/// it was before it was last renewed, or a recovery from a crash, which gives the positions and ids
/// anew of what was committed with synchronous_commit = off): a new term may begin; `kWrongServer`
/// (another system identifier) and `kTableReset` are for a person. `kLeaseLost`: another relay has
/// it by now. An old primary is none that has changed: `kConnectFailed`, to be tried again, and the
/// term goes on. One of several hosts that is found to be of the past is asked last for a while.
class Identity {
  public:
    explicit Identity(const Table& table);

    /// What is met first from now on is what the term works on. The cluster stays what it was, and
    /// so does the server until it was told that it has changed: that may have happened while
    /// nobody held the lease.
    void begin_term();

    /// A new connection. Not a primary: `kConnectFailed`, to be tried again.
    Status check(Connection& connection);
    /// A new connection of the lease, which goes on when a standby is promoted: it is to be of the
    /// same cluster.
    Status check_lease(Connection& connection);
    /// The same of a replication connection.
    Status check(ReplicationStream& stream);
    /// Whether the table is still the same; to be asked now and then.
    Status check_table(Connection& connection);
    /// The same of a connection that is asked often: once for each, before its first `check_read`.
    Status prepare(Connection& connection) const;
    /// Behind rows that were read: whether they are of this table. Those of one that began anew may
    /// stand where a reader of the old one goes on, and their order would be lost.
    Status check_read(Connection& connection);
    /// SQL of one value of type text, the same for each row of a statement that reads the table.
    /// The server makes it out once, under the statement's lock on the table, behind its snapshot.
    [[nodiscard]] std::string seen_sql() const;
    /// What `check_read` says, of the value of `seen_sql` that came with a row. `reached`: that of
    /// `highest_reached` before the statement was sent.
    Status check_seen(std::string_view seen, spi::Position reached);
    [[nodiscard]] spi::Position highest_reached() const { return known().reached; }

    /// The lease's row from now on. An epoch of 0: the term has it no more.
    void lease_written(LeaseWritten lease);

    /// The highest position that was read.
    void reached(spi::Position position);
    /// Events of `batch` from `first` on are about to be returned.
    void returned(const spi::EventBatch& batch, std::size_t first);
    /// These are finished everywhere, and their rows about to be removed.
    void finished(std::span<const spi::Position> positions, Lsn log_end);

    /// Segments of a table that keeps its rows hold two rows of this position, of which one is
    /// sent.
    void stands_twice(spi::Position position);
    /// The last of those in this term; 0: none.
    [[nodiscard]] spi::Position twice() const;

    /// The timeline of the server that this one has taken the place of; 0: of none.
    [[nodiscard]] std::int64_t left_timeline() const;
    /// See `Published`.
    [[nodiscard]] std::vector<spi::Ghost> removed_behind(Lsn lsn) const;
    void forget_change();

    /// Where the log ended when the server was asked last.
    [[nodiscard]] Lsn log_end() const { return known().lsn; }
    /// The last position that was given. `kNoRights` for a role that may not read the sequence.
    Result<spi::Position> last_position(Connection& connection);

    /// What `life_of` says where the term's positions mean the term's events.
    [[nodiscard]] std::string life() const;

  private:
    // What was known before a server was asked: others learn more while it answers.
    struct Known {
        Lsn lsn = 0;
        spi::Position reached = 0;
        LeaseWritten lease;
    };
    [[nodiscard]] Known known() const;
    static Result<ServerIdentity> ask(Connection& connection);
    [[nodiscard]] bool is_past(const ServerIdentity& server, const Known& before) const;
    Status compare(const ServerIdentity& server, const Known& before);
    Status compare_lease(Connection& connection, const Known& before);
    Status changed(std::string message) OUTBOX_REQUIRES(mutex_);
    Status compare_table(const Result<Rows>& rows, const Known& before);
    Status compare_table(const std::string& life, std::int64_t last_position, const Known& seen);

    const Table table_;
    const std::string sequence_;
    const std::string lease_;

    mutable core::Mutex mutex_;
    std::string system_id_ OUTBOX_GUARDED_BY(mutex_);
    std::string database_oid_ OUTBOX_GUARDED_BY(mutex_);
    std::string statistics_since_ OUTBOX_GUARDED_BY(mutex_);
    std::int64_t timeline_ OUTBOX_GUARDED_BY(mutex_) = 0;  // 0: not met yet
    Status changed_ OUTBOX_GUARDED_BY(mutex_);             // how the server has, in this term
    std::string life_ OUTBOX_GUARDED_BY(mutex_);
    Known known_ OUTBOX_GUARDED_BY(mutex_);
    std::int64_t left_timeline_ OUTBOX_GUARDED_BY(mutex_) = 0;
    spi::Position twice_ OUTBOX_GUARDED_BY(mutex_) = 0;
    Published published_ OUTBOX_GUARDED_BY(mutex_);
};

/// SQL of when a lease's row expires, and of when it was taken, in microseconds.
inline constexpr std::string_view kExpiresUs = "(extract(epoch FROM expires_at) * 1000000)::bigint";
inline constexpr std::string_view kAcquiredUs =
    "coalesce((extract(epoch FROM acquired_at) * 1000000)::bigint, 0)";

/// SQL that names the table and its numbering: another table, or TRUNCATE ... RESTART IDENTITY,
/// gives it another value, and VACUUM FULL or a plain TRUNCATE does not (unless nothing else tells
/// where its numbers come from). Of a table whose ids do not come again it is empty.
[[nodiscard]] std::string life_of(const Table& table);
/// SQL: what a sequence, an expression of type regclass, gave last. Where it was set what it gives
/// next (`setval` with false, RESTART WITH), for which the server's function has no answer: the
/// number before.
[[nodiscard]] std::string last_of_sequence(const std::string& sequence);
/// SQL: the last position that a table read by position gave; no row where that may not be asked.
[[nodiscard]] std::string last_given(const Table& table);
/// SQL behind FROM: the sequences, as s, that a table takes numbers from.
[[nodiscard]] std::string sequences_of(const Table& table);
/// SQL: whether the sequences of a table with integer ids were set back below a row that
/// outbox_route_done of the sources that a condition selects remembers and that is gone.
[[nodiscard]] std::string ids_set_back(const Table& table, const std::string& sources);
}  // namespace outbox::postgres
