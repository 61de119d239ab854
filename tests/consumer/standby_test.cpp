// Repeats where PostgreSQL has a synchronous standby. The entry that a repeat finds may be
// committed on the primary alone, after a crash or a cancelled wait; a failover to the standby
// undoes it.

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_idempotency.h>
#include <outbox/adapters/libpq_saga.h>
#include <outbox/producer/migrate.h>

#include "consumer/env.h"
#include "databases/postgres/mailbox_writer.h"
#include "databases/postgres/receive/broker_store.h"
#include "databases/postgres/webhook/store.h"
#include "tests/support/eventually.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using consumer::Taken;

class RepeatsBesideAStandby : public testing::Test {
  protected:
    void SetUp() override {
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(url_, options);
        pg_.exec("SET synchronous_commit = local");
        pg_.exec("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('c', 'known')");
        pg_.exec("CREATE TABLE own (id text PRIMARY KEY); INSERT INTO own VALUES ('known')");
        pg_.exec("CREATE TABLE probe (n integer)");
        wait_for_standby("nobody");
        // The checkpointer puts it into force for commits, whenever it hears of it.
        ASSERT_TRUE(eventually(60s, "commits wait", [&] {
            return waits(
                [](PGconn* session) { Pg::query(session, "INSERT INTO probe VALUES (1)"); });
        }));
    }

    void wait_for_standby(const std::string& name) {
        pg_.exec("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'");
        pg_.exec("SELECT pg_reload_conf()");
        ASSERT_TRUE(eventually(60s, "the setting is in force", [&] {
            return Pg(url_).value("SHOW synchronous_standby_names") == name;
        }));
    }
    // Whether what `work` does ends only when somebody takes the standby's place.
    bool hangs(const std::function<void()>& work) {
        std::atomic<bool> done = false;
        std::thread thread([&] {
            work();
            done = true;
        });
        std::string pid;
        EXPECT_TRUE(eventually(60s, "it ends or waits", [&] {
            const auto found =
                pg_.query("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
            if (!found.empty()) pid = found[0][0].value_or("");
            return done || !pid.empty();
        }));
        if (!pid.empty()) pg_.exec("SELECT pg_cancel_backend(" + pid + ")");
        thread.join();
        return !pid.empty();
    }
    // Whether the COMMIT of a transaction with `work` in it does.
    bool waits(const std::function<void(PGconn*)>& work) {
        Pg session(url_);
        session.exec("BEGIN");
        work(session.handle());
        return hangs([&] { session.exec("COMMIT"); });
    }
    static spi::EventView message(std::string_view id) {
        spi::EventView event;
        event.id = id;
        event.topic = "t";
        event.payload = "1";
        return event;
    }

    PostgresServer server_;
    std::string url_ = server_.create_database();
    Pg pg_{url_};
    const consumer::Env env_ = consumer::real_env();
    consumer::LibpqBrokerStore store_{url_, {.consumer = "c"}, env_.clock};
};

TEST_F(RepeatsBesideAStandby, OfAConsumerOfABrokerWaitAsWritesDo) {
    const std::vector<spi::EventView> one{message("known")};
    const std::vector<spi::EventView> batch{message("known"), message("known")};
    for (const auto& messages : {one, batch}) {
        const auto taken = store_.begin(messages, true, {}, nullptr);
        ASSERT_TRUE(taken.ok());
        EXPECT_EQ(taken->front(), Taken::kRepeat);
        EXPECT_TRUE(hangs([&] { EXPECT_TRUE(store_.inbox().commit().ok()); }));
    }
}

TEST_F(RepeatsBesideAStandby, OfAMessageThatIsGivenUpOnWaitAsWritesDo) {
    EXPECT_TRUE(hangs([&] {
        const auto taken = store_.bury(message("known"), {5, "OB_X", "x"}, true, nullptr);
        EXPECT_TRUE(taken.ok() && *taken == Taken::kRepeat);
    }));
}

TEST_F(RepeatsBesideAStandby, OfACallersLoopWaitAsWritesDo) {
    EXPECT_TRUE(waits([](PGconn* session) { EXPECT_FALSE(accept(session, "c", "known")); }));
    EXPECT_TRUE(waits([](PGconn* session) {
        const std::vector<InboxEntry> batch{{"known", std::nullopt}};
        EXPECT_FALSE(accept_batch(session, "c", batch).at(0));
    }));
    EXPECT_TRUE(waits([](PGconn* session) {
        InboxTable own;
        own.table = "own";
        own.id_column = "id";
        own.consumer_column = "";
        own.time_column = "";
        EXPECT_FALSE(accept(session, own, "c", "known"));
    }));
    pg_.exec("INSERT INTO outbox_inbox_sequences VALUES ('c', 'k', 3)");
    EXPECT_TRUE(waits([](PGconn* session) {
        EXPECT_EQ(accept_sequence(session, "c", "k", 2).what, SequenceResult::What::kRepeat);
    }));
    Pg session(url_);
    EXPECT_FALSE(begin_and_accept(session.handle(), "c", "known"));
    EXPECT_TRUE(hangs([&] { session.exec("COMMIT"); }));
    // Whoever does not want to wait does not: a consumer whose effects may be undone.
    session.exec("SET synchronous_commit = local");
    EXPECT_FALSE(begin_and_accept(session.handle(), "c", "known"));
    EXPECT_FALSE(hangs([&] { session.exec("COMMIT"); }));
}

TEST_F(RepeatsBesideAStandby, OfARequestWaitAsWritesDo) {
    const IdempotentRequest request{
        .scope = "user", .key = "key", .operation = "POST /orders", .body = "{}"};
    pg_.exec("BEGIN");
    const auto first = claim_key(pg_.handle(), request);
    complete_key(pg_.handle(), request, first, {.status = 201, .headers = {}, .body = "made"});
    pg_.exec("COMMIT");
    EXPECT_TRUE(
        waits([&](PGconn* session) { EXPECT_EQ(claim_key(session, request).answer.status, 201); }));
    Pg session(url_);
    EXPECT_EQ(begin_and_claim_key(session.handle(), request).answer.status, 201);
    EXPECT_TRUE(hangs([&] { session.exec("COMMIT"); }));
}

TEST_F(RepeatsBesideAStandby, OfTheFunctionsForAnyLanguageWaitAsWritesDo) {
    pg_.exec(
        "SELECT idempotency_complete('u', 'answered', (idempotency_claim('u', 'answered', "
        "'f')).attempt, 201); SELECT idempotency_claim('u', 'done', 'f')");
    for (const char* repeat :
         {"SELECT inbox_accept('c', 'known')",
          "SELECT inbox_accept('c', 'known', now() - interval '2 hours')",
          "SELECT state <> 'repeat' FROM idempotency_claim('u', 'answered', "
          "'f')",
          "SELECT state <> 'repeat' FROM idempotency_claim('u', 'done', 'f')"}) {
        EXPECT_TRUE(waits([&](PGconn* session) {
            EXPECT_EQ(Pg::query(session, repeat)[0][0], "f") << repeat;
        })) << repeat;
    }
}

TEST_F(RepeatsBesideAStandby, OfAStepOfASagaWaitAsWritesDo) {
    Message command;
    command.id = "again";
    command.headers_json =
        R"({"saga_id":"s","saga_step":"pay","saga_call":"do","saga_reply_to":"t"})";
    pg_.exec("BEGIN");
    EXPECT_EQ(begin_saga_step(pg_.handle(), command), SagaCall::kDo);
    pg_.exec("COMMIT");
    EXPECT_TRUE(waits(
        [&](PGconn* session) { EXPECT_EQ(begin_saga_step(session, command), SagaCall::kRepeat); }));
}

// To the relay, which removes what its destination has.
TEST_F(RepeatsBesideAStandby, OfAnEventForAMailboxWaitAsWritesDo) {
    pg_.exec("INSERT INTO outbox_mailbox (id, topic) VALUES ('known', 't')");
    mailbox::MailboxConfig config;
    config.target = url_;
    const auto client = mailbox::open_postgres_mailbox(config).value_or_throw();
    ASSERT_TRUE(client->prepare().ok());
    mailbox::Row row;
    row.id = "known";
    row.topic = "t";
    const std::vector<mailbox::Row> batch{row, row};
    EXPECT_TRUE(hangs([&] { EXPECT_TRUE(client->insert({&row, 1}).ok()); }));
    EXPECT_TRUE(hangs([&] { EXPECT_TRUE(client->insert(batch).ok()); }));
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_mailbox"), "1");
}

TEST_F(RepeatsBesideAStandby, OfAnEventForAWebhookWaitAsWritesDo) {
    pg_.exec(
        "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) "
        "VALUES ('e', 'https://a.example', 'sealed'); "
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('e', 'known')");
    webhook::StoreConfig config;
    config.target = url_;
    const auto inlet = postgres::open_webhook_inlet(config).value_or_throw();
    ASSERT_TRUE(inlet->prepare().ok());
    webhook::Event event;
    event.id = "known";
    event.headers = "{}";
    const std::string_view endpoint = "e";
    const webhook::Target target;
    EXPECT_TRUE(
        hangs([&] { EXPECT_TRUE(inlet->insert({&event, 1}, {&endpoint, 1}, {&target, 1}).ok()); }));
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_webhook_deliveries"), "1");
}

// A standby's absence is nobody's matter where none is named.
TEST_F(RepeatsBesideAStandby, AreNothingInTheLogWhereNoStandbyIsWaitedFor) {
    wait_for_standby("");
    const std::vector<spi::EventView> one{message("known")};
    ASSERT_TRUE(store_.begin(one, true, {}, nullptr).ok());
    EXPECT_EQ(Pg::query(store_.connection(), "SELECT pg_current_xact_id_if_assigned()")[0][0],
              std::nullopt);
    EXPECT_TRUE(store_.inbox().commit().ok());
    pg_.exec("SELECT idempotency_claim('u', 'done', 'f')");
    for (const char* repeat :
         {"SELECT inbox_accept('c', 'known')", "SELECT idempotency_claim('u', 'done', 'f')"}) {
        Pg session(url_);
        session.exec("BEGIN");
        session.query(repeat);
        EXPECT_EQ(session.query("SELECT pg_current_xact_id_if_assigned()")[0][0], std::nullopt)
            << repeat;
    }
}

}  // namespace
}  // namespace outbox::test
