#include "databases/postgres/source/lease.h"

namespace outbox::postgres {
namespace {

// The owner's backend names itself; one that is gone has lost the lease at once. A backend of
// another role shows no start to a role without rights and then counts as alive.
constexpr const char* kFree =
    "(l.owner IS NULL OR l.expires_at <= clock_timestamp() OR (l.backend_start IS NOT NULL AND "
    "NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.backend_pid AND "
    "(a.backend_start IS NULL OR a.backend_start = l.backend_start))))";

constexpr const char* kBackend =
    "pg_backend_pid(), "
    "(SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())";

constexpr const char* kExpires = "clock_timestamp() + $3 * interval '1 millisecond'";

}  // namespace

PostgresLease::PostgresLease(const PostgresSourceConfig& config, const Table& table,
                             Identity& identity)
    : PostgresLease(
          config, {table.source, table.side + "outbox_lease", table.side},
          // A lease of an old primary says nothing about the new one.
          [&identity](Connection& connection) { return identity.check_lease(connection); },
          [&identity](const LeaseWritten& lease) { identity.lease_written(lease); }) {}

PostgresLease::PostgresLease(const PostgresSourceConfig& config, LeaseRow row,
                             std::function<Status(Connection&)> check,
                             std::function<void(const LeaseWritten&)> wrote)
    : row_(std::move(row)),
      tell_wrote_(std::move(wrote)),
      session_(config, [check = std::move(check)](Connection& connection) {
          if (Status status = check(connection); !status.ok()) return status;
          // Longer waits would outlast the lease.
          connection.limit_waits(std::chrono::seconds(5));
          return connection.execute("SET statement_timeout = '3s'; SET lock_timeout = '2s'");
      }) {}

Result<Rows> PostgresLease::query(const std::string& sql, const Params& params) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    Result<Rows> rows = (*connection)->query(sql, params);
    if (!rows.ok()) session_.drop();
    return rows;
}

// Of an epoch that was taken through another one of these no more is known.
LeaseWritten PostgresLease::written(std::uint64_t epoch) const {
    return written_.epoch == epoch ? written_ : LeaseWritten{.epoch = epoch};
}

void PostgresLease::wrote(const LeaseWritten& lease) {
    written_ = lease;
    if (tell_wrote_) tell_wrote_(written_);
}

Result<std::optional<std::uint64_t>> PostgresLease::acquire(const std::string& owner,
                                                            std::chrono::milliseconds ttl) {
    // A look first: the waiting relay must not lock the row that the owner renews.
    Result<Rows> look =
        query(std::string("SELECT ") + kFree + " FROM " + row_.table + " l WHERE l.source = $1",
              Params().text(row_.source));
    if (!look.ok()) return look.status();
    if (!look->empty() && !look->boolean(0, 0)) return std::optional<std::uint64_t>();
    // Who holds the row FOR KEY SHARE is about to commit what the last owner wrote.
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    if (Status begun = (*connection)->execute("BEGIN"); !begun.ok()) return begun;
    const auto taken = take(owner, ttl);
    if (!taken.ok()) return taken.status();  // The connection went with the error.
    if (const Status ended = (*connection)->execute("COMMIT"); !ended.ok()) {
        session_.drop();
        return ended;
    }
    if (!*taken) return std::optional<std::uint64_t>();
    wrote(**taken);
    return std::optional(written_.epoch);
}

Result<std::optional<LeaseWritten>> PostgresLease::take(const std::string& owner,
                                                        std::chrono::milliseconds ttl) {
    Result<Rows> rows = query("SELECT FROM " + row_.table + " WHERE source = $1 FOR UPDATE",
                              Params().text(row_.source));
    if (!rows.ok()) return rows.status();
    rows = query(
        std::string("INSERT INTO " + row_.table +
                    " AS l (source, owner, epoch, acquired_at, expires_at, "
                    "backend_pid, backend_start) SELECT $1, $2, 1, clock_timestamp(), ") +
            kExpires + ", " + kBackend +
            " ON CONFLICT (source) DO UPDATE SET owner = excluded.owner, epoch = l.epoch + 1, "
            "acquired_at = excluded.acquired_at, expires_at = excluded.expires_at, "
            "backend_pid = excluded.backend_pid, backend_start = excluded.backend_start "
            "WHERE " +
            kFree + " RETURNING l.epoch, " + std::string(kExpiresUs) + ", " +
            std::string(kAcquiredUs),
        Params().text(row_.source).text(owner).integer(ttl.count()));
    // A dump brings it last.
    if (!rows.ok() && rows.error().backend_code == "42P10") {
        return ErrorInfo{
            ErrorCode::kNoSuchTable, Advice::kStop, "42P10",
            "table " + row_.table + " lacks its primary key, as while a dump is restored"};
    }
    if (!rows.ok()) return rows.status();
    if (rows->empty()) return std::optional<LeaseWritten>();
    return std::optional(LeaseWritten{static_cast<std::uint64_t>(rows->integer(0, 0)),
                                      rows->integer(0, 1), rows->integer(0, 2)});
}

// A row that is older than what was written last is one of a database that was set back, and so may
// be the epoch of another owner.
Result<bool> PostgresLease::renew(std::uint64_t epoch, std::chrono::milliseconds ttl) {
    const std::string expires_us(kExpiresUs);
    const std::string acquired_us(kAcquiredUs);
    const LeaseWritten before = written(epoch);
    const Result<Rows> rows =
        query("UPDATE " + row_.table + " SET expires_at = " + kExpires +
                  ", (backend_pid, backend_start) = (SELECT " + kBackend +
                  ") WHERE source = $1 AND epoch = $2 AND owner IS NOT NULL AND " + expires_us +
                  " >= $4 AND $5 IN (0, " + acquired_us + ") RETURNING " + expires_us + ", " +
                  acquired_us,
              Params()
                  .text(row_.source)
                  .integer(static_cast<std::int64_t>(epoch))
                  .integer(ttl.count())
                  .integer(before.expires_us)
                  .integer(before.acquired_us));
    if (!rows.ok()) return rows.status();
    if (rows->empty()) return false;
    wrote({epoch, rows->integer(0, 0), rows->integer(0, 1)});
    return true;
}

Status PostgresLease::release(std::uint64_t epoch) {
    const LeaseWritten mine = written(epoch);
    wrote({});
    return query("UPDATE " + row_.table +
                     " SET owner = NULL, expires_at = NULL, backend_pid = NULL, "
                     "backend_start = NULL WHERE source = $1 AND epoch = $2 AND $3 IN (0, " +
                     std::string(kAcquiredUs) + ")",
                 Params()
                     .text(row_.source)
                     .integer(static_cast<std::int64_t>(epoch))
                     .integer(mine.acquired_us))
        .status();
}

// Those that are gone without a word go with the next.
Status PostgresLease::stand_by(const std::string& owner, std::span<const std::string> routes) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    Status old =
        (*connection)
            ->query("DELETE FROM " + row_.side +
                        "outbox_standbys WHERE source = $1 AND (owner = $2 AND $3::boolean OR "
                        "seen_at < clock_timestamp() - interval '1 hour')",
                    Params().text(row_.source).text(owner).text(routes.empty() ? "true" : "false"))
            .status();
    if (!old.ok() || routes.empty()) return old;
    std::string names;
    for (const std::string& route : routes) names += (names.empty() ? "" : "\n") + route;
    return (*connection)
        ->query("INSERT INTO " + row_.side +
                    "outbox_standbys (source, owner, routes) VALUES ($1, $2, $3) ON CONFLICT "
                    "(source, owner) DO UPDATE SET routes = excluded.routes, seen_at = "
                    "clock_timestamp()",
                Params().text(row_.source).text(owner).text(names))
        .status();
}

}  // namespace outbox::postgres
