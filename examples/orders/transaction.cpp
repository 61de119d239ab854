#include "transaction.h"

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/sqlite.h>
#include <outbox/error.h>
#include <outbox/producer/migrate.h>

#include "postgres.h"
#include "sqlite.h"

namespace orders {

namespace {

std::vector<Transaction::Row> ask(PGconn* connection, const std::string& sql,
                                  const std::vector<Transaction::Parameter>& parameters) {
    std::vector<std::string> texts;
    for (const auto& parameter : parameters) {
        const auto* number = std::get_if<std::int64_t>(&parameter);
        texts.push_back(number != nullptr ? std::to_string(*number)
                                          : std::get<std::string>(parameter));
    }
    return query_postgres(connection, sql, texts);
}

std::vector<Transaction::Row> ask(sqlite3* connection, const std::string& sql,
                                  const std::vector<Transaction::Parameter>& parameters) {
    SqliteStatement statement(connection, sql);
    for (std::size_t i = 0; i < parameters.size(); ++i)
        std::visit([&](const auto& value) { statement.bind(static_cast<int>(i) + 1, value); },
                   parameters[i]);
    std::vector<Transaction::Row> rows;
    while (statement.step()) {
        auto& row = rows.emplace_back();
        for (int column = 0; column < statement.columns(); ++column)
            row.push_back(statement.text(column));
    }
    return rows;
}

}  // namespace

std::vector<Transaction::Row> Transaction::query(const std::string& sql,
                                                 const std::vector<Parameter>& parameters) {
    return std::visit([&](auto* connection) { return ask(connection, sql, parameters); }, handle_);
}

void Transaction::emit(outbox::Event event, std::int64_t n) {
    event.headers.emplace_back("n", std::to_string(n));
    const std::string id =
        std::visit([&](auto* connection) { return outbox::emit(connection, event); }, handle_);
    emitted_.push_back({id, event.key.empty() ? event.aggregate_id : event.key, n});
}

std::string sqlite_path(const std::string& url) {
    constexpr std::string_view kScheme = "sqlite://";
    const bool absolute =
        url.starts_with(kScheme) && url.size() > kScheme.size() + 1 && url[kScheme.size()] == '/';
    return absolute ? url.substr(kScheme.size()) : std::string();
}

bool is_postgres(const std::string& url) {
    return url.starts_with("postgresql://") || url.starts_with("postgres://");
}

void prepare_database(const std::string& url, const std::string& tables) {
    if (const std::string path = sqlite_path(url); !path.empty()) {
        outbox::migrate(url);
        Sqlite(path).exec(tables);
        return;
    }
    if (!is_postgres(url))
        throw outbox::Error(outbox::ErrorCode::kConfigInvalid, outbox::Advice::kStop,
                            "DATABASE_URL must be postgresql://user@host/database or "
                            "sqlite:///path/to/file");
    outbox::migrate(url);
    Postgres connection(url, "orders");
    // Two services that start together must not create the same table.
    connection.query("BEGIN");
    connection.query("SELECT pg_advisory_xact_lock(hashtext('orders example'))");
    connection.script(tables);
    connection.query("COMMIT");
}

}  // namespace orders
