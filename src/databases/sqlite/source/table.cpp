#include "databases/sqlite/source/table.h"

#include <utility>

#include "core/ascii.h"
#include "core/embedded_sql.h"
#include "core/sql_text.h"
#include "core/url.h"
#include "relay/tenants.h"

namespace outbox::sqlite {
namespace {

ErrorInfo shape_error(std::string message) {
    return {ErrorCode::kTableShape, Advice::kStop, {}, std::move(message)};
}

Status load_columns(Database& database, Table& table, std::string& primary_key) {
    Statement rows(database, "SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid");
    rows.bind(table.name);
    int keys = 0;
    while (rows.step()) {
        table.catalog.emplace(rows.string(0), lower(rows.string(1)));
        if (rows.integer(2) == 0) continue;
        ++keys;
        primary_key = rows.string(0);
    }
    if (keys != 1) primary_key.clear();
    if (Status status = rows.status(); !status.ok()) return status;
    if (!table.catalog.empty()) return {};
    return {ErrorCode::kNoSuchTable, Advice::kStop,
            table.path + " has no table " + table.name +
                ". Make it with `outbox migrate --db sqlite://" + table.path +
                "`, or name another with --table."};
}

// Another column may have taken one of the rowid's three names.
std::string rowid_name(const Table& table) {
    for (const char* name : {"rowid", "_rowid_", "oid"}) {
        bool taken = false;
        for (const auto& [column, type] : table.catalog) taken = taken || lower(column) == name;
        if (!taken) return name;
    }
    return {};
}

Status settle_order(Database& database, Table& table, const std::string& primary_key) {
    Statement kind(
        database,
        "SELECT l.type, l.wr, m.sql LIKE '%AUTOINCREMENT%' FROM pragma_table_list l "
        "JOIN sqlite_master m ON m.name = l.name WHERE l.name = ? AND l.schema = 'main'");
    kind.bind(table.name);
    const bool found = kind.step();
    if (Status status = kind.status(); !status.ok()) return status;
    if (!found || kind.text(0) != "table") {
        return shape_error("'" + table.name + "' in " + table.path + " is not a table");
    }
    const bool without_rowid = kind.integer(1) != 0;
    table.autoincrement = kind.integer(2) != 0;
    const std::string position = table.column("position");
    table.order = position.empty() ? rowid_name(table) : quote_identifier(position);
    if ((without_rowid && position.empty()) || table.order.empty()) {
        return shape_error("table " + table.sql +
                           " has no rowid, so that nothing tells the order in which its rows were "
                           "written; make it without WITHOUT ROWID, or map position to a rising "
                           "number under [source.table.columns] in outbox.toml");
    }
    if (!position.empty()) {
        table.tie = without_rowid ? quote_identifier(table.column("id")) : rowid_name(table);
    }
    table.integer_id = !without_rowid && primary_key == table.column("id") &&
                       table.catalog.at(primary_key) == "integer";
    if (!table.integer_id || table.autoincrement || table.mark) return {};
    return shape_error("the rows of " + table.sql +
                       " are removed when sent, and SQLite gives the number of a removed row to a "
                       "new one, which consumers would then drop as a repeat. Declare column " +
                       quote_identifier(primary_key) +
                       " as INTEGER PRIMARY KEY AUTOINCREMENT, or use text ids");
}

}  // namespace

std::string Table::quoted(const std::string& field) const {
    return "t." + quote_identifier(column(field));
}

Result<std::string> database_path(const std::string& url) {
    const Result<Url> parsed = parse_url(url);
    if (!parsed.ok()) return parsed.status();
    if (parsed->scheme == "sqlite" && !parsed->path.empty() && parsed->authority.empty()) {
        if (parsed->query.empty()) return parsed->path;
        return ErrorInfo{
            ErrorCode::kConfigInvalid, Advice::kStop, "",
            "'" + redact(url) +
                "' has a parameter, and a SQLite file takes none; a '?' in its name is "
                "written %3F"};
    }
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     "'" + redact(url) +
                         "' names no SQLite file: write sqlite:///absolute/path, with three "
                         "slashes"};
}

Result<Table> name_table(const SqliteSourceConfig& config) {
    Result<std::string> path = database_path(config.url);
    if (!path.ok()) return path.status();
    Table table;
    table.path = *std::move(path);
    table.name = config.table;
    table.sql = quote_identifier(config.table);
    table.source = relay::source_name(config.table, config.tenants);
    table.tenants = config.tenants;
    table.default_tenant = config.default_tenant;
    std::sort(table.tenants.begin(), table.tenants.end());
    table.busy_timeout_ms = config.busy_timeout_ms;
    return table;
}

Status resolve_table(Database& database, const SqliteSourceConfig& config, Table& table) {
    std::string primary_key;
    if (Status status = load_columns(database, table, primary_key); !status.ok()) return status;
    std::vector<ColumnFacts> columns;
    for (const auto& [name, type] : table.catalog) columns.push_back({name, true});
    Result<TableLayout> layout = lay_out_table(config.mapping, config.after_publish, columns,
                                               table.sql + " in " + table.path);
    if (!layout.ok()) return layout.status();
    static_cast<TableLayout&>(table) = std::move(*layout);
    if (!table.tenants.empty() && !table.has("tenant_id")) {
        return shape_error("table " + table.sql +
                           " has no tenant column; run without --tenant or map tenant_id");
    }
    return settle_order(database, table, primary_key);
}

Status require_known_version(Database& database, const Table& table) {
    if (!table.native) return {};
    Statement record(database, "SELECT 1 FROM sqlite_master WHERE name = 'outbox_migrations'");
    if (!record.step()) return record.status();
    Statement newest(database,
                     "SELECT coalesce(max(version), 0) FROM outbox_migrations WHERE side = "
                     "'producer'");
    const std::int64_t version = newest.step() ? newest.integer(0) : 0;
    if (Status status = newest.status(); !status.ok()) return status;
    return check_producer_version("producer/sqlite", version);
}

std::vector<std::string> unfinished_conditions(const Table& table) {
    std::vector<std::string> conditions;
    if (table.has("status")) {
        const auto add = [&](const std::string& value) {
            if (value.empty()) return;
            conditions.push_back(table.quoted("status") + " = " + quote_literal(value));
        };
        for (const std::string& value : table.mapping.pending_values) add(value);
        for (const std::string& value : table.mapping.sending_values) add(value);
        add(table.mapping.failed_value);
    } else if (table.has("processed")) {
        conditions.push_back(table.quoted("processed") + " = 0");
        conditions.push_back(table.quoted("processed") + " IS NULL");
    } else if (table.has("processed_at")) {
        conditions.push_back(table.quoted("processed_at") + " IS NULL");
    } else if (table.has("published_at")) {
        conditions.push_back(table.quoted("published_at") + " IS NULL");
    } else {
        conditions.emplace_back("1");
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

std::string tenant_condition(const Table& table) {
    if (table.tenants.empty()) return "1";
    std::string list;
    for (const std::string& tenant : table.tenants) {
        list += (list.empty() ? "" : ", ") + quote_literal(tenant);
    }
    return tenant_or(table.quoted("tenant_id"), table.default_tenant) + " IN (" + list + ")";
}

// Teams keep times as text, as a Julian day, or as seconds, milli- or microseconds of the Unix
// epoch; the size of a number tells which. Seconds reach 10^11 in the year 5138.
std::string microseconds_of(const std::string& column) {
    return "CASE typeof(" + column + ") WHEN 'integer' THEN CASE WHEN " + column +
           " < 100000000000 THEN " + column + " * 1000000 WHEN " + column +
           " < 100000000000000 THEN " + column + " * 1000 ELSE " + column +
           " END WHEN 'real' THEN CASE WHEN " + column + " < 10000000 THEN CAST((" + column +
           " - 2440587.5) * 86400000000 AS integer) ELSE CAST(" + column +
           " * 1000000 AS integer) END WHEN 'text' THEN CAST(round((julianday(" + column +
           ") - 2440587.5) * 86400000) AS integer) * 1000 END";
}

std::string time_for(const Table& table, const std::string& field, const std::string& value) {
    const auto text = [&](const char* format) {
        return "strftime('" + std::string(format) + "', " + value + " / 1000000.0, 'unixepoch')";
    };
    const std::string type = table.catalog.at(table.column(field));
    std::string plain =
        type.find("int") != std::string::npos ? value + " / 1000000" : text("%Y-%m-%d %H:%M:%S");
    if (table.created_at.empty()) return plain;
    const std::string own = "t." + quote_identifier(table.created_at);
    return "CASE typeof(" + own + ") WHEN 'integer' THEN CASE WHEN " + own +
           " < 100000000000 THEN " + value + " / 1000000 WHEN " + own + " < 100000000000000 THEN " +
           value + " / 1000 ELSE " + value + " END WHEN 'real' THEN CASE WHEN " + own +
           " < 10000000 THEN " + value + " / 86400000000.0 + 2440587.5 ELSE " + value +
           " / 1000000.0 END WHEN 'text' THEN CASE "
           "substr(" +
           own + ", 11, 1) WHEN 'T' THEN " + text("%Y-%m-%dT%H:%M:%fZ") + " ELSE " +
           text("%Y-%m-%d %H:%M:%S") + " END ELSE " + plain + " END";
}

std::string raw_id_of(const Statement& row, int type_column, int id_column) {
    return std::string(row.text(type_column).substr(0, 1)) + row.string(id_column);
}

void bind_raw_id(Statement& statement, std::string_view raw_id) {
    const std::string_view value = raw_id.substr(1);
    switch (raw_id.front()) {
        case 'i':
            statement.bind(static_cast<std::int64_t>(std::stoll(std::string(value))));
            return;
        case 'b':
            statement.bind_blob(value);
            return;
        default:
            statement.bind(value);
    }
}

bool is_too_long(const Table& table, std::string_view raw_id) {
    const std::size_t size = raw_id.size() - 1;
    return table.id_prefix().size() + (raw_id.front() == 'b' ? 2 * size : size) > kMaxIdBytes;
}

std::array<std::string, 2> event_ids(const Table& table) {
    const std::string id = table.quoted("id");
    const std::string hex = "lower(hex(" + id + "))";
    std::string uuid;
    int at = 1;
    for (const int size : {8, 4, 4, 4, 12}) {
        uuid += (uuid.empty() ? "substr(" : " || '-' || substr(") + hex + ", " +
                std::to_string(at) + ", " + std::to_string(size) + ")";
        at += size;
    }
    const std::string prefix = quote_literal(table.id_prefix()) + " || ";
    const std::string choice = "CASE typeof(" + id + ") WHEN 'blob' THEN ";
    return {choice + uuid + " ELSE CAST(" + id + " AS text) END",
            choice + prefix + hex + " ELSE " + prefix + id + " END"};
}

std::string event_id_of(const Table& table, std::string_view raw_id) {
    constexpr const char* kDigits = "0123456789abcdef";
    constexpr std::size_t kUuidBytes = 16;
    const std::string_view value = raw_id.substr(1);
    if (raw_id.front() != 'b') {
        return event_id(table.id_prefix(), value);
    }
    std::string text;
    for (std::size_t i = 0; i < value.size(); ++i) {
        const bool hyphen = i == 4 || i == 6 || i == 8 || i == 10;
        if (value.size() == kUuidBytes && hyphen) text += '-';
        const auto byte = static_cast<unsigned char>(value[i]);
        text.append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
    }
    return value.size() == kUuidBytes ? text : event_id(table.id_prefix(), text);
}

std::string done_name(std::string_view raw_id) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    std::string name(raw_id.substr(0, 1));
    if (raw_id.front() != 'b') return name.append(raw_id.substr(1));
    for (const char c : raw_id.substr(1)) {
        const auto byte = static_cast<unsigned char>(c);
        name.append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
    }
    return name;
}

std::string done_name_sql(const Table& table) {
    const std::string id = table.quoted("id");
    return "(CASE typeof(" + id + ") WHEN 'blob' THEN 'b' || hex(" + id + ") ELSE substr(typeof(" +
           id + "), 1, 1) || " + id + " END)";
}

std::string not_done(const Table& table, const std::string& sources, const std::string& route) {
    return "NOT EXISTS (SELECT 1 FROM outbox_route_done d WHERE d.source IN (" + sources +
           ") AND d.event_id = " + done_name_sql(table) + " AND d.route IN (" + route + ", ''))";
}

}  // namespace outbox::sqlite
