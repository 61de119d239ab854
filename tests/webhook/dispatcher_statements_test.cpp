// Statements, their limits and their rights.
#include <gmock/gmock.h>

#include <outbox/producer/migrate.h>

#include "databases/postgres/schema_objects.h"
#include "tests/support/eventually.h"
#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

// A table of which no statistics were taken is small for the planner.
TEST(WebhookReads, TakeNoMoreOfALongQueueThanASlice) {
    constexpr int kReads = 20;
    constexpr int kQueued = 10'000;
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    Pg pg(database.url());
    pg.exec("ALTER TABLE outbox_webhook_deliveries SET (autovacuum_enabled = off)");
    pg.exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, payload) SELECT 'one', 'e' "
        "|| n, repeat('x', 200)::bytea FROM generate_series(1, " +
        std::to_string(kQueued) + ") n");
    {
        const auto outlet = open_outlet(database.url());
        const auto endpoints = outlet->endpoints().value_or_throw();
        webhook::Slice slice;
        slice.endpoint_id = "one";
        slice.created_at_us = endpoints.at(0).created_at_us;
        slice.revision = endpoints.at(0).revision;
        slice.max_rows = 32;
        for (int read = 0; read < kReads; ++read) {
            std::vector<webhook::Delivery> found;
            ASSERT_TRUE(outlet->fetch({&slice, 1}, {}, {1'000'000, 1'000'000}, found).ok());
            ASSERT_EQ(found.size(), slice.max_rows);
            slice.after = found.back().position;
        }
    }
    // The counters of a session arrive when it ends.
    const std::string fetched =
        "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = "
        "'outbox_webhook_deliveries'";
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "the reads are counted",
                           [&] { return pg.number(fetched) >= kReads * 32; }));
    EXPECT_LT(pg.number(fetched), kQueued);
}

// As `statement_timeout` does, of 8 s, where a delivery takes 80 ms.
TEST(WebhookWrites, AnEventForWhichTheServerEndsTheStatementIsWrittenInParts) {
    constexpr int kEndpoints = 250;
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    Pg pg(database.url());
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    pg.exec(
        "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) SELECT 'more-' || n, "
        "url, secrets FROM outbox_webhook_endpoints, generate_series(2, " +
        std::to_string(kEndpoints) +
        ") n; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF (SELECT "
        "count(*) FROM fresh) > 100 THEN RAISE 'slow' USING ERRCODE = '57014'; END IF; RETURN "
        "NULL; END $$; CREATE TRIGGER slow AFTER INSERT ON outbox_webhook_deliveries "
        "REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION slow()");
    Rig rig(database.url());
    const std::string deliveries = "SELECT count(*) FROM outbox_webhook_deliveries";
    for (const char* id : {"e1", "e2"}) {
        for (int tries = 0; !rig.write({{.id = id, .key = "k"}}).empty(); ++tries) {
            ASSERT_LT(tries, 3);
        }
    }
    EXPECT_EQ(pg.number(deliveries), 2 * kEndpoints);
    EXPECT_EQ(pg.number("SELECT count(DISTINCT endpoint_id) FROM outbox_webhook_deliveries WHERE "
                        "event_id = 'e2' AND position > ALL (SELECT position FROM "
                        "outbox_webhook_deliveries WHERE event_id = 'e1')"),
              kEndpoints);
}

TEST(WebhookWrites, NothingThatWentIntoAFileThatWasReplacedMeanwhileIsWritten) {
    SqliteDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    const ReplacedInTransaction replaced(database.path(), "outbox_webhook_deliveries");
    Rig rig(database.url());
    rig.prepare();
    EXPECT_THAT(rig.write({{.id = "e0"}}), testing::HasSubstr("replaced"));
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    EXPECT_EQ(Sqlite(database.path()).value("SELECT event_id FROM outbox_webhook_deliveries"),
              "e0");
}

// As after a failover that lost the last transactions, or in a copy that was put in its place.
TEST(WebhookLease, OfAnotherOwnerWithTheSameEpochIsNotRenewed) {
    constexpr std::chrono::minutes kTtl{10};
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    const auto first = open_outlet(database.url());
    const auto second = open_outlet(database.url());
    ASSERT_EQ(first->acquire("first", kTtl).value_or_throw(), 1U);
    Pg pg(database.url());
    pg.exec(
        "UPDATE outbox_webhook_lease SET epoch = 0, owner = NULL, expires_at = NULL, "
        "backend_pid = NULL, backend_start = NULL; SELECT pg_terminate_backend(pid, 60000) FROM "
        "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()");
    ASSERT_EQ(second->acquire("second", kTtl).value_or_throw(), 1U);
    static_cast<void>(first->renew(1, kTtl).ok());  // its session is gone
    EXPECT_FALSE(first->renew(1, kTtl).value_or_throw());
    EXPECT_TRUE(second->renew(1, kTtl).value_or_throw());
}

// Who cannot reach the database has not lost the lease, and does not say that it is back.
TEST(WebhookAway, ADatabaseThatIsAwayIsSaidToBeBackOnceItIs) {
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    const auto slash = database.url().rfind('/');
    const std::string name = database.url().substr(slash + 1);
    Pg admin(database.url().substr(0, slash) + "/postgres");
    Rig rig(database.url(), with_a_long_lease());
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    const auto taken = [&] { return rig.receivers.taken("one").size(); };
    ASSERT_TRUE(rig.turn_until("it leads", [&] { return taken() == 1; }));
    rig.turns(3, 1'000);
    admin.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false");
    admin.exec("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '" +
               name + "'");
    rig.clock.advance_ms(kHourMs);  // to renew
    rig.turns(20, 250);
    EXPECT_EQ(rig.times_said("webhooks_database_away"), 1U);
    EXPECT_EQ(rig.times_said("webhooks_database_back"), 0U);
    admin.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true");
    ASSERT_TRUE(
        rig.turn_until("it is back", [&] { return rig.said("webhooks_database_back"); }, 250));
    ASSERT_TRUE(rig.turn_until(
        "the route writes again", [&] { return rig.write({{.id = "e1"}}).empty(); }, 250));
    ASSERT_TRUE(rig.turn_until("it delivers", [&] { return taken() == 2; }));
    EXPECT_EQ(rig.times_said("webhooks_database_away"), 1U);
    EXPECT_EQ(rig.times_said("webhooks_dispatching"), 1U) << "the lease was kept";
}

class WebhookRights : public testing::Test {
  protected:
    WebhookRights() {
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(database_.url(), options);
        EXPECT_EQ(add_endpoint(database_.url(), "one"), "");
        owner_.exec(
            "DROP ROLE IF EXISTS webhook_relay; CREATE ROLE webhook_relay LOGIN "
            "PASSWORD 'test'");
        const auto at = url_.find("//") + 2;
        const auto host = url_.find('@');
        url_ = url_.substr(0, at) + "webhook_relay:test@" +
               url_.substr(host == std::string::npos ? at : host + 1);
    }
    ~WebhookRights() override {
        owner_.exec("DROP OWNED BY webhook_relay; DROP ROLE webhook_relay");
    }

    PostgresDatabase database_;
    Pg owner_{database_.url()};
    std::string url_ = database_.url();  // as that role
};

TEST_F(WebhookRights, TheDocumentedRightsOfARelayAreEnoughAndAllAreNeeded) {
    std::vector<std::pair<std::string, std::string>> rights;
    for (const postgres::SchemaObject& object : postgres::schema_objects()) {
        if (!object.name.starts_with("outbox_webhook") || object.relay.empty()) continue;
        owner_.exec("GRANT " + std::string(object.relay) + " ON " + std::string(object.name) +
                    " TO webhook_relay");
        std::string_view rest = object.relay;
        while (!rest.empty()) {
            const auto end = std::min(rest.find(", "), rest.size());
            rights.emplace_back(rest.substr(0, end), object.name);
            rest.remove_prefix(std::min(end + 2, rest.size()));
        }
    }
    {
        Rig rig(url_);
        int failures = 1;
        rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
            return failures-- > 0 ? ScriptedReceivers::refused() : ScriptedReceivers::done();
        };
        ASSERT_EQ(rig.write({{.id = "e1"}, {.id = "e2"}}), "");
        ASSERT_TRUE(rig.turn_until(
            "all is delivered",
            [&] { return owner_.number("SELECT count(*) FROM outbox_webhook_deliveries") == 0; },
            500));
        rig.finish();
    }
    for (const auto& [right, table] : rights) {
        owner_.exec("REVOKE " + right + " ON " + table + " FROM webhook_relay");
        const auto status = open_inlet(url_)->prepare();
        ASSERT_FALSE(status.ok()) << right << " on " << table;
        EXPECT_NE(status.error().message.find(right + " ON "), std::string::npos)
            << status.error().message;
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        owner_.exec("GRANT " + right + " ON " + table + " TO webhook_relay");
    }
}

// Its endpoints would get nothing, and the events would be finished.
TEST_F(WebhookRights, ATableOfWhichRowSecurityHidesRowsIsAnError) {
    owner_.exec("GRANT ALL ON ALL TABLES IN SCHEMA public TO webhook_relay");
    for (const std::string table :
         {"outbox_webhook_deliveries", "outbox_webhook_endpoints", "outbox_webhook_lease"}) {
        Rig rig(url_);
        ASSERT_EQ(rig.write({{.id = table}}), "");
        ASSERT_TRUE(rig.turn_until(
            "it is delivered", [&] { return rig.receivers.taken("one").size() == 1; }, 500));
        rig.finish();
        owner_.exec("ALTER TABLE " + table + " ENABLE ROW LEVEL SECURITY");
        const auto status = open_inlet(url_)->prepare();
        ASSERT_FALSE(status.ok()) << table;
        EXPECT_NE(status.error().message.find("row security of"), std::string::npos)
            << status.error().message;
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        owner_.exec("CREATE POLICY outbox ON " + table + " TO webhook_relay USING (true)");
        EXPECT_TRUE(open_inlet(url_)->prepare().ok()) << table;
        owner_.exec("DROP POLICY outbox ON " + table + "; ALTER TABLE " + table +
                    " DISABLE ROW LEVEL SECURITY");
    }
    Rig rig(url_);
    ASSERT_EQ(rig.write({{.id = "before"}}), "");
    owner_.exec("ALTER TABLE outbox_webhook_endpoints ENABLE ROW LEVEL SECURITY");
    EXPECT_NE(rig.write({{.id = "hidden"}}).find("row-level security"), std::string::npos);
    owner_.exec("ALTER TABLE outbox_webhook_endpoints DISABLE ROW LEVEL SECURITY");
    rig.finish();
}

}  // namespace
}  // namespace outbox::test
