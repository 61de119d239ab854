#include "databases/postgres/lock_holders.h"

namespace outbox::postgres {

std::string_view lock_holders_sql() {
    return "WITH held AS (SELECT l.pid, l.virtualtransaction FROM pg_locks l JOIN pg_class c ON "
           "c.oid = l.relation JOIN pg_namespace s ON s.oid = c.relnamespace WHERE l.granted AND "
           "l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND "
           "l.mode <> 'AccessShareLock' AND ($2::text = '' OR s.nspname = $2) AND c.relname LIKE "
           "'outbox\\_%' AND ($3::text = '' OR strpos($3, c.relname) > 0)), one AS ("
           "SELECT a.xact_start AS since, 'pid ' || a.pid AS name, nullif(a.application_name, '') "
           "AS program, a.usename AS role, CASE WHEN pg_blocking_pids(a.pid) <> '{}' THEN "
           "'waits itself for pid ' || array_to_string(pg_blocking_pids(a.pid), ', ') END AS "
           "waits FROM pg_stat_activity a WHERE coalesce(a.backend_type, 'client backend') = "
           "'client backend' AND a.pid IN (SELECT pid FROM held) UNION ALL SELECT p.prepared, "
           "'prepared transaction ' || quote_literal(p.gid), NULL, p.owner, NULL FROM "
           "pg_prepared_xacts p WHERE '-1/' || "
           "p.transaction IN (SELECT virtualtransaction FROM held)) "
           "SELECT string_agg(h.name || ' (' || concat_ws(', ', h.program, 'user ' || h.role, "
           "'since ' || to_char(h.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC', "
           "h.waits) || ')', ', ' ORDER BY h.waits IS NOT NULL, h.since) FROM (SELECT * FROM one "
           "WHERE coalesce(since < clock_timestamp() - $1::bigint * interval '1 second', true) "
           "ORDER BY waits IS NOT NULL, since LIMIT 3) h";
}

std::string no_lock_message(const std::string& waited, const std::string& who) {
    return "another transaction has held what this needs " + waited +
           (who.empty() ? " (pg_locks says whose)" : ", probably " + who) +
           "; this was rolled back: end that transaction (a session's with SELECT "
           "pg_terminate_backend(PID), a prepared one with ROLLBACK PREPARED 'NAME'), and try "
           "again";
}

}  // namespace outbox::postgres
