#include "databases/postgres/webhook/place.h"

#include <array>
#include <string_view>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/elsewhere.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/sql_files.h"
#include "mailbox/errors.h"

namespace outbox::postgres {
namespace {

constexpr std::array<std::string_view, 3> kNames{
    "outbox_webhook_endpoints", "outbox_webhook_deliveries", "outbox_webhook_lease"};

WebhookTables tables_in(const std::string& schema) {
    return {schema, schema + ".outbox_webhook_endpoints", schema + ".outbox_webhook_deliveries",
            schema + ".outbox_webhook_lease"};
}

std::string where(const Connection& connection) {
    return "database " + connection.database();
}

std::string tables_sql(const std::string& schema) {
    return "BEGIN;\n" + std::string(kCatalogPath) +
           fill_sql(embedded_sql_text("consumer/postgres/webhooks.sql"), schema) + "COMMIT;\n";
}

ErrorInfo cannot_make(const Connection& connection, const ErrorInfo& cause,
                      const std::string& schema) {
    ErrorInfo error = mailbox::no_table(where(connection), cause, tables_sql(schema));
    return {error.code, error.advice, error.backend_code,
            "the tables of webhooks do not exist in " + where(connection) +
                " and cannot be created: " + cause.message +
                "; have them created: outbox migrate --only consumer"};
}

// The schema, and whether the tables are there.
Result<std::pair<std::string, bool>> find(Connection& connection) {
    for (const std::string& schema : connection.schemas()) {
        const auto found = connection.query("SELECT count(to_regclass(n)) FROM unnest(ARRAY[" +
                                            quote_literal(tables_in(schema).endpoints) + ", " +
                                            quote_literal(tables_in(schema).deliveries) + ", " +
                                            quote_literal(tables_in(schema).lease) + "]) n");
        if (!found.ok()) return found.status();
        if (found->integer(0, 0) > 0) {
            return std::pair(schema, found->integer(0, 0) == std::int64_t{kNames.size()});
        }
    }
    const auto other = connection.query(elsewhere_sql("outbox_webhook_endpoints"));
    if (!other.ok()) return other.status();
    if (!other->empty()) {
        return elsewhere("the tables of webhooks", other->string(0, 0), where(connection));
    }
    if (!connection.schemas().empty()) return std::pair(connection.schemas().front(), false);
    return ErrorInfo{ErrorCode::kNoRights, Advice::kRetryDestination, "3F000",
                     "no schema of the search path exists in " + where(connection)};
}

Status make(Connection& connection, const std::string& schema) {
    const std::string sql = tables_sql(schema);
    Status status = connection.execute(sql);
    if (!status.ok()) static_cast<void>(connection.execute("ROLLBACK"));
    // Two that create them at once: the later one meets the former's catalog rows.
    if (!status.ok() &&
        (status.error().backend_code == "23505" || status.error().backend_code == "42P07")) {
        status = connection.execute(sql);
    }
    if (status.ok() || status.error().backend_code != "42501") return status;
    return cannot_make(connection, status.error(), schema);
}

// Their owner could have the role run anything.
Status require_owner(Connection& connection, const std::string& schema,
                     const webhook::StoreConfig& config) {
    const auto plain = connection.query("SELECT (parse_ident(" + quote_literal(schema) + "))[1]");
    if (!plain.ok()) return plain.status();
    const auto foreign =
        connection.query(foreign_objects_sql(plain->string(0, 0), kNames, {config.owners, true}));
    if (!foreign.ok()) return foreign.status();
    if (foreign->empty()) return {};
    return {ErrorCode::kNoRights, Advice::kRetryDestination,
            foreign->string(0, 0) + " in " + where(connection) +
                ", who could have it run anything with the rights of this role; if that role may "
                "own the tables of webhooks name it in the URL: ?owner=ROLE; else have it dropped",
            std::string(kForeignOwnerState)};
}

// An endpoint that a policy hides would get nothing, and its events would be finished. From here on
// a policy that comes is an error.
Status require_all_rows(Connection& connection, const WebhookTables& tables) {
    const std::string endpoints = quote_literal(tables.endpoints);
    const std::string deliveries = quote_literal(tables.deliveries);
    const std::string lease = quote_literal(tables.lease);
    Status status = connection.require_all_rows(
        "(" + endpoints + ", 'SELECT, UPDATE'), (" + deliveries +
        ", 'SELECT, INSERT, UPDATE, DELETE'), (" + lease + ", 'SELECT, INSERT, UPDATE')");
    if (status.ok() || status.error().code != ErrorCode::kNoRights) return status;
    ErrorInfo error = status.error();
    error.advice = Advice::kRetryDestination;
    error.message += ", in " + where(connection);
    return error;
}

Status require_rights(Connection& connection, const WebhookTables& tables) {
    const std::string each =
        "(VALUES (" + quote_literal(tables.endpoints) + ", ARRAY['SELECT', 'UPDATE']), (" +
        quote_literal(tables.deliveries) + ", ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']), (" +
        quote_literal(tables.lease) + ", ARRAY['SELECT', 'INSERT', 'UPDATE'])) w(name, rights)";
    const auto missing =
        connection.query("SELECT r || ' ON ' || name, quote_ident(current_user) FROM " + each +
                         ", unnest(rights) r WHERE NOT has_table_privilege(to_regclass(name), r)");
    if (!missing.ok()) return missing.status();
    std::string grants;
    for (int row = 0; row < missing->size(); ++row) {
        grants += (row == 0 ? "GRANT " : "; GRANT ") + missing->string(row, 0) + " TO " +
                  missing->string(row, 1);
    }
    if (!grants.empty()) {
        return {ErrorCode::kNoRights, Advice::kRetryDestination,
                "no right to the tables of webhooks in " + where(connection) + ": " + grants,
                "42501"};
    }
    return require_all_rows(connection, tables);
}

}  // namespace

Result<WebhookTables> webhook_tables(Connection& connection, const webhook::StoreConfig& config,
                                     Missing missing) {
    const auto found = find(connection);
    if (!found.ok()) return found.status();
    WebhookTables tables = tables_in(found->first);
    if (!found->second) {
        if (missing == Missing::kTell) {
            const auto may = connection.query("SELECT has_schema_privilege((parse_ident(" +
                                              quote_literal(tables.schema) + "))[1], 'CREATE')");
            if (!may.ok()) return may.status();
            if (may->boolean(0, 0)) return tables;
            return cannot_make(connection, mailbox_error("42501", "no right to create them"),
                               tables.schema);
        }
        if (Status made = make(connection, tables.schema); !made.ok()) return made;
    }
    if (Status owned = require_owner(connection, tables.schema, config); !owned.ok()) return owned;
    if (Status may = require_rights(connection, tables); !may.ok()) return may;
    return tables;
}

ErrorInfo webhook_error(const ErrorInfo& error) {
    if (error.code == ErrorCode::kLeaseLost) return error;
    if (!error.backend_code.empty() && error.backend_code != kForeignOwnerState) {
        ErrorInfo of_mailbox = mailbox_error(error.backend_code, words_of(error));
        if (mailbox::blames_a_message(of_mailbox.advice)) return of_mailbox;
    }
    return {error.code, Advice::kRetryDestination, error.backend_code, error.message};
}

}  // namespace outbox::postgres
