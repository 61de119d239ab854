#include "databases/sqlite/source/identity.h"

#include <algorithm>
#include <utility>

#include "core/sql_text.h"
#include "databases/sqlite/source/route_ledgers.h"

namespace outbox::sqlite {

Identity::Identity(const std::string& source)
    : sql_(
          "SELECT epoch, coalesce(expires_at, 0), owner IS NOT NULL, coalesce(acquired_at, 0) "
          "FROM outbox_lease WHERE source = " +
          quote_literal(source)) {}

void Identity::lease_wanted(std::int64_t expires_us) {
    const core::Lock lock(mutex_);
    if (expires_us >= lease_.expires_us) return;
    lease_.expires_us = expires_us;
    ++times_lowered_;
}

std::uint64_t Identity::times_lowered() const {
    const core::Lock lock(mutex_);
    return times_lowered_;
}

void Identity::lease_written(const LeaseWritten& lease) {
    const core::Lock lock(mutex_);
    lease_ = lease;
}

LeaseWritten Identity::lease() const {
    const core::Lock lock(mutex_);
    return lease_;
}

Status Identity::changed() const {
    const core::Lock lock(mutex_);
    return changed_;
}

Status Identity::note_changed(ErrorInfo error) const {
    const core::Lock lock(mutex_);
    changed_ = std::move(error);
    return changed_;
}

Status Identity::check(Database& database) const {
    if (Status before = changed(); !before.ok()) return before;
    const std::uint64_t lowered = times_lowered();
    const LeaseWritten before = lease();
    if (before.epoch == 0) return {};
    LeaseWritten now;
    bool held = false;
    {
        Statement row(database, sql_);
        if (row.step()) {
            now = {static_cast<std::uint64_t>(row.integer(0)), row.integer(1), row.integer(3)};
            held = row.integer(2) != 0;
        }
        if (Status status = row.status(); !status.ok()) return status;
    }
    const bool same = now.epoch == before.epoch;
    if (now.epoch > before.epoch || (same && held && now.acquired_us != before.acquired_us)) {
        return {ErrorCode::kLeaseLost, Advice::kStop,
                "another relay holds the lease, with epoch " + std::to_string(now.epoch)};
    }
    if (same && now.expires_us >= before.expires_us) return {};
    // Renewed for less as this looked: the clock was set back.
    if (times_lowered() != lowered) return check(database);
    return note_changed({ErrorCode::kServerChanged, Advice::kStop, "",
                         "the lease is as it was before this relay renewed it: an older state of "
                         "the file was restored"});
}

void Identity::begin_term() {
    reached_.store(0, std::memory_order_relaxed);
    const core::Lock lock(mutex_);
    changed_ = {};
}

void Identity::reached(spi::Position position) {
    spi::Position before = reached_.load(std::memory_order_relaxed);
    while (before < position &&
           !reached_.compare_exchange_weak(before, position, std::memory_order_relaxed)) {
    }
}

Status Identity::check_given(const Table& table, spi::Position given, spi::Position reached) const {
    if (given >= reached) return {};
    return note_changed({ErrorCode::kServerChanged, Advice::kStop, "",
                         "table " + table.name + " in " + table.path +
                             " has given positions up to " + std::to_string(given) +
                             " and had reached " + std::to_string(reached) +
                             ": an older state was restored, or the table began anew"});
}

Status Identity::check_given(const Table& table, Database& database) const {
    const spi::Position reached = highest_reached();
    if (reached == 0) return {};
    const auto given = last_position(database, table.name);
    return given.ok() ? check_given(table, *given, reached) : given.status();
}

}  // namespace outbox::sqlite
