#include "databases/postgres/source/scan_reader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/arrays.h"
#include "databases/postgres/source/position_reader.h"

namespace outbox::postgres {
namespace {

constexpr const char* kScan = "outbox_scan";
constexpr const char* kScanBesideMany = "outbox_scan_beside_many";
// Up to here the server keeps what other routes leave to be passed over in a hash table, for one
// statement; beyond, it looks each row up.
constexpr std::int64_t kHashedBytes = std::int64_t{48} << 20;
constexpr const char* kHashMemory = "SET work_mem = '256MB'";
constexpr std::chrono::seconds kLookAtDoneEvery{1};
constexpr std::size_t kCopyFromRows = 100;  // below, a COPY costs more than it saves

}  // namespace

ScanReader::ScanReader(const PostgresSourceConfig& config, const Table& table, Identity& identity,
                       const std::string& route, std::shared_ptr<relay::PositionMap> positions)
    : table_(table),
      identity_(identity),
      route_(quote_literal(route)),
      select_(select_list(table, config)),
      tenants_(tenant_condition(table, config)),
      id_type_(table.find("id")->sql_type),
      layout_(layout_of(table)),
      session_(
          config, [this](Connection& connection) { return prepare(connection); }, table.path),
      rows_(std::move(positions)),
      fields_(table.has_extras() ? kAllColumns : kBaseColumns) {}

// One branch for each state, so that the owner's partial index serves each; without the rows that
// the route has finished while another has not. IS NOT TRUE keeps the
// list of known ids a hash lookup on PostgreSQL 14, where NOT IN is none.
std::string ScanReader::scan_sql(const std::string& known, const std::string& limit,
                                 bool beside_many) const {
    const std::string source = quote_literal(table_.source);
    const std::string not_done = beside_many ? postgres::not_done(table_, source, route_)
                                             : not_among_done(table_, source, route_);
    const std::string order = " ORDER BY " + order_by(table_) + " LIMIT " + limit;
    std::string branches;
    for (const std::string& condition : unfinished_conditions(table_)) {
        if (!branches.empty()) branches += " UNION ALL ";
        branches +=
            "(SELECT t.* FROM " + table_.sql + " t WHERE " + condition +
            (table_.find("id")->not_null ? "" : " AND " + table_.quoted("id") + " IS NOT NULL") +
            " AND " + tenants_ + " AND (" + table_.quoted("id") + " = ANY(" + known +
            "::" + id_type_ + "[])) IS NOT TRUE AND " + not_done + order + ")";
    }
    return "SELECT " + select_ + " FROM (" + branches + ") t" + order;
}

Status ScanReader::prepare(Connection& connection) {
    // Another server, or one that has lost commits, may have given known ids to other rows.
    if (Status same = identity_.check(connection); !same.ok()) return same;
    if (Status all = connection.require_all_rows(all_rights_to(table_)); !all.ok()) return all;
    // The list of known ids must be a constant when the statement is planned.
    Status status = connection.execute("SET plan_cache_mode = force_custom_plan");
    if (status.ok()) status = connection.execute(kHashMemory);
    for (const bool beside_many : {false, true}) {
        if (!status.ok()) return status;
        status =
            connection.prepare(beside_many ? kScanBesideMany : kScan,
                               scan_sql("$1", "$2", beside_many), Params().texts({}).integer(0));
    }
    return status;
}

Status ScanReader::look_at_done(Connection& connection) {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_at_done_ < kLookAtDoneEvery) return {};
    const Result<Rows> size = connection.query("SELECT pg_relation_size($1::regclass)",
                                               Params().text(table_.side + "outbox_route_done"));
    if (!size.ok()) return size.status();
    looked_at_done_ = now;
    beside_many_ = size->integer(0, 0) > kHashedBytes;
    return {};
}

Status ScanReader::start(Connection& connection, std::size_t limit) {
    if (Status status = look_at_done(connection); !status.ok()) return status;
    const std::vector<std::string> known = rows_.known_ids();
    if (full_ && limit >= kCopyFromRows) {
        return connection.start_copy(
            scan_sql(quote_literal(array_literal(known)), std::to_string(limit), beside_many_));
    }
    return connection.start_prepared(
        beside_many_ ? kScanBesideMany : kScan,
        Params().texts(known).integer(static_cast<std::int64_t>(limit)));
}

Status ScanReader::take_rows(Connection& connection, const spi::ReadLimits& limits,
                             spi::EventBatch& out) {
    Status status;
    while (connection.next(fields_, status)) {
        ++returned_;
        if (fields_[1].data == nullptr) continue;  // the column may have lost its NOT NULL since
        std::string raw_id = decode_raw_id(fields_[1], table_.uuid_id);
        relay::KnownRows::Row& row = rows_.hold(raw_id);
        if (row.known) continue;  // a second row with the same id: the same event
        if (Status decoded = decode_row(fields_, layout_, row.position, out); !decoded.ok()) {
            return decoded;
        }
        row.known = true;
        taken_.push_back(std::move(raw_id));
        if (out.bytes() >= limits.max_bytes) {
            cut_ = true;
            connection.stop();
            return {};
        }
    }
    return status;
}

Status ScanReader::read_some(Connection& connection, const spi::ReadLimits& limits,
                             spi::EventBatch& out) {
    const std::size_t events_before = out.size();
    const std::size_t bytes_before = out.bytes();
    const std::size_t limit =
        row_size_.limit(limits.max_events - std::min(limits.max_events, events_before),
                        limits.max_bytes - std::min(limits.max_bytes, bytes_before));
    taken_.clear();
    returned_ = 0;
    cut_ = false;
    Status status = start(connection, limit);
    if (status.ok()) status = take_rows(connection, limits, out);
    if (!status.ok()) {
        out.events().resize(events_before);
        for (const std::string& raw_id : taken_) rows_.at(raw_id).known = false;
        return status;
    }
    full_ = returned_ >= limit;
    at_end_ = !full_ && !cut_;
    row_size_.note(out.size() - events_before, out.bytes() - bytes_before);
    return {};
}

Status ScanReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    const std::size_t events_before = out.size();
    Status status;
    ahead_.drop_old(rows_);
    at_end_ = rows_.full();
    while (status.ok() && (!ahead_.empty() || !at_end_) && out.size() < limits.max_events &&
           (out.size() == events_before || out.bytes() < limits.max_bytes)) {
        if (!ahead_.empty()) {
            ahead_.hand_out(limits, out);
            continue;
        }
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) {
            status = connection.status();
        } else if (full_) {
            status = read_some(**connection, relay::ReadAhead::kLimits, ahead_.begin());
            ahead_.filled();
        } else {
            status = read_some(**connection, limits, out);
        }
    }
    if (!status.ok()) session_.drop();
    // What was let go by a read that failed comes again under its position.
    std::sort(out.events().begin() + static_cast<std::ptrdiff_t>(events_before), out.events().end(),
              [](const auto& a, const auto& b) { return a.position < b.position; });
    return out.size() > events_before ? Status() : status;
}

Status ScanReader::fetch(std::span<const spi::Position> positions, spi::EventBatch& out) {
    std::vector<std::string> ids;
    for (const spi::Position position : positions) {
        if (const std::string* raw_id = rows_.raw_id(position)) ids.push_back(*raw_id);
    }
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    std::string unfinished;
    for (const std::string& condition : unfinished_conditions(table_)) {
        unfinished += (unfinished.empty() ? "" : " OR ") + condition;
    }
    const std::size_t events_before = out.size();
    Status status =
        (*connection)
            ->start_copy("SELECT " + select_ + " FROM " + table_.sql + " t WHERE " +
                         table_.quoted("id") + " = ANY(" + quote_literal(array_literal(ids)) +
                         "::" + id_type_ + "[]) AND (" + unfinished + ")");
    if (status.ok()) {
        while ((*connection)->next(fields_, status)) {
            const auto* row = rows_.find(decode_raw_id(fields_[1], table_.uuid_id));
            if (row == nullptr) continue;
            status = decode_row(fields_, layout_, row->position, out);
            if (!status.ok()) break;
        }
    }
    if (!status.ok()) {
        out.events().resize(events_before);
        session_.drop();
        return status;
    }
    const auto first = out.events().begin() + static_cast<std::ptrdiff_t>(events_before);
    const auto same = [](const auto& a, const auto& b) { return a.position == b.position; };
    std::sort(first, out.events().end(),
              [](const auto& a, const auto& b) { return a.position < b.position; });
    out.events().erase(std::unique(first, out.events().end(), same), out.events().end());
    return status;
}

}  // namespace outbox::postgres
