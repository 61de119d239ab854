#include "databases/sqlite/source/identity.h"

#include <algorithm>
#include <utility>

#include "core/sql_text.h"
#include "databases/sqlite/source/route_ledgers.h"

namespace outbox::sqlite {

namespace {

std::string look_at(const Table& table) {
    std::string sql =
        "SELECT epoch, coalesce(expires_at, 0), owner IS NOT NULL, coalesce(acquired_at, 0)";
    if (table.native) {
        sql += ", (SELECT id FROM " + table.sql + " WHERE position = ?1), EXISTS (SELECT 1 FROM " +
               table.sql + " WHERE position = ?2)";
    }
    return sql + " FROM outbox_lease WHERE source = " + quote_literal(table.source);
}

}  // namespace

Identity::Identity(const Table& table) : has_positions_(table.native), sql_(look_at(table)) {}

void Identity::lease_wanted(std::int64_t expires_us) {
    const core::Lock lock(mutex_);
    if (expires_us >= done_.lease.expires_us) return;
    done_.lease.expires_us = expires_us;
    ++done_.times_lowered;
}

void Identity::lease_written(const LeaseWritten& lease) {
    const core::Lock lock(mutex_);
    done_.lease = lease;
}

Identity::Done Identity::done() const {
    const core::Lock lock(mutex_);
    return done_;
}

void Identity::has_read(spi::Position position, std::string_view id) {
    const core::Lock lock(mutex_);
    if (position <= done_.read) return;
    done_.read = position;
    done_.read_id = id;
}

void Identity::has_removed(spi::Position position) {
    const core::Lock lock(mutex_);
    done_.removed = position;
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
    const Done done = this->done();
    const LeaseWritten& before = done.lease;
    if (before.epoch == 0) return {};
    LeaseWritten now;
    bool held = false;
    bool others = false;
    {
        Statement row(database, sql_);
        if (has_positions_) row.bind(done.read).bind(done.removed);
        if (row.step()) {
            now = {static_cast<std::uint64_t>(row.integer(0)), row.integer(1), row.integer(3)};
            held = row.integer(2) != 0;
            if (has_positions_) {
                const std::string_view id = row.text(4);  // None: the row is gone.
                others = (done.read > 0 && id.data() != nullptr && id != done.read_id) ||
                         (done.removed > 0 && row.integer(5) != 0);
            }
        }
        if (Status status = row.status(); !status.ok()) return status;
    }
    const bool same = now.epoch == before.epoch;
    if (now.epoch > before.epoch || (same && held && now.acquired_us != before.acquired_us)) {
        return {ErrorCode::kLeaseLost, Advice::kStop,
                "another relay holds the lease, with epoch " + std::to_string(now.epoch)};
    }
    if (others) {
        return note_changed({ErrorCode::kServerChanged, Advice::kStop, "",
                             "where a row was that this relay read last, or had removed, there is "
                             "another one: an older state of the file was restored"});
    }
    if (same && now.expires_us >= before.expires_us) return {};
    // Renewed for less as this looked: the clock was set back.
    if (this->done().times_lowered != done.times_lowered) return check(database);
    return note_changed({ErrorCode::kServerChanged, Advice::kStop, "",
                         "the lease is as it was before this relay renewed it: an older state of "
                         "the file was restored"});
}

void Identity::begin_term() {
    reached_.store(0, std::memory_order_relaxed);
    const core::Lock lock(mutex_);
    done_.read = 0;
    done_.removed = 0;
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
