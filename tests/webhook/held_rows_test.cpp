// Rows and tables that somebody holds.
#include <algorithm>
#include <thread>

#include <outbox/producer/migrate.h>

#include "tests/support/eventually.h"
#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

// Who deletes holds the endpoint, and waits for one who holds a delivery of it; who records waits
// for neither.
TEST(WebhookLocks, WhoRecordsWaitsNeitherForWhoHoldsADeliveryNorForWhoDeletesItsEndpoint) {
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    for (const char* id : {"one", "two", "three"}) {
        ASSERT_EQ(add_endpoint(database.url(), id), "");
    }
    Pg holder(database.url());
    holder.exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) SELECT id, event FROM "
        "unnest(ARRAY['one', 'two', 'three']) id, unnest(ARRAY['e1', 'e2']) event ORDER BY id, "
        "event");
    const auto outlet = open_outlet(database.url());
    const auto epoch = outlet->acquire("tester", std::chrono::hours(1)).value_or_throw();
    ASSERT_TRUE(epoch.has_value());
    std::vector<webhook::EndpointChange> changes;
    std::vector<webhook::Outcome> outcomes;
    for (const auto& endpoint : outlet->endpoints().value_or_throw()) {
        webhook::EndpointChange& change = changes.emplace_back();
        change.endpoint_id = endpoint.id;
        change.created_at_us = endpoint.created_at_us;
        change.revision = 1;
        change.delivered = 2;
        for (int event = 1; event <= 2; ++event) {
            webhook::Outcome& outcome = outcomes.emplace_back();
            outcome.endpoint_id = endpoint.id;
            outcome.event_id = "e" + std::to_string(event);
            outcome.created_at_us = endpoint.created_at_us;
            outcome.revision = 1;
        }
    }
    Pg watcher(database.url());
    for (webhook::Outcome& outcome : outcomes) {
        outcome.position =
            watcher.number("SELECT position FROM outbox_webhook_deliveries WHERE endpoint_id = '" +
                           outcome.endpoint_id + "' AND event_id = '" + outcome.event_id + "'");
    }
    // One of "two" failed, which is held, too.
    for (webhook::Outcome& outcome : outcomes) {
        if (outcome.endpoint_id != "two" || outcome.event_id != "e1") continue;
        outcome.kind = webhook::Outcome::Kind::kFailed;
        outcome.attempts = 1;
    }
    holder.exec("BEGIN");
    holder.exec(
        "SELECT FROM outbox_webhook_deliveries WHERE (endpoint_id, event_id) IN (('two', 'e1'), "
        "('three', 'e2')) FOR UPDATE");
    const auto held = [&] {
        auto recorded = outlet->record(*epoch, outcomes, changes).value_or_throw();
        std::sort(recorded.begin(), recorded.end());
        return recorded;
    };
    EXPECT_EQ(held(), (std::vector<std::string>{"three", "two"}));
    EXPECT_EQ(watcher.number("SELECT count(*) FROM outbox_webhook_deliveries WHERE endpoint_id = "
                             "'one'"),
              0);
    Status removed;
    std::thread removes([&] { removed = open_registry(database.url())->remove("three").status(); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "who deletes waits", [&] {
        return watcher.number(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                   "current_database() AND wait_event_type = 'Lock'") == 1;
    }));
    EXPECT_EQ(held(), (std::vector<std::string>{"three", "two"}));
    holder.exec("COMMIT");
    removes.join();
    EXPECT_EQ(Rig::text(removed), "");
    EXPECT_EQ(held(), std::vector<std::string>{});
    EXPECT_EQ(watcher.value("SELECT endpoint_id || event_id || attempts FROM "
                            "outbox_webhook_deliveries"),
              "twoe11");
}

// Held by an operator, in a transaction that is open for however long.
class HeldRow : public DispatcherTest {
  protected:
    void SetUp() override {
        DispatcherTest::SetUp();
        ASSERT_EQ(add_endpoint(url_, "one"), "");
        ASSERT_EQ(add_endpoint(url_, "two"), "");
        holder_ = database_->connect();
    }
    void hold(const std::string& rows) {
        holder_->exec("BEGIN");
        holder_->exec("SELECT FROM outbox_webhook_" + rows);
    }
    void let_go() { holder_->exec("COMMIT"); }
    // Each event to both, while a row of "two" is held, and afterwards.
    void expect_that_two_alone_waits(Rig& rig) {
        for (int i = 1; i <= 5; ++i) {
            ASSERT_EQ(rig.write(keyed(20 * i, 20 * i + 20, 3)), "");
            ASSERT_TRUE(rig.turn_until("the other's go", [&] { return left("one") == 0; }));
            rig.turns(150, 20);  // it looks back meanwhile
        }
        EXPECT_GT(left("two"), 0);
        EXPECT_EQ(rig.times_said("webhook_not_recorded"), 1U) << rig.remarks();
        let_go();
        rig.turns(250);
        EXPECT_EQ(left(), 0) << "all is recorded and sent soon";
        for (int i = 20; i < 120; ++i) {
            EXPECT_EQ(rig.receivers.attempts("two", "e" + std::to_string(i)), 1U) << i;
        }
        EXPECT_TRUE(in_order(rig.receivers, "two"));
        EXPECT_EQ(rig.times_said("webhooks_dispatching"), 1U) << rig.remarks();
        rig.turns(200);
        EXPECT_EQ(db_->number("SELECT sum(delivered_total) FROM outbox_webhook_endpoints"),
                  static_cast<long long>(rig.receivers.requests.size()));
    }

    std::unique_ptr<Database::Connection> holder_;
};

INSTANTIATE_TEST_SUITE_P(Postgres, HeldRow, testing::Values(Backend::kPostgres),
                         [](const auto& info) { return backend_name(info.param); });

TEST_P(HeldRow, OfAnEndpointDelaysNoOther) {
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 20, 3)), "");
    ASSERT_TRUE(rig.turn_until("both are known", [&] { return left() == 0; }));
    hold("endpoints WHERE endpoint_id = 'two' FOR SHARE");
    expect_that_two_alone_waits(rig);
}

// It is known of an endpoint that it waits before more of it is read.
TEST_P(HeldRow, OfAFailedDeliveryKeepsTheOrderOfItsKey) {
    Rig rig(url_);
    rig.receivers.answer = [&rig](const webhook::Endpoint& endpoint,
                                  const webhook::Delivery& delivery) -> std::optional<Answer> {
        const bool fails = endpoint.id == "two" && delivery.event_id == "e50" &&
                           rig.receivers.attempts("two", "e50") == 0;
        return fails ? ScriptedReceivers::refused() : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 300, 1)), "");
    ASSERT_EQ(rig.write(keyed(300, 600, 1)), "");
    hold("deliveries WHERE endpoint_id = 'two' AND event_id = 'e50' FOR UPDATE");
    rig.turns(700);
    EXPECT_EQ(rig.receivers.attempts("two", "e50"), 1U);
    EXPECT_EQ(left("one"), 0);
    let_go();
    ASSERT_TRUE(rig.turn_until("all goes", [&] { return left() == 0; }));
    EXPECT_TRUE(in_order(rig.receivers, "two"));
    EXPECT_EQ(rig.receivers.attempts("two", "e49"), 1U);
}

TEST_P(HeldRow, OfADeliveryDelaysNoOtherEndpoint) {
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(20, 40, 3)), "");
    hold("deliveries WHERE endpoint_id = 'two' AND event_id = 'e25' FOR UPDATE");
    expect_that_two_alone_waits(rig);
}

TEST_P(HeldRow, OfAFullQueueDelaysNoEvent) {
    Rig rig(url_);
    rig.fill("two", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    hold("endpoints WHERE endpoint_id = 'two' FOR NO KEY UPDATE");
    ASSERT_EQ(rig.write(keyed(10, 20, 1)), "");
    ASSERT_EQ(rig.write(keyed(20, 30, 1)), "");
    EXPECT_EQ(left("one"), 30);
    let_go();
    // What was missed meanwhile is counted soon, also where no event comes.
    rig.fan_out().count_missed();
    EXPECT_EQ(missed("two"), 30);
    rig.fan_out().count_missed();
    ASSERT_EQ(rig.write(keyed(30, 40, 1)), "");
    EXPECT_EQ(missed("two"), 40);
    EXPECT_EQ(rig.fan_out().missed_total(), 40);
}

TEST_P(HeldRow, OfAnotherEndpointHoldsNoFullOneWithIt) {
    Rig rig(url_);
    rig.fill("one", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    hold("endpoints WHERE endpoint_id = 'two' FOR UPDATE");
    std::string written;
    std::thread writes([&] { written = rig.write(keyed(10, 20, 1)); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "the route waits", [&] {
        return db_->number(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                   "wait_event_type = 'Lock'") == 1;
    }));
    EXPECT_EQ(db_->number("SELECT count(*) FROM (SELECT FROM outbox_webhook_endpoints WHERE "
                          "endpoint_id = 'one' FOR NO KEY UPDATE SKIP LOCKED) one"),
              1);
    let_go();
    writes.join();
    EXPECT_EQ(written, "");
    EXPECT_EQ(missed("one"), 20);
}

// As long as a transaction that counts what was missed may be met.
TEST_P(HeldRow, ForAMomentDelaysForAMomentAndAccusesNobody) {
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 20, 1)), "");
    for (int i = 0; i < 10; ++i) {
        bool met = false;
        rig.outlet().records = [&] { met = true; };
        hold("endpoints WHERE endpoint_id = 'two' FOR NO KEY UPDATE");
        ASSERT_EQ(rig.write(keyed(20 * i, 20 * i + 20, 1)), "");
        ASSERT_TRUE(rig.turn_until("it is met", [&] { return met; }));
        rig.turns(15);
        let_go();
        rig.turns(40);
        EXPECT_EQ(left("two"), 0) << "after a moment";
    }
    EXPECT_FALSE(rig.said("webhook_not_recorded")) << rig.remarks();
}

// Who counts holds the row for no longer than the statement takes: its commit waits for no disk.
TEST_P(HeldRow, ByWhoCountsWaitsForNoDisk) {
    db_->exec("CREATE TABLE seen AS SELECT ''::text AS how");
    db_->exec(
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE public.seen "
        "SET how = current_setting('synchronous_commit'); RETURN NULL; END $$");
    db_->exec(
        "CREATE CONSTRAINT TRIGGER look AFTER UPDATE ON outbox_webhook_endpoints DEFERRABLE "
        "INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()");
    Rig rig(url_);
    rig.fill("two", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    EXPECT_EQ(missed("two"), 10);
    EXPECT_EQ(db_->value("SELECT how FROM seen"), "off");
}

// By who writes to SQLite, or has PostgreSQL make an index.
class HeldTable : public DispatcherTest {};

INSTANTIATE_TEST_SUITE_P(Both, HeldTable, testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });

TEST_P(HeldTable, IsNoEndpointsMatter) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    webhook::DispatchOptions options = with_a_long_lease();
    options.lease_renew_ms = 100;  // which goes on meanwhile
    Rig rig(url_, options, 1);
    ASSERT_EQ(rig.write(keyed(0, 20, 20)), "");
    ASSERT_TRUE(rig.turn_until("some are sent", [&] { return !rig.receivers.requests.empty(); }));
    ASSERT_GT(left(), 0);
    if (GetParam() == Backend::kSqlite) {
        db_->exec("BEGIN IMMEDIATE");
    } else {
        db_->exec("BEGIN");
        db_->exec("LOCK TABLE outbox_webhook_deliveries IN SHARE MODE");
    }
    ASSERT_TRUE(rig.turn_until("it finds the table held",
                               [&] { return rig.said("webhooks_database_away"); }));
    rig.turns(4, 400);  // in vain
    EXPECT_FALSE(rig.said("webhooks_database_back")) << rig.remarks();
    db_->exec("COMMIT");
    rig.turns(20, 100);
    EXPECT_EQ(left(), 0) << "nobody waits once it is free";
    EXPECT_EQ(rig.receivers.requests.size(), 40U);
    EXPECT_FALSE(rig.said("webhook_not_recorded")) << rig.remarks();
    EXPECT_EQ(rig.times_said("webhooks_database_away"), 1U) << rig.remarks();
    EXPECT_EQ(rig.times_said("webhooks_database_back"), 1U) << rig.remarks();
}

// Whatever an endpoint left behind.
TEST(WebhookLocks, WhatSomebodyHoldsOfAnEndpointThatIsGoneIsSweptLater) {
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    Pg holder(database.url());
    holder.exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('one', 'e1'), "
        "('one', 'e2')");
    const auto outlet = open_outlet(database.url());
    ASSERT_TRUE(outlet->acquire("tester", std::chrono::hours(1)).value_or_throw().has_value());
    holder.exec("BEGIN");
    holder.exec("SELECT FROM outbox_webhook_deliveries WHERE event_id = 'e1' FOR UPDATE");
    EXPECT_EQ(outlet->sweep("one").value_or_throw(), 1);
    EXPECT_EQ(outlet->sweep("one").value_or_throw(), 0);
    holder.exec("COMMIT");
    EXPECT_EQ(outlet->sweep("one").value_or_throw(), 1);
}

}  // namespace
}  // namespace outbox::test
