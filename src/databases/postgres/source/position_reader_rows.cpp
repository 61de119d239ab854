#include <algorithm>
#include <array>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/arrays.h"
#include "databases/postgres/source/position_reader.h"

// The statements of a reader, and what one of them brings.
namespace outbox::postgres {
namespace {

constexpr std::size_t kUnreadRanges = 1'000;  // of what is not finished, in one statement
constexpr std::size_t kSkimRanges = 20'000;
constexpr std::size_t kFewSkimRows = 1'000;
constexpr std::uint32_t kMostReadsUnskimmed = 64;
constexpr std::size_t kFewHoles = 100;  // cost nothing to look at
// Numbers that are not used are few: a longer stretch of them is looked into.
constexpr spi::Position kJump = 10'000;

constexpr const char* kNewRows = "outbox_new_rows";
constexpr const char* kRowsAndHoles = "outbox_rows_and_holes";
constexpr const char* kSkim = "outbox_skim";
constexpr const char* kFetch = "outbox_fetch";

}  // namespace

std::string PositionReader::rows_sql(const std::string& select, const std::string& mark,
                                     const std::string& limit, const std::string& holes) const {
    const std::string position = "t." + quote_identifier(table_.position);
    const std::string tail = " ORDER BY " + in_order_ + " LIMIT " + limit;
    const std::string above = " FROM " + table_.sql + " t WHERE " + position + " > " + mark + tail;
    if (holes.empty()) return "SELECT " + select + above;
    return "SELECT " + select + " FROM ((SELECT t.* FROM " + holes +
           " AS h (low, high), LATERAL (SELECT t.* FROM " + table_.sql + " t WHERE " + position +
           " BETWEEN h.low AND h.high" + tail + ") t) UNION ALL (SELECT t.*" + above + ")) t" +
           tail;
}

Status PositionReader::prepare(Connection& connection) {
    mark_.forget_writers();
    identity_.reached(top_);
    if (Status same = identity_.check(connection); !same.ok()) return same;
    const std::string rows = "(" + quote_literal(table_.sql) + ", 'SELECT')";
    if (Status all = connection.require_all_rows(rows); !all.ok()) return all;
    if (Status asked = identity_.prepare(connection); !asked.ok()) return asked;
    const std::string position = "t." + quote_identifier(table_.position);
    // What is read while little comes: a question beside each read would cost it a round trip.
    const std::string select = select_ + ", " + identity_.seen_sql();
    Params types;
    types.integer(0).integer(0);
    Status status = connection.prepare(kNewRows, rows_sql(select, "$1", "$2", ""), types);
    if (!status.ok()) return status;
    types.integers({}).integers({});
    status = connection.prepare(
        kRowsAndHoles, rows_sql(select, "$1", "$2", "unnest($3::bigint[], $4::bigint[])"), types);
    if (!status.ok()) return status;
    types = Params().integers({}).integers({});
    status = connection.prepare(kSkim,
                                "SELECT " + position + "::bigint, (" + own_ +
                                    ")::int::bigint FROM unnest($1::bigint[], $2::bigint[]) WITH "
                                    "ORDINALITY AS h (low, high, n), "
                                    "LATERAL (SELECT t.* FROM " +
                                    table_.sql + " t WHERE " + position +
                                    " BETWEEN h.low AND h.high) t ORDER BY h.n, " + in_order_ +
                                    " LIMIT " + std::to_string(kSkimRows),
                                types);
    if (!status.ok()) return status;
    return connection.prepare(kFetch,
                              "SELECT " + select_ + " FROM " + table_.sql + " t WHERE " + position +
                                  " = ANY($1) ORDER BY " + in_order_,
                              Params().integers({}));
}

// A relay that starts while another route lags finds that route's rows between what this one has
// not finished: rows of other tenants and numbers that were rolled back, a range for each, and few
// rows to be sent. Only whose they are is looked at, in one statement for many ranges, and what is
// to be sent is fetched: nobody else takes it away. False: few ranges are left, to be read at once.
Result<bool> PositionReader::skim(Connection& connection, const spi::ReadLimits& limits,
                                  spi::EventBatch& out) {
    if (!mark_.may_advance()) return false;
    if (reads_unskimmed_ > 0) {
        --reads_unskimmed_;
        return false;
    }
    ranges_.clear();
    mark_.append_holes(false, ranges_);
    const std::size_t holes = ranges_.size();
    covered_ = mark_.append_unread(kSkimRanges, ranges_);
    if (ranges_.size() - holes <= kUnreadRanges) return false;
    if (covered_ == core::ReadMark::kEverything) {
        ranges_.pop_back();
        covered_ = ranges_.back().last;
    }
    set_bounds(ranges_);
    params_.clear();
    Status status = connection.start_prepared(kSkim, params_.integers(lows_).integers(highs_));
    std::array<Field, 2> found;
    own_positions_.clear();
    while (status.ok() && connection.next(found, status)) {
        const spi::Position position = decode_integer(found[0]);
        seen_.push_back(position);
        if (decode_integer(found[1]) != 0) {
            own_positions_.push_back(position);
        } else {
            closed_now_.push_back({position, position});
        }
        if (out.size() + own_positions_.size() < limits.max_events && seen_.size() < kSkimRows) {
            continue;
        }
        covered_ = position;
        connection.stop();
        break;
    }
    // Where rows to be sent are many, looking ahead gains nothing.
    if (covered_ > ranges_[holes + kUnreadRanges].last) {
        skim_again_after_ = 1;
    } else {
        reads_unskimmed_ = skim_again_after_;
        skim_again_after_ = std::min(2 * skim_again_after_, kMostReadsUnskimmed);
    }
    if (status.ok()) status = take_own(limits, out);
    if (!status.ok()) return status.error();
    return true;
}

// What was looked at and is to be sent: as many rows at once as fit.
Status PositionReader::take_own(const spi::ReadLimits& limits, spi::EventBatch& out) {
    Status status;
    for (std::size_t next = 0; status.ok() && next < own_positions_.size();) {
        const std::size_t events_before = out.size();
        const std::size_t bytes_before = out.bytes();
        const auto left = std::span<const spi::Position>(own_positions_).subspan(next);
        const auto some = left.first(row_size_.limit(
            left.size(), limits.max_bytes - std::min(limits.max_bytes, bytes_before)));
        next += some.size();
        status = take_own(some, limits, out);
        row_size_.note(out.size() - events_before, out.bytes() - bytes_before);
    }
    return status;
}

Status PositionReader::take_own(std::span<const spi::Position> some, const spi::ReadLimits& limits,
                                spi::EventBatch& out) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    params_.clear();
    Status status = (*connection)->start_prepared(kFetch, params_.integers(some));
    std::size_t next = 0;
    // Somebody removed them since: nothing is left to publish.
    const auto removed_before = [&](spi::Position position) {
        for (; next < some.size() && some[next] < position; ++next) {
            closed_now_.push_back({some[next], some[next]});
        }
    };
    while (status.ok() && (*connection)->next(row_, status)) {
        const spi::Position position = decode_integer(row_[0]);
        removed_before(position);
        if (next == some.size() || some[next] != position) continue;  // twice
        ++next;
        status = take_row(position, out);
        if (!status.ok() || out.bytes() < limits.max_bytes) continue;
        covered_ = position;
        (*connection)->stop();
        forget_above(position);
        return {};
    }
    if (status.ok()) removed_before(core::ReadMark::kEverything);
    return status;
}

// They are as if the statement had not returned them.
void PositionReader::forget_above(spi::Position position) {
    const auto above = [position](spi::Position one) { return one > position; };
    std::erase_if(seen_, above);
    std::erase_if(own_positions_, above);
    for (spi::EventBatch::Aside& aside : aside_now_) std::erase_if(aside.positions, above);
    std::erase_if(closed_now_, [position](const auto& range) { return range.first > position; });
}

// A transaction of many rows that ran long leaves a hole between any two of others, and fills all
// of them at once. The server looks into every range of a statement before it returns the first
// row: into as many as hold what one read takes, or each read of them costs as much as all. What
// lies behind comes with the next; an earlier hole is never left out.
bool PositionReader::bound_holes(std::size_t rows) {
    if (!holes_fill_ || ranges_.size() <= kFewHoles) return false;
    std::size_t positions = 0;
    for (std::size_t i = 0; i + 1 < ranges_.size(); ++i) {
        positions += static_cast<std::size_t>(ranges_[i].last - ranges_[i].first) + 1;
        if (positions < rows) continue;
        ranges_.resize(i + 1);
        return true;
    }
    return false;
}

// Behind a burst of a tenant that may send no more now the events of others wait: whose a row is
// costs a quarter of the row.
std::string PositionReader::skim_list(std::span<const std::string> tenants) const {
    std::string names;
    for (const std::string& tenant : tenants) {
        names += (names.empty() ? "" : ", ") + quote_literal(tenant);
    }
    return "t." + quote_identifier(table_.position) + "::bigint, (CASE WHEN " + own_ +
           " THEN COALESCE(array_position(ARRAY[" + names + "]::text[], " + tenant_ +
           " COLLATE \"C\"), 0) ELSE -1 END)::bigint";
}

Status PositionReader::start(Connection& connection, std::size_t limit, bool all_holes,
                             std::span<const std::string> aside) {
    ranges_.clear();
    mark_.append_holes(all_holes, ranges_);
    covered_ = core::ReadMark::kEverything;
    std::int64_t above = core::ReadMark::kEverything;
    bounded_ = !all_holes && bound_holes(limit);
    // With too many holes only the holes are read, until some are closed or filled.
    if (bounded_) {
        covered_ = ranges_.back().last;
    } else if (mark_.may_advance()) {
        covered_ = mark_.append_unread(kUnreadRanges, ranges_);
        if (covered_ == core::ReadMark::kEverything) {
            above = ranges_.back().first - 1;
            ranges_.pop_back();
        }
    } else {
        covered_ = mark_.mark();
    }
    set_bounds(ranges_);
    tells_table_ = false;
    const auto rows = static_cast<std::int64_t>(limit);
    if (!aside.empty() || (full_ && limit >= kCopyFromRows)) {
        return connection.start_copy(rows_sql(
            aside.empty() ? select_ : skim_list(aside), std::to_string(above), std::to_string(rows),
            lows_.empty() ? ""
                          : "unnest(" + quote_literal(array_literal(lows_)) + "::bigint[], " +
                                quote_literal(array_literal(highs_)) + "::bigint[])"));
    }
    params_.clear();
    params_.integer(above).integer(rows);
    tells_table_ = true;
    reached_before_ = identity_.highest_reached();
    if (lows_.empty()) return connection.start_prepared(kNewRows, params_);
    params_.integers(lows_).integers(highs_);
    return connection.start_prepared(kRowsAndHoles, params_);
}

// What is in `row_`.
Status PositionReader::take_row(spi::Position position, spi::EventBatch& out) {
    if (row_[1].data != nullptr) return decode_row(row_, layout_, position, out);
    if (!table_.has("tenant_id")) {
        return {
            ErrorCode::kTableShape, Advice::kStop,
            "the row at position " + std::to_string(position) + " of " + table_.sql + " has no id"};
    }
    closed_now_.push_back({position, position});  // another tenant's
    return {};
}

// False: the row before had the same position.
Result<bool> PositionReader::sees(spi::Position position) {
    if (table_.keep && !seen_.empty() && position == seen_.back()) {
        identity_.stands_twice(position);
        return false;
    }
    if (position < 1 || (!seen_.empty() && position <= seen_.back())) {
        return ErrorInfo{ErrorCode::kTableShape,
                         Advice::kStop,
                         {},
                         "table " + table_.sql + " holds position " + std::to_string(position) +
                             " after " + std::to_string(seen_.empty() ? 0 : seen_.back()) +
                             "; positions must be positive and unique"};
    }
    seen_.push_back(position);
    return true;
}

// Rows of `skim_list`. `cut`: those that are to be sent reached max_events before they ended.
Status PositionReader::take_positions(Connection& connection, const spi::ReadLimits& limits,
                                      std::size_t events, bool& cut) {
    for (const std::string& tenant : limits.aside) aside_now_.push_back({tenant, {}});
    own_positions_.clear();
    Status status;
    std::array<Field, 2> found;
    while (connection.next(found, status)) {
        const spi::Position position = decode_integer(found[0]);
        const Result<bool> fresh = sees(position);
        if (!fresh.ok()) return fresh.status();
        if (!*fresh) continue;
        const std::int64_t whose = decode_integer(found[1]);
        if (whose > 0) {
            aside_now_[static_cast<std::size_t>(whose) - 1].positions.push_back(position);
        } else if (whose < 0) {
            closed_now_.push_back({position, position});  // another relay's tenant's
        } else {
            own_positions_.push_back(position);
            if (events + own_positions_.size() < limits.max_events) continue;
            cut = true;
            connection.stop();
            return {};
        }
    }
    return status;
}

// `cut`: the rows reached max_bytes before they ended.
Status PositionReader::take_rows(Connection& connection, const spi::ReadLimits& limits,
                                 spi::EventBatch& out, bool& cut) {
    Status status;
    const std::span<Field> columns = tells_table_ ? std::span(fields_) : row_;
    while (connection.next(columns, status)) {
        if (tells_table_ && !checked_) {
            const Field& seen = fields_.back();
            if (Status same = identity_.check_seen({seen.data, seen.size}, reached_before_);
                !same.ok()) {
                return same;
            }
            checked_ = true;
        }
        const spi::Position position = decode_integer(row_[0]);
        const Result<bool> fresh = sees(position);
        if (!fresh.ok()) return fresh.status();
        if (!*fresh) continue;
        if (Status taken = take_row(position, out); !taken.ok()) return taken;
        if (out.bytes() >= limits.max_bytes) {
            cut = true;
            connection.stop();
            return {};
        }
    }
    return status;
}

// A row far beyond what the sequence has given was numbered by hand (OVERRIDING SYSTEM VALUE). It
// is not read: all between would pass for holes, and the sequence for one that began anew.
Result<bool> PositionReader::is_numbered(spi::Position position) {
    if (position > numbered_to_) {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        const auto last = identity_.last_position(**connection);
        if (!last.ok()) return last.status();
        numbered_to_ = *last;
    }
    return position <= numbered_to_;
}

Status PositionReader::leave_out_unnumbered(std::size_t events_before, spi::EventBatch& out,
                                            bool& cut) {
    spi::Position before = mark_.mark();
    const auto jumps = [&before](spi::Position position) {
        return position - std::exchange(before, std::max(before, position)) > kJump;
    };
    const auto far = std::find_if(seen_.begin(), seen_.end(), jumps);
    if (far == seen_.end()) return {};
    const auto numbered = is_numbered(seen_.back());
    if (!numbered.ok()) return numbered.status();
    if (*numbered) return {};
    const auto left_out = std::find_if(
        far, seen_.end(), [this](spi::Position position) { return position > numbered_to_; });
    const spi::Position first = *left_out;
    forget_above(first - 1);
    auto& events = out.events();
    while (events.size() > events_before && events.back().position >= first) events.pop_back();
    full_ = cut = false;
    return {};
}

Result<bool> PositionReader::saw(spi::Position position) {
    if (position - mark_.mark() > kJump) {
        const auto numbered = is_numbered(position);
        if (!numbered.ok() || !*numbered) return numbered;
    }
    top_ = std::max(top_, position);
    return mark_.saw(position);
}

// One statement; what it returned is in `out`, `seen_` and `closed_now_`.
Status PositionReader::read_rows(const spi::ReadLimits& limits, bool all_holes,
                                 spi::EventBatch& out, bool& complete) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    const std::size_t events_before = out.size();
    const std::size_t bytes_before = out.bytes();
    // Where the last statement ended before its rows did.
    const auto aside = full_ && !all_holes ? limits.aside : std::span<const std::string>();
    const std::size_t limit =
        !aside.empty()
            ? skim_rows_
            : row_size_.limit(limits.max_events - std::min(limits.max_events, events_before),
                              limits.max_bytes - std::min(limits.max_bytes, bytes_before));
    seen_.clear();
    closed_now_.clear();
    aside_now_.clear();
    bool cut = false;
    checked_ = false;
    const Result<bool> skimmed = all_holes ? Result<bool>(false) : skim(**connection, limits, out);
    Status status = skimmed.status();
    if (status.ok() && !*skimmed) {
        status = start(**connection, limit, all_holes, aside);
        if (status.ok()) {
            status = aside.empty() ? take_rows(**connection, limits, out, cut)
                                   : take_positions(**connection, limits, events_before, cut);
        }
        full_ = seen_.size() >= limit || (!aside.empty() && cut);
        if (!aside.empty()) {
            skim_rows_ = std::clamp(2 * (cut ? seen_.size() : limit), kFewSkimRows, kSkimRows);
        }
        holes_fill_ = full_ || (bounded_ && 2 * seen_.size() >= limit);
        if (status.ok()) status = leave_out_unnumbered(events_before, out, cut);
        if (status.ok() && !aside.empty()) {
            const std::size_t looked_at = seen_.size();
            status = take_own(limits, out);
            cut = cut || seen_.size() < looked_at;
        }
    }
    // Also of what is dropped now: the next statement asks for as many as fit.
    row_size_.note(out.size() - events_before, out.bytes() - bytes_before);
    if (status.ok() && !checked_ && (!seen_.empty() || !mark_.holes().empty())) {
        status = check_read();
    }
    if (!status.ok()) {
        out.events().resize(events_before);
        return status;
    }
    if (!seen_.empty()) top_ = std::max(top_, seen_.back());
    if (!*skimmed && (full_ || cut)) covered_ = seen_.back();
    complete = !*skimmed && !full_ && !cut && !bounded_ &&
               (covered_ == core::ReadMark::kEverything || !mark_.may_advance());
    return {};
}

Status PositionReader::fetch(std::span<const spi::Position> positions, spi::EventBatch& out) {
    thread_.wait();  // for the connection
    if (!ahead_status_.ok()) session_.drop();
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    const std::size_t events_before = out.size();
    Status status = (*connection)->start_prepared(kFetch, Params().integers(positions));
    if (status.ok()) {
        spi::Position last = 0;
        while ((*connection)->next(row_, status)) {
            const spi::Position position = decode_integer(row_[0]);
            if (row_[1].data == nullptr || position == last) continue;
            last = position;
            status = decode_row(row_, layout_, position, out);
            if (!status.ok()) break;
        }
    }
    if (status.ok() && out.size() > events_before) status = identity_.check_read(**connection);
    if (status.ok()) {
        identity_.returned(out, events_before);
        return status;
    }
    out.events().resize(events_before);
    session_.drop();
    return status;
}

}  // namespace outbox::postgres
