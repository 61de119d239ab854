// The SQL that gives each kind of role what it needs, and no more.
#include <array>
#include <iostream>
#include <map>
#include <vector>

#include "commands.h"
#include "core/schema_objects.h"
#include "core/sql_text.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

struct RoleKind {
    std::string_view option;
    std::string_view fallback;
    std::string_view purpose;
    std::string_view SchemaObject::* rights;
};

constexpr std::array kKinds{
    RoleKind{"writer", "outbox_writer", "writes events", &SchemaObject::writer},
    RoleKind{"relay", "outbox_relay",
             "`outbox relay` and `doctor`; also the role in the URL of a route to a mailbox",
             &SchemaObject::relay},
    RoleKind{"consumer", "outbox_consumer",
             "a service with an inbox, Idempotency-Keys or sagas, which writes events, too",
             &SchemaObject::consumer},
    RoleKind{"operator", "outbox_operator",
             "every other command of `outbox` but `migrate`; reads every payload",
             &SchemaObject::operating},
};

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

void grant_on(const std::string& sequences, const char* right, const std::string& role) {
    std::cout << "DO $$ DECLARE s regclass; BEGIN\n    FOR s IN " << sequences
              << "\n    LOOP EXECUTE format('GRANT " << right << " ON SEQUENCE %s TO %s', s, "
              << quote_literal(role) << "); END LOOP;\nEND $$;\n";
}

void print_adopted(const RoleKind& kind, const std::string& role, const std::string& table) {
    const std::string_view rights = kind.option == "relay"      ? "SELECT, UPDATE, DELETE"
                                    : kind.option == "operator" ? "SELECT, DELETE"
                                    : kind.option == "writer"   ? "INSERT"
                                                                : "";
    if (rights.empty()) return;
    if (const auto dot = table.find('.'); dot != std::string::npos) {
        std::cout << "GRANT USAGE ON SCHEMA " << quote_identifier(table.substr(0, dot)) << " TO "
                  << role << ";\n";
    }
    std::cout << "GRANT " << rights << " ON " << quoted_table(table) << " TO " << role << ";\n";
    if (kind.option == "writer") {
        grant_on(owned_sequences(table, 'a') + "\n        UNION " + used_sequences(table), "USAGE",
                 role);
    }
}

void print_kind(const RoleKind& kind, const std::string& name, const std::string& side,
                const std::string& adopted, const std::string& schema) {
    const std::string role = quote_identifier(name);
    std::map<std::pair<bool, std::string>, std::string> objects;  // by rights: their names
    std::vector<std::pair<std::string, std::string>> where_it_is;
    for (const SchemaObject& object : schema_objects()) {
        const std::string_view rights = object.*kind.rights;
        const bool wanted = side.empty() || object.side.empty() || object.side == side;
        const bool there = adopted.empty() || object.side != "producer" || object.beside_adopted ||
                           object.on_demand;
        if (rights.empty() || !wanted || !there) continue;
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
    const bool of_table = !adopted.empty() && side != "consumer";
    if (objects.empty() && !of_table) return;
    std::cout << "\n-- " << name << ": " << kind.purpose << ".\nGRANT USAGE ON SCHEMA " << schema
              << " TO " << role << ";\n";
    if (of_table) print_adopted(kind, role, adopted);
    for (const auto& [what, list] : objects) {
        std::cout << "GRANT " << what.second << " ON " << (what.first ? "FUNCTION " : "TABLE ")
                  << list << " TO " << role << ";\n";
    }
    for (const auto& [object, rights] : where_it_is) {
        std::cout << "DO $$ BEGIN IF to_regclass(" << quote_literal(object)
                  << ") IS NOT NULL THEN\n    GRANT " << rights << " ON TABLE " << object << " TO "
                  << role << ";\nEND IF; END $$;\n";
    }
    if (adopted.empty() && side != "consumer") {
        std::cout
            << "-- Where rows stay (after_publish = keep) each insert asks it:\nDO $$ BEGIN IF "
               "to_regclass('outbox_segment') IS NOT NULL THEN\n    GRANT SELECT ON SEQUENCE "
               "outbox_segment TO "
            << role << ";\nEND IF; END $$;\n";
    }
    if (kind.option != "relay" || side == "consumer") return;
    if (adopted.empty()) {
        std::cout << "-- Has the relay notice a database that was set back:\nGRANT SELECT ON "
                     "SEQUENCE outbox_events_position_seq TO "
                  << role << ";\n";
    }
    if (!adopted.empty()) {
        std::cout << "-- Likewise, where it is read by an identity column:\n";
        grant_on(owned_sequences(adopted, 'i'), "SELECT", role);
    }
    std::cout
        << "-- For --mode stream, or auto with the log. It lets a role copy the whole cluster; "
           "without it the\n-- relay polls:\n-- ALTER ROLE "
        << role << " REPLICATION;\n";
}

}  // namespace

int run_roles(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    bool named = false;
    for (const RoleKind& kind : kKinds) named = named || options.given(kind.option);
    const std::string schema =
        options.given("schema") ? quote_identifier(options.text("schema")) : "public";
    const std::string adopted = options.given("table") ? options.text("table") : std::string();
    std::cout
        << "-- What each role needs in PostgreSQL, to be run by the owner of the tables after "
        << (adopted.empty()
                ? "`outbox migrate`"
                : "a relay that the\n-- owner ran for a moment: it makes what stands beside the "
                  "table")
        << ";\n-- the roles are there already (CREATE ROLE ... LOGIN).\nBEGIN;\nSET LOCAL "
           "search_path = "
        << schema << ";\n";
    for (const RoleKind& kind : kKinds) {
        if (named && !options.given(kind.option)) continue;
        const std::string name = named ? options.text(kind.option) : std::string(kind.fallback);
        print_kind(kind, name, options.text("only"), adopted, schema);
    }
    std::cout << "\nCOMMIT;\n";
    return runtime::kExitOk;
}

}  // namespace outbox::app
