#include "databases/postgres/stream/check.h"

#include "core/ascii.h"
#include "core/sql_text.h"
#include "databases/postgres/stream/table.h"

namespace outbox::postgres {
namespace {

// By way of to_jsonb, as older servers lack some of the columns.
constexpr int kFirstWithSchemas = 150000;

constexpr const char* kPublicationColumns =
    "SELECT p.pubinsert, p.pubupdate OR p.pubdelete OR p.pubtruncate, p.pubviaroot, "
    "coalesce(to_jsonb(p) ->> 'pubgencols', 'n') = 's', "
    "t.tablename IS NOT NULL, to_jsonb(t) ->> 'rowfilter' IS NULL AND "
    "(p.puballtables OR to_jsonb(t) ->> 'attnames' IS NULL OR NOT EXISTS ("
    "SELECT FROM pg_attribute a WHERE a.attrelid = $2::text::regclass AND a.attnum > 0 "
    "AND NOT a.attisdropped AND a.attgenerated = '' "
    "AND NOT (to_jsonb(t) -> 'attnames') ? a.attname::text)), "
    "pg_has_role(c.relowner, 'USAGE') AND has_database_privilege(current_database(), 'CREATE'), "
    "p.pubname IS NULL, ";

constexpr const char* kPublicationFrom =
    " FROM pg_class c LEFT JOIN pg_publication p ON p.pubname = $1 "
    "LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname "
    "AND t.schemaname = $3 AND t.tablename = $4 "
    "WHERE c.oid = $2::text::regclass";

// A stream of the log is a standby to the server when its application_name is listed, in any case.
bool counts_as_standby(std::string_view listed) {
    const std::string names = lower(listed);
    return names.find('*') != std::string::npos ||
           names.find(kStreamApplicationName) != std::string::npos;
}

std::string options_of(const StreamTable& stream) {
    return std::string("publish = 'insert'") +
           (stream.needs_partition_root ? ", publish_via_partition_root = true" : "") +
           (stream.needs_generated_columns ? ", publish_generated_columns = stored" : "");
}

Status look_at_server(Connection& connection, StreamVerdict& out) {
    Result<Rows> rows = connection.query(
        "SELECT current_setting('wal_level'), "
        // Amazon RDS gives the right by membership in place of the attribute.
        "(SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user) OR "
        "EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication' "
        "AND pg_has_role(oid, 'USAGE')), "
        "current_setting('max_replication_slots')::int - "
        "(SELECT count(*) FROM pg_replication_slots), "
        "current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication), "
        "pg_is_in_recovery(), current_setting('synchronous_standby_names')");
    if (!rows.ok()) return rows.status();
    if (rows->text(0, 0) != "logical") {
        out.obstacles.push_back("wal_level is " + rows->string(0, 0) +
                                "; ALTER SYSTEM SET wal_level = logical, then restart the server");
    }
    if (!rows->boolean(0, 1)) {
        const std::string user = quote_identifier(connection.user());
        out.obstacles.push_back("user " + connection.user() + " may not replicate; ALTER ROLE " +
                                user + " REPLICATION (it lets the role copy the whole cluster)");
    }
    if (rows->integer(0, 2) <= 0) {
        out.obstacles.push_back(
            "no replication slot is free; drop one that nobody uses (pg_replication_slots), or "
            "ALTER SYSTEM SET max_replication_slots to a higher number and restart the server");
    }
    if (rows->integer(0, 3) <= 0) {
        out.obstacles.push_back(
            "no WAL sender is free; ALTER SYSTEM SET max_wal_senders to a higher number and "
            "restart the server");
    }
    if (counts_as_standby(rows->string(0, 5))) {
        out.obstacles.push_back(
            "synchronous_standby_names is '" + rows->string(0, 5) +
            "', by which the relay would pass for a standby that has the data; name the standbys "
            "in it: ALTER SYSTEM SET synchronous_standby_names = 'NAME'; SELECT pg_reload_conf()");
    }
    if (rows->boolean(0, 4)) out.obstacles.emplace_back("the server is a standby");
    return {};
}

// What keeps the publication from showing every insert into the table, and nothing else.
struct Gap {
    std::string why;        // empty: nothing does
    std::string sql;        // that closes it
    std::string published;  // see `published_as`
    bool may_make = false;  // it is missing, and this user may run that
};

Result<Gap> publication_gap(Connection& connection, const Table& table, const StreamTable& stream) {
    Result<Rows> rows = connection.query(
        kPublicationColumns + published_as(table, connection.server_version()) + kPublicationFrom,
        Params().text(kPublication).text(table.sql).text(table.schema).text(table.name));
    if (!rows.ok()) return rows.status();
    if (rows->empty()) {
        return ErrorInfo{ErrorCode::kNoSuchTable, Advice::kStop, "42P01",
                         "table " + table.sql + " is gone"};
    }
    const std::string name = quote_identifier(kPublication);
    const std::string what = "publication " + name;
    if (rows->boolean(0, 7)) {
        return Gap{what + " is missing",
                   "CREATE PUBLICATION " + name + " FOR TABLE " + table.sql + " WITH (" +
                       options_of(stream) + ")",
                   {},
                   rows->boolean(0, 6)};
    }
    // One that is there may serve others, too: it is for its owner to change.
    const std::string set = "ALTER PUBLICATION " + name + " SET (" + options_of(stream) + ")";
    const std::string add = "ALTER PUBLICATION " + name + " ADD TABLE " + table.sql;
    // A partitioned table shows as such only where it is published by its root.
    const bool by_root = rows->boolean(0, 2) || !stream.needs_partition_root;
    Gap gap;
    gap.published = rows->string(0, 8);
    const auto note = [&](const std::string& why, const std::string& sql) {
        gap.why += (gap.why.empty() ? what : ",") + " " + why;
        if (!gap.sql.ends_with(sql)) gap.sql += (gap.sql.empty() ? "" : "; ") + sql;
    };
    if (!rows->boolean(0, 0)) note("publishes no inserts", set);
    if (rows->boolean(0, 1)) {
        note("publishes more than inserts, so that removals would be decoded, too", set);
    }
    if (!by_root) note("publishes partitions in place of their table", set);
    if (!rows->boolean(0, 3) && stream.needs_generated_columns) {
        note("publishes no generated columns", set);
    }
    if (by_root && !rows->boolean(0, 4)) note("does not have the table", add);
    if (!rows->boolean(0, 5)) {
        note("shows only a part of the table's rows or columns",
             "BEGIN; ALTER PUBLICATION " + name + " DROP TABLE " + table.sql + "; " + add +
                 "; COMMIT");
    }
    return gap;
}

}  // namespace

// Each change writes a row of the catalog anew.
std::string published_as(const Table& table, int server_version) {
    const std::string relation = "to_regclass(" + quote_literal(table.sql) + ")";
    std::string schemas;
    if (server_version >= kFirstWithSchemas) {
        schemas =
            " UNION ALL SELECT n.xmin::text FROM p JOIN pg_publication_namespace n "
            "ON n.pnpubid = p.oid JOIN pg_class c ON c.relnamespace = n.pnnspid "
            "WHERE c.oid = " +
            relation;
    }
    return "(WITH p AS (SELECT oid, xmin FROM pg_publication WHERE pubname = " +
           quote_literal(kPublication) +
           ") SELECT coalesce(string_agg(version, '/' ORDER BY version), '') FROM ("
           "SELECT p.oid::text || ':' || p.xmin::text AS version FROM p UNION ALL "
           "SELECT r.xmin::text FROM p JOIN pg_publication_rel r ON r.prpubid = p.oid "
           "WHERE r.prrelid = " +
           relation + schemas + ") versions)";
}

std::string StreamVerdict::text() const {
    std::string out;
    for (const std::string& obstacle : obstacles) out += (out.empty() ? "" : "; ") + obstacle;
    return out;
}

Result<std::string> look_at_running_stream(Connection& connection, const Table& table,
                                           const StreamTable& stream) {
    const Result<Gap> gap = publication_gap(connection, table, stream);
    if (!gap.ok()) return gap.status();
    if (!gap->why.empty()) {
        return "the publication was changed: " + gap->why + "; have an owner run: " + gap->sql;
    }
    Result<Rows> rows = connection.query("SHOW synchronous_standby_names");
    if (!rows.ok()) return rows.status();
    if (!counts_as_standby(rows->string(0, 0))) return std::string();
    return "synchronous_standby_names is now '" + rows->string(0, 0) + "'";
}

Result<StreamVerdict> look_at_stream(Connection& connection, const Table& table,
                                     const PostgresSourceConfig& config) {
    StreamVerdict verdict;
    Result<StreamTable> stream = describe_for_stream(connection, table, config);
    if (!stream.ok()) return stream.status();
    verdict.table = std::move(*stream);
    verdict.obstacles = verdict.table.obstacles;
    if (Status status = look_at_server(connection, verdict); !status.ok()) return status;
    Result<Gap> gap = publication_gap(connection, table, verdict.table);
    if (!gap.ok()) return gap.status();
    verdict.published = std::move(gap->published);
    if (gap->may_make) {
        verdict.publication_sql = std::move(gap->sql);
    } else if (!gap->why.empty()) {
        verdict.obstacles.push_back(gap->why + "; have an owner run: " + gap->sql);
    }
    return verdict;
}

Result<StreamVerdict> prepare_stream(Connection& connection, const Table& table,
                                     const PostgresSourceConfig& config) {
    Result<StreamVerdict> verdict = look_at_stream(connection, table, config);
    if (!verdict.ok() || !verdict->obstacles.empty() || verdict->publication_sql.empty()) {
        return verdict;
    }
    // Another relay may make it at the same time: what counts is what there is then.
    const Status made = connection.execute(verdict->publication_sql);
    verdict = look_at_stream(connection, table, config);
    if (verdict.ok() && !verdict->publication_sql.empty()) {
        verdict->obstacles.push_back("the publication cannot be made" +
                                     (made.ok() ? std::string() : ": " + made.error().message) +
                                     "; have an owner run: " + verdict->publication_sql);
    }
    return verdict;
}

}  // namespace outbox::postgres
