#include "databases/postgres/row_security.h"

namespace outbox::postgres {

// A policy of all commands without a check of its own checks by what it shows.
std::string hides_rows_sql(const std::string& wanted) {
    return "SELECT w.name FROM (VALUES " + wanted +
           ") AS w(name, rights) CROSS JOIN LATERAL (SELECT to_regclass(w.name)::oid AS id) t "
           "WHERE t.id IS NOT NULL AND row_security_active(t.id) AND EXISTS (SELECT FROM "
           "unnest(string_to_array(w.rights, ', ')) AS r(name) JOIN (VALUES ('SELECT', 'r'), "
           "('INSERT', 'a'), ('UPDATE', 'w'), ('DELETE', 'd')) AS c(name, command) USING (name) "
           "CROSS JOIN LATERAL (SELECT coalesce(bool_or(p.everything) FILTER (WHERE "
           "p.polpermissive), false) AND coalesce(bool_and(p.everything) FILTER (WHERE NOT "
           "p.polpermissive), true) AS shown FROM (SELECT polpermissive, "
           "(c.command = 'a' OR pg_get_expr(polqual, polrelid) = 'true') AND "
           "(c.command IN ('r', 'd') OR pg_get_expr(coalesce(polwithcheck, polqual), polrelid) = "
           "'true') AS everything FROM pg_policy WHERE polrelid = t.id AND polcmd IN "
           "(c.command::\"char\", '*') AND EXISTS (SELECT FROM unnest(polroles) AS o(role) WHERE "
           "role = 0 OR pg_has_role(role, 'USAGE'))) p) s WHERE NOT s.shown)";
}

std::string hides_rows_text(const std::string& table, const std::string& user) {
    return "row security of " + table + " may hide rows from user " + user +
           ", or refuse what it writes. CREATE POLICY outbox ON " + table + " TO " + user +
           " USING (true), with no restrictive policy beside it; or ALTER ROLE " + user +
           " BYPASSRLS";
}

}  // namespace outbox::postgres
