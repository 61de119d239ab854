#include "databases/postgres/source/position_reader.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "core/sql_text.h"
#include "databases/postgres/arrays.h"

namespace outbox::postgres {
namespace {

constexpr auto kHoleSettles = std::chrono::milliseconds(2);    // most late commits come sooner
constexpr auto kWritersEvery = std::chrono::milliseconds(20);  // between two looks at pg_locks
constexpr auto kLookBelowEvery = std::chrono::seconds(1);
constexpr auto kLookAtTableEvery = std::chrono::seconds(1);
constexpr auto kSettlesWithin = std::chrono::seconds(1);  // less than an offer is held open
constexpr auto kSettleLook = std::chrono::milliseconds(1);
constexpr spi::Position kClosedKept = 256 * spi::PositionSet::kSegmentSize;
constexpr std::size_t kLookBelowRanges = 1'000;
constexpr std::int64_t kMaxLookBelow = 1'000;
constexpr std::size_t kUnreadRanges = 1'000;  // of what is not finished, in one statement
constexpr std::size_t kSkimRanges = 20'000;
constexpr std::size_t kSkimRows = 50'000;  // some 20 ms
constexpr std::size_t kFewSkimRows = 1'000;
constexpr std::uint32_t kMostReadsUnskimmed = 64;
constexpr std::size_t kFewHoles = 100;      // cost nothing to look at
constexpr std::size_t kCopyFromRows = 100;  // below, planning a COPY costs more than it saves

// Numbers that are not used are few: a longer stretch of them is looked into.
constexpr spi::Position kJump = 10'000;

constexpr const char* kNewRows = "outbox_new_rows";
constexpr const char* kRowsAndHoles = "outbox_rows_and_holes";
constexpr const char* kSkim = "outbox_skim";
constexpr const char* kFetch = "outbox_fetch";

// As `resolve_table` sees it, through one domain.
std::set<std::string> bytea_columns_of(const Table& table) {
    std::set<std::string> out;
    for (const char* field : {"payload", "headers"}) {
        if (table.has(field) && table.find(field)->type == "bytea") out.insert(table.column(field));
    }
    return out;
}

}  // namespace

RowLayout layout_of(const Table& table) {
    RowLayout layout;
    layout.uuid_id = table.uuid_id;
    layout.jsonb_payload = table.find("payload")->type == "jsonb";
    layout.jsonb_headers = table.has("headers") && table.find("headers")->type == "jsonb";
    layout.id_prefix = table.id_prefix();
    return layout;
}

PositionReader::PositionReader(const PostgresSourceConfig& config, const Table& table,
                               Identity& identity, spi::PositionSet finished)
    : table_(table),
      identity_(identity),
      select_(select_list(table, config)),
      own_(tenant_condition(table, config)),
      tenant_(tenant_name(table, config.default_tenant)),
      writers_(table),
      bytea_columns_(bytea_columns_of(table)),
      layout_(layout_of(table)),
      in_order_("t." + quote_identifier(table.position) + (table.keep ? ", t.segment" : "")),
      session_(
          config, [this](Connection& connection) { return prepare(connection); }, table.path),
      skim_rows_(kSkimRows),
      fields_((table.has_extras() ? kAllColumns : kBaseColumns) + 1),
      row_(std::span(fields_).first(fields_.size() - 1)) {
    mark_.set_finished(std::move(finished));
}

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

// Who could still fill a hole is asked rarely: most late commits come within milliseconds.
Status PositionReader::look_after_holes(Connection& connection) {
    const auto now = Clock::now();
    if (!mark_.wants_writers()) {
        holes_since_ = now;
        return {};
    }
    if (now - holes_since_ < kHoleSettles || now - writers_asked_ < kWritersEvery) return {};
    const auto writers = writers_.ask(connection);
    if (!writers.ok()) return writers.status();
    mark_.writers_now(*writers);
    writers_asked_ = now;
    return {};
}

Status PositionReader::look_at_table() {
    const auto now = Clock::now();
    if (now - looked_at_table_ < kLookAtTableEvery) return {};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    looked_at_table_ = now;
    identity_.reached(top_);
    if (Status status = identity_.check_table(**connection); !status.ok()) return status;
    return look_at_types(**connection);
}

// As text, bytea depends on a setting, and text is no bytea: they are read as they were resolved.
Status PositionReader::look_at_types(Connection& connection) {
    const Result<Rows> rows = connection.query(
        "SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE "
        "a.attrelid = $1::text::regclass AND NOT a.attisdropped AND a.attname IN ($2, $3) "
        "AND 'bytea'::regtype IN (t.oid, t.typbasetype)",
        Params().text(table_.sql).text(table_.column("payload")).text(table_.column("headers")));
    if (!rows.ok()) return rows.status();
    std::set<std::string> now;
    for (int row = 0; row < rows->size(); ++row) now.insert(rows->string(row, 0));
    if (now == bytea_columns_) return {};
    return {ErrorCode::kTableShape, Advice::kStop,
            "payload or headers of " + table_.sql +
                " became bytea, or ceased to be; start the relay again, it goes on with the new "
                "type"};
}

// The net below the proof: a row in a hole that was closed is read all the same. Each look is for a
// part of the holes alone, so that rows that are dead, or finished and not yet removed, cost
// nothing.
Status PositionReader::look_below_mark(Connection& connection) {
    const auto now = Clock::now();
    if (now - looked_below_ < kLookBelowEvery) return {};
    looked_below_ = now;
    closed_ranges_.clear();
    closed_.append_ranges({looked_below_to_ + 1, core::ReadMark::kEverything}, kLookBelowRanges,
                          closed_ranges_);
    looked_below_to_ = closed_ranges_.size() < kLookBelowRanges ? 0 : closed_ranges_.back().last;
    if (closed_ranges_.empty()) return {};
    set_bounds(closed_ranges_);
    const std::string position = "t." + quote_identifier(table_.position);
    Result<Rows> rows = connection.query(
        "SELECT " + position + " FROM unnest($1, $2) AS h (low, high), LATERAL (SELECT t.* FROM " +
            table_.sql + " t WHERE " + position + " BETWEEN h.low AND h.high ORDER BY " + position +
            " LIMIT $3) t",
        Params().integers(lows_).integers(highs_).integer(kMaxLookBelow));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        // Once: what is returned now is not looked for again while its row stays.
        if (closed_.remove(rows->integer(row, 0))) mark_.reopen(rows->integer(row, 0));
    }
    return {};
}

void PositionReader::note_closed(const std::vector<spi::PositionRange>& closed) {
    for (const spi::PositionRange& range : closed) closed_.add(range);
    if (mark_.mark() > kClosedKept) closed_.remove_segments_below(mark_.mark() - kClosedKept);
}

void PositionReader::set_bounds(const std::vector<spi::PositionRange>& ranges) {
    lows_.clear();
    highs_.clear();
    for (const spi::PositionRange& range : ranges) {
        lows_.push_back(range.first);
        highs_.push_back(range.last);
    }
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

// Before anything is concluded from what was read.
Status PositionReader::check_read() {
    const Result<Connection*> connection = session_.get();
    return connection.ok() ? identity_.check_read(**connection) : Status(connection.status());
}

Status PositionReader::read_some(const spi::ReadLimits& limits, spi::EventBatch& out) {
    const std::size_t events_before = out.size();
    const std::size_t closed_before = out.closed.size();
    Status status = read_rows(limits, false, out, at_end_);
    if (!status.ok()) return status;
    if (mark_.left_out()) {
        // Somebody may have filled a hole that was left out, and then written what was read.
        const Result<Connection*> connection = session_.get();
        const auto writers = connection.ok()
                                 ? writers_.ask(**connection)
                                 : Result<std::vector<core::Writer>>(connection.error());
        if (!writers.ok() || !mark_.writers_now(*writers)) {
            out.events().resize(events_before);
            out.closed.resize(closed_before);
            at_end_ = false;
            return writers.status();
        }
    }
    std::vector<spi::PositionRange> proved;
    mark_.read_done(seen_, covered_, proved);
    note_closed(proved);
    out.closed.insert(out.closed.end(), closed_now_.begin(), closed_now_.end());
    out.closed.insert(out.closed.end(), proved.begin(), proved.end());
    for (spi::EventBatch::Aside& aside : aside_now_) {
        if (!aside.positions.empty()) out.aside.push_back(std::move(aside));
    }
    return {};
}

// An exported snapshot shows what the log says is committed. A transaction whose commit is in the
// log and not yet in pg_xact would pass for one that was rolled back, for this read and, by a hint
// on its rows, for ever. It holds the lock on its id until it has ended.
Status PositionReader::wait_until_settled(Connection& connection) {
    const auto deadline = Clock::now() + kSettlesWithin;
    for (;;) {
        Result<Rows> rows = connection.query(
            "WITH s AS MATERIALIZED (SELECT pg_current_snapshot() AS snap, "
            "pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top), "
            // The ids of pg_locks lack their upper half.
            "alive AS MATERIALIZED (SELECT top + ((transactionid::text::bigint - top % 4294967296 "
            "+ 6442450944) % 4294967296 - 2147483648) AS id FROM pg_locks, s "
            "WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted) "
            "SELECT EXISTS (SELECT FROM alive, s WHERE "
            "pg_visible_in_snapshot(id::text::xid8, snap))");
        if (!rows.ok()) return rows.status();
        if (!rows->boolean(0, 0)) return {};
        if (Clock::now() >= deadline) {
            return {ErrorCode::kQueryFailed, Advice::kRetryDestination,
                    "transactions that have committed by the log have not ended"};
        }
        std::this_thread::sleep_for(kSettleLook);
    }
}

Status PositionReader::read_snapshot(const std::string& snapshot, const spi::ReadLimits& limits,
                                     spi::EventBatch& out, bool& complete) {
    const std::size_t events_before = out.size();
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    Status status = (*connection)
                        ->execute(
                            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
                            "SET TRANSACTION SNAPSHOT " +
                            quote_literal(snapshot));
    if (status.ok()) status = wait_until_settled(**connection);
    if (status.ok()) status = read_rows(limits, true, out, complete);
    if (status.ok()) {
        for (const spi::Position position : seen_) mark_.saw(position);
        identity_.returned(out, events_before);
        out.closed.insert(out.closed.end(), closed_now_.begin(), closed_now_.end());
        // Where a cut has ended the transaction with its connection, the one since has none.
        const Result<Connection*> last = session_.get();
        if (last.ok() && (*last)->execute("COMMIT").ok()) return status;
    }
    // What was read stays read; a new connection has no transaction open.
    session_.drop();
    return status;
}

Status PositionReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    const std::size_t events_before = out.size();
    const auto has_more = [&, closed = out.closed.size(), aside = out.aside.size()] {
        return out.size() > events_before || out.closed.size() > closed || out.aside.size() > aside;
    };
    Status status = take_ahead(limits, out);
    // Nothing is read past what is read ahead, also where `out` had no room for it.
    if (status.ok() && !has_ahead_ && out.size() == events_before && out.aside.empty()) {
        status = read_now(limits, out);
    }
    if (!status.ok()) session_.drop();
    identity_.returned(out, events_before);
    told_at_end_ = at_end_ && !has_ahead_;
    most_events_ = std::max(most_events_, limits.max_events);
    // Who has little room now will have more when a part of it is free again.
    if (status.ok() && !has_ahead_ && limits.max_events >= kCopyFromRows) {
        read_ahead({most_events_, limits.max_bytes, limits.aside});
    }
    // What was read before the error is read; the error comes again with the next call.
    return has_more() ? Status() : status;
}

// Where holes wait for their writers each read is to look at them, and by the clock other looks are
// due, for which the connection has to be free.
void PositionReader::read_ahead(const spi::ReadLimits& limits) {
    const auto now = Clock::now();
    if (!may_read_ahead_ || !full_ || has_holes() || now - looked_at_table_ >= kLookAtTableEvery ||
        now - looked_below_ >= kLookBelowEvery) {
        return;
    }
    has_ahead_ = true;
    next_ahead_ = 0;
    ahead_.clear();
    ahead_names_.assign(limits.aside.begin(), limits.aside.end());
    thread_.start(
        [this, limits = spi::ReadLimits{limits.max_events, limits.max_bytes, ahead_names_}] {
            ahead_status_ = read_some(limits, ahead_);
        });
}

Status PositionReader::take_ahead(const spi::ReadLimits& limits, spi::EventBatch& out) {
    if (!has_ahead_) return {};
    thread_.wait();
    if (Status status = std::exchange(ahead_status_, {}); !status.ok()) {
        has_ahead_ = false;
        return status;
    }
    const bool fits = ahead_.size() <= limits.max_events && ahead_.bytes() <= limits.max_bytes;
    if (next_ahead_ == 0 && fits && out.empty() && out.closed.empty() && out.aside.empty()) {
        std::swap(out, ahead_);
        has_ahead_ = false;
        return {};
    }
    out.closed.insert(out.closed.end(), ahead_.closed.begin(), ahead_.closed.end());
    ahead_.closed.clear();
    for (spi::EventBatch::Aside& aside : ahead_.aside) out.aside.push_back(std::move(aside));
    ahead_.aside.clear();
    while (next_ahead_ < ahead_.size() && out.size() < limits.max_events &&
           out.bytes() < limits.max_bytes) {
        out.add_copy(ahead_.events()[next_ahead_++]);
    }
    has_ahead_ = next_ahead_ < ahead_.size();
    return {};
}

Status PositionReader::read_now(const spi::ReadLimits& limits, spi::EventBatch& out) {
    Status status;
    do {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) {
            status = connection.status();
            break;
        }
        status = look_at_table();
        if (status.ok()) status = look_after_holes(**connection);
        if (status.ok()) status = look_below_mark(**connection);
        if (status.ok()) status = read_some(limits, out);
        // Behind what was set aside others' events may be, which are not to wait for all of it.
    } while (status.ok() && !at_end_ && out.size() < limits.max_events &&
             out.bytes() < limits.max_bytes && out.aside.empty());
    return status;
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
