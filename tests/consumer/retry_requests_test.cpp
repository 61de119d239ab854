// Dead letters that are to be tried once more, as a consumer's session finds them.

#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "consumer/env.h"
#include "databases/postgres/receive/broker_store.h"
#include "databases/sqlite/receive/broker_store.h"
#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

class LettersToRetry : public testing::TestWithParam<Backend> {
  protected:
    LettersToRetry() {
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(database_->url(), options);
        db_ = database_->connect();
        if (GetParam() == Backend::kPostgres) {
            store_ = std::make_unique<consumer::LibpqBrokerStore>(
                database_->url(), consumer::BrokerStoreOptions{.consumer = "c"}, env_.clock);
        } else {
            store_ = std::make_unique<consumer::SqliteBrokerStore>(
                static_cast<const SqliteDatabase&>(*database_).path(),
                consumer::BrokerStoreOptions{.consumer = "c"}, env_.clock);
        }
        EXPECT_TRUE(store_->inbox().connect().ok());
    }
    // A letter whose retry is asked for, or put back, for so many seconds from now.
    void ask_for(const std::string& id, std::int64_t ahead_s) {
        const std::string when =
            GetParam() == Backend::kPostgres
                ? "clock_timestamp() + interval '" + std::to_string(ahead_s) + " s'"
                : std::to_string(env_.clock.wall_us() + ahead_s * 1'000'000);
        db_->exec(
            "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, "
            "error_code, error, died_at, retry_requested_at) VALUES ('c', '" +
            id + "', 't', 1, 'x', 'x', " + (GetParam() == Backend::kPostgres ? "now()" : "1") +
            ", " + when + ")");
    }
    std::size_t due() {
        spi::EventBatch letters;
        EXPECT_TRUE(store_->inbox().fetch_retries(10, letters).ok());
        return letters.size();
    }

    const consumer::Env env_ = consumer::real_env();
    std::unique_ptr<Database> database_ = make_database(GetParam());
    std::unique_ptr<Database::Connection> db_;
    std::unique_ptr<consumer::BrokerStore> store_;
};

INSTANTIATE_TEST_SUITE_P(Databases, LettersToRetry,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(LettersToRetry, OfAClockThatWasSetBackSinceAreDue) {
    ask_for("waits", 1'000);
    EXPECT_EQ(due(), 0U);
    ask_for("asked for yesterday, which is tomorrow", 86'400);
    EXPECT_EQ(due(), 1U);
}

TEST_P(LettersToRetry, WaitAsLongAsTheSessionMadeThemWait) {
    ask_for("a", -1);
    ASSERT_TRUE(store_->inbox().take_request("a").ok());
    ASSERT_TRUE(store_->inbox().put_request_back("a", 86'400'000'000).ok());
    EXPECT_EQ(due(), 0U);
}

TEST(LettersToRetryOnPostgres, ThatSomebodyHoldsAreNotWaitedForToSayWhyTheyFailedAgain) {
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    Pg pg(database.url());
    pg.exec(
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error) VALUES ('c', 'a', 't', 1, 'x', 'before')");
    const consumer::Env env = consumer::real_env();
    consumer::LibpqBrokerStore store(database.url() + "?options=-c%20lock_timeout%3D10s",
                                     consumer::BrokerStoreOptions{.consumer = "c"}, env.clock);
    Pg holder(database.url());
    holder.exec("BEGIN; SELECT FROM outbox_inbox_dead_letters FOR UPDATE");
    const auto status = store.inbox().bury_again("a", {1, "x", "after"});
    EXPECT_TRUE(status.ok()) << describe(status.error());
    const char* error = "SELECT error FROM outbox_inbox_dead_letters";
    EXPECT_EQ(pg.value(error), "before");
    holder.exec("COMMIT");
    EXPECT_TRUE(store.inbox().bury_again("a", {1, "x", "after"}).ok());
    EXPECT_EQ(pg.value(error), "after");
}

}  // namespace
}  // namespace outbox::test
