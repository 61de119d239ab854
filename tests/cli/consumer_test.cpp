// What `outbox` shows and does in a consumer's database.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>

#include "tests/cli/outbox_binary.h"
#include "tests/consumer/database.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

class ConsumerCommands : public testing::TestWithParam<Backend> {
  protected:
    ConsumerCommands() : database_(make_database(GetParam())) {
        const Finished made =
            outbox_.run({"migrate", "--db", database_->url(), "--only", "consumer"});
        EXPECT_EQ(made.status.code, 0) << made.err;
        db_ = database_->connect();
    }
    json result(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", database_->url(), "--json"});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out);
    }
    std::string text(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", database_->url()});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return ended.out;
    }
    void put(const std::string& id) {
        db_->exec("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" + id +
                  "', 'order-events', 'k-" + id + "', '{\"type\":\"OrderCreated\"}', '{\"a\":1}')");
    }
    MailboxConsumer consumer(const std::function<bool(std::string_view id)>& fails) {
        MailboxOptions options;
        options.consumer = "stock";
        options.max_attempts = 1;
        if (GetParam() == Backend::kPostgres) {
            return libpq_mailbox_consumer(
                database_->url(),
                [fails](PGconn*, const Message& message) {
                    if (fails(message.id)) throw std::runtime_error("no stock");
                },
                options);
        }
        return sqlite_mailbox_consumer(
            database_->url(),
            [fails](sqlite3*, const Message& message) {
                if (fails(message.id)) throw std::runtime_error("no stock");
            },
            options);
    }

    OutboxBinary outbox_;
    std::unique_ptr<Database> database_;
    std::unique_ptr<Database::Connection> db_;
};

INSTANTIATE_TEST_SUITE_P(Databases, ConsumerCommands,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(ConsumerCommands, StatusShowsConsumersAndMailboxesOfADatabaseWithoutAnOutbox) {
    for (const char* id : {"a", "b", "c"}) put(id);
    auto member = consumer([](std::string_view id) { return id == "b"; });
    std::thread running([&] { member.run(); });
    const auto done = eventually(30s, "the mailbox is empty", [&] {
        return db_->number("SELECT count(*) FROM outbox_mailbox") == 0;
    });
    member.stop();
    running.join();
    ASSERT_TRUE(done);
    put("d");
    const json status = result({"status"});
    ASSERT_EQ(status["consumers"].size(), 1U);
    const json& stock = status["consumers"][0];
    EXPECT_EQ(stock["name"], "stock");
    EXPECT_EQ(stock["applied_total"], 2);
    EXPECT_EQ(stock["failed_total"], 1);
    EXPECT_EQ(stock["dead"], 1);
    ASSERT_EQ(status["mailboxes"].size(), 1U);
    EXPECT_EQ(status["mailboxes"][0]["name"], "default");
    EXPECT_EQ(status["mailboxes"][0]["waiting"], 1);
    EXPECT_THAT(text({"status"}), HasSubstr("stock"));
}

TEST_P(ConsumerCommands, DeadLettersOfAConsumerAreListedShownRetriedAndDiscarded) {
    for (const char* id : {"a", "b", "c"}) put(id);
    bool broken = true;
    auto member = consumer([&](std::string_view id) { return broken && id != "c"; });
    EXPECT_EQ(member.drain(), 3U);
    const json list = result({"dead", "list", "--consumer", "stock"});
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["id"], "a");
    EXPECT_EQ(list[0]["event_type"], "OrderCreated");
    EXPECT_EQ(list[0]["error_code"], "OB_HANDLER_FAILED");
    EXPECT_EQ(result({"dead", "list", "--consumer", "other"}).size(), 0U);
    EXPECT_EQ(result({"dead", "list", "--consumer", "stock", "--key", "k-b"})[0]["id"], "b");
    const json whole = result({"dead", "show", "b", "--consumer", "stock"});
    EXPECT_EQ(whole[0]["payload"], json({{"a", 1}}));
    EXPECT_THAT(whole[0]["error"].get<std::string>(), HasSubstr("no stock"));

    EXPECT_EQ(result({"dead", "retry", "a", "--consumer", "stock"})["matched"], 1);
    EXPECT_EQ(result({"dead", "discard", "b", "--consumer", "stock", "--dry-run"})["matched"], 1);
    EXPECT_EQ(result({"dead", "discard", "b", "--consumer", "stock"})["matched"], 1);
    broken = false;
    ASSERT_TRUE(eventually(30s, "the retried one is applied", [&] { return member.drain() == 1; }));
    EXPECT_EQ(result({"dead", "list", "--consumer", "stock"}).size(), 0U);
}

TEST_P(ConsumerCommands, PruneForgetsOldIdsRaisesTheFloorAndRemovesExpiredKeys) {
    const bool postgres = GetParam() == Backend::kPostgres;
    const auto ago = [&](int days) {
        const std::string number = std::to_string(days);
        return postgres ? "now() - interval '" + number + " days'"
                        : "(strftime('%s', 'now') - 86400 * " + number + ") * 1000000";
    };
    db_->exec(
        "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES "
        "('stock', 'old', " +
        ago(31) + "), ('stock', 'young', " + ago(29) + "), ('mail', 'old', " + ago(40) + ")");
    db_->exec("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', 'without time')");
    db_->exec(
        "INSERT INTO outbox_idempotency (scope, key, fingerprint, expires_at) VALUES "
        "('u', 'expired', 'f', " +
        ago(1) + "), ('u', 'kept', 'f', " + ago(-1) + ")");
    const json pruned = result({"prune"});
    EXPECT_EQ(pruned["inbox"], 2);
    EXPECT_EQ(pruned["keys"], 1);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox"), 2);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_floor"), 2);
    EXPECT_EQ(db_->value("SELECT key FROM outbox_idempotency"), "kept");
    EXPECT_EQ(result({"prune"})["inbox"], 0);
    EXPECT_EQ(
        outbox_.run({"prune", "--db", database_->url(), "--inbox-retention", "1h"}).status.code, 2);
}

TEST_P(ConsumerCommands, AFloorStaysBelowWhatStillWaitsInAMailbox) {
    const bool postgres = GetParam() == Backend::kPostgres;
    put("waiting");
    db_->exec(postgres ? "UPDATE outbox_mailbox SET received_at = now() - interval '20 days'"
                       : "UPDATE outbox_mailbox SET received_at = (strftime('%s', 'now') - 86400 "
                         "* 20) * 1000000");
    db_->exec(postgres ? "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES "
                         "('stock', 'a', now() - interval '45 days')"
                       : "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES "
                         "('stock', 'a', (strftime('%s', 'now') - 86400 * 45) * 1000000)");
    EXPECT_EQ(result({"prune"})["inbox"], 0);
    db_->exec("DELETE FROM outbox_mailbox");
    EXPECT_EQ(result({"prune"})["inbox"], 1);
}

}  // namespace
}  // namespace outbox::test
