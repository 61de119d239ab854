#include "databases/sqlite/source/scan_reader.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/sql_text.h"

namespace outbox::sqlite {
namespace {

enum Column : int {
    kIdType,
    kId,
    kAggregateType,
    kAggregateId,
    kEventType,
    kPayload,
    kHeaders,
    kTenantId,
    kSchemaId,
    kSchemaVersion,
    kTopic,
    kKey,
    kRoutingKey,
    kMetadata,
    kOccurredAt,
    kAttempts,
    kNextAttempt,
};

// JSON in a text column becomes a part of the object; null columns are left out.
std::string metadata_of(const Table& table) {
    if (table.mapping.metadata_columns.empty()) return "NULL";
    std::string list;
    for (const std::string& column : table.mapping.metadata_columns) {
        const std::string value = "t." + quote_identifier(column);
        if (!list.empty()) list += ", ";
        if (table.mapping.metadata_as_text) {
            list += quote_literal(column) + ", CASE WHEN typeof(" + value + ") = 'blob' THEN hex(" +
                    value + ") ELSE CAST(" + value + " AS TEXT) END";
            continue;
        }
        list += quote_literal(column) + ", CASE WHEN typeof(" + value + ") = 'blob' THEN hex(" +
                value + ") WHEN json_valid(" + value + ") THEN json(" + value + ") ELSE " + value +
                " END";
    }
    return "json_patch('{}', json_object(" + list + "))";
}

}  // namespace

std::string scan_columns(const Table& table) {
    const auto plain = [&](const char* field) {
        return table.has(field) ? table.quoted(field) : std::string("NULL");
    };
    std::string list = "typeof(" + table.quoted("id") + "), " + table.quoted("id");
    for (const char* field :
         {"aggregate_type", "aggregate_id", "event_type", "payload", "headers", "tenant_id",
          "schema_id", "schema_version", "topic", "key", "routing_key"}) {
        list += ", " + plain(field);
    }
    list += ", " + metadata_of(table);
    list += ", " + (table.has("occurred_at") ? microseconds_of(table.quoted("occurred_at")) : "0");
    // A failing row's state counts only while the row says that it is one.
    const bool states = table.has("status") && !table.mapping.failed_value.empty();
    const std::string failed =
        states ? table.quoted("status") + " = " + quote_literal(table.mapping.failed_value) : "0";
    const auto while_failed = [&](const char* field, const std::string& expression) {
        list += states && table.has(field)
                    ? ", CASE WHEN " + failed + " THEN " + expression + " END"
                    : std::string(", NULL");
    };
    while_failed("retry_count", plain("retry_count"));
    while_failed("retry_after", microseconds_of(plain("retry_after")));
    return list;
}

namespace {

// One branch for each state, so that the owner's partial index serves each without a sort; without
// the rows that the route has finished while another has not.
std::string scan_sql(const Table& table, const std::string& route) {
    std::string branches;
    for (const std::string& condition : unfinished_conditions(table)) {
        if (!branches.empty()) branches += " UNION ALL ";
        branches += "SELECT * FROM (SELECT t." + table.order + " AS outbox_order, t.* FROM " +
                    table.sql + " t WHERE " + condition + " AND " + table.quoted("id") +
                    " IS NOT NULL AND " + tenant_condition(table) + " AND " +
                    not_done(table, quote_literal(table.source), quote_literal(route)) +
                    " ORDER BY t." + table.order + " LIMIT ?1)";
    }
    return "SELECT " + scan_columns(table) + " FROM (" + branches +
           ") t ORDER BY t.outbox_order LIMIT ?1";
}

}  // namespace

ScanReader::Statements::Statements(Database& file, const Table& table, const std::string& route)
    : database(file),
      rows(file, scan_sql(table, route)),
      by_id(file, "SELECT " + scan_columns(table) + " FROM " + table.sql + " t WHERE " +
                      table.quoted("id") + " = ? AND " + any_unfinished(table)) {}

Status ScanReader::Statements::first_error() const {
    Status status = rows.status();
    return status.ok() ? by_id.status() : status;
}

ScanReader::ScanReader(const Table& table, const Identity& identity, const std::string& route,
                       std::shared_ptr<relay::PositionMap> positions)
    : table_(table), identity_(identity), session_(table_, route), rows_(std::move(positions)) {}

Status ScanReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    if (ahead_.drop_old(rows_)) session_.look_again();
    if (ahead_.empty() && rows_.full()) return {};
    Status status;
    if (ahead_.empty()) {
        status = session_.poll([&](Statements& statements, bool& at_end) {
            Status read =
                full_ ? read_rows(statements, relay::ReadAhead::kLimits, ahead_.begin(), at_end)
                      : read_rows(statements, limits, out, at_end);
            full_ = read.ok() && !at_end;
            return read;
        });
        ahead_.filled();
    }
    ahead_.hand_out(limits, out);
    // What was let go by a read that failed comes again under its position.
    std::sort(out.events().begin(), out.events().end(),
              [](const auto& a, const auto& b) { return a.position < b.position; });
    return status;
}

Status ScanReader::read_rows(Statements& statements, const spi::ReadLimits& limits,
                             spi::EventBatch& out, bool& at_end) {
    Statement& rows = statements.rows;
    const std::size_t events_before = out.size();
    const std::size_t limit = rows_.size() + limits.max_events;
    rows.bind(static_cast<std::int64_t>(limit));
    std::vector<std::string> taken;
    std::size_t returned = 0;
    bool full = false;
    while (!full && rows.step()) {
        ++returned;
        std::string raw_id = raw_id_of(rows, kIdType, kId);
        relay::KnownRows::Row& row = rows_.hold(raw_id);
        if (row.known) continue;
        add_scanned_row(table_, rows, row.position, raw_id, out);
        row.known = true;
        taken.push_back(std::move(raw_id));
        full = out.size() - events_before >= limits.max_events || out.bytes() >= limits.max_bytes;
    }
    Status status = rows.status();
    rows.reset();  // Ends the read transaction, which would hold up checkpoints.
    if (status.ok() && returned > 0) status = identity_.check(statements.database);
    if (!status.ok()) {
        out.events().resize(events_before);
        for (const std::string& raw_id : taken) rows_.at(raw_id).known = false;
        return status;
    }
    at_end = !full && returned < limit;
    return {};
}

void add_scanned(const Statement& row, spi::Position position, std::string_view id,
                 spi::EventBatch& out) {
    const auto copy = [&](int column) {
        const std::string_view text = row.text(column);
        return text.data() == nullptr ? text : out.copy(text);
    };
    spi::EventView event;
    event.position = position;
    event.id = out.copy(id);
    event.aggregate_type = copy(kAggregateType);
    event.aggregate_id = copy(kAggregateId);
    event.event_type = copy(kEventType);
    event.payload = copy(kPayload);
    event.headers = copy(kHeaders);
    event.tenant_id = copy(kTenantId);
    event.schema_id = copy(kSchemaId);
    event.schema_version = copy(kSchemaVersion);
    event.topic = copy(kTopic);
    event.key = copy(kKey);
    event.routing_key = copy(kRoutingKey);
    event.metadata = copy(kMetadata);
    event.occurred_at_us = row.integer(kOccurredAt);
    event.attempts = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
        row.integer(kAttempts), 0, std::numeric_limits<std::int32_t>::max()));
    event.next_attempt_us = row.integer(kNextAttempt);
    out.add(event);
}

void add_scanned_row(const Table& table, const Statement& row, spi::Position position,
                     const std::string& raw_id, spi::EventBatch& out) {
    add_scanned(row, position, event_id_of(table, raw_id), out);
    if (is_too_long(table, raw_id)) {
        out.events().back().defect =
            "its id has more than 255 bytes, the table's name before it included";
    }
}

Status ScanReader::fetch(std::span<const spi::Position> positions, spi::EventBatch& out) {
    const Result<Statements*> prepared = session_.statements();
    if (!prepared.ok()) return prepared.status();
    const std::size_t events_before = out.size();
    Statement& rows = (*prepared)->by_id;
    Status status;
    for (const spi::Position position : positions) {
        const std::string* raw_id = rows_.raw_id(position);
        if (raw_id == nullptr) continue;
        bind_raw_id(rows, *raw_id);
        if (rows.step()) add_scanned_row(table_, rows, position, *raw_id, out);
        status = rows.status();
        rows.reset();
        if (!status.ok()) break;
    }
    if (status.ok()) status = identity_.check((*prepared)->database);
    if (!status.ok()) {
        out.events().resize(events_before);
        session_.drop();
    }
    return status;
}

void ScanReader::forget(std::span<const spi::Position> positions) {
    rows_.forget(positions);
    // A row that was let go may be unfinished again already.
    session_.look_again();
}

}  // namespace outbox::sqlite
