#include "databases/postgres/roles.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/sql_text.h"
#include "databases/postgres/schema_objects.h"

namespace outbox::postgres {
namespace {

std::string_view rights_on(const SchemaObject& object, RoleKind kind) {
    switch (kind) {
        case RoleKind::kWriter:
            return object.writer;
        case RoleKind::kRelay:
            return object.relay;
        case RoleKind::kConsumer:
            return object.consumer;
        case RoleKind::kOperator:
            return object.operating;
    }
    return {};
}

std::string_view rights_on_adopted(RoleKind kind) {
    switch (kind) {
        case RoleKind::kWriter:
            return "INSERT";
        case RoleKind::kRelay:
            return "SELECT, UPDATE, DELETE";
        case RoleKind::kConsumer:
            return {};
        case RoleKind::kOperator:
            return "SELECT, DELETE";
    }
    return {};
}

// "orders.outbox" -> "orders"."outbox"
std::string quoted_table(const std::string& name) {
    const auto dot = name.find('.');
    if (dot == std::string::npos) return quote_identifier(name);
    return quote_identifier(name.substr(0, dot)) + "." + quote_identifier(name.substr(dot + 1));
}

// SQL of the sequences that a table owns: `how` 'a', of a serial column; 'i', of an identity
// column.
std::string owned_sequences(const std::string& table, char how) {
    return "SELECT d.objid FROM pg_depend d JOIN pg_class c ON c.oid = d.objid\n        WHERE "
           "c.relkind = 'S' AND d.deptype = '" +
           std::string(1, how) + "' AND d.refobjid = " + quote_literal(quoted_table(table)) +
           "::regclass";
}

// And of those that its defaults use, whoever owns them.
std::string used_sequences(const std::string& table) {
    return "SELECT d.refobjid FROM pg_attrdef a JOIN pg_depend d ON d.objid = a.oid\n        JOIN "
           "pg_class c ON c.oid = d.refobjid WHERE c.relkind = 'S' AND d.classid = "
           "'pg_attrdef'::regclass\n        AND a.adrelid = " +
           quote_literal(quoted_table(table)) + "::regclass";
}

std::string grant_on(const std::string& sequences, const char* right, const std::string& role) {
    return "DO $$ DECLARE s regclass; BEGIN\n    FOR s IN " + sequences +
           "\n    LOOP EXECUTE format('GRANT " + right + " ON SEQUENCE %s TO %s', s, " +
           quote_literal(role) + "); END LOOP;\nEND $$;\n";
}

std::string grants_on_adopted(RoleKind kind, const std::string& role, const std::string& table) {
    const std::string_view rights = rights_on_adopted(kind);
    if (rights.empty()) return {};
    std::string sql;
    if (const auto dot = table.find('.'); dot != std::string::npos) {
        sql += "GRANT USAGE ON SCHEMA " + quote_identifier(table.substr(0, dot)) + " TO " + role +
               ";\n";
    }
    sql.append("GRANT ").append(rights).append(" ON ");
    sql += quoted_table(table) + " TO " + role + ";\n";
    if (kind == RoleKind::kWriter) {
        sql += grant_on(owned_sequences(table, 'a') + "\n        UNION " + used_sequences(table),
                        "USAGE", role);
    }
    return sql;
}

std::string grants_on_sequences(RoleKind kind, const std::string& role, const RolesConfig& config) {
    const bool consumer_only = config.side == "consumer";
    std::string sql;
    if (config.adopted.empty() && !consumer_only) {
        sql +=
            "-- Where rows stay (after_publish = keep) each insert asks it:\nDO $$ BEGIN IF "
            "to_regclass('outbox_segment') IS NOT NULL THEN\n    GRANT SELECT ON SEQUENCE "
            "outbox_segment TO " +
            role + ";\nEND IF; END $$;\n";
    }
    if ((kind != RoleKind::kRelay && kind != RoleKind::kOperator) || consumer_only) return sql;
    if (config.adopted.empty()) {
        sql +=
            "-- Has it notice a database that was set back:\nGRANT SELECT ON SEQUENCE "
            "outbox_events_position_seq TO " +
            role + ";\n";
    } else {
        sql += "-- Likewise, where it is read by an identity column:\n" +
               grant_on(owned_sequences(config.adopted, 'i'), "SELECT", role);
    }
    if (kind != RoleKind::kRelay) return sql;
    return sql +
           "-- For --mode stream, or auto with the log. It lets a role copy the whole cluster; "
           "without it the\n-- relay polls:\n-- ALTER ROLE " +
           role + " REPLICATION;\n";
}

std::string grants_of(const DatabaseRole& wanted, const std::string& schema,
                      const RolesConfig& config) {
    const std::string role = quote_identifier(wanted.name);
    const std::string& adopted = config.adopted;
    std::map<std::pair<bool, std::string>, std::string> objects;  // by rights: their names
    std::vector<std::pair<std::string, std::string>> where_it_is;
    for (const SchemaObject& object : schema_objects()) {
        const std::string_view rights = rights_on(object, wanted.kind);
        const bool of_side =
            config.side.empty() || object.side.empty() || object.side == config.side;
        const bool there = adopted.empty() || object.side != "producer" || object.beside_adopted ||
                           object.on_demand;
        if (rights.empty() || !of_side || !there) continue;
        // Beside an adopted table the relay makes what it needs, and nobody need have migrated.
        const bool may_be_missing = object.side.empty() ? !object.beside_adopted : object.on_demand;
        if (may_be_missing && !adopted.empty()) {
            where_it_is.emplace_back(object.name, rights);
            continue;
        }
        const bool function = object.kind == SchemaObject::Kind::kFunction;
        std::string& list = objects[{function, std::string(rights)}];
        list += (list.empty() ? "" : ", ") + std::string(object.name);
    }
    const bool of_table = !adopted.empty() && config.side != "consumer";
    if (objects.empty() && !of_table) return {};
    std::string sql = "\n-- " + wanted.name + ": " + std::string(wanted.purpose) +
                      ".\nGRANT USAGE ON SCHEMA " + schema + " TO " + role + ";\n";
    if (of_table) sql += grants_on_adopted(wanted.kind, role, adopted);
    for (const auto& [what, list] : objects) {
        sql += "GRANT " + what.second + " ON " + (what.first ? "FUNCTION " : "TABLE ") + list +
               " TO " + role + ";\n";
    }
    for (const auto& [object, rights] : where_it_is) {
        sql += "DO $$ BEGIN IF to_regclass(" + quote_literal(object) +
               ") IS NOT NULL THEN\n    GRANT " + rights + " ON TABLE " + object + " TO " + role +
               ";\nEND IF; END $$;\n";
    }
    return sql + grants_on_sequences(wanted.kind, role, config);
}

}  // namespace

std::string roles_sql(const RolesConfig& config) {
    const std::string schema = config.schema.empty() ? "public" : quote_identifier(config.schema);
    std::string sql =
        "-- What each role needs in PostgreSQL, to be run by the owner of the tables after ";
    sql +=
        config.adopted.empty()
            ? "`outbox migrate`"
            : "a relay that the\n-- owner ran for a moment: it makes what stands beside the table";
    sql +=
        ";\n-- the roles are there already (CREATE ROLE ... LOGIN).\nBEGIN;\nSET LOCAL search_path "
        "= " +
        schema + ";\n";
    for (const DatabaseRole& role : config.roles) sql += grants_of(role, schema, config);
    return sql + "\nCOMMIT;\n";
}

}  // namespace outbox::postgres
