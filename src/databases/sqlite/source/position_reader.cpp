#include "databases/sqlite/source/position_reader.h"

#include <algorithm>
#include <utility>

#include "core/sql_text.h"

namespace outbox::sqlite {
namespace {

constexpr const char* kColumns =
    "SELECT position, tenant_id, id, aggregate_type, aggregate_id, event_type, payload, headers, "
    "schema_id, schema_version, topic, key, routing_key, occurred_at, "
    "available_at FROM ";

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
    event.available_at_us = row.integer(14);
    out.add(event);
}

}  // namespace

PositionReader::Statements::Statements(Database& file, const Table& table)
    : database(file),
      rows(file, kColumns + table.sql + " WHERE position > ? ORDER BY position LIMIT ?"),
      by_position(file, kColumns + table.sql +
                            " WHERE position IN (SELECT value FROM json_each(?)) "
                            "ORDER BY position"),
      last_position(file,
                    "SELECT seq FROM sqlite_sequence WHERE name = " + quote_literal(table.name)) {}

Status PositionReader::Statements::first_error() const {
    for (const Statement* statement : {&rows, &by_position, &last_position}) {
        if (Status status = statement->status(); !status.ok()) return status;
    }
    return {};
}

PositionReader::PositionReader(const Table& table, Identity& identity, spi::PositionSet finished)
    : table_(table), identity_(identity), finished_(std::move(finished)), session_(table_) {
    identity_.reached(finished_.highest());
}

Status PositionReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    return session_.poll([&](Statements& statements, bool& at_end) {
        Status status = check_life(statements.last_position);
        const std::size_t before = out.size();
        // Rows that are finished and not removed yet fill no batch.
        while (status.ok() && !at_end && out.size() == before) {
            status = read_rows(statements, limits, out, at_end);
        }
        return status;
    });
}

Status PositionReader::check_life(Statement& last_position) const {
    const spi::Position reached = identity_.highest_reached();
    const spi::Position last = last_position.step() ? last_position.integer(0) : 0;
    Status status = last_position.status();
    last_position.reset();
    return status.ok() ? identity_.check_given(table_, last, reached) : status;
}

Status PositionReader::read_rows(Statements& statements, const spi::ReadLimits& limits,
                                 spi::EventBatch& out, bool& at_end) {
    Statement& rows = statements.rows;
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
        if (wanted && !finished_.contains(position)) add_event(rows, out);
        if (wanted) {
            last_ = position;
            last_id_ = rows.text(2);
        }
        mark_ = position;
        identity_.reached(position);
        ++seen;
        full = out.bytes() >= limits.max_bytes;
    }
    Status status = rows.status();
    rows.reset();  // Ends the read transaction, which would hold up checkpoints.
    if (status.ok() && seen > 0) status = identity_.check(statements.database);
    if (!status.ok()) {
        out.events().resize(events_before);
        out.closed.resize(closed_before);
        mark_ = mark_before;
        return status;
    }
    identity_.has_read(last_, last_id_);
    at_end = !full && seen < limits.max_events;
    return {};
}

Status PositionReader::fetch(std::span<const spi::Position> positions, spi::EventBatch& out) {
    const Result<Statements*> prepared = session_.statements();
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
    if (status.ok()) status = identity_.check((*prepared)->database);
    if (!status.ok()) {
        out.events().resize(events_before);
        session_.drop();
    }
    return status;
}

}  // namespace outbox::sqlite
