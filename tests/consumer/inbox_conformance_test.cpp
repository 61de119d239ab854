#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/producer/migrate.h>

#include "tests/conformance/inbox_suite.h"
#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

// What a test or a handler does with a database's own connection. `Owner`: Pg or Sqlite.
template <typename Owner, typename Handle>
class SessionOn final : public InboxBackend::Session {
  public:
    using Row = InboxBackend::Row;

    SessionOn(Handle* connection, std::unique_ptr<Owner> owner)
        : connection_(connection), owner_(std::move(owner)) {}

    std::vector<Row> query(const std::string& sql) override {
        return Owner::query(connection_, sql);
    }
    bool accept(std::string_view consumer, std::string_view id, MessageTime time) override {
        return outbox::accept(connection_, consumer, id, time);
    }
    bool accept(const InboxTable& table, std::string_view consumer, std::string_view id) override {
        return outbox::accept(connection_, table, consumer, id);
    }
    std::vector<bool> accept_batch(std::string_view consumer,
                                   std::span<const InboxEntry> messages) override {
        return outbox::accept_batch(connection_, consumer, messages);
    }
    SequenceResult accept_sequence(std::string_view consumer, std::string_view key,
                                   std::int64_t sequence) override {
        return outbox::accept_sequence(connection_, consumer, key, sequence);
    }
    std::optional<std::int64_t> next_offset(std::string_view consumer) override {
        return outbox::next_offset(connection_, consumer, "t", 3);
    }
    bool accept_offset(std::string_view consumer, std::optional<std::int64_t> expected,
                       std::int64_t next) override {
        return outbox::accept_offset(connection_, consumer, "t", 3, expected, next);
    }

  private:
    Handle* connection_;
    std::unique_ptr<Owner> owner_;
};

template <typename Owner, typename Handle>
class InboxOn : public InboxBackend {
  public:
    InboxOn(std::string url, std::string where) : url_(std::move(url)), where_(std::move(where)) {
        MigrateOptions consumer_side;
        consumer_side.side = MigrationSide::kConsumer;
        migrate(url_, consumer_side);
        Owner(where_).exec(effects_table());
    }
    std::unique_ptr<Session> connect() override {
        auto owner = std::make_unique<Owner>(where_);
        Handle* connection = owner->handle();
        return std::make_unique<SessionOn<Owner, Handle>>(connection, std::move(owner));
    }

  protected:
    static std::string effects_table() {
        return std::is_same_v<Owner, Pg>
                   ? "CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, id text, "
                     "key text)"
                   : "CREATE TABLE effects (seq INTEGER PRIMARY KEY, id text, key text)";
    }
    // The suite's handler for the adapter's.
    template <typename Applies>
    static auto on_session(Applies handler) {
        return [handler = std::move(handler)](Handle* transaction, const auto& what) {
            SessionOn<Owner, Handle> session(transaction, nullptr);
            handler(session, what);
        };
    }

    const std::string url_;
    const std::string where_;  // what the test's own connections are made with
};

class PostgresInbox final : public InboxOn<Pg, PGconn> {
  public:
    PostgresInbox() : PostgresInbox(PostgresDatabase().url()) {}
    explicit PostgresInbox(const std::string& url) : InboxOn(url, url) {}

    MailboxConsumer consumer(Handler handler, MailboxOptions options) override {
        options.connect_timeout_s = kPatienceS;
        return libpq_mailbox_consumer(url_, LibpqHandler(on_session(std::move(handler))),
                                      std::move(options));
    }
    MailboxConsumer batch_consumer(BatchHandler handler, MailboxOptions options) override {
        options.connect_timeout_s = kPatienceS;
        return libpq_mailbox_consumer(url_, LibpqBatchHandler(on_session(std::move(handler))),
                                      std::move(options));
    }
    std::string raise_floor(const std::string& consumer, std::chrono::hours back) const override {
        return "INSERT INTO outbox_inbox_floor AS f VALUES ('" + consumer +
               "', now() - interval '" + std::to_string(back.count()) +
               " hours') ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor";
    }
    std::string age_figures() const override {
        return "UPDATE outbox_inbox_stats SET updated_at = updated_at - interval '1 hour'";
    }
    std::string begin() const override { return "BEGIN"; }
    MailboxConsumer consumer_without_tables() override {
        static PostgresDatabase empty;
        MailboxOptions options;
        options.connect_timeout_s = kPatienceS;
        return libpq_mailbox_consumer(empty.url(), [](PGconn*, const Message&) {}, options);
    }

  private:
    // A connection that takes longer than it may ends a run that begins.
    static constexpr int kPatienceS = 60;
};

class SqliteInbox final : public InboxOn<Sqlite, sqlite3> {
  public:
    explicit SqliteInbox(
        std::unique_ptr<SqliteDatabase> database = std::make_unique<SqliteDatabase>())
        : InboxOn(database->url(), database->path()), database_(std::move(database)) {}

    MailboxConsumer consumer(Handler handler, MailboxOptions options) override {
        return sqlite_mailbox_consumer(url_, SqliteHandler(on_session(std::move(handler))),
                                       std::move(options));
    }
    MailboxConsumer batch_consumer(BatchHandler handler, MailboxOptions options) override {
        return sqlite_mailbox_consumer(url_, SqliteBatchHandler(on_session(std::move(handler))),
                                       std::move(options));
    }
    std::string raise_floor(const std::string& consumer, std::chrono::hours back) const override {
        return "INSERT INTO outbox_inbox_floor VALUES ('" + consumer +
               "', (strftime('%s', 'now') - 3600 * " + std::to_string(back.count()) +
               ") * 1000000) ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor";
    }
    std::string age_figures() const override {
        return "UPDATE outbox_inbox_stats SET updated_at = updated_at - 3600000000";
    }
    std::string begin() const override { return "BEGIN IMMEDIATE"; }
    MailboxConsumer consumer_without_tables() override {
        Sqlite(empty_.path()).exec("CREATE TABLE other (n)");
        return sqlite_mailbox_consumer(empty_.url(), [](sqlite3*, const Message&) {});
    }

  private:
    std::unique_ptr<SqliteDatabase> database_;
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
