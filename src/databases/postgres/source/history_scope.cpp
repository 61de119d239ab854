#include "databases/postgres/source/history_scope.h"

#include "core/sql_text.h"
#include "databases/postgres/source/position_reader.h"

namespace outbox::postgres {
namespace {

constexpr const char* kBetweenParts = "chr(31)";
constexpr char kPartsEnd = '\x1f';

std::string list_of_literals(const std::vector<std::string>& values) {
    std::string list;
    for (const std::string& value : values) {
        list += (list.empty() ? "(" : ", ") + quote_literal(value);
    }
    return list + ")";
}

std::string instant(std::int64_t epoch_us) {
    return "('1970-01-01 00:00:00+00'::timestamptz + " + std::to_string(epoch_us) +
           " * interval '1 microsecond')";
}

/// The fields of a row that selections are about, as SQL.
struct SelectedFields {
    std::string key;
    std::string aggregate_id;
    std::string event_type;
    std::string tenant;
    std::string time;
};

std::string selected(const SelectedFields& fields, const replay::Selection& selection,
                     const std::string& default_tenant) {
    std::string wanted = "true";
    if (selection.since_us != 0) {
        wanted += " AND " + fields.time + " >= " + instant(selection.since_us);
    }
    if (selection.until_us != 0) {
        wanted += " AND " + fields.time + " < " + instant(selection.until_us);
    }
    if (!selection.key.empty()) {
        wanted += " AND coalesce(nullif(" + fields.key + ", ''), " + fields.aggregate_id +
                  ") = " + quote_literal(selection.key);
    }
    if (!selection.event_type.empty()) {
        wanted += " AND " + fields.event_type + " = " + quote_literal(selection.event_type);
    }
    if (!selection.tenants.empty()) {
        wanted += " AND " + tenant_or(fields.tenant, default_tenant) + " IN " +
                  list_of_literals(selection.tenants);
    }
    return wanted;
}

std::string published_condition(const Table& table) {
    if (table.has("status")) {
        return table.quoted("status") + " = " + quote_literal(table.mapping.sent_value);
    }
    if (table.has("processed")) return table.quoted("processed") + " = true";
    return table.quoted(table.has("processed_at") ? "processed_at" : "published_at") +
           " IS NOT NULL";
}

std::string text_field(const Table& table, const char* field) {
    return table.has(field) ? table.quoted(field) + "::text" : "NULL::text";
}

// What is a dead letter of the route is done with and was not published.
std::string not_given_up(const Table& table, const std::string& source, const std::string& route) {
    const std::string letters = table.side +
                                "outbox_dead_letters d WHERE d.source = " + quote_literal(source) +
                                " AND d.route = " + quote_literal(route);
    if (table.keep) {
        // As the index of letters has them.
        return "NOT EXISTS (SELECT FROM " + letters + " AND d.id = " + table.quoted("id") +
               "::text AND coalesce(d.position, 0) = t." + quote_identifier(table.position) + ")";
    }
    const std::string id = table.quoted("id") + "::text";
    return "NOT EXISTS (SELECT FROM " + letters + " AND d.id IN (" + id + ", " +
           quote_literal(table.id_prefix()) + " || " + id + "))";
}

// Places are compared by it, so it has to tell two rows apart.
void set_order(const Table& table, HistoryScope& scope) {
    const auto add = [&](const std::string& column) {
        const Column& one = table.catalog.at(column);
        scope.order.emplace_back("t." + quote_identifier(column), one.sql_type);
        if (!one.not_null) scope.there += " AND t." + quote_identifier(column) + " IS NOT NULL";
    };
    const std::string id = table.column("id");
    if (!table.position.empty()) {
        add(table.position);
    } else if (!table.created_at.empty()) {
        add(table.created_at);
    }
    if (!table.keep && table.position != id) add(id);
}

}  // namespace

std::string HistoryScope::place() const {
    std::string parts;
    for (const auto& [expression, type] : order) parts += ", " + expression + "::text";
    return std::string("concat_ws(") + kBetweenParts + parts + ")";
}

std::string HistoryScope::in_order() const {
    std::string list;
    for (const auto& [expression, type] : order) list += (list.empty() ? "" : ", ") + expression;
    return list;
}

std::string HistoryScope::reversed() const {
    std::string list;
    for (const auto& [expression, type] : order) {
        list += (list.empty() ? "" : ", ") + expression + " DESC";
    }
    return list;
}

std::string HistoryScope::compared(const char* comparison, const replay::Place& place) const {
    if (place.empty()) return "true";
    std::string values;
    std::size_t at = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        // The last part may have any characters.
        const std::size_t end = i + 1 == order.size()
                                    ? place.size()
                                    : std::min(place.find(kPartsEnd, at), place.size());
        values += (values.empty() ? "" : ", ") + quote_literal(place.substr(at, end - at)) +
                  "::" + order[i].second;
        at = std::min(end + 1, place.size());
    }
    return "(" + in_order() + ") " + comparison + " (" + values + ")";
}

Result<HistoryScope> published_scope(const Table& table, const PostgresSourceConfig& config,
                                     const replay::Selection& selection,
                                     const core::Predicate& predicate, const std::string& source,
                                     const std::vector<std::string>& tenants,
                                     spi::Position settled) {
    if (!table.keep && !table.mark) return replay::no_history(table.sql, table.native);
    const bool timed = table.has("occurred_at");
    if (!timed && (selection.since_us != 0 || selection.until_us != 0)) {
        return replay::no_times(table.sql);
    }
    if (!selection.tenants.empty() && !table.has("tenant_id")) {
        return replay::no_tenants(table.sql);
    }
    HistoryScope scope;
    scope.from = table.sql + " t";
    scope.there = table.keep
                      ? "t." + quote_identifier(table.position) + " <= " + std::to_string(settled)
                      : published_condition(table);
    if (table.keep) {
        scope.behind = "t." + quote_identifier(table.position) + " > " + std::to_string(settled);
    }
    set_order(table, scope);
    scope.select = select_list(table, config) + ", " + scope.place();
    scope.columns = table.has_extras() ? kAllColumns : kBaseColumns;
    scope.layout = layout_of(table);
    scope.has_positions = table.keep;
    scope.id = text_field(table, "id");
    if (timed) scope.time = table.quoted("occurred_at") + "::timestamptz";
    scope.size = "pg_column_size(" + table.quoted("payload") + ")";
    scope.wanted =
        selected({text_field(table, "key"), text_field(table, "aggregate_id"),
                  text_field(table, "event_type"), text_field(table, "tenant_id"), scope.time},
                 selection, config.default_tenant);
    const auto lists = [&](const char* field, const std::vector<std::string>& values) {
        if (values.empty()) return;
        scope.wanted +=
            " AND coalesce(" + text_field(table, field) + ", '') IN " + list_of_literals(values);
    };
    lists("aggregate_type", predicate.aggregate_types);
    lists("event_type", predicate.event_types);
    lists("topic", predicate.topics);
    lists("tenant_id", predicate.tenants);
    scope.wanted += " AND " + not_given_up(table, source, selection.route);
    if (!tenants.empty()) {
        scope.wanted += " AND " + tenant_or(text_field(table, "tenant_id"), config.default_tenant) +
                        " IN " + list_of_literals(tenants);
    }
    return scope;
}

HistoryScope dead_scope(const Table& table, const std::string& source,
                        const replay::Selection& selection, const std::string& default_tenant) {
    HistoryScope scope;
    scope.from = table.side + "outbox_dead_letters t";
    scope.there = "t.source = " + quote_literal(source) +
                  " AND t.route = " + quote_literal(selection.route) +
                  " AND t.retry_requested_at IS NULL AND NOT t.unmatched";
    scope.order.emplace_back("t.dead_id", "int8");
    scope.select =
        "t.dead_id, t.id, t.aggregate_type, t.aggregate_id, t.event_type, t.payload, t.headers, "
        "t.tenant_id, t.schema_id, t.schema_version, t.occurred_at, t.topic, t.key, t.routing_key, "
        "NULL::timestamptz, t.metadata, NULL::bigint, NULL::timestamptz, " +
        scope.place();
    scope.columns = kAllColumns;
    scope.has_positions = true;
    scope.id = "t.id";
    scope.time = "t.occurred_at";
    scope.size = "pg_column_size(t.payload)";
    scope.wanted = selected({"t.key", "t.aggregate_id", "t.event_type", "t.tenant_id", scope.time},
                            selection, default_tenant);
    return scope;
}

}  // namespace outbox::postgres
