#include <algorithm>

#include "core/sql_text.h"
#include "databases/sqlite/record/recorder.h"
#include "databases/sqlite/source/route_ledgers.h"

namespace outbox::sqlite {
namespace {

constexpr double kRemovedByThenS = 5;              // a finished row that nobody holds or keeps
constexpr std::size_t kRedeliveryBytes = 8 << 20;  // of dead letters that are loaded at once

}  // namespace

Result<std::vector<spi::Delivery>> SqliteRecorder::load_deliveries(std::string_view route) {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Statement rows(**database,
                   "SELECT event_id, position, key, attempts, next_attempt_at, error_code, "
                   "last_error FROM outbox_delivery WHERE source = ? AND route = ? "
                   "ORDER BY position");
    rows.bind(table_.source).bind(route);
    std::vector<spi::Delivery> deliveries;
    while (rows.step()) {
        spi::Delivery delivery;
        delivery.route = route;
        delivery.event_id = rows.string(0);
        delivery.position = rows.integer(1);
        delivery.key = rows.string(2);
        delivery.attempts = static_cast<std::uint32_t>(rows.integer(3));
        delivery.next_attempt_us = rows.integer(4);
        delivery.error_code = rows.string(5);
        delivery.error = rows.string(6);
        deliveries.push_back(std::move(delivery));
    }
    if (Status status = rows.status(); !status.ok()) return status;
    return deliveries;
}

Result<std::vector<spi::DeadLetter>> SqliteRecorder::load_redeliveries(std::string_view route,
                                                                       std::int64_t after_dead_id,
                                                                       std::size_t limit) {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Statement rows(
        **database,
        "SELECT dead_id, position, id, aggregate_type, aggregate_id, event_type, "
        "payload, headers, metadata, tenant_id, schema_id, schema_version, occurred_at, "
        "topic, key, routing_key, attempts, error_code, error, unmatched FROM "
        "outbox_dead_letters WHERE source = ? AND route = ? AND retry_requested_at IS NOT NULL AND "
        "dead_id > ? ORDER BY dead_id LIMIT ?");
    rows.bind(table_.source).bind(route).bind(after_dead_id);
    rows.bind(static_cast<std::int64_t>(limit));
    std::vector<spi::DeadLetter> letters;
    std::size_t bytes = 0;
    while (bytes < kRedeliveryBytes && rows.step()) {
        spi::DeadLetter letter;
        const auto copy = [&](int column) {
            const std::string_view text = rows.text(column);
            return text.data() == nullptr ? text : letter.event.copy(text);
        };
        letter.dead_id = rows.integer(0);
        letter.route = route;
        letter.position = rows.integer(1);
        letter.attempts = static_cast<std::uint32_t>(rows.integer(16));
        letter.error_code = rows.string(17);
        letter.error = rows.string(18);
        letter.unmatched = rows.integer(19) != 0;
        spi::EventView event;
        event.position = letter.position;
        event.id = copy(2);
        event.aggregate_type = copy(3);
        event.aggregate_id = copy(4);
        event.event_type = copy(5);
        event.payload = copy(6);
        event.headers = copy(7);
        event.metadata = copy(8);
        event.tenant_id = copy(9);
        event.schema_id = copy(10);
        event.schema_version = copy(11);
        event.occurred_at_us = rows.integer(12);
        event.topic = copy(13);
        event.key = copy(14);
        event.routing_key = copy(15);
        letter.event.add(event);
        bytes += letter.event.bytes();
        letters.push_back(std::move(letter));
    }
    if (Status status = rows.status(); !status.ok()) return status;
    return letters;
}

Result<std::vector<spi::DeadKey>> SqliteRecorder::load_dead_keys(std::string_view route) {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Statement rows(**database,
                   "SELECT DISTINCT coalesce(tenant_id, ''), coalesce(nullif(key, ''), "
                   "aggregate_id) FROM "
                   "outbox_dead_letters WHERE source = ? AND route = ? AND NOT unmatched AND "
                   "coalesce(nullif(key, ''), aggregate_id) <> ''");
    rows.bind(table_.source).bind(route);
    std::vector<spi::DeadKey> keys;
    while (rows.step()) keys.push_back({rows.string(0), rows.string(1)});
    if (Status status = rows.status(); !status.ok()) return status;
    return keys;
}

// An operator's command may make the table at any time.
Result<std::vector<std::string>> SqliteRecorder::load_paused_tenants() {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    std::vector<std::string> tenants;
    Statement look(**database,
                   "SELECT 1 FROM sqlite_master WHERE name = 'outbox_paused_tenants' AND type = "
                   "'table'");
    const bool there = look.step();
    if (Status status = look.status(); !status.ok()) return status;
    look.reset();
    if (!there) return tenants;
    Statement rows(**database,
                   "SELECT tenant_id FROM outbox_paused_tenants WHERE source = ? ORDER BY "
                   "tenant_id");
    rows.bind(table_.name);
    while (rows.step()) tenants.push_back(rows.string(0));
    if (Status status = rows.status(); !status.ok()) return status;
    return tenants;
}

// A relay knows its own alone.
Result<std::vector<std::string>> SqliteRecorder::sources_of_figures(Database& database) const {
    std::vector<std::string> sources{table_.source};
    if (!table_.tenants.empty() || !table_.has_side_tables) return sources;
    Statement rows(database, std::string("SELECT DISTINCT source FROM outbox_routes WHERE ") +
                                 kOfTable + " AND source <> ?1");
    rows.bind(table_.source);
    while (rows.step()) sources.push_back(rows.string(0));
    if (Status status = rows.status(); !status.ok()) return status;
    return sources;
}

Result<spi::Recorder::Stats> SqliteRecorder::stats() {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    const auto sources = sources_of_figures(**database);
    if (!sources.ok()) return sources.status();
    std::string list;
    for (const std::string& source : *sources) {
        list += (list.empty() ? "" : ", ") + quote_literal(source);
    }
    const std::string of_sources = " WHERE source IN (" + list + ")";
    Stats stats;
    Statement others(**database,
                     "SELECT " +
                         (table_.has_side_tables
                              ? "(SELECT count(*) FROM outbox_delivery" + of_sources +
                                    "), (SELECT count(*) FROM outbox_dead_letters" + of_sources +
                                    "), (SELECT count(*) FROM outbox_route_done" + of_sources +
                                    " AND route = ''), "
                              : "0, 0, 0, ") +
                         (table_.native && table_.name == "outbox_events"
                              ? "(SELECT count(*) FROM outbox_scheduled)"
                              : "0"));
    if (others.step()) {
        stats.failing = others.integer(0);
        stats.dead = others.integer(1);
        stats.owed = others.integer(2);
        if (stats.owed > 0) {
            stats.refusal =
                refusal_.empty() ? "a constraint or a trigger of " + table_.sql : refusal_;
        }
        stats.scheduled = others.integer(3);
        stats.due_refusal = due_refused_for_;
    }
    const std::string rows = " FROM " + table_.sql + " t WHERE " + any_unfinished(table_) +
                             " AND " + tenant_condition(table_) +
                             // Finished, and only there because the table keeps them.
                             (stats.owed > 0 ? " AND " + not_done(table_, list, "''") : "");
    Statement count(**database, "SELECT count(*) FROM (SELECT 1" + rows + " LIMIT " +
                                    std::to_string(kCountLimit + 1) + ")");
    if (count.step()) stats.backlog = count.integer(0);
    const std::string time =
        table_.native               ? std::string("max(t.occurred_at, coalesce(t.available_at, 0))")
        : table_.has("occurred_at") ? microseconds_of(table_.quoted("occurred_at"))
                                    : std::string("NULL");
    const std::string order = "t." + table_.order;
    Statement oldest(**database, "SELECT " + time + ", " + order + ", (SELECT max(" + order +
                                     ") FROM " + table_.sql + " t)" + rows + " ORDER BY " + order +
                                     " LIMIT 1");
    if (oldest.step()) {
        const bool known = oldest.text(0).data() != nullptr;
        const std::int64_t age_us = std::max<std::int64_t>(now_us() - oldest.integer(0), 0);
        stats.oldest_age_s = known ? static_cast<double>(age_us) / 1e6 : 0;
        if (stats.backlog > kCountLimit && !table_.mark) {
            stats.backlog = oldest.integer(2) - oldest.integer(1) + 1;
            stats.estimated = true;
        }
    }
    for (const Statement* statement : {&count, &oldest, &others}) {
        if (Status status = statement->status(); !status.ok()) return status;
    }
    if (table_.native && stats.oldest_age_s >= kRemovedByThenS) {
        const std::string select = "SELECT " + order + ", " + time + rows + " ORDER BY " + order;
        if (Status status = leave_out_finished(**database, select, *sources, stats); !status.ok()) {
            return status;
        }
    }
    return stats;
}

// What every route of one of these has finished: a row is one source's alone.
Result<spi::PositionSet> SqliteRecorder::finished_in_any(
    Database& database, std::span<const std::string> sources) const {
    spi::PositionSet all;
    for (const std::string& source : sources) {
        Table table = table_;
        table.source = source;
        auto finished = Ledger(table).finished_by_all(database);
        if (!finished.ok() || sources.size() == 1) return finished;
        finished->for_each_segment(
            [&](std::int64_t number, const auto& bits) { all.add_segment(number, bits); });
    }
    return all;
}

// Rows that every route has finished and that are still there, as the table keeps them, are no
// backlog. Not each time: it reads what is finished.
Status SqliteRecorder::leave_out_finished(Database& database, const std::string& select,
                                          std::span<const std::string> sources,
                                          Stats& stats) const {
    constexpr std::size_t kMostRead = 10 * kCountLimit;
    if (!table_.has_side_tables) return {};
    const auto finished = finished_in_any(database, sources);
    if (!finished.ok()) return finished.status();
    Statement rows(database, select);
    std::int64_t waiting = 0;
    std::int64_t oldest_us = 0;
    std::size_t read = 0;
    bool all = true;
    for (; rows.step(); ++read) {
        all = read < kMostRead && waiting <= kCountLimit;
        if (!all) break;
        if (finished->contains(rows.integer(0))) continue;
        if (++waiting == 1) oldest_us = std::max<std::int64_t>(now_us() - rows.integer(1), 0);
    }
    if (Status status = rows.status(); !status.ok()) return status;
    if (all || waiting > 0) stats.oldest_age_s = static_cast<double>(oldest_us) / 1e6;
    stats.at_least = waiting;
    if (!all) return {};
    stats.backlog = waiting;
    stats.estimated = false;
    stats.without_finished = true;
    return {};
}

}  // namespace outbox::sqlite
