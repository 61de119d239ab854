#include "databases/sqlite/source/lease.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

namespace outbox::sqlite {
namespace {

constexpr int kMaxWaitMs = 2'000;  // A longer wait would outlast the lease.

// In a state that was restored another owner may have the same epoch.
constexpr const char* kMine = "source = ?1 AND epoch = ?2 AND ?3 IN (0, acquired_at)";

// One file for each source, by whatever path the database is reached; the plain table has the plain
// name.
std::string lock_path(const std::string& database, const std::string& source) {
    constexpr std::size_t kMostName = 255;
    std::string plain = real_path(database) + "-outbox-lease";
    if (source == "outbox_events") return plain;
    std::string path = plain + '-';
    for (const char c : source) {
        const auto byte = static_cast<unsigned char>(c);
        if (std::isalnum(byte) != 0 || c == '_') {
            path += c;
        } else {
            constexpr const char* kDigits = "0123456789abcdef";
            path.append("%").append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 0xfU]);
        }
    }
    if (path.size() - path.rfind('/') - 1 <= kMostName) return path;
    const XXH128_hash_t digest = XXH3_128bits(source.data(), source.size());
    char name[2 * sizeof digest + 1];
    std::snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64, std::uint64_t{digest.high64},
                  std::uint64_t{digest.low64});
    return plain + "-%%" + name;
}

std::int64_t microseconds(std::chrono::milliseconds ttl) {
    return std::chrono::duration_cast<std::chrono::microseconds>(ttl).count();
}

void bind_mine(Statement& statement, const std::string& source, const LeaseWritten& mine) {
    statement.bind(source).bind(static_cast<std::int64_t>(mine.epoch)).bind(mine.acquired_us);
}

}  // namespace

// Shared, so that two who look do not see each other; a relay that starts just now tries again.
bool owner_is_gone(const std::string& database, const std::string& source) {
    const int file = open(lock_path(database, source).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    const bool free = flock(file, LOCK_SH | LOCK_NB) == 0;
    close(file);
    return free;
}

// No sync at each renewal: after a power failure an older epoch is as good, its owner died, too.
SqliteLease::SqliteLease(const Table& table, Identity& identity)
    : SqliteLease(table.path, table.busy_timeout_ms, table.source, "outbox_lease", &identity) {}

SqliteLease::SqliteLease(const std::string& path, int busy_timeout_ms, std::string source,
                         std::string lease_table, Identity* identity)
    : source_(std::move(source)),
      table_(std::move(lease_table)),
      path_(path),
      identity_(identity),
      session_(path, std::min(busy_timeout_ms, kMaxWaitMs),
               [](Database& database) { return database.execute("PRAGMA synchronous = NORMAL"); }) {
}

SqliteLease::~SqliteLease() {
    unlock_file();
}

// Tries; `file_` tells whether it is ours.
Status SqliteLease::lock_file() {
    const std::string path = lock_path(path_, source_);
    const bool away = access(path_.c_str(), F_OK) != 0;
    if (file_ >= 0 && (away || path == lock_path_)) return {};
    // The path may lead elsewhere now.
    unlock_file();
    lock_path_ = path;
    // No link: whoever may write the folder could have the relay make a file elsewhere.
    const int file = open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 && errno == ENOENT) {
        return {ErrorCode::kConnectFailed, Advice::kRetryDestination,
                "the folder of " + lock_path_ + " is away; is its volume there?"};
    }
    if (file < 0) {
        return {ErrorCode::kNoRights, Advice::kStop,
                "cannot open the lease's lock file " + lock_path_ + ": " + std::strerror(errno) +
                    ". The user needs write access to the database's folder."};
    }
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        close(file);
        return {};
    }
    file_ = file;
    return {};
}

void SqliteLease::unlock_file() {
    if (file_ >= 0) close(file_);
    file_ = -1;
}

// Of an epoch that was taken through another one of these no more is known.
LeaseWritten SqliteLease::written(std::uint64_t epoch) const {
    return written_.epoch == epoch ? written_ : LeaseWritten{.epoch = epoch};
}

void SqliteLease::wrote(const LeaseWritten& lease) {
    written_ = lease;
    if (identity_ != nullptr) identity_->lease_written(lease);
}

Result<bool> SqliteLease::held_by_another(Database& database) const {
    Statement row(database,
                  "SELECT owner IS NOT NULL AND expires_at > ? AND (NOT locked OR NOT ?) "
                  "FROM " +
                      table_ + " WHERE source = ?");
    row.bind(now_us()).bind(static_cast<std::int64_t>(file_ >= 0)).bind(source_);
    const bool held = row.step() && row.integer(0) != 0;
    if (Status status = row.status(); !status.ok()) return status;
    return held;
}

Result<std::optional<std::uint64_t>> SqliteLease::acquire(const std::string& owner,
                                                          std::chrono::milliseconds ttl) {
    if (Status status = lock_file(); !status.ok()) return status;
    const Result<Database*> database = session_.get();
    if (!database.ok()) {
        unlock_file();
        return database.error();
    }
    // A look first: the waiting relay must not keep the owner from writing.
    const Result<bool> held = held_by_another(**database);
    if (held.ok() && !*held) {
        auto epoch = take(**database, owner, ttl);
        if (epoch.ok() && epoch->has_value()) return epoch;
        if (!epoch.ok()) session_.drop();
        unlock_file();
        return epoch;
    }
    unlock_file();  // For the owner, who may be without it.
    if (held.ok()) return std::optional<std::uint64_t>();
    session_.drop();
    return held.error();
}

Result<std::optional<std::uint64_t>> SqliteLease::take(Database& database, const std::string& owner,
                                                       std::chrono::milliseconds ttl) {
    WriteTransaction transaction(database);
    if (Status status = transaction.begin(); !status.ok()) return status;
    const Result<bool> held = held_by_another(database);
    if (!held.ok()) return held.error();
    if (*held) return std::optional<std::uint64_t>();
    Statement take(
        database,
        "INSERT INTO " + table_ +
            " AS l (source, owner, epoch, acquired_at, expires_at, "
            "locked) VALUES (?1, ?2, 1, ?3, ?3 + ?4, ?5) ON CONFLICT (source) DO UPDATE SET "
            "owner = excluded.owner, epoch = l.epoch + 1, acquired_at = "
            "excluded.acquired_at, expires_at = excluded.expires_at, locked = "
            "excluded.locked RETURNING epoch");
    const std::int64_t now = now_us();
    take.bind(source_).bind(owner).bind(now).bind(microseconds(ttl));
    take.bind(static_cast<std::int64_t>(file_ >= 0));
    std::uint64_t epoch = 0;
    if (take.step()) epoch = static_cast<std::uint64_t>(take.integer(0));
    if (Status status = take.run(); !status.ok()) return status;
    if (Status status = transaction.commit(); !status.ok()) return status;
    wrote({epoch, now + microseconds(ttl), now});
    return std::optional(epoch);
}

// A row that is older than what was written last is one of a state that was restored.
Result<bool> SqliteLease::renew(std::uint64_t epoch, std::chrono::milliseconds ttl) {
    // An owner that took over from a hung relay gets the flock when that one is gone.
    if (Status status = lock_file(); !status.ok()) return status;
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.error();
    Statement renew(**database, "UPDATE " + table_ + " SET expires_at = ?4, locked = ?5 WHERE " +
                                    kMine +
                                    " AND owner IS NOT NULL AND expires_at >= ?6 "
                                    "RETURNING acquired_at");
    const LeaseWritten before = written(epoch);
    LeaseWritten now{epoch, now_us() + microseconds(ttl)};
    if (written_.epoch == epoch && identity_ != nullptr) identity_->lease_wanted(now.expires_us);
    bind_mine(renew, source_, before);
    renew.bind(now.expires_us).bind(static_cast<std::int64_t>(file_ >= 0)).bind(before.expires_us);
    const bool kept = renew.step();
    if (kept) now.acquired_us = renew.integer(0);
    if (Status status = renew.run(); !status.ok()) return status;
    if (kept) {
        wrote(now);
    } else {
        unlock_file();
    }
    return kept;
}

Status SqliteLease::release(std::uint64_t epoch) {
    const LeaseWritten mine = written(epoch);
    wrote({});
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Statement release(
        **database,
        "UPDATE " + table_ + " SET owner = NULL, expires_at = NULL, locked = 0 WHERE " + kMine);
    bind_mine(release, source_, mine);
    Status status = release.run();
    unlock_file();
    return status;
}

// Those that are gone without a word go with the next.
Status SqliteLease::stand_by(const std::string& owner, std::span<const std::string> routes) {
    constexpr std::int64_t kGoneUs = 3'600'000'000;
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Statement old(**database,
                  "DELETE FROM outbox_standbys WHERE source = ? AND (owner = ? AND ? OR seen_at < "
                  "?)");
    old.bind(source_).bind(owner).bind(static_cast<std::int64_t>(routes.empty()));
    if (Status status = old.bind(now_us() - kGoneUs).run(); !status.ok()) return status;
    if (routes.empty()) return {};
    std::string names;
    for (const std::string& route : routes) names += (names.empty() ? "" : "\n") + route;
    Statement upsert(**database,
                     "INSERT INTO outbox_standbys (source, owner, routes, seen_at) VALUES (?, ?, "
                     "?, ?) ON CONFLICT (source, owner) DO UPDATE SET routes = excluded.routes, "
                     "seen_at = excluded.seen_at");
    return upsert.bind(source_).bind(owner).bind(names).bind(now_us()).run();
}

}  // namespace outbox::sqlite
