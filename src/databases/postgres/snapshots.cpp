#include "databases/postgres/snapshots.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

// "xmin:xmax:xid,xid,… own": all below xmin have ended, and all below xmax that are not named. Who
// is open may have a number from xmax on, which is that behind the last that ended; the look's own
// number was given as it ran.
struct Look {
    std::uint64_t oldest = 0;
    std::uint64_t end = 0;
    std::vector<std::uint32_t> open;
    std::uint64_t own = 0;
};

std::uint64_t take_number(std::string_view& text) {
    std::uint64_t number = 0;
    const char* last = text.data() + text.size();
    const char* end = std::from_chars(text.data(), last, number).ptr;
    const auto used = static_cast<std::size_t>(end - text.data()) + 1;  // with what divides
    text.remove_prefix(std::min(text.size(), used));
    return number;
}

Look parse(std::string_view text) {
    Look look;
    const auto space = std::min(text.find(' '), text.size());
    std::string_view own = text.substr(std::min(space + 1, text.size()));
    look.own = take_number(own);
    text = text.substr(0, space);
    look.oldest = take_number(text);
    look.end = take_number(text);
    while (!text.empty()) look.open.push_back(static_cast<std::uint32_t>(take_number(text)));
    return look;
}

}  // namespace

core::Frontier::Writers Snapshots::looked(std::string_view look, std::int64_t now_us) {
    Look now = parse(look);
    const std::uint64_t ended = std::max(now.oldest, none_writes_before_);
    if (open_ && ended >= open_->end) open_.reset();
    if (!open_ && ended < now.end) open_ = Open{now.end, std::move(now.open), now_us + kLongUs};
    return {now.own + 1, ended};
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
