#include "databases/postgres/stream/table.h"

#include <string>

#include "core/sql_text.h"
#include "databases/postgres/stream/row_decoder.h"

namespace outbox::postgres {
namespace {

constexpr int kPublishesGenerated = 180'000;

// Each column with what lies at the bottom of its domains.
constexpr const char* kColumns =
    "WITH RECURSIVE chain (attnum, oid) AS ("
    "SELECT attnum, atttypid FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 "
    "AND NOT attisdropped UNION ALL "
    "SELECT chain.attnum, t.typbasetype FROM chain JOIN pg_type t ON t.oid = chain.oid "
    "WHERE t.typtype = 'd') "
    "SELECT a.attname, a.atttypid::bigint, b.oid::bigint, "
    "CASE WHEN b.typtype = 'e' THEN 'enum' WHEN b.typsend = 0 THEN 'output' "
    "ELSE (SELECT proname FROM pg_proc WHERE oid = b.typsend) END, a.attgenerated, "
    "format_type(a.atttypid, a.atttypmod), "
    "EXISTS (SELECT FROM pg_cast WHERE castsource = b.oid AND casttarget = 'text'::regtype "
    "AND castmethod <> 'b'), "
    "b.typnamespace <> 'pg_catalog'::regnamespace AND EXISTS (SELECT FROM pg_cast "
    "WHERE castsource = b.oid AND casttarget = 'json'::regtype), "
    "coalesce(NOT l.collisdeterministic, false) "
    "FROM chain JOIN pg_attribute a ON a.attrelid = $1::text::regclass AND a.attnum = chain.attnum "
    "JOIN pg_type b ON b.oid = chain.oid AND b.typtype <> 'd' "
    "LEFT JOIN pg_collation l ON l.oid = a.attcollation";

struct StreamColumn {
    WireType type = WireType::kUnknown;
    std::string printed_type;
    std::string generated;
    bool own_json = false;     // a cast to json, which jsonb_build_object would use
    bool other_equal = false;  // a collation under which other bytes may be equal
};

using StreamColumns = std::map<std::string, StreamColumn>;

// `send` is the send function, "enum", or "output": none, so that text is sent in its place.
WireType wire_type(std::uint32_t oid, std::string_view send, bool own_text) {
    if (const WireType type = built_in_type(oid); type != WireType::kUnknown) return type;
    const bool is_text = send == "enum" || send == "citextsend" || (send == "output" && !own_text);
    return is_text ? WireType::kText : WireType::kUnknown;
}

Result<StreamColumns> load_stream_columns(Connection& connection, const Table& table,
                                          StreamTable& out) {
    Result<Rows> rows = connection.query(kColumns, Params().text(table.sql));
    if (!rows.ok()) return rows.status();
    StreamColumns columns;
    for (int row = 0; row < rows->size(); ++row) {
        StreamColumn column;
        const auto oid = static_cast<std::uint32_t>(rows->integer(row, 1));
        column.type = wire_type(static_cast<std::uint32_t>(rows->integer(row, 2)),
                                rows->text(row, 3), rows->boolean(row, 6));
        if (built_in_type(oid) == WireType::kUnknown && column.type != WireType::kUnknown) {
            out.types.emplace(oid, column.type);
        }
        column.generated = rows->string(row, 4);
        column.printed_type = rows->string(row, 5);
        column.own_json = rows->boolean(row, 7);
        column.other_equal = rows->boolean(row, 8);
        columns.emplace(rows->string(row, 0), std::move(column));
    }
    return columns;
}

Status look_at_table(Connection& connection, const Table& table, StreamTable& out) {
    Result<Rows> rows = connection.query(
        "SELECT c.oid::bigint, c.relkind = 'p', "
        "(SELECT string_agg(format('ALTER TABLE %I.%I SET LOGGED', n.nspname, l.relname), '; ') "
        "FROM pg_class l JOIN pg_namespace n ON n.oid = l.relnamespace WHERE l.relpersistence <> "
        "'p' AND (l.oid = c.oid OR l.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))), "
        "c.relispartition, "
        "EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid), row_security_active(c.oid) "
        "FROM pg_class c WHERE c.oid = $1::text::regclass",
        Params().text(table.sql));
    if (!rows.ok()) return rows.status();
    if (rows->empty()) {
        return {ErrorCode::kNoSuchTable, Advice::kStop, "table " + table.sql + " is gone", "42P01"};
    }
    const auto obstacle = [&](const std::string& text) {
        out.obstacles.push_back("table " + table.sql + " " + text);
    };
    out.oid = static_cast<std::uint32_t>(rows->integer(0, 0));
    out.needs_partition_root = rows->boolean(0, 1);
    if (!table.by_position) {
        obstacle(
            "has no GENERATED ALWAYS identity with CACHE 1, or rows that are marked in place "
            "of being removed");
    }
    if (!rows->text(0, 2).empty()) {
        obstacle(
            "is not in the log, as it or a partition of it is unlogged; with the relay "
            "stopped: " +
            rows->string(0, 2));
    }
    if (rows->boolean(0, 3)) obstacle("is a partition; stream the partitioned table in its place");
    if (!out.needs_partition_root && rows->boolean(0, 4)) {
        obstacle("has tables that inherit from it, whose rows the log holds under other names");
    }
    if (rows->boolean(0, 5)) {
        obstacle("has row security, which the log does not obey; ALTER ROLE " +
                 quote_identifier(connection.user()) + " BYPASSRLS");
    }
    return {};
}

void look_at_column(const std::string& name, RowColumn column, const StreamColumn& found,
                    const Table& table, int server_version, StreamTable& out) {
    const std::string what = "column " + quote_identifier(name) + " of " + table.sql + " (" +
                             std::string(field_name(column)) + ") ";
    if (found.generated == "v") {
        out.obstacles.push_back(what + "is a virtual generated column, which no log holds");
    } else if (found.generated == "s" && server_version < kPublishesGenerated) {
        out.obstacles.push_back(
            what + "is generated; the log holds such columns from PostgreSQL 18 on only. Fill it " +
            "by DEFAULT or by a trigger instead");
    } else if (found.generated == "s") {
        out.needs_generated_columns = true;
    }
    const bool as_text = column == kMetadata && out.metadata_as_text;
    const bool same =
        as_text ? can_print(found.type)
                : can_stream(column, found.type) && !(column == kMetadata && found.own_json);
    if (!same) {
        out.obstacles.push_back(what + "has type " + found.printed_type +
                                ", which the log gives in another form than the table");
    }
}

}  // namespace

Result<StreamTable> describe_for_stream(Connection& connection, const Table& table,
                                        const PostgresSourceConfig& config) {
    StreamTable out;
    out.schema = table.schema;
    out.name = table.name;
    out.id_prefix = table.id_prefix();
    out.metadata_columns = table.mapping.metadata_columns;
    out.metadata_as_text = table.mapping.metadata_as_text;
    out.tenants = config.tenants;
    out.default_tenant = config.default_tenant;
    if (Status status = look_at_table(connection, table, out); !status.ok()) return status;
    Result<StreamColumns> columns = load_stream_columns(connection, table, out);
    if (!columns.ok()) return columns.status();
    const auto look_at = [&](RowColumn column, const std::string& name) {
        const auto found = columns->find(name);
        if (found == columns->end()) {
            out.obstacles.push_back("column " + quote_identifier(name) + " of " + table.sql +
                                    " is gone");
            return;
        }
        look_at_column(name, column, found->second, table, connection.server_version(), out);
    };
    for (std::size_t i = kPosition; i < out.columns.size(); ++i) {
        const auto column = static_cast<RowColumn>(i);
        const std::string name =
            column == kPosition ? table.position : table.column(std::string(field_name(column)));
        out.columns[i] = name;
        if (!name.empty()) look_at(column, name);
    }
    for (const std::string& name : table.mapping.metadata_columns) look_at(kMetadata, name);
    const std::string& tenant = out.columns[kTenantId];
    if (!out.tenants.empty() && !tenant.empty() && columns->contains(tenant) &&
        columns->at(tenant).other_equal) {
        out.obstacles.push_back("column " + quote_identifier(tenant) + " of " + table.sql +
                                " (tenant_id) compares by a nondeterministic collation");
    }
    // The reader looks through one domain only, and bytea as text depends on a setting.
    for (const RowColumn column : {kPayload, kHeaders}) {
        const std::string& name = out.columns[column];
        if (name.empty() || !columns->contains(name)) continue;
        if (columns->at(name).type == WireType::kBytea &&
            table.find(std::string(field_name(column)))->type != "bytea") {
            out.obstacles.push_back("column " + quote_identifier(name) + " of " + table.sql +
                                    " is bytea through several domains, or since the relay began");
        }
    }
    return out;
}

}  // namespace outbox::postgres
