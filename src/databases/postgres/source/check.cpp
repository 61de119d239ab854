#include "databases/postgres/source/check.h"

#include <initializer_list>
#include <string>

#include "core/sql_text.h"
#include "core/table_shape.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/row_security.h"
#include "databases/postgres/schema_objects.h"
#include "databases/postgres/source/preflight.h"
#include "databases/postgres/sql_files.h"
#include "databases/postgres/stream/check.h"

namespace outbox::postgres {
namespace {

std::string side_tables_sql(const std::string& schema) {
    return fill_sql(embedded_sql_text("producer/postgres/side_tables.sql"),
                    quote_identifier(schema));
}

// For an owner, whose path may be any, with the rights that the relay then needs.
std::string side_tables_for(const std::string& schema, const std::string& user) {
    std::string grants;
    for (const SchemaObject& object : schema_objects()) {
        if (!object.beside_adopted || object.relay.empty()) continue;
        grants.append("GRANT ").append(object.relay).append(" ON ");
        grants += quote_identifier(schema) + "." + std::string(object.name) + " TO " +
                  quote_identifier(user) + ";\n";
    }
    return "BEGIN;\n" + std::string(kCatalogPath) + side_tables_sql(schema) + grants + "COMMIT";
}

using enum spi::Finding::Grade;

void found(std::vector<spi::Finding>& findings, spi::Finding::Grade grade, std::string text,
           std::string sql = {}) {
    findings.push_back({grade, std::move(text), std::move(sql)});
}

// Why a time tells less than in which order rows were written.
std::string weakness_of_time(const Column& time) {
    if (time.type == "date") return "it is kept to a day";
    constexpr int kDigits = 6;
    if (time.time_digits < kDigits) {
        return "it is kept to " + std::to_string(time.time_digits) + " digits of a second";
    }
    for (const char* start :
         {"now()", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "transaction_timestamp()"}) {
        if (time.by_default.find(start) != std::string::npos) {
            return "it is by default when the transaction began";
        }
    }
    return {};
}

void tell_shape(const Table& table, std::vector<spi::Finding>& findings) {
    const std::string shape = table.native           ? "the table of outbox migrate"
                              : table.preset.empty() ? "mapped by [source.table]"
                                                     : "preset " + table.preset;
    found(findings, kOk,
          "table " + table.sql + ": " + shape +
              (table.deletes_unasked ? ""
               : table.mark          ? "; published rows are marked"
               : table.keep          ? "; published rows stay for the retention"
                                     : "; published rows are deleted"));
    if (table.deletes_unasked) {
        found(findings, kFail, "after publish: " + table.deletion_refusal(table.sql).message);
    }
    if (!table.by_position && !table.find("id")->not_null) {
        const std::string not_null = "ALTER TABLE " + table.sql + " ALTER COLUMN " +
                                     quote_identifier(table.column("id")) + " SET NOT NULL";
        found(findings, kWarn,
              "ids: a row whose " + quote_identifier(table.column("id")) +
                  " is NULL is passed over, as nothing names it: " + not_null,
              not_null);
    }
    if (std::string repeated = repeated_ids(table); !repeated.empty()) {
        found(findings, kFail, std::move(repeated), unique_ids_sql(table));
    }
    if (table.by_position) {
        found(findings, kOk,
              "order: kept per key; " + quote_identifier(table.position) +
                  " is GENERATED ALWAYS with CACHE 1, so that late commits are waited for by "
                  "proof");
        return;
    }
    if (!table.position.empty()) {
        found(findings, kWarn,
              "order: by " + quote_identifier(table.position) +
                  " among the unfinished rows, all of which each read scans; not promised where "
                  "writers take numbers in advance (a sequence with CACHE above 1, an ORM that "
                  "allocates ids)");
        return;
    }
    const std::string remedy =
        "ALTER TABLE " + table.sql + " ADD COLUMN position bigint GENERATED ALWAYS AS IDENTITY";
    if (table.created_at.empty()) {
        found(findings, kFail,
              "order: none; nothing tells in which order rows were written, and they are read by "
              "their id. Map occurred_at to a time under [source.table.columns] in outbox.toml, "
              "or have a number: " +
                  remedy);
        return;
    }
    found(findings, kWarn,
          "order: by " + quote_identifier(table.created_at) +
              "; the table has no identity column, so the order inside one transaction is not "
              "promised, nor between transactions that overlap. To have it: " +
              remedy);
    if (const std::string weak = weakness_of_time(table.catalog.at(table.created_at));
        !weak.empty()) {
        found(findings, kWarn,
              "order: warning: " + quote_identifier(table.created_at) + ": " + weak +
                  ", so that the events of one key may be sent in another order than they were "
                  "written in, even where their writers serialise (promise 2 of "
                  "docs/guarantees.md does not hold). Write clock_timestamp() into a timestamptz, "
                  "or have the number above");
    }
}

// With sequential scans and sorts switched off the plan still holds one only where no index serves.
Status tell_index(Connection& connection, const Table& table, std::vector<spi::Finding>& findings) {
    for (const std::string& condition : unfinished_conditions(table)) {
        Result<Rows> plan =
            connection.query("EXPLAIN SELECT * FROM " + table.sql + " t WHERE " + condition +
                             " ORDER BY " + order_by(table) + " LIMIT 500");
        if (!plan.ok()) return plan.status();
        bool scans = false;
        for (int row = 0; row < plan->size(); ++row) {
            scans = scans || plan->text(row, 0).find("Seq Scan") != std::string_view::npos;
        }
        if (!scans) continue;
        std::string columns = order_by(table);
        for (auto at = columns.find("t."); at != std::string::npos; at = columns.find("t.")) {
            columns.erase(at, 2);
        }
        std::string where = condition == "true" ? "" : " WHERE " + condition;
        for (auto at = where.find("t.\""); at != std::string::npos; at = where.find("t.\"")) {
            where.erase(at, 2);
        }
        const std::string create =
            "CREATE INDEX CONCURRENTLY ON " + table.sql + " (" + columns + ")" + where;
        found(findings, kWarn,
              "index: none serves the read of rows" + (where.empty() ? "" : where) +
                  "; each read scans the whole table. " + create,
              create);
        return {};
    }
    found(findings, kOk, "index: the read is served by an index");
    return {};
}

Status tell_grants(Connection& connection, const std::string& table, const std::string& rights,
                   std::vector<spi::Finding>& findings) {
    std::string missing;
    for (std::size_t at = 0; at < rights.size();) {
        const std::size_t end = std::min(rights.find(", ", at), rights.size());
        const std::string right = rights.substr(at, end - at);
        Result<Rows> rows = connection.query("SELECT has_table_privilege($1, $2)",
                                             Params().text(table).text(right));
        if (!rows.ok()) return rows.status();
        if (!rows->boolean(0, 0)) missing += (missing.empty() ? "" : ", ") + right;
        at = end + 2;
    }
    if (missing.empty()) return {};
    const std::string grant =
        "GRANT " + missing + " ON " + table + " TO " + quote_identifier(connection.user());
    found(findings, kFail,
          "rights: user " + connection.user() + " lacks " + missing + " on " + table + ". " + grant,
          grant);
    return {};
}

Status tell_row_security(Connection& connection, const std::string& table,
                         const std::string& rights, std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        hides_rows_sql("(" + quote_literal(table) + ", " + quote_literal(rights) + ")"));
    if (!rows.ok() || rows->empty()) return rows.status();
    found(findings, kFail,
          "rights: " + hides_rows_text(table, quote_identifier(connection.user())));
    return {};
}

Status tell_rights(Connection& connection, const std::string& table, const std::string& rights,
                   std::vector<spi::Finding>& findings) {
    const Status status = tell_grants(connection, table, rights, findings);
    return status.ok() ? tell_row_security(connection, table, rights, findings) : status;
}

// Without it nothing tells a table that began anew from one whose highest rows were removed.
Status tell_sequence_right(Connection& connection, const Table& table,
                           std::vector<spi::Finding>& findings) {
    const Result<Rows> rows = connection.query(
        "SELECT s FROM pg_get_serial_sequence($1, $2) AS s WHERE NOT has_sequence_privilege(s, "
        "'SELECT')",
        Params().text(table.sql).text(table.position));
    if (!rows.ok() || rows->empty()) return rows.status();
    const std::string grant = "GRANT SELECT ON SEQUENCE " + rows->string(0, 0) + " TO " +
                              quote_identifier(connection.user());
    found(findings, kFail,
          "rights: user " + connection.user() + " lacks SELECT on the sequence of " + table.sql +
              ". " + grant,
          grant);
    return {};
}

Status tell_functions(Connection& connection, const Table& table,
                      std::initializer_list<const char*> functions,
                      std::vector<spi::Finding>& findings) {
    const std::string place = quote_identifier(table.schema) + ".";
    for (const char* function : functions) {
        const Result<Rows> rows = connection.query("SELECT has_function_privilege($1, 'EXECUTE')",
                                                   Params().text(place + function));
        if (!rows.ok()) return rows.status();
        if (rows->boolean(0, 0)) continue;
        const std::string grant = "GRANT EXECUTE ON FUNCTION " + place + function + " TO " +
                                  quote_identifier(connection.user());
        found(findings, kFail,
              "rights: user " + connection.user() + " lacks EXECUTE on " + function + ". " + grant,
              grant);
    }
    return {};
}

// Without them what was published stays, and the segment that is written to grows.
Status tell_segment_rights(Connection& connection, const Table& table,
                           std::vector<spi::Finding>& findings) {
    Status status =
        tell_functions(connection, table,
                       {"outbox_segment_spare(integer)", "outbox_segment_turn(interval)",
                        "outbox_segment_empty(integer, interval)"},
                       findings);
    if (!status.ok()) return status;
    return tell_rights(connection, quote_identifier(table.schema) + ".outbox_segments", "SELECT",
                       findings);
}

// What is due is inserted, with the defaults and checks of the table.
Status tell_rights_to_delayed(Connection& connection, const Table& table,
                              std::vector<spi::Finding>& findings) {
    Status status = tell_rights(connection, quote_identifier(table.schema) + ".outbox_scheduled",
                                "SELECT, DELETE", findings);
    if (!status.ok()) return status;
    return tell_functions(connection, table,
                          {"outbox_uuidv7()", "outbox_refuse_payload(integer, integer)",
                           "outbox_refuse_event(text, text, text)"},
                          findings);
}

// One without which a relay runs, and something else is lost.
Status tell_lesser_right(Connection& connection, const std::string& table, const std::string& right,
                         const std::string& lost, std::vector<spi::Finding>& findings) {
    std::vector<spi::Finding> lacking;
    if (Status status = tell_grants(connection, table, right, lacking); !status.ok()) return status;
    for (const spi::Finding& finding : lacking) {
        found(findings, kWarn, finding.text + "; without it " + lost, finding.sql);
    }
    // Who has it and is shown nothing hears of nothing.
    return tell_row_security(connection, table, right, findings);
}

Status tell_right_to_pauses(Connection& connection, const Table& table,
                            std::vector<spi::Finding>& findings) {
    const std::string paused = table.side + "outbox_paused_tenants";
    const Result<Rows> there =
        connection.query("SELECT to_regclass($1) IS NOT NULL", Params().text(paused));
    if (!there.ok()) return there.status();
    if (!there->boolean(0, 0)) return {};
    return tell_lesser_right(connection, paused, "SELECT",
                             "no tenant can be paused: their events are sent", findings);
}

Status tell_all_rights(Connection& connection, const Table& table,
                       std::vector<spi::Finding>& findings) {
    const std::size_t before = findings.size();
    Status status = tell_rights(connection, table.sql, std::string(rights_to(table)), findings);
    if (status.ok() && table.by_position) status = tell_sequence_right(connection, table, findings);
    if (status.ok() && table.keep) status = tell_segment_rights(connection, table, findings);
    if (status.ok() && table.has_scheduled) {
        status = tell_rights_to_delayed(connection, table, findings);
    }
    const std::string record = quote_identifier(table.schema) + ".outbox_migrations";
    if (status.ok() && table.has_scheduled) {
        Result<Rows> there =
            connection.query("SELECT to_regclass($1) IS NOT NULL", Params().text(record));
        if (!there.ok()) return there.status();
        if (there->boolean(0, 0)) status = tell_rights(connection, record, "SELECT", findings);
    }
    for (const SchemaObject& object : schema_objects()) {
        if (!status.ok()) return status;
        if (!object.beside_adopted || !table.has_side_tables || object.relay.empty()) continue;
        status = tell_rights(connection, table.side + std::string(object.name),
                             std::string(object.relay), findings);
    }
    // Only pruning needs it, and what it cannot remove stays.
    if (status.ok() && table.mark) {
        status = tell_lesser_right(connection, table.sql, "DELETE",
                                   "published rows older than the retention stay", findings);
    }
    if (status.ok()) status = tell_right_to_pauses(connection, table, findings);
    if (status.ok() && findings.size() == before) {
        found(findings, kOk, "rights: user " + connection.user() + " has all it needs");
    }
    return status;
}

// They are no triggers: the server refuses the statement, which asks what it has changed.
Status tell_rules(Connection& connection, const Table& table, std::vector<spi::Finding>& findings) {
    if (table.keep) return {};
    const Result<Rows> rows = connection.query(
        "SELECT quote_ident(rulename) FROM pg_rewrite WHERE ev_class = to_regclass($1) AND "
        "is_instead AND ev_type = $2::text::\"char\" ORDER BY rulename",
        Params().text(table.sql).text(table.mark ? "2" : "4"));  // UPDATE, DELETE
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        const std::string drop = "DROP RULE " + rows->string(row, 0) + " ON " + table.sql;
        found(findings, kFail,
              "rules: " + rows->string(row, 0) + " of " + table.sql +
                  " does something else in place of what the relay asks for, and ends it: " + drop,
              drop);
    }
    return {};
}

Status tell_side_tables(Connection& connection, const Table& table,
                        std::vector<spi::Finding>& findings) {
    const Result<SideTables> tables =
        look_for_side_tables(connection, quote_identifier(table.schema));
    if (!tables.ok()) return tables.status();
    Result<Rows> rows = connection.query(misplaced_indexes_sql(tables->schema, "producer", true));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        found(findings, tables->missing.empty() ? kWarn : kFail,
              "side tables: " + misplaced_index(rows->string(row, 0)));
    }
    if (!tables->indexes.empty()) {
        found(findings, kWarn,
              "side tables: without " + tables->indexes +
                  ", which `outbox migrate --print` makes, the relay is slower");
    }
    if (tables->missing.empty()) return {};
    // An owner of the schema may make tables, of a table its indexes.
    rows = connection.query(
        "SELECT coalesce(has_schema_privilege($1::name, 'CREATE'), false) AND NOT EXISTS (SELECT "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::name "
        "AND c.relname = 'outbox_dead_letters' AND NOT pg_has_role(c.relowner, 'USAGE'))",
        Params().text(tables->schema));
    if (!rows.ok()) return rows.status();
    if (rows->boolean(0, 0)) {
        found(findings, kOk,
              "side tables: " + tables->missing +
                  " are missing; the relay makes them when it starts");
        return {};
    }
    const std::string sql = side_tables_for(tables->schema, connection.user());
    found(findings, kFail,
          "side tables: " + tables->missing + " are missing and user " + connection.user() +
              " may not create them; have an owner run:\n" + sql + ";\n",
          sql);
    return {};
}

Status tell_path(Connection& connection, const Table& table, const PostgresSourceConfig& config,
                 std::vector<spi::Finding>& findings) {
    if (config.mode == Mode::kPolling) {
        found(findings, kOk, "events: by polling, as mode is polling");
        return {};
    }
    Result<StreamVerdict> verdict = look_at_stream(connection, table, config);
    if (!verdict.ok()) return verdict.status();
    const bool asked_for = config.mode == Mode::kStream;
    if (verdict->obstacles.empty()) {
        std::string text = "events: by ";
        if (!asked_for) text += "polling; from three routes on by ";
        text += "the stream of the log when caught up, else by polling";
        if (!verdict->publication_sql.empty()) {
            text += "; the relay will run: " + verdict->publication_sql;
        }
        found(findings, kOk, std::move(text));
        return {};
    }
    std::string text =
        asked_for ? "events: the stream, which mode asks for, needs"
                  : "events: by polling; the stream, which costs less from three routes on, needs";
    for (const std::string& obstacle : verdict->obstacles) text += "\n           - " + obstacle;
    found(findings, asked_for ? kFail : kOk, std::move(text));
    return {};
}

Status tell_server(Connection& connection, std::vector<spi::Finding>& findings) {
    Result<Rows> rows = connection.query(
        "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('server_version'), "
        "(SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database() AND prepared "
        "< now() - interval '1 minute')");
    if (!rows.ok()) return rows.status();
    found(findings, kOk, "server: PostgreSQL " + rows->string(0, 2));
    if (rows->integer(0, 0) != connection.client_backend_pid()) {
        found(findings, kWarn,
              "pooler: the connection goes through one (PgBouncer?); the relay needs a direct or "
              "session-mode connection, transaction mode breaks its prepared statements");
    }
    if (rows->boolean(0, 1)) {
        found(findings, kFail, "server: it is a standby; point the URL at the primary");
    }
    if (rows->integer(0, 3) > 0) {
        found(findings, kWarn,
              "prepared transactions: " + rows->string(0, 3) +
                  " older than a minute (pg_prepared_xacts); events behind those that wrote to "
                  "the table may wait for them");
    }
    return {};
}

}  // namespace

Result<SideTables> look_for_side_tables(Connection& connection, const std::string& table_schema) {
    std::vector<std::string> schemas = connection.schemas();
    schemas.push_back(table_schema);
    SideTables tables{{}, {}, true, {}};
    for (const std::string& schema : schemas) {
        SideTables here{{}, {}, true, {}};
        Result<Rows> rows = connection.query("SELECT (parse_ident($1))[1]", Params().text(schema));
        if (!rows.ok()) return rows.status();
        here.schema = rows->string(0, 0);
        for (const SchemaObject& object : schema_objects()) {
            if (!object.beside_adopted || object.kind == SchemaObject::Kind::kFunction) continue;
            if (object.kind == SchemaObject::Kind::kIndex) {
                rows = connection.query(
                    "SELECT to_regclass($2) IS NULL OR EXISTS (SELECT FROM pg_index WHERE "
                    "indexrelid = to_regclass($1)::oid AND indrelid = to_regclass($2)::oid)",
                    Params()
                        .text(schema + "." + std::string(object.name))
                        .text(schema + "." + std::string(object.table)));
                if (!rows.ok()) return rows.status();
                std::string& names = object.needed ? here.missing : here.indexes;
                if (!rows->boolean(0, 0)) {
                    names.append(names.empty() ? "" : ", ").append(object.name);
                }
                continue;
            }
            // An earlier version's ledger has other columns.
            rows = connection.query(
                "SELECT to_regclass($1) IS NULL OR ($2 = 'outbox_ledger' AND EXISTS (SELECT FROM "
                "pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'ranges' AND NOT "
                "attisdropped))",
                Params().text(schema + "." + std::string(object.name)).text(object.name));
            if (!rows.ok()) return rows.status();
            if (!rows->boolean(0, 0)) {
                // What consumers have, too, says nothing of a relay.
                here.none = here.none && object.side.empty();
                continue;
            }
            here.missing += std::string(here.missing.empty() ? "" : ", ");
            here.missing += object.name;
        }
        if (!here.none) return here;
        if (tables.schema.empty()) tables = std::move(here);
    }
    return tables;
}

Status require_one_place(Connection& connection, const Table& table, const SideTables& tables) {
    const std::string name = table.schema + "." + table.name;
    // Anybody may have a table of that name; those of the event table's owner and of our roles
    // count.
    const Result<Rows> places = connection.query(
        "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = "
        "c.relnamespace WHERE c.relname = 'outbox_lease' AND c.relkind = 'r' AND n.nspname <> $1 "
        "AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AND "
        "(pg_has_role(c.relowner, 'USAGE') OR c.relowner = (SELECT relowner FROM pg_class WHERE "
        "oid = to_regclass($2))) ORDER BY 1",
        Params().text(tables.schema).text(table.sql));
    if (!places.ok()) return places.status();
    for (int place = 0; place < places->size(); ++place) {
        const std::string schema = places->string(place, 0);
        const Result<Rows> leases = connection.query(
            "SELECT coalesce(bool_or(owner IS NOT NULL AND expires_at > clock_timestamp()), "
            "false), count(*) FROM " +
                schema + ".outbox_lease WHERE source = $1 OR starts_with(source, $1 || '/')",
            Params().text(name));
        if (!leases.ok()) return leases.status();
        const bool leads = leases->boolean(0, 0);
        if (!leads && (leases->integer(0, 1) == 0 || !tables.none)) continue;
        return {ErrorCode::kTableShape, Advice::kStop,
                std::string(leads ? "a relay leads" : "relays led") + " " + name +
                    " by tables in schema " + schema + ", and by others in schema " +
                    quote_identifier(tables.schema) +
                    " each event would be sent once more: add --schema " + schema +
                    "; or, if these are to be used from now on, stop that relay, and DELETE FROM " +
                    schema + ".outbox_lease WHERE source = " + quote_literal(name) +
                    " OR starts_with(source, " + quote_literal(name + "/") + ")"};
    }
    return {};
}

Status make_side_tables(Connection& connection, const SideTables& tables,
                        const PostgresSourceConfig& config) {
    const std::string sql = side_tables_sql(tables.schema);
    // The lock: two relays that start at once would collide in IF NOT EXISTS. The guard: somebody
    // else may have been faster.
    Status status = connection.execute(
        "BEGIN; " + std::string(kCatalogPath) +
        "SELECT pg_advisory_xact_lock(hashtextextended('outbox side tables', 0)); " + sql +
        owner_guard_sql(tables.schema, objects_of_relay(false), {config.owners, true}) +
        index_guard_sql(tables.schema, "producer", true) + "COMMIT");
    if (status.ok()) return status;
    ErrorInfo error = status.error();
    if (Status rolled_back = connection.execute("ROLLBACK"); !rolled_back.ok()) return rolled_back;
    if (error.backend_code == kForeignOwnerState) return foreign_owner(error.message);
    if (error.backend_code == kMisplacedIndexState) {
        return {ErrorCode::kTableShape, Advice::kStop, misplaced_index(error.message),
                error.backend_code};
    }
    error.code = ErrorCode::kNoRights;
    error.message = "the relay's own tables (" + tables.missing +
                    ") are missing and cannot be created: " + error.message +
                    "; have an owner run:\n" + side_tables_for(tables.schema, connection.user()) +
                    ";\n";
    return error;
}

Status require_owners(Connection& connection, const std::string& schema,
                      const PostgresSourceConfig& config, const Table* table) {
    const TrustedOwners trusted{config.owners, true};
    const auto look = [&](const std::string& place, bool with_events) -> Status {
        Result<Rows> rows =
            connection.query(foreign_objects_sql(place, objects_of_relay(with_events), trusted));
        if (!rows.ok()) return rows.status();
        return rows->empty() ? Status() : Status(foreign_owner(rows->string(0, 0)));
    };
    if (table != nullptr && table->has_scheduled) {
        if (Status events = look(table->schema, true); !events.ok()) return events;
    }
    return look(schema, false);
}

Status require_known_version(Connection& connection, const Table& table) {
    if (!table.has_scheduled) return {};
    const std::string record = quote_identifier(table.schema) + ".outbox_migrations";
    Result<Rows> rows =
        connection.query("SELECT coalesce(has_table_privilege(to_regclass($1), 'SELECT'), false)",
                         Params().text(record));
    // Without the right `require_rights` says so.
    if (!rows.ok() || !rows->boolean(0, 0)) return rows.status();
    rows = connection.query("SELECT coalesce(max(version), 0) FROM " + record +
                            " WHERE side = 'producer'");
    if (!rows.ok()) return rows.status();
    return check_producer_version("producer/postgres", rows->integer(0, 0));
}

Status require_rights(Connection& connection, const Table& table) {
    std::vector<spi::Finding> findings;
    if (Status status = tell_all_rights(connection, table, findings); !status.ok()) return status;
    std::string missing;
    for (const spi::Finding& finding : findings) {
        if (finding.grade == kFail) missing += (missing.empty() ? "" : "; ") + finding.text;
    }
    if (missing.empty()) return {};
    return {ErrorCode::kNoRights, Advice::kStop, std::move(missing), "42501"};
}

Result<std::vector<spi::Finding>> check_table(Connection& connection, const Table& table,
                                              const PostgresSourceConfig& config) {
    std::vector<spi::Finding> findings;
    tell_shape(table, findings);
    // Without SELECT there is no plan; the rights say so.
    if (const Status index = tell_index(connection, table, findings);
        !index.ok() && index.error().code != ErrorCode::kNoRights) {
        return index;
    }
    if (const Status rights = tell_all_rights(connection, table, findings); !rights.ok()) {
        return rights;
    }
    if (const Status rules = tell_rules(connection, table, findings); !rules.ok()) return rules;
    if (const Status side = tell_side_tables(connection, table, findings); !side.ok()) return side;
    if (const Status server = tell_server(connection, findings); !server.ok()) return server;
    if (const Status health = look_at_health(connection, table, findings); !health.ok()) {
        return health;
    }
    if (const Status path = tell_path(connection, table, config, findings); !path.ok()) return path;
    return findings;
}

}  // namespace outbox::postgres
