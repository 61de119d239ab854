#include "databases/postgres/source/preflight.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/delayed.h"
#include "core/sql_text.h"
#include "databases/postgres/schema_objects.h"

namespace outbox::postgres {
namespace {

using Grade = spi::Finding::Grade;

constexpr std::int64_t kSkewMs = 2'000;
constexpr std::int64_t kDeadRows = 100'000;
constexpr std::int64_t kDeadForEachLive = 5;
constexpr const char* kNamed = "5";  // transactions and slots, at most

void add(std::vector<spi::Finding>& findings, Grade grade, std::string text, std::string sql = {}) {
    findings.push_back({grade, std::move(text), std::move(sql)});
}

std::int64_t unix_now_ms() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// The lease is kept by the server's clock alone; ages, delays and webhooks are not.
Status look_at_clock(Connection& connection, std::vector<spi::Finding>& findings) {
    const std::int64_t before = unix_now_ms();
    const Result<Rows> rows =
        connection.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    if (!rows.ok()) return rows.status();
    const std::int64_t after = unix_now_ms();
    findings.push_back(judge_clock(before, rows->integer(0, 0), after));
    return {};
}

Status look_at_durability(Connection& connection, const Table& table,
                          std::vector<spi::Finding>& findings) {
    // Of the last as sessions begin, here and as roles and databases have it: ours turn it on.
    // Without a synchronous standby its `local` is as good as `on`.
    const Result<Rows> rows = connection.query(
        "SELECT name, value FROM (SELECT name, reset_val AS value FROM pg_settings WHERE name IN "
        "('fsync', 'full_page_writes', 'synchronous_commit') UNION SELECT 'synchronous_commit', "
        "split_part(s, '=', 2) FROM pg_db_role_setting, unnest(setconfig) s WHERE setdatabase IN "
        "(0, (SELECT oid FROM pg_database WHERE datname = current_database())) AND s LIKE "
        "'synchronous_commit=%') x WHERE value = 'off' OR value = 'local' AND "
        "current_setting('synchronous_standby_names') <> '' ORDER BY name, value");
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        const std::string name = rows->string(row, 0);
        const std::string value = rows->string(row, 1);
        if (name == "synchronous_commit") {
            add(findings, Grade::kWarn,
                "durability: " + name + " is " + value + " for some: " +
                    (value == "local" ? "a failover to the synchronous standby"
                                      : "a crash of the server") +
                    " takes their last committed events back, also such as were published. Have "
                    "those who write events SET " +
                    name + " = on");
            continue;
        }
        add(findings, Grade::kWarn,
            "durability: " + name +
                " is off: after a crash of the server's machine committed events may be gone or "
                "damaged, also such as were published. ALTER SYSTEM SET " +
                name + " = on, and reload");
    }
    const Result<Rows> unlogged = connection.query(
        "SELECT FROM pg_class WHERE oid = to_regclass($1) AND relpersistence = 'u'",
        Params().text(table.sql));
    if (!unlogged.ok()) return unlogged.status();
    if (!unlogged->empty()) {
        add(findings, Grade::kWarn,
            "durability: table " + table.sql +
                " is unlogged: a crash of the server empties it, and what was not sent is lost. "
                "With no relay running: ALTER TABLE " +
                table.sql +
                " SET LOGGED, then outbox routes continue --db URL, as the events are the same");
    }
    const Result<Rows> side = connection.query(unlogged_sql(objects_of_relay(false), table.side));
    if (!side.ok()) return side.status();
    for (int row = 0; row < side->size(); ++row) {
        const std::string name = side->string(row, 0);
        add(findings, Grade::kWarn,
            "durability: table " + name +
                " is unlogged: a crash of the server empties it, and what the relay knows by it is "
                "forgotten: events are sent again, dead letters are gone. ALTER TABLE " +
                name + " SET LOGGED");
    }
    if (unlogged->empty() && side->empty() && rows->empty()) {
        add(findings, Grade::kOk, "durability: commits outlive a crash");
    }
    return {};
}

Status look_at_vacuum(Connection& connection, const Table& table,
                      std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        "SELECT current_setting('autovacuum') = 'off', min(c.oid::regclass::text) FILTER (WHERE "
        "EXISTS (SELECT FROM unnest(c.reloptions) o WHERE o IN ('autovacuum_enabled=false', "
        "'autovacuum_enabled=off', 'autovacuum_enabled=0'))), coalesce(sum(s.n_dead_tup), "
        "0)::bigint, "
        "coalesce(sum(s.n_live_tup), 0)::bigint, "
        "pg_size_pretty(sum(pg_total_relation_size(c.oid))) "
        "FROM (SELECT relid FROM pg_partition_tree($1::regclass) UNION SELECT $1::regclass) t JOIN "
        "pg_class c ON c.oid = t.relid LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid",
        Params().text(table.sql));
    if (!rows.ok() || rows->empty()) return rows.status();
    const std::size_t before = findings.size();
    if (rows->boolean(0, 0)) {
        add(findings, Grade::kWarn,
            "vacuum: autovacuum is off: dead rows stay and reading slows down. ALTER SYSTEM SET "
            "autovacuum = on, and reload");
    }
    if (const std::string without = rows->string(0, 1); !without.empty()) {
        const std::string sql = "ALTER TABLE " + without + " RESET (autovacuum_enabled)";
        add(findings, Grade::kWarn,
            "vacuum: autovacuum is off for " + without +
                ": dead rows stay and reading slows down. " + sql,
            sql);
    }
    const std::int64_t dead = rows->integer(0, 2);
    const std::int64_t live = rows->integer(0, 3);
    if (dead > kDeadRows && dead > live * kDeadForEachLive) {
        const std::string sql = "VACUUM " + table.sql;
        add(findings, Grade::kWarn,
            "vacuum: " + std::to_string(dead) + " dead rows beside " + std::to_string(live) +
                " live ones (" + rows->string(0, 4) +
                "): autovacuum has not come yet, or an old transaction keeps them. " + sql,
            sql);
    }
    if (findings.size() == before) {
        add(findings, Grade::kOk,
            "vacuum: " + std::to_string(dead) + " dead rows, " + rows->string(0, 4) + " in all");
    }
    return {};
}

// A relay that leads moves them within seconds, unless the table refuses them.
Status look_at_delayed(Connection& connection, const Table& table,
                       std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        "SELECT count(*), min(id::text) FROM (SELECT id FROM " + quote_identifier(table.schema) +
        ".outbox_scheduled WHERE available_at < clock_timestamp() - interval '" +
        std::to_string(core::kOverdueS) + " s' ORDER BY available_at LIMIT " +
        std::to_string(core::kMaxOverdue) + ") x");
    // Its right is told of with the others.
    if (!rows.ok()) return rows.error().code == ErrorCode::kNoRights ? Status() : rows.status();
    findings.push_back(core::judge_delayed(rows->integer(0, 0), rows->string(0, 1)));
    return {};
}

// What lets an insert fail.
Status look_at_segments(Connection& connection, const Table& table,
                        std::vector<spi::Finding>& findings) {
    const std::string place = quote_identifier(table.schema) + ".";
    const std::string sequence = place + "outbox_segment";
    Result<Rows> rows = connection.query(
        "SELECT coalesce(pg_sequence_last_value(s), 1), EXISTS (SELECT FROM pg_inherits WHERE "
        "inhparent = $2::regclass AND inhrelid = to_regclass($2 || '_' || "
        "coalesce(pg_sequence_last_value(s), 1))) FROM to_regclass($1) AS s WHERE "
        "has_sequence_privilege(s, 'SELECT')",
        Params().text(sequence).text(place + table.name));
    if (!rows.ok()) return rows.status();
    if (!rows->empty() && !rows->boolean(0, 1)) {
        const std::string sql = "SELECT " + place + "outbox_segment_turn('100 years')";
        add(findings, Grade::kFail,
            "segments: writers write to segment " + rows->string(0, 0) +
                ", which the table does not have: each insert fails. A relay mends it within a "
                "minute; at once: " +
                sql,
            sql);
    }
    // The server's own roles may write everything; their members are looked at as themselves.
    rows = connection.query(
        "SELECT rolname FROM pg_roles WHERE NOT rolsuper AND rolname NOT LIKE 'pg\\_%' AND "
        "(has_table_privilege(oid, "
        "$2::regclass, 'INSERT') OR has_any_column_privilege(oid, $2::regclass, 'INSERT')) AND NOT "
        "has_sequence_privilege(oid, to_regclass($1), 'SELECT') ORDER BY 1 LIMIT " +
            std::string(kNamed),
        Params().text(sequence).text(table.sql));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        const std::string role = rows->string(row, 0);
        const std::string sql =
            "GRANT SELECT ON SEQUENCE " + sequence + " TO " + quote_identifier(role);
        add(findings, Grade::kFail,
            "rights: role " + role + " may insert into " + table.sql +
                " and not ask which segment is written to: its inserts fail. " + sql,
            sql);
    }
    return {};
}

// Events behind what they wrote wait for their end, and dead rows stay until then.
Status look_at_transactions(Connection& connection, const HealthLimits& limits,
                            std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        std::string("SELECT pid, coalesce(usename, ''), coalesce(application_name, ''), "
                    "(extract(epoch FROM now() - xact_start) / 60)::bigint, backend_xid IS NOT "
                    "NULL FROM pg_stat_activity WHERE datname = current_database() AND xact_start "
                    "< now() - $1::bigint * interval '1 s' AND (backend_xid IS NOT NULL OR "
                    "backend_xmin IS NOT NULL) AND backend_type = 'client backend' ORDER BY "
                    "xact_start LIMIT ") +
            kNamed,
        Params().text(std::to_string(limits.transaction_s)));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        const std::string pid = rows->string(row, 0);
        const std::string application = rows->string(row, 2);
        add(findings, Grade::kWarn,
            "transaction: pid " + pid + " of " + rows->string(row, 1) +
                (application.empty() ? "" : " (" + application + ")") + " has been open for " +
                rows->string(row, 3) + " minutes" +
                (rows->boolean(row, 4) ? "; events written after its own may wait for it, and "
                                         "dead rows stay"
                                       : "; dead rows stay as long") +
                ". End it, or: SELECT pg_terminate_backend(" + pid + ")");
    }
    return {};
}

Status look_at_slots(Connection& connection, const HealthLimits& limits,
                     std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        std::string("SELECT slot_name, pg_size_pretty(kept) FROM (SELECT slot_name, "
                    "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) AS kept FROM "
                    "pg_replication_slots WHERE NOT active AND NOT pg_is_in_recovery()) s WHERE "
                    "kept > $1::bigint ORDER BY kept DESC LIMIT ") +
            kNamed,
        Params().text(std::to_string(limits.kept_log_bytes)));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        const std::string slot = rows->string(row, 0);
        add(findings, Grade::kWarn,
            "slot: nobody reads " + quote_identifier(slot) + ", and it keeps " +
                rows->string(row, 1) +
                " of the log: it fills the disk in the end. If it is not needed: SELECT "
                "pg_drop_replication_slot(" +
                quote_literal(slot) + ")");
    }
    return {};
}

// Positions are the identity's numbers: one that comes again passes for sent.
Status look_at_numbers(Connection& connection, const Table& table,
                       std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        "SELECT s::regclass::text, q.seqcycle, q.seqmax, q.seqtypid = 'bigint'::regtype AND "
        "q.seqmax < 9223372036854775807, "
        "coalesce(pg_sequence_last_value(q.seqrelid), 0) > q.seqmax / 2 FROM "
        "pg_get_serial_sequence($1, $2) AS s JOIN pg_sequence q ON q.seqrelid = s::regclass "
        "WHERE has_sequence_privilege(s, 'SELECT') AND (q.seqcycle OR q.seqmax < "
        "9223372036854775807)",
        Params().text(table.sql).text(table.position));
    if (!rows.ok() || rows->empty()) return rows.status();
    const std::string name = rows->string(0, 0);
    // The server writes the sequence anew for that, by which a relay knows the table (life_of).
    const std::string stopped =
        ". A relay takes that for another table: stop all of them once none waits in `outbox "
        "status`, change it, run `outbox routes continue`, and start them again";
    if (rows->boolean(0, 1)) {
        add(findings, Grade::kFail,
            "numbers: " + name +
                " begins anew at its end (CYCLE), and an event whose position was used before "
                "passes for sent: ALTER SEQUENCE " +
                name + " NO CYCLE" + stopped);
    }
    const std::string end = "numbers: " + name + " ends at " + rows->string(0, 2) +
                            ", after which no event can be written";
    if (rows->boolean(0, 3)) {
        add(findings, Grade::kWarn, end + ": ALTER SEQUENCE " + name + " NO MAXVALUE" + stopped);
    } else if (rows->boolean(0, 4)) {
        add(findings, Grade::kWarn,
            end + ", and more than half of that is used: ALTER TABLE " + table.sql +
                " ALTER COLUMN " + quote_identifier(table.position) +
                " TYPE bigint, which rewrites the table, and ALTER SEQUENCE " + name +
                " AS bigint NO MAXVALUE" + stopped);
    }
    return {};
}

// What refers to a row keeps it from being removed.
Status look_at_references(Connection& connection, const Table& table,
                          std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        std::string(
            "SELECT quote_ident(conname), conrelid::regclass::text FROM pg_constraint WHERE "
            "contype = 'f' AND conparentid = 0 AND confrelid = to_regclass($1) AND "
            "confdeltype IN ('a', 'r') "
            "ORDER BY 2, 1 LIMIT ") +
            kNamed,
        Params().text(table.sql));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        add(findings, Grade::kWarn,
            "references: rows of " + table.sql + " that " + rows->string(row, 1) +
                " refers to are delivered, and stay: their removal is refused and tried again. "
                "Declare the reference ON DELETE CASCADE or SET NULL, or: ALTER TABLE " +
                rows->string(row, 1) + " DROP CONSTRAINT " + rows->string(row, 0));
    }
    return {};
}

}  // namespace

spi::Finding judge_clock(std::int64_t before_ms, std::int64_t theirs_ms, std::int64_t after_ms) {
    const std::int64_t ahead = theirs_ms > after_ms
                                   ? theirs_ms - after_ms
                                   : std::min(theirs_ms - before_ms, std::int64_t{0});
    if (std::abs(ahead) < kSkewMs) {
        return {Grade::kOk, "clock: the server's and this machine's are together", {}};
    }
    return {
        Grade::kWarn,
        "clock: the server's is " + std::to_string(std::abs(ahead) / 1000) + " s " +
            (ahead > 0 ? "ahead of" : "behind") +
            " this machine's: ages and lags are wrong by that, and receivers of webhooks refuse "
            "signatures that are minutes off. Keep both by NTP",
        {}};
}

Status look_at_health(Connection& connection, const Table& table,
                      std::vector<spi::Finding>& findings, const HealthLimits& limits) {
    Status status = look_at_clock(connection, findings);
    if (status.ok()) status = look_at_durability(connection, table, findings);
    if (status.ok()) status = look_at_vacuum(connection, table, findings);
    if (status.ok() && table.has_scheduled) status = look_at_delayed(connection, table, findings);
    if (status.ok() && table.keep) status = look_at_segments(connection, table, findings);
    if (status.ok() && table.by_position) status = look_at_numbers(connection, table, findings);
    if (status.ok() && !table.keep && !table.mark) {
        status = look_at_references(connection, table, findings);
    }
    if (status.ok()) status = look_at_transactions(connection, limits, findings);
    if (status.ok()) status = look_at_slots(connection, limits, findings);
    return status;
}

}  // namespace outbox::postgres
