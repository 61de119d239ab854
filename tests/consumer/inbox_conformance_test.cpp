#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/producer/migrate.h>

#include "tests/conformance/inbox_suite.h"
#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

MigrateOptions consumer_side() {
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    return options;
}

class PostgresInbox final : public InboxBackend {
  public:
    PostgresInbox() {
        migrate(database_.url(), consumer_side());
        Pg(database_.url())
            .exec(
                "CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, id text, "
                "key text)");
    }
    std::unique_ptr<Session> connect() override {
        auto owner = std::make_unique<Pg>(database_.url());
        PGconn* connection = owner->handle();
        return std::make_unique<PgSession>(connection, std::move(owner));
    }
    MailboxConsumer consumer(Handler handler, MailboxOptions options) override {
        return libpq_mailbox_consumer(
            database_.url(),
            [handler = std::move(handler)](PGconn* transaction, const Message& message) {
                PgSession session(transaction, nullptr);
                handler(session, message);
            },
            std::move(options));
    }
    std::string begin() const override { return "BEGIN"; }
    MailboxConsumer consumer_without_tables() override {
        static PostgresDatabase empty;
        return libpq_mailbox_consumer(empty.url(), [](PGconn*, const Message&) {});
    }

  private:
    struct PgSession final : Session {
        PgSession(PGconn* c, std::unique_ptr<Pg> o) : connection(c), owner(std::move(o)) {}
        std::vector<Row> query(const std::string& sql) override {
            return Pg::query(connection, sql);
        }
        bool accept(std::string_view consumer, std::string_view id) override {
            return outbox::accept(connection, consumer, id);
        }
        PGconn* connection;
        std::unique_ptr<Pg> owner;
    };
    PostgresDatabase database_;
};

class SqliteInbox final : public InboxBackend {
  public:
    SqliteInbox() {
        migrate(database_.url(), consumer_side());
        Sqlite(database_.path())
            .exec("CREATE TABLE effects (seq INTEGER PRIMARY KEY, id text, key text)");
    }
    std::unique_ptr<Session> connect() override {
        auto owner = std::make_unique<Sqlite>(database_.path());
        owner->exec("PRAGMA busy_timeout = 20000");
        sqlite3* connection = owner->handle();
        return std::make_unique<SqliteSession>(connection, std::move(owner));
    }
    MailboxConsumer consumer(Handler handler, MailboxOptions options) override {
        return sqlite_mailbox_consumer(
            database_.url(),
            [handler = std::move(handler)](sqlite3* transaction, const Message& message) {
                SqliteSession session(transaction, nullptr);
                handler(session, message);
            },
            std::move(options));
    }
    std::string begin() const override { return "BEGIN IMMEDIATE"; }
    MailboxConsumer consumer_without_tables() override {
        Sqlite(empty_.path()).exec("CREATE TABLE other (n)");
        return sqlite_mailbox_consumer(empty_.url(), [](sqlite3*, const Message&) {});
    }

  private:
    struct SqliteSession final : Session {
        SqliteSession(sqlite3* c, std::unique_ptr<Sqlite> o) : connection(c), owner(std::move(o)) {}
        std::vector<Row> query(const std::string& sql) override {
            return Sqlite::query(connection, sql);
        }
        bool accept(std::string_view consumer, std::string_view id) override {
            return outbox::accept(connection, consumer, id);
        }
        sqlite3* connection;
        std::unique_ptr<Sqlite> owner;
    };
    SqliteDatabase database_;
    SqliteDatabase empty_;
};

INSTANTIATE_TEST_SUITE_P(
    Inboxes, InboxSuite,
    testing::Values(InboxBackendParam{"PostgreSQL",
                                      [] { return std::make_unique<PostgresInbox>(); }},
                    InboxBackendParam{"SQLite", [] { return std::make_unique<SqliteInbox>(); }}),
    [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace outbox::test
