#include "databases/postgres/snapshots.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

// "xmin:xmax:xid,xid,…": all below xmin have ended, none from xmax on had begun.
struct Snapshot {
    std::uint64_t oldest = 0;
    std::uint64_t end = 0;
    std::vector<std::uint32_t> open;
};

std::uint64_t take_number(std::string_view& text) {
    std::uint64_t number = 0;
    const char* last = text.data() + text.size();
    const char* end = std::from_chars(text.data(), last, number).ptr;
    const auto used = static_cast<std::size_t>(end - text.data()) + 1;  // with what divides
    text.remove_prefix(std::min(text.size(), used));
    return number;
}

Snapshot parse(std::string_view text) {
    Snapshot snapshot;
    snapshot.oldest = take_number(text);
    snapshot.end = take_number(text);
    while (!text.empty()) {
        snapshot.open.push_back(static_cast<std::uint32_t>(take_number(text)));
    }
    return snapshot;
}

}  // namespace

core::Frontier::Writers Snapshots::looked(std::string_view snapshot, std::int64_t now_us) {
    Snapshot now = parse(snapshot);
    const std::uint64_t ended = std::max(now.oldest, none_writes_before_);
    if (open_ && ended >= open_->end) open_.reset();
    if (!open_ && ended < now.end) open_ = Open{now.end, std::move(now.open), now_us + kLongUs};
    return {now.end, ended};
}

const std::vector<std::uint32_t>* Snapshots::long_open(std::int64_t now_us) const {
    return open_ && now_us >= open_->ask_at_us ? &open_->transactions : nullptr;
}

void Snapshots::answered(bool any_writes, std::int64_t now_us) {
    if (!any_writes) none_writes_before_ = open_->end;
    open_->ask_at_us = now_us + kLongUs;
}

std::string any_writes_sql(const std::string& table) {
    return "SELECT EXISTS (SELECT FROM pg_locks x JOIN pg_locks w USING (virtualtransaction) "
           "WHERE x.locktype = 'transactionid' AND x.transactionid = ANY ($1::xid[]) AND x.granted "
           "AND w.locktype = 'relation' AND w.relation = " +
           quote_literal(table) +
           "::regclass AND w.database = (SELECT oid FROM pg_database "
           "WHERE datname = current_database()) AND w.mode = 'RowExclusiveLock')";
}

}  // namespace outbox::postgres
