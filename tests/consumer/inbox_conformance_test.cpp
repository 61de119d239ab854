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
    MailboxConsumer batch_consumer(BatchHandler handler, MailboxOptions options) override {
        return libpq_mailbox_consumer(
            database_.url(),
            [handler = std::move(handler)](PGconn* transaction, std::span<const Message> messages) {
                PgSession session(transaction, nullptr);
                handler(session, messages);
            },
            std::move(options));
    }
    std::string raise_floor(const std::string& consumer, std::chrono::hours back) const override {
        return "INSERT INTO outbox_inbox_floor AS f VALUES ('" + consumer +
               "', now() - interval '" + std::to_string(back.count()) +
               " hours') ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor";
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
        bool accept(std::string_view consumer, std::string_view id, MessageTime time) override {
            return outbox::accept(connection, consumer, id, time);
        }
        bool accept(const InboxTable& table, std::string_view consumer,
                    std::string_view id) override {
            return outbox::accept(connection, table, consumer, id);
        }
        std::vector<bool> accept_batch(std::string_view consumer,
                                       std::span<const InboxEntry> messages) override {
            return outbox::accept_batch(connection, consumer, messages);
        }
        SequenceResult accept_sequence(std::string_view consumer, std::string_view key,
                                       std::int64_t sequence) override {
            return outbox::accept_sequence(connection, consumer, key, sequence);
        }
        std::optional<std::int64_t> next_offset(std::string_view consumer) override {
            return outbox::next_offset(connection, consumer, "t", 3);
        }
        bool accept_offset(std::string_view consumer, std::optional<std::int64_t> expected,
                           std::int64_t next) override {
            return outbox::accept_offset(connection, consumer, "t", 3, expected, next);
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
    MailboxConsumer batch_consumer(BatchHandler handler, MailboxOptions options) override {
        return sqlite_mailbox_consumer(
            database_.url(),
            [handler = std::move(handler)](sqlite3* transaction,
                                           std::span<const Message> messages) {
                SqliteSession session(transaction, nullptr);
                handler(session, messages);
            },
            std::move(options));
    }
    std::string raise_floor(const std::string& consumer, std::chrono::hours back) const override {
        return "INSERT INTO outbox_inbox_floor VALUES ('" + consumer +
               "', (strftime('%s', 'now') - 3600 * " + std::to_string(back.count()) +
               ") * 1000000) ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor";
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
        bool accept(std::string_view consumer, std::string_view id, MessageTime time) override {
            return outbox::accept(connection, consumer, id, time);
        }
        bool accept(const InboxTable& table, std::string_view consumer,
                    std::string_view id) override {
            return outbox::accept(connection, table, consumer, id);
        }
        std::vector<bool> accept_batch(std::string_view consumer,
                                       std::span<const InboxEntry> messages) override {
            return outbox::accept_batch(connection, consumer, messages);
        }
        SequenceResult accept_sequence(std::string_view consumer, std::string_view key,
                                       std::int64_t sequence) override {
            return outbox::accept_sequence(connection, consumer, key, sequence);
        }
        std::optional<std::int64_t> next_offset(std::string_view consumer) override {
            return outbox::next_offset(connection, consumer, "t", 3);
        }
        bool accept_offset(std::string_view consumer, std::optional<std::int64_t> expected,
                           std::int64_t next) override {
            return outbox::accept_offset(connection, consumer, "t", 3, expected, next);
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
