#include "databases/postgres/source/position_reader.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "core/sql_text.h"

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

}  // namespace outbox::postgres
