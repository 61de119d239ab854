#include "sources/sqlite/reader.h"

#include <algorithm>

namespace outbox::sqlite {
namespace {

constexpr const char* kColumns =
    "SELECT position, tenant_id, id, aggregate_type, aggregate_id, event_type, payload, headers, "
    "schema_id, schema_version, topic, key, routing_key, occurred_at FROM ";

void add_event(const Statement& row, spi::EventBatch& out) {
    const auto copy = [&](int column) {
        const std::string_view text = row.text(column);
        return text.data() == nullptr ? text : out.copy(text);
    };
    spi::EventView event;
    event.position = row.integer(0);
    event.tenant_id = copy(1);
    event.id = copy(2);
    event.aggregate_type = copy(3);
    event.aggregate_id = copy(4);
    event.event_type = copy(5);
    event.payload = copy(6);
    event.headers = copy(7);
    event.schema_id = copy(8);
    event.schema_version = copy(9);
    event.topic = copy(10);
    event.key = copy(11);
    event.routing_key = copy(12);
    event.occurred_at_us = row.integer(13);
    out.add(event);
}

}  // namespace

SqliteReader::Statements::Statements(Database& database, const Table& table)
    : version(database, "PRAGMA data_version"),
      rows(database, kColumns + table.sql + " WHERE position > ? ORDER BY position LIMIT ?"),
      by_position(database, kColumns + table.sql +
                                " WHERE position IN (SELECT value FROM json_each(?)) "
                                "ORDER BY position") {}

SqliteReader::SqliteReader(const Table& table)
    : table_(table), session_(table.path, table.busy_timeout_ms) {}

Result<SqliteReader::Statements*> SqliteReader::statements() {
    if (statements_) return &*statements_;
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.error();
    statements_.emplace(**database, table_);
    for (const Statement* statement :
         {&statements_->version, &statements_->rows, &statements_->by_position}) {
        const Status status = statement->status();
        if (status.ok()) continue;
        drop();
        return status.error();
    }
    return &*statements_;
}

void SqliteReader::drop() {
    statements_.reset();
    session_.drop();
    version_at_end_.reset();  // It counts from the connection's begin.
}

Status SqliteReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    const Result<Statements*> prepared = statements();
    if (!prepared.ok()) return prepared.status();
    Statement& version = (*prepared)->version;
    version.step();
    const std::int64_t now = version.integer(0);
    Status status = version.status();
    version.reset();
    // Nobody has written since the last row was read: an idle poll costs no query.
    if (status.ok() && version_at_end_ == now) return {};
    version_at_end_.reset();

    bool at_end = false;
    if (status.ok()) status = read_rows((*prepared)->rows, limits, out, at_end);
    if (!status.ok()) {
        drop();
        return status;
    }
    if (at_end) version_at_end_ = now;
    return {};
}

Status SqliteReader::read_rows(Statement& rows, const spi::ReadLimits& limits, spi::EventBatch& out,
                               bool& at_end) {
    const std::size_t events_before = out.size();
    const std::size_t closed_before = out.closed.size();
    const spi::Position mark_before = mark_;
    rows.bind(mark_).bind(static_cast<std::int64_t>(limits.max_events));
    std::size_t seen = 0;
    bool full = false;
    while (!full && rows.step()) {
        const spi::Position position = rows.integer(0);
        const bool wanted = table_.wants(rows.text(1));
        // What is missing, and what belongs to another tenant, is no event of this reader.
        const spi::Position last_closed = wanted ? position - 1 : position;
        if (last_closed > mark_) out.closed.push_back({mark_ + 1, last_closed});
        if (wanted) add_event(rows, out);
        mark_ = position;
        ++seen;
        full = out.bytes() >= limits.max_bytes;
    }
    Status status = rows.status();
    rows.reset();  // Ends the read transaction, which would hold up checkpoints.
    if (!status.ok()) {
        out.events().resize(events_before);
        out.closed.resize(closed_before);
        mark_ = mark_before;
        return status;
    }
    at_end = !full && seen < limits.max_events;
    return {};
}

Status SqliteReader::fetch(std::span<const spi::Position> positions, spi::EventBatch& out) {
    const Result<Statements*> prepared = statements();
    if (!prepared.ok()) return prepared.status();
    std::string list = "[";
    for (const spi::Position position : positions) {
        if (list.size() > 1) list += ',';
        list += std::to_string(position);
    }
    const std::size_t events_before = out.size();
    Statement& rows = (*prepared)->by_position;
    rows.bind(list + "]");
    while (rows.step()) {
        if (table_.wants(rows.text(1))) add_event(rows, out);
    }
    Status status = rows.status();
    rows.reset();
    if (!status.ok()) {
        out.events().resize(events_before);
        drop();
    }
    return status;
}

void SqliteReader::rewind() {
    mark_ = 0;
    version_at_end_.reset();
}

}  // namespace outbox::sqlite
