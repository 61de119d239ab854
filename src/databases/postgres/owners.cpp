#include "databases/postgres/owners.h"

#include "databases/postgres/schema_objects.h"

namespace outbox::postgres {
namespace {

// As `quote_literal`, for a session that need not have set standard_conforming_strings.
std::string literal(std::string_view text) {
    std::string quoted = text.find('\\') == std::string_view::npos ? "'" : " E'";
    for (const char c : text) {
        if (c == '\'' || c == '\\') quoted += c;
        quoted += c;
    }
    return quoted + "'";
}

std::string list_of(std::span<const std::string_view> names) {
    std::string list;
    for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + literal(name);
    return "ARRAY[" + list + "]::pg_catalog.name[]";
}

// Operators of others could be chosen where a path names their schema.
std::string equal(std::string_view left, std::string_view right) {
    return std::string(left) + " OPERATOR(pg_catalog.=) " + std::string(right);
}

std::string guard(const std::string& rows, std::string_view state) {
    const std::string body = "\nDECLARE\n    found pg_catalog.text := (" + rows +
                             " LIMIT 1);\nBEGIN\n    IF found IS NOT NULL THEN\n        RAISE "
                             "EXCEPTION USING ERRCODE = '" +
                             std::string(state) + "', MESSAGE = found;\n    END IF;\nEND\n";
    std::string tag = "$guard$";
    while (body.find(tag) != std::string::npos) tag.insert(1, "x");
    return "DO " + tag + body + tag + ";\n";
}

}  // namespace

std::string foreign_objects_sql(std::string_view schema, std::span<const std::string_view> names,
                                const TrustedOwners& trusted) {
    const std::string in_schema =
        " OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_namespace WHERE " +
        equal("nspname", literal(schema) + "::pg_catalog.name") + ")";
    std::string mine = "r.rolsuper OR " + equal("r.rolname", "current_user");
    for (const std::string& name : trusted.named) {
        mine += " OR " + equal("r.rolname", literal(name) + "::pg_catalog.name");
    }
    if (trusted.of_place) {
        const std::string owner = "(SELECT d.datdba FROM pg_catalog.pg_database d WHERE " +
                                  equal("d.datname", "pg_catalog.current_database()") + ")";
        const std::string schema_owner =
            "(SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE " +
            equal("n.nspname", literal(schema) + "::pg_catalog.name") + ")";
        mine += " OR ((" + equal("r.oid", owner) + " OR " + equal("r.oid", schema_owner) +
                ") AND NOT (SELECT m.rolsuper FROM pg_catalog.pg_roles m WHERE " +
                equal("m.rolname", "current_user") + "))";
    }
    return "SELECT pg_catalog.format('%s %I belongs to role %I', o.kind, o.name, r.rolname) "
           "FROM (SELECT CASE c.relkind WHEN 'v'::\"char\" THEN 'view' ELSE 'table' END AS kind, "
           "c.relname AS name, c.relowner AS owner FROM pg_catalog.pg_class c "
           "WHERE c.relnamespace" +
           in_schema + " AND c.relname OPERATOR(pg_catalog.=) ANY (" + list_of(names) +
           ") UNION ALL SELECT 'function', p.proname, p.proowner "
           "FROM pg_catalog.pg_proc p WHERE p.pronamespace" +
           in_schema + " AND p.proname OPERATOR(pg_catalog.=) ANY (" + list_of(names) +
           ")) o JOIN pg_catalog.pg_roles r ON " + equal("r.oid", "o.owner") + " WHERE NOT (" +
           mine + ") ORDER BY 1";
}

ErrorInfo foreign_owner(const std::string& what) {
    return {ErrorCode::kNoRights, Advice::kStop, std::string(kForeignOwnerState),
            what +
                ", who could have it run anything with the rights of this role. If that role may "
                "make the outbox's tables name it: --owner ROLE; else have it dropped"};
}

std::string owner_guard_sql(std::string_view schema, std::span<const std::string_view> names,
                            const TrustedOwners& trusted) {
    return guard(foreign_objects_sql(schema, names, trusted), kForeignOwnerState);
}

std::string misplaced_indexes_sql(std::string_view schema, std::string_view side,
                                  bool beside_adopted) {
    std::string list;
    for (const SchemaObject& object : schema_objects()) {
        if (object.kind != SchemaObject::Kind::kIndex || object.side != side) continue;
        if (beside_adopted && !object.beside_adopted) continue;
        list += (list.empty() ? "(" : ", (") + literal(object.name) + "::pg_catalog.name, " +
                literal(object.table) + "::pg_catalog.name)";
    }
    const std::string name = literal(schema) + "::pg_catalog.name";
    return "SELECT pg_catalog.format('%s %I is %s%I', CASE WHEN i.indexrelid IS NULL THEN "
           "'relation' ELSE 'index' END, o.name, CASE WHEN i.indexrelid IS NULL THEN 'no index of "
           "' "
           "ELSE pg_catalog.format('of table %I.%I, not of ', tn.nspname, t.relname) END, o.of) "
           "FROM (VALUES " +
           list + ") o(name, of) JOIN pg_catalog.pg_class c ON " + equal("c.relname", "o.name") +
           " JOIN pg_catalog.pg_namespace n ON " + equal("n.oid", "c.relnamespace") + " AND " +
           equal("n.nspname", name) +
           " LEFT JOIN (pg_catalog.pg_index i JOIN pg_catalog.pg_class t "
           "ON " +
           equal("t.oid", "i.indrelid") + " JOIN pg_catalog.pg_namespace tn ON " +
           equal("tn.oid", "t.relnamespace") + ") ON " + equal("i.indexrelid", "c.oid") +
           " WHERE (" + equal("t.relname", "o.of") + " AND " + equal("tn.nspname", name) +
           ") IS NOT TRUE ORDER BY 1";
}

std::string index_guard_sql(std::string_view schema, std::string_view side, bool beside_adopted) {
    return guard(misplaced_indexes_sql(schema, side, beside_adopted), kMisplacedIndexState);
}

}  // namespace outbox::postgres
