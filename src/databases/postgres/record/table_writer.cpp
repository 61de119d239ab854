#include "databases/postgres/record/table_writer.h"

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

constexpr int kMaxErrorLength = 2000;

// The owner's columns may be narrower than what we keep beside them.
std::string cut_to(const Column& column, const std::string& expression) {
    const int length = column.max_length > 0 ? column.max_length : kMaxErrorLength;
    return "left(" + expression + ", " + std::to_string(length) + ")";
}

std::string id_type(const Table& table) {
    return table.find("id")->sql_type;
}

std::string set_column(const Table& table, const std::string& field, const std::string& value) {
    return quote_identifier(table.column(field)) + " = " + value;
}

// What the owner has finished by hand stays so.
std::string still_unfinished(const Table& table) {
    return " AND " + any_unfinished(table);
}

std::string join(const std::vector<std::string>& parts, const char* separator) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : separator) + part;
    return out;
}

}  // namespace

TableWriter::TableWriter(const Table& table) : table_(table) {}

// The row that the first parameter names, or those.
std::string TableWriter::key_condition(bool free_only) const {
    const std::string column =
        table_.by_position ? "t." + quote_identifier(table_.position) : table_.quoted("id");
    const std::string keys = table_.by_position ? "ANY($1)" : "ANY($1::" + id_type(table_) + "[])";
    if (!free_only) return column + " = " + keys;
    return column + " IN (SELECT " + column + " FROM " + table_.sql + " t WHERE " + column + " = " +
           keys + " FOR UPDATE SKIP LOCKED)";
}

Params TableWriter::key_params(const Keys& keys) const {
    Params params;
    if (table_.by_position) {
        params.integers(keys.positions);
    } else {
        params.texts(keys.raw_ids);
    }
    return params;
}

std::string TableWriter::finished_columns(const std::string& status, bool sent) const {
    std::vector<std::string> sets;
    if (table_.has("status")) {
        sets.push_back(set_column(table_, "status", quote_literal(status)));
        if (table_.has("retry_after")) sets.push_back(set_column(table_, "retry_after", "NULL"));
    }
    if (table_.has("processed")) sets.push_back(set_column(table_, "processed", "true"));
    // Without a status column the time is what says that the row is finished.
    const bool state = !table_.has("status") && !table_.has("processed");
    for (const char* field : {"processed_at", "published_at"}) {
        if (table_.has(field) && (sent || state)) {
            sets.push_back(set_column(table_, field, "clock_timestamp()"));
        }
    }
    return join(sets, ", ");
}

Connection::Statement TableWriter::published(const std::vector<std::string>& raw_ids,
                                             bool free_only) const {
    const std::string which =
        " WHERE " + key_condition(free_only) + " RETURNING " + table_.quoted("id") + "::text, ";
    if (!table_.mark) {
        return {"DELETE FROM " + table_.sql + " t" + which + "false", Params().texts(raw_ids)};
    }
    return {"UPDATE " + table_.sql + " t SET " + finished_columns(table_.mapping.sent_value, true) +
                which + any_unfinished(table_),
            Params().texts(raw_ids)};
}

Connection::Statement TableWriter::dead(const std::vector<std::string>& raw_ids,
                                        bool free_only) const {
    if (!table_.mark) return published(raw_ids, free_only);
    return {"UPDATE " + table_.sql + " t SET " +
                finished_columns(table_.mapping.dead_value, false) + " WHERE " +
                key_condition(free_only) + still_unfinished(table_) + " RETURNING " +
                table_.quoted("id") + "::text, " + any_unfinished(table_),
            Params().texts(raw_ids)};
}

Connection::Statement TableWriter::owed(const std::vector<std::string>& raw_ids) const {
    Params params;
    params.texts(raw_ids).text(table_.source);
    return {"INSERT INTO " + table_.side +
                "outbox_route_done (source, event_id, route) SELECT $2, " +
                done_id(table_, table_.quoted("id") + "::text") + ", '' FROM " + table_.sql +
                " t WHERE " + key_condition(false) + still_unfinished(table_) +
                " ON CONFLICT DO NOTHING",
            std::move(params)};
}

Connection::Statement TableWriter::unfinished(const std::vector<std::string>& raw_ids) const {
    return {"SELECT FROM " + table_.sql + " t WHERE " + key_condition(false) +
                still_unfinished(table_) + " FOR UPDATE SKIP LOCKED",
            Params().texts(raw_ids)};
}

std::optional<Connection::Statement> TableWriter::attempt(const Keys& key, std::uint32_t attempts,
                                                          std::int64_t next_attempt_us,
                                                          const std::string& error, bool last,
                                                          bool free_only) const {
    Params params = key_params(key);
    params.integer(attempts).integer(next_attempt_us).text(error);
    std::vector<std::string> sets;
    const bool waits = !last && table_.has("status") && !table_.mapping.failed_value.empty();
    if (waits) {
        sets.push_back(set_column(table_, "status", quote_literal(table_.mapping.failed_value)));
    }
    if (table_.has("retry_count")) {
        sets.push_back(set_column(table_, "retry_count", "$2::bigint"));
    }
    if (table_.has("retry_after") && !last) {
        sets.push_back(set_column(
            table_, "retry_after",
            "timestamptz '1970-01-01 00:00:00+00' + $3::bigint * interval '1 microsecond'"));
    }
    if (table_.has("error_message")) {
        sets.push_back(
            set_column(table_, "error_message", cut_to(*table_.find("error_message"), "$4::text")));
    }
    if (sets.empty()) return {};
    // A parameter that no column takes must still have a type.
    return Statement{"UPDATE " + table_.sql + " t SET " + join(sets, ", ") + " WHERE " +
                         key_condition(free_only) + still_unfinished(table_) +
                         " AND $2::bigint >= 0 AND $3::bigint >= 0 AND $4::text IS NOT NULL",
                     std::move(params)};
}

Connection::Statement TableWriter::remove_letters(const std::vector<std::int64_t>& dead_ids) const {
    return {"DELETE FROM " + table_.side +
                "outbox_dead_letters WHERE source = $1 AND dead_id = ANY($2)",
            Params().text(table_.source).integers(dead_ids)};
}

// The owner's row is dead as long as the event has a dead letter, in whatever route.
Connection::Statement TableWriter::redelivered(const std::vector<std::int64_t>& dead_ids) const {
    const auto [remove, params, prepared] = remove_letters(dead_ids);
    if (!table_.mark || !table_.has("status")) return {remove, params};
    const std::string prefix = quote_literal(table_.id_prefix());
    // A letter of another life of the table names no row.
    const std::string of_row = table_.integer_id ? " WHERE id ~ '^-?[0-9]+$'" : "";
    return {"WITH gone AS (" + remove + " RETURNING CASE WHEN starts_with(id, " + prefix +
                ") THEN substr(id, length(" + prefix + ") + 1) ELSE id END AS id) UPDATE " +
                table_.sql + " t SET " + finished_columns(table_.mapping.sent_value, true) +
                " WHERE " + table_.quoted("id") + " = ANY(ARRAY(SELECT id::" + id_type(table_) +
                " FROM gone" + of_row + ")) AND " + table_.quoted("status") + " = " +
                quote_literal(table_.mapping.dead_value) + " AND NOT EXISTS (SELECT FROM " +
                table_.side +
                "outbox_dead_letters d WHERE d.source = $1 AND d.dead_id <> ALL($2) AND d.id IN (" +
                table_.quoted("id") + "::text, " + prefix + " || " + table_.quoted("id") +
                "::text))",
            params};
}

// A condition on t. Parameter: the retention in seconds. Empty: nothing is kept.
std::string TableWriter::prunable_rows() const {
    if (!table_.mark) return {};
    std::string finished;
    std::string time;
    for (const char* field : {"published_at", "processed_at"}) {
        if (table_.has(field) && time.empty()) time = table_.quoted(field);
    }
    if (time.empty() && !table_.created_at.empty()) {
        time = "t." + quote_identifier(table_.created_at);
    }
    if (time.empty()) return {};
    if (table_.has("status")) {
        finished = table_.quoted("status") + " = " + quote_literal(table_.mapping.sent_value);
    } else if (table_.has("processed")) {
        finished = table_.quoted("processed") + " = true";
    } else {
        finished = time + " IS NOT NULL";
    }
    const std::string id = table_.quoted("id") + "::text";
    // Of whichever tenants' relay: who prunes may serve others.
    const std::string name = table_.schema + "." + table_.name;
    const std::string not_dead = table_.has_side_tables
                                     ? " AND NOT EXISTS (SELECT FROM " + table_.side +
                                           "outbox_dead_letters d WHERE d.id IN (" + id + ", " +
                                           quote_literal(table_.id_prefix()) + " || " + id +
                                           ") AND (d.source = " + quote_literal(name) +
                                           " OR starts_with(d.source, " +
                                           quote_literal(name + "/") + ")))"
                                     : std::string();
    return finished + " AND " + time + " < statement_timestamp() - $1 * interval '1 second'" +
           not_dead;
}

std::string TableWriter::prune_sql() const {
    const std::string prunable = prunable_rows();
    if (prunable.empty()) return {};
    // A ctid names a row in its own partition only. The condition stands twice: the outer one is
    // asked again of a row that its owner sets back while the delete waits for it.
    return "WITH old AS (SELECT t.tableoid AS part, t.ctid AS place FROM " + table_.sql +
           " t WHERE " + prunable + " LIMIT $2) DELETE FROM " + table_.sql +
           " t USING old WHERE t.tableoid = old.part AND t.ctid = old.place AND " + prunable;
}

std::string TableWriter::prunable_sql() const {
    const std::string prunable = prunable_rows();
    if (prunable.empty()) return {};
    return "SELECT count(*) FROM " + table_.sql + " t WHERE " + prunable;
}

Connection::Statement TableWriter::prunable(std::chrono::seconds retention, std::size_t limit,
                                            const std::optional<std::string>& after) const {
    const std::string id = table_.quoted("id");
    const std::string behind =
        after ? id + " > $3::text::" + id_type(table_) : id + " IS NOT NULL AND $3::text IS NULL";
    Params params;
    params.integer(retention.count()).integer(static_cast<std::int64_t>(limit));
    if (after) {
        params.text(*after);
    } else {
        params.text_or_null({});
    }
    return {"SELECT " + id + "::text FROM " + table_.sql + " t WHERE " + prunable_rows() + " AND " +
                behind + " ORDER BY " + id + " LIMIT $2",
            std::move(params)};
}

Connection::Statement TableWriter::prune(std::chrono::seconds retention,
                                         const std::vector<std::string>& raw_ids,
                                         bool free_only) const {
    const std::string id = table_.quoted("id");
    const std::string those = id + " = ANY($2::" + id_type(table_) + "[]) AND " + prunable_rows();
    const std::string free = id + " IN (SELECT " + id + " FROM " + table_.sql + " t WHERE " +
                             those + " FOR UPDATE SKIP LOCKED) AND " + prunable_rows();
    return {"DELETE FROM " + table_.sql + " t WHERE " + (free_only ? free : those) + " RETURNING " +
                id + "::text, false",
            Params().integer(retention.count()).texts(raw_ids)};
}

}  // namespace outbox::postgres
