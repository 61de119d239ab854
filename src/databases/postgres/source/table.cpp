#include "databases/postgres/source/table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/schema_objects.h"
#include "relay/tenants.h"

namespace outbox::postgres {
namespace {

bool is_integer(const std::string& type) {
    return type == "int8" || type == "int4" || type == "int2";
}

bool is_time(const std::string& type) {
    return type == "timestamptz" || type == "timestamp" || type == "date";
}

ErrorInfo shape_error(std::string message) {
    return {ErrorCode::kTableShape, Advice::kStop, {}, std::move(message)};
}

// Without USAGE on its schema no name leads to a table, which is there all the same.
Status refuse_hidden_schema(Connection& connection, const std::string& wanted) {
    const auto dot = wanted.find('.');
    const bool named = dot != std::string::npos;
    const Result<Rows> rows = connection.query(
        "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = "
        "c.relnamespace WHERE NOT has_schema_privilege(n.oid, 'USAGE') AND c.relkind IN ('r', 'p') "
        "AND (n.nspname = $1 AND c.relname = $2 OR c.relname = $3 AND n.nspname IN (SELECT "
        "btrim(part, ' \"') FROM pg_settings, unnest(string_to_array(reset_val, ',')) part WHERE "
        "name = 'search_path'))",
        Params()
            .text(named ? wanted.substr(0, dot) : "")
            .text(named ? wanted.substr(dot + 1) : "")
            .text(wanted));
    if (!rows.ok() || rows->empty()) return rows.status();
    return {ErrorCode::kNoRights, Advice::kStop,
            "rights: user " + connection.user() + " lacks USAGE on schema " + rows->string(0, 0) +
                ", where the table '" + wanted + "' is. GRANT USAGE ON SCHEMA " +
                rows->string(0, 0) + " TO " + quote_identifier(connection.user()),
            "42501"};
}

Status find_table(Connection& connection, const std::string& wanted, Table& table) {
    std::vector<std::string> names;
    for (const std::string& schema : connection.schemas()) {
        names.push_back(schema + "." + quote_identifier(wanted));
    }
    if (const auto dot = wanted.find('.'); dot != std::string::npos) {
        names.push_back(quote_identifier(wanted.substr(0, dot)) + "." +
                        quote_identifier(wanted.substr(dot + 1)));
    }
    for (const std::string& name : names) {
        Result<Rows> rows = connection.query(
            "SELECT n.nspname, c.relname, c.relkind FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)",
            Params().text(name));
        if (!rows.ok()) {
            // Of a schema that may not be looked into no name is asked for.
            Status hidden = refuse_hidden_schema(connection, wanted);
            return hidden.ok() ? rows.status() : hidden;
        }
        if (rows->empty()) continue;
        if (const auto kind = rows->text(0, 2); kind != "r" && kind != "p") {
            return shape_error("'" + wanted + "' is not a table");
        }
        table.partitioned = rows->text(0, 2) == "p";
        table.schema = rows->string(0, 0);
        table.name = rows->string(0, 1);
        table.sql = quote_identifier(table.schema) + "." + quote_identifier(table.name);
        return {};
    }
    if (Status hidden = refuse_hidden_schema(connection, wanted); !hidden.ok()) return hidden;
    return {ErrorCode::kNoSuchTable, Advice::kStop,
            "there is no table '" + wanted + "' in database '" + connection.database() +
                "' (names are exact, case kept); create it with outbox migrate --db URL, or name "
                "yours with --table NAME",
            "42P01"};
}

Status load_columns(Connection& connection, Table& table) {
    Result<Rows> rows = connection.query(
        "SELECT a.attname, b.typname, a.attnotnull, a.attidentity = 'a', "
        "coalesce(s.seqcache, 0), coalesce(s.seqincrement, 0), "
        "CASE WHEN b.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 "
        "THEN a.atttypmod - 4 ELSE 0 END, format_type(b.oid, NULL), "
        "b.typnamespace <> 'pg_catalog'::regnamespace AND b.typtype <> 'e', "
        "coalesce(s.seqmin, 0), CASE WHEN b.typname IN ('timestamptz', 'timestamp') AND "
        "a.atttypmod >= 0 THEN a.atttypmod ELSE 6 END, (SELECT pg_get_expr(adbin, adrelid) FROM "
        "pg_attrdef WHERE adrelid = a.attrelid AND adnum = a.attnum), "
        "CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END, (SELECT "
        "string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = b.oid), "
        "a.attnum "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END "
        "LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.deptype = 'i' "
        "AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid "
        "AND d.refobjsubid = a.attnum AND a.attidentity <> '' "
        "LEFT JOIN pg_sequence s ON s.seqrelid = d.objid "
        "WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped",
        Params().text(table.sql));
    if (!rows.ok()) return rows.status();
    bool foreign_types = false;
    for (int row = 0; row < rows->size(); ++row) {
        Column column;
        column.type = rows->string(row, 1);
        column.not_null = rows->boolean(row, 2);
        column.identity_always = rows->boolean(row, 3);
        column.sequence_cache = rows->integer(row, 4);
        column.sequence_step = rows->integer(row, 5);
        column.max_length = static_cast<int>(rows->integer(row, 6));
        column.sql_type = rows->string(row, 7);
        foreign_types |= rows->boolean(row, 8);
        column.sequence_min = rows->integer(row, 9);
        column.time_digits = static_cast<int>(rows->integer(row, 10));
        column.by_default = rows->string(row, 11);
        column.modifier = static_cast<int>(rows->integer(row, 12));
        column.labels = rows->string(row, 13);
        column.place = static_cast<int>(rows->integer(row, 14));
        table.catalog.emplace(rows->string(row, 0), column);
    }
    const Result<Rows> triggers = connection.query(
        "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid IN (SELECT relid FROM "
        "pg_partition_tree($1::text::regclass) UNION SELECT $1::text::regclass) "
        "AND NOT tgisinternal)",
        Params().text(table.sql));
    if (!triggers.ok()) return triggers.status();
    if (!foreign_types && !triggers->boolean(0, 0)) return {};
    table.path = "pg_catalog";
    for (const std::string& schema : connection.schemas()) table.path += ", " + schema;
    table.path += ", pg_temp";
    return {};
}

// A partitioned table can have such an index by its partition key alone.
Status load_uniqueness(Connection& connection, Table& table) {
    const Result<Rows> rows = connection.query(
        "SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND "
        "a.attnum = i.indkey[0] WHERE i.indrelid = $1::text::regclass AND i.indisunique AND "
        "i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 AND a.attname "
        "= $2)",
        Params().text(table.sql).text(table.column("id")));
    if (!rows.ok()) return rows.status();
    table.unique_id = table.partitioned || rows->boolean(0, 0);
    return {};
}

Status check_types(const Table& table) {
    const auto wrong = [&](const char* field, const char* wanted) {
        return shape_error("column " + quote_identifier(table.column(field)) + " of " + table.sql +
                           " has type " + table.find(field)->type + "; " + field + " needs " +
                           wanted);
    };
    for (const char* field : {"occurred_at", "retry_after", "published_at", "processed_at"}) {
        if (table.has(field) && !is_time(table.find(field)->type)) {
            return wrong(field, "timestamptz, timestamp or date");
        }
    }
    for (const char* field : {"position", "retry_count"}) {
        if (table.has(field) && !is_integer(table.find(field)->type)) {
            return wrong(field, "an integer type");
        }
    }
    if (table.has("processed") && table.find("processed")->type != "bool") {
        return wrong("processed", "boolean");
    }
    return {};
}

// A number that the table's own inserts hand out, one after another.
bool proves_holes(const Column& column) {
    return column.identity_always && column.sequence_cache == 1 && column.sequence_step == 1 &&
           column.sequence_min >= 1;
}

void settle_order(Table& table) {
    const Column& id = *table.find("id");
    table.uuid_id = id.type == "uuid";
    table.integer_id = is_integer(id.type);
    table.position = table.column("position");
    if (table.position.empty() && table.integer_id) table.position = table.column("id");
    table.by_position = !table.position.empty() && !table.has_state() &&
                        proves_holes(table.catalog.at(table.position));
}

// Cast also where the type is the one that is wanted: it may be changed while the relay runs.
std::string cast(const Table& table, const std::string& field, const std::string& type) {
    return (table.has(field) ? table.quoted(field) : "NULL") + "::" + type;
}

std::string text_of(const Table& table, const std::string& field) {
    return cast(table, field, "text");
}

std::string time_of(const Table& table, const std::string& field) {
    const bool whole = !table.has(field) || table.find(field)->type == "timestamptz";
    return whole ? cast(table, field, "timestamptz") : finite_time(table, field);
}

std::string id_of(const Table& table) {
    return cast(table, "id", table.uuid_id ? "uuid" : "text");
}

std::string payload_of(const Table& table, const std::string& field) {
    if (!table.has(field)) return "NULL::text";
    const std::string& type = table.find(field)->type;
    return cast(table, field, type == "jsonb" || type == "bytea" ? type : "text");
}

// A cast to text differs from what the type prints: char(n) loses blanks, inet gains a mask.
std::string printed(const std::string& column) {
    return "CASE WHEN " + column + " IS NOT NULL THEN concat(" + column + ") END";
}

std::string metadata_of(const Table& table) {
    if (table.mapping.metadata_columns.empty()) return "NULL::text";
    std::string list;
    bool json = false;
    for (const std::string& column : table.mapping.metadata_columns) {
        if (!list.empty()) list += ", ";
        const std::string own = "t." + quote_identifier(column);
        const bool as_text = table.mapping.metadata_as_text;
        list += quote_literal(column) + ", " + (as_text ? printed(own) : own);
        json = json || (!as_text && table.catalog.at(column).type == "json");
    }
    // A json may hold what jsonb refuses: \\u0000, half a surrogate pair, 1e999999.
    if (json) return "json_build_object(" + list + ")::text";
    // Among texts a NULL stays, so that a dead letter tells a column that was NULL from one that
    // was not read.
    return table.mapping.metadata_as_text
               ? "jsonb_build_object(" + list + ")::text"
               : "jsonb_strip_nulls(jsonb_build_object(" + list + "))::text";
}

// A type's modifier as numeric, the character and bit types, and times have it.
void take_modifier(const Column& column, spi::ColumnShape& out) {
    constexpr int kHeader = 4;
    if (column.modifier < 0) return;
    if (column.type == "numeric") {
        const int packed = column.modifier - kHeader;
        out.length = packed >> 16;
        out.scale = packed & 0x7FF;
        if (out.scale >= 0x400) out.scale -= 0x800;  // negative from PostgreSQL 15 on
    } else if (column.type == "varchar" || column.type == "bpchar") {
        out.length = column.modifier - kHeader;
    } else {
        out.length = column.modifier;
    }
}

std::string failed_condition(const Table& table) {
    return table.quoted("status") + " = " + quote_literal(table.mapping.failed_value);
}

}  // namespace

std::string Table::quoted(const std::string& field) const {
    return "t." + quote_identifier(column(field));
}

const Column* Table::find(const std::string& field) const {
    const auto it = catalog.find(column(field));
    return it == catalog.end() ? nullptr : &it->second;
}

bool Table::has_extras() const {
    return !mapping.metadata_columns.empty() || (has("status") && !mapping.failed_value.empty() &&
                                                 (has("retry_count") || has("retry_after")));
}

spi::RowShape shape_of(const Table& table) {
    spi::RowShape shape;
    shape.schema = table.schema;
    shape.table = table.name;
    shape.id_prefix = table.id_prefix();
    shape.fields = table.mapping.columns;
    shape.metadata_columns = table.mapping.metadata_columns;
    shape.metadata_as_text = table.mapping.metadata_as_text;
    std::vector<std::pair<int, spi::ColumnShape>> columns;
    for (const auto& [name, column] : table.catalog) {
        spi::ColumnShape one{.name = name, .type = column.type, .nullable = !column.not_null};
        take_modifier(column, one);
        one.default_value = column.by_default;
        one.labels = column.labels;
        columns.emplace_back(column.place, std::move(one));
    }
    std::sort(columns.begin(), columns.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [place, column] : columns) shape.columns.push_back(std::move(column));
    return shape;
}

Result<Table> resolve_table(Connection& connection, const PostgresSourceConfig& config) {
    Table table;
    if (Status status = find_table(connection, config.table, table); !status.ok()) return status;
    if (Status status = load_columns(connection, table); !status.ok()) return status;
    std::vector<ColumnFacts> columns;
    for (const auto& [name, column] : table.catalog)
        columns.push_back({name, is_time(column.type)});
    Result<TableLayout> layout =
        lay_out_table(config.mapping, config.after_publish, columns, table.sql,
                      table.partitioned && table.catalog.contains("segment"));
    if (!layout.ok()) return layout.status();
    static_cast<TableLayout&>(table) = std::move(*layout);
    if (Status status = check_types(table); !status.ok()) return status;
    settle_order(table);
    if (Status status = load_uniqueness(connection, table); !status.ok()) return status;
    table.source = relay::source_name(table.schema + "." + table.name, config.tenants);
    if (!config.tenants.empty() && !table.has("tenant_id")) {
        return shape_error("table " + table.sql +
                           " has no tenant column; run without --tenant or map tenant_id");
    }
    if (table.native && table.name == "outbox_events") {
        Result<Rows> rows =
            connection.query("SELECT to_regclass($1) IS NOT NULL",
                             Params().text(quote_identifier(table.schema) + ".outbox_scheduled"));
        if (!rows.ok()) return rows.status();
        table.has_scheduled = rows->boolean(0, 0);
    }
    return table;
}

std::string unique_ids_sql(const Table& table) {
    return "CREATE UNIQUE INDEX CONCURRENTLY ON " + table.sql + " (" +
           quote_identifier(table.column("id")) + ")";
}

// UPDATE, also where rows are only removed: to pass over one that somebody holds (FOR UPDATE).
std::string_view rights_to(const Table& table) {
    if (table.has_scheduled) return "SELECT, INSERT, UPDATE, DELETE";
    return table.mark ? "SELECT, UPDATE" : "SELECT, UPDATE, DELETE";
}

std::string all_rights_to(const Table& table) {
    std::string out = "(" + quote_literal(table.sql) + ", '" + std::string(rights_to(table)) + "')";
    for (const SchemaObject& object : schema_objects()) {
        if (object.kind != SchemaObject::Kind::kTable || object.relay.empty()) continue;
        if (!object.beside_adopted || !table.has_side_tables) continue;
        out += ", (" + quote_literal(table.side + std::string(object.name)) + ", '";
        out.append(object.relay).append("')");
    }
    return out;
}

std::string repeated_ids(const Table& table) {
    if (table.by_position || table.unique_id) return {};
    return "ids: no unique index on " + quote_identifier(table.column("id")) + " of " + table.sql +
           ", so that two rows of one id are one event: one is sent, and both are finished. " +
           unique_ids_sql(table);
}

std::string tenant_name(const Table& table, const std::string& default_tenant) {
    return tenant_or(text_of(table, "tenant_id"), default_tenant);
}

std::string tenant_condition(const Table& table, const PostgresSourceConfig& config) {
    if (config.tenants.empty()) return "true";
    std::string list;
    for (const std::string& tenant : config.tenants) {
        list += (list.empty() ? "" : ", ") + quote_literal(tenant);
    }
    return tenant_name(table, config.default_tenant) + " IN (" + list + ")";
}

std::string select_list(const Table& table, const PostgresSourceConfig& config) {
    // By position the rows of other tenants must be seen, so that they are not taken for holes.
    const bool blank = table.by_position && !config.tenants.empty();
    const std::string own = tenant_condition(table, config);
    const auto guarded = [&](const std::string& expression) {
        return blank ? "CASE WHEN " + own + " THEN " + expression + " END" : expression;
    };
    std::string list = table.position.empty()
                           ? "NULL::bigint"
                           : "t." + quote_identifier(table.position) + "::bigint";
    list += ", " + guarded(id_of(table));
    for (const char* field : {"aggregate_type", "aggregate_id", "event_type"}) {
        list += ", " + text_of(table, field);
    }
    list += ", " + guarded(payload_of(table, "payload"));
    list += ", " + guarded(payload_of(table, "headers"));
    for (const char* field : {"tenant_id", "schema_id", "schema_version"}) {
        list += ", " + text_of(table, field);
    }
    list += ", " + time_of(table, "occurred_at");
    for (const char* field : {"topic", "key", "routing_key"}) list += ", " + text_of(table, field);
    list += ", " + time_of(table, "available_at");
    if (!table.has_extras()) return list;
    list += ", " + metadata_of(table);
    const bool states = table.has("status") && !table.mapping.failed_value.empty();
    list += states && table.has("retry_count")
                ? ", CASE WHEN " + failed_condition(table) + " THEN " +
                      table.quoted("retry_count") + "::bigint END"
                : ", NULL::bigint";
    list += states && table.has("retry_after")
                ? ", CASE WHEN " + failed_condition(table) + " THEN " +
                      time_of(table, "retry_after") + " END"
                : ", NULL::timestamptz";
    return list;
}

std::vector<std::string> unfinished_conditions(const Table& table) {
    std::vector<std::string> conditions;
    const auto with_null = [&](const char* field, const std::string& condition) {
        conditions.push_back(condition);
        if (!table.find(field)->not_null) conditions.push_back(table.quoted(field) + " IS NULL");
    };
    if (table.has("status")) {
        const auto add = [&](const std::string& value) {
            if (value.empty()) return;
            conditions.push_back(table.quoted("status") + " = " + quote_literal(value));
        };
        for (const std::string& value : table.mapping.pending_values) add(value);
        for (const std::string& value : table.mapping.sending_values) add(value);
        add(table.mapping.failed_value);
    } else if (table.has("processed")) {
        with_null("processed", table.quoted("processed") + " = false");
    } else if (table.has("processed_at")) {
        conditions.push_back(table.quoted("processed_at") + " IS NULL");
    } else if (table.has("published_at")) {
        conditions.push_back(table.quoted("published_at") + " IS NULL");
    } else {
        conditions.emplace_back("true");
    }
    return conditions;
}

std::string any_unfinished(const Table& table) {
    std::string any;
    for (const std::string& condition : unfinished_conditions(table)) {
        any += (any.empty() ? "(" : " OR ") + condition;
    }
    return any + ")";
}

// The last timestamptz is of the year 294276; dates and times without a zone go further.
std::string finite_time(const Table& table, const std::string& field) {
    const std::string own = table.quoted(field);
    return "CASE WHEN " + own + " > '-infinity' AND " + own + " < '200000-01-01' THEN " + own +
           "::timestamptz END";
}

std::string done_id(const Table& table, const std::string& raw_id) {
    const Column& id = *table.find("id");
    constexpr int kSurelyShort = 500;  // characters
    if (table.uuid_id || table.integer_id || (id.max_length > 0 && id.max_length <= kSurelyShort)) {
        return raw_id;
    }
    return "CASE WHEN octet_length(" + raw_id + ") > 2000 THEN 'md5:' || md5(" + raw_id +
           ") || ':' || octet_length(" + raw_id + ") ELSE " + raw_id + " END";
}

// OFFSET keeps it a look-up of its own for each row. As a join, planned before the table was ever
// analyzed, it compared each row with everything that is done.
std::string not_done(const Table& table, const std::string& source, const std::string& route) {
    return "NOT EXISTS (SELECT FROM " + table.side +
           "outbox_route_done d WHERE d.source = " + source +
           " AND d.event_id = " + done_id(table, table.quoted("id") + "::text") +
           " AND d.route IN (" + route + ", '') OFFSET 0)";
}

std::string not_among_done(const Table& table, const std::string& source,
                           const std::string& route) {
    return "(" + done_id(table, table.quoted("id") + "::text") +
           ") NOT IN (SELECT d.event_id FROM " + table.side +
           "outbox_route_done d WHERE d.source = " + source + " AND d.route IN (" + route +
           ", ''))";
}

std::string above_settled(const Table& table) {
    if (!table.keep) return "true";
    return "t." + quote_identifier(table.position) + " > (SELECT settled FROM " + table.side +
           "outbox_routes WHERE source = $1 AND route = $2)";
}

std::string order_by(const Table& table) {
    if (!table.position.empty()) return "t." + quote_identifier(table.position);
    if (table.created_at.empty()) return table.quoted("id");
    return "t." + quote_identifier(table.created_at) + ", " + table.quoted("id");
}

}  // namespace outbox::postgres
