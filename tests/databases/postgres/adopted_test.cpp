#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "tests/databases/postgres/support.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/counted.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kFirst = "018f2d3c-0000-7000-8000-000000000001";
constexpr const char* kSecond = "018f2d3c-0000-7000-8000-000000000002";
constexpr const char* kThird = "018f2d3c-0000-7000-8000-000000000003";
constexpr std::int64_t kFutureUs = 4'000'000'000'000'000;

// Each shape as teams have it, with the indexes they have.
class AdoptedTable : public testing::Test {
  protected:
    void create(const std::string& sql) { pg_.exec(sql); }

    postgres::PostgresSourceConfig config(const std::string& table) const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.table = table;
        return config;
    }

    std::string row(const std::string& table, const std::string& columns, const std::string& id,
                    const std::string& id_column = "id") {
        return pg_.value("SELECT concat_ws('|', " + columns + ") FROM " + table + " WHERE " +
                         id_column + "::text = '" + id + "'");
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

class PendingPublished : public AdoptedTable {
  protected:
    void SetUp() override {
        create(kPendingPublishedTable);
        for (const char* id : {kFirst, kSecond, kThird}) insert(id);
    }
    void insert(const std::string& id) {
        pg_.exec(
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) "
            "VALUES ('" +
            id + "', 'Order', 'o-1', 'OrderCreated', '{\"a\": 1}')");
    }
    std::string state(const std::string& id) {
        return row("outbox", "status, retry_count, published_at IS NOT NULL", id);
    }
};

TEST_F(PendingPublished, IsReadAndWrittenBack) {
    {
        Relay relay(config("outbox"));
        EXPECT_FALSE(relay.source().stable_positions());
        const auto events = relay.read();
        ASSERT_EQ(events.size(), 3U);
        EXPECT_EQ(events[0].id, kFirst);
        EXPECT_EQ(events[0].aggregate_type, "Order");
        EXPECT_EQ(events[0].order_key(), "o-1");
        EXPECT_EQ(events[0].event_type, "OrderCreated");
        EXPECT_EQ(events[0].payload, "{\"a\": 1}");
        EXPECT_GT(events[0].occurred_at_us, 1'600'000'000'000'000);
        relay.publish({events[0].position});
        relay.fail(events[1], 2, kFutureUs);
        relay.die(events[2], 5);
        EXPECT_EQ(state(kFirst), "PUBLISHED|0|t");
        EXPECT_EQ(state(kSecond), "PENDING|2|f");
        EXPECT_EQ(state(kThird), "FAILED|5|f");
        EXPECT_THAT(relay.read_ids(), IsEmpty());
    }
    // The next process reads what is unfinished, and knows the attempts by the event's id.
    Relay next(config("outbox"));
    EXPECT_THAT(next.read_ids(), ElementsAre(kSecond));
    const auto deliveries = value_of(next.recorder().load_deliveries("default"));
    ASSERT_EQ(deliveries.size(), 1U);
    EXPECT_EQ(deliveries[0].event_id, kSecond);
    EXPECT_EQ(deliveries[0].attempts, 2U);
}

TEST_F(PendingPublished, DeliversAgainWhatTheOwnerSetsBack) {
    Relay relay(config("outbox"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    relay.publish({events[0].position, events[1].position});
    relay.die(events[2], 5);
    pg_.exec("UPDATE outbox SET status = 'PENDING', published_at = NULL WHERE status = 'FAILED'");
    const auto again = relay.read();
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].id, kThird);
    EXPECT_EQ(again[0].attempts, 0U);
    EXPECT_NE(again[0].position, events[2].position);
    relay.publish({again[0].position});
    EXPECT_EQ(state(kThird), "PUBLISHED|5|t");
    EXPECT_THAT(relay.read_ids(), IsEmpty());
}

TEST_F(PendingPublished, KeepsWhatTheOwnerFinishedByHand) {
    Relay relay(config("outbox"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    pg_.exec("UPDATE outbox SET status = 'SKIPPED'");
    relay.fail(events[0], 1, kFutureUs);
    relay.die(events[1], 5);
    EXPECT_EQ(state(kFirst), "SKIPPED|0|f");
    EXPECT_EQ(state(kSecond), "SKIPPED|0|f");
    spi::EventBatch fetched;
    require(relay.reader().fetch({{events[2].position}}, fetched));
    EXPECT_TRUE(fetched.empty());
}

TEST_F(PendingPublished, SaysThatADeadLetterWasDeliveredAfterAll) {
    Relay relay(config("outbox"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    relay.die(events[0], 5);
    spi::RecordBatch batch = relay.fresh();
    batch.redelivered = {pg_.number("SELECT dead_id FROM outbox_dead_letters")};
    require(relay.recorder().record(batch));
    EXPECT_EQ(state(kFirst), "PUBLISHED|5|t");
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_dead_letters"), 0);
}

TEST_F(PendingPublished, PrunesOnlyWhatWasPublishedLongAgo) {
    for (const char* last : {"4", "5"}) {
        insert(std::string("018f2d3c-0000-7000-8000-00000000000") + last);
    }
    Relay relay(config("outbox"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 5U);
    relay.publish({events[0].position, events[1].position});
    relay.die(events[2], 5);
    // The fifth was set back by an owner who left its time of publication.
    pg_.exec(
        "UPDATE outbox SET created_at = created_at - interval '10 days'; UPDATE outbox SET "
        "published_at = now() - interval '8 days' WHERE right(id::text, 1) IN ('1', '5')");
    EXPECT_EQ(value_of(relay.recorder().prunable(std::chrono::hours(24 * 7))), 1);
    EXPECT_EQ(value_of(relay.recorder().prune(std::chrono::hours(24 * 7), 1000)), 1U);
    EXPECT_EQ(pg_.value("SELECT string_agg(right(id::text, 1), '' ORDER BY id) FROM outbox"),
              "2345");
}

TEST_F(PendingPublished, HoweverManyRowsMayNotBePrunedTheOthersAre) {
    pg_.exec(
        "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status, "
        "published_at) SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, "
        "'Order', CASE WHEN n <= 11000 THEN 'kept' ELSE 'o' END, 'Made', '{}', 'PUBLISHED', now() "
        "- interval '8 days' FROM generate_series(1, 11500) n; CREATE FUNCTION keep() RETURNS "
        "trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER keep BEFORE DELETE "
        "ON outbox FOR EACH ROW WHEN (OLD.aggregate_id = 'kept') EXECUTE FUNCTION keep()");
    Relay relay(config("outbox"));
    // Each look has a limit of time, and the next one goes on behind it.
    std::size_t removed = 0;
    EXPECT_TRUE(eventually(std::chrono::seconds(120), "the others are pruned", [&] {
        const auto pruned = relay.recorder().prune(std::chrono::hours(24 * 7), 1'000);
        if (pruned.ok()) removed += *pruned;
        return removed >= 500;
    }));
    EXPECT_EQ(removed, 500U);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox WHERE aggregate_id = 'o'"), 0);
}

TEST_F(PendingPublished, PrunesNoUnsentRowOfAPartitionWhereThePublishedOnesOfAnotherStand) {
    create(
        "CREATE TABLE parted (id uuid, event_type text, aggregate_type text, aggregate_id text, "
        "payload jsonb, created_at timestamptz DEFAULT now(), published_at timestamptz, "
        "retry_count int DEFAULT 0, status text NOT NULL DEFAULT 'PENDING', part int) "
        "PARTITION BY LIST (part); CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN (1); "
        "CREATE TABLE parted_b PARTITION OF parted FOR VALUES IN (2); "
        "INSERT INTO parted (id, event_type, payload, part) SELECT gen_random_uuid(), 'Made', "
        "'{}', p FROM generate_series(1, 2) p, generate_series(1, 3)");
    pg_.exec(
        "UPDATE parted SET status = 'PUBLISHED', published_at = now() - interval '30 days' "
        "WHERE part = 1");
    pg_.exec("VACUUM FULL parted_a");
    ASSERT_EQ(pg_.number("SELECT count(*) FROM parted_a a JOIN parted_b b ON a.ctid = b.ctid"), 3);
    Relay relay(config("parted"));
    EXPECT_EQ(value_of(relay.recorder().prune(std::chrono::hours(24 * 7), 1000)), 3U);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM parted WHERE status = 'PENDING'"), 3);
}

TEST_F(PendingPublished, PrunesNoRowThatItsOwnerSetsBackMeanwhile) {
    pg_.exec("UPDATE outbox SET status = 'PUBLISHED', published_at = now() - interval '30 days'");
    Relay relay(config("outbox"));
    Pg owner(url_);
    owner.exec("BEGIN; UPDATE outbox SET status = 'PENDING' WHERE id = '" + std::string(kSecond) +
               "'");
    auto pruned = std::async(std::launch::async, [&] {
        return value_of(relay.recorder().prune(std::chrono::hours(24 * 7), 1000));
    });
    // It waits for a moment, and passes over the row then.
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "the delete waits for the owner", [&] {
        return pg_.number(
                   "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                   "AND datname = current_database()") == 1 ||
               pruned.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }));
    owner.exec("COMMIT");
    EXPECT_EQ(pruned.get(), 2U);
    EXPECT_EQ(state(kSecond), "PENDING|0|t");
}

TEST_F(PendingPublished, UsesTheOwnersPartialIndexAndTellsWhatOrderIsWorth) {
    Relay relay(config("outbox"));
    EXPECT_THAT(findings(relay.source()), HasSubstr("preset pending-published"));
    EXPECT_THAT(findings(relay.source()), HasSubstr("the read is served by an index"));
    EXPECT_THAT(findings(relay.source()),
                HasSubstr("order inside one transaction is not promised"));
    pg_.exec("DROP INDEX outbox_pending");
    EXPECT_THAT(findings(relay.source()),
                HasSubstr("CREATE INDEX CONCURRENTLY ON \"public\".\"outbox\" (\"created_at\", "
                          "\"id\") WHERE \"status\" = 'PENDING'"));
}

TEST_F(PendingPublished, DoesNotReturnAgainWhatOnlyThisRouteHasFinished) {
    Relay relay(config("outbox"));
    const std::vector<spi::RouteName> routes{{"default", {}}, {"other", {}}};
    static_cast<void>(value_of(relay.recorder().begin(relay.epoch(), routes)));
    const auto other = value_of(relay.source().open_reader("other", {}));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    spi::EventBatch others;
    require(other->read(kAll, others));
    ASSERT_EQ(others.size(), 3U);
    EXPECT_EQ(others.events()[0].id, events[0].id);
    // Recorded for this route, while the row waits for the other one, also for the next owner.
    relay.publish({events[0].position});
    EXPECT_EQ(state(kFirst), "PENDING|0|f");
    EXPECT_THAT(relay.read_ids(), IsEmpty());
    const auto fresh = value_of(relay.source().open_reader("default", {}));
    spi::EventBatch rest;
    require(fresh->read(kAll, rest));
    EXPECT_EQ(rest.size(), 2U);
    spi::RecordBatch done = relay.fresh();
    done.finished.push_back({1, {others.events()[0].position}});
    require(relay.recorder().record(done));
    EXPECT_EQ(state(kFirst), "PUBLISHED|0|t");
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_route_done"), 0);
    // Set back while the other route has not let go of it: a delivery of its own, for both.
    pg_.exec("UPDATE outbox SET status = 'PENDING' WHERE id = '" + std::string(kFirst) + "'");
    const auto again = relay.read();
    ASSERT_EQ(again.size(), 1U);
    EXPECT_NE(again[0].position, events[0].position);
    other->forget(done.finished[0].positions);
    others.clear();
    require(other->read(kAll, others));
    ASSERT_EQ(others.size(), 1U);
    EXPECT_EQ(others.events()[0].id, again[0].id);
}

// While another route is down, rows that this one has finished stay unsent: passing over all of
// them for each batch would cost a healthy route its rate.
TEST_F(PendingPublished, WhatOnlyThisRouteHasFinishedIsPassedOverOnceForManyReads) {
    constexpr std::size_t kNew = 10'000;
    const std::string insert =
        "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, created_at) "
        "SELECT gen_random_uuid(), 'Order', 'o', 'Made', '1', clock_timestamp() ";
    const std::string read_so_far =
        "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'outbox'";
    long long before = 0;
    // Planned without statistics it took minutes.
    pg_.exec(
        "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || "
        "' SET statement_timeout = ''20s'''; END $$");
    {
        Relay relay(config("outbox"));
        pg_.exec("DELETE FROM outbox; " + insert +
                 "- interval '1 hour' FROM generate_series(1, 20000)");
        pg_.exec(
            "INSERT INTO outbox_route_done (source, event_id, route) SELECT 'public.outbox', "
            "id::text, 'default' FROM outbox");
        pg_.exec(insert + "FROM generate_series(1, " + std::to_string(kNew) + ")");
        pg_.exec("ANALYZE outbox");
        pg_ = Pg(url_);
        ASSERT_TRUE(eventually(std::chrono::seconds(60), "the writer has told its counts", [&] {
            before = Pg(url_).number(read_so_far);
            return before >= 20'000;
        }));
        std::set<std::string> seen;
        for (int reads = 0; seen.size() < kNew && reads < 100; ++reads) {
            for (std::string& id : relay.read_ids({500, 1U << 20})) {
                EXPECT_TRUE(seen.insert(std::move(id)).second);
            }
        }
        EXPECT_EQ(seen.size(), kNew);
    }
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "the reader has told what it read",
                           [&] { return Pg(url_).number(read_so_far) > before; }));
    EXPECT_LT(Pg(url_).number(read_so_far) - before, 200'000) << "not for each 500";
    EXPECT_LT(Pg(url_).number("SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE relname = "
                              "'outbox_route_done'"),
              1'000)
        << "looked up for each row";
}

class NewSent : public AdoptedTable {
  protected:
    void SetUp() override { create(kNewSentTable); }
    void insert(const std::string& id, const std::string& status = "NEW", int retries = 0,
                const std::string& retry_after = "NULL", const std::string& tenant = "acme") {
        pg_.exec(
            "INSERT INTO events_out (id, tenant_id, aggregate_type, aggregate_id, topic, "
            "payload, event_metadata, routing_key, schema_id, schema_version, status, "
            "retry_count, retry_after, event_type) VALUES ('" +
            id + "', '" + tenant +
            "', 'Order', 'o-1', 'orders', '{}', '{\"user\": \"u1\"}', 'eu', 's1', '2', '" + status +
            "', " + std::to_string(retries) + ", " + retry_after + ", 'Made')");
    }
    std::string state(const std::string& id) {
        return row("events_out",
                   "status, retry_count, coalesce(extract(epoch FROM retry_after)::bigint::text, "
                   "'-'), coalesce(error_message, '-')",
                   id);
    }
};

TEST_F(NewSent, IsReadWithItsMetadataAndWrittenBack) {
    insert("a-1");
    insert(kSecond);
    insert("a-3");
    Relay relay(config("events_out"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].id, "public.events_out:a-1");
    EXPECT_EQ(events[1].id, kSecond);
    EXPECT_EQ(events[0].tenant_id, "acme");
    EXPECT_EQ(events[0].topic, "orders");
    EXPECT_EQ(events[0].routing_key, "eu");
    EXPECT_EQ(events[0].schema_id, "s1");
    EXPECT_EQ(events[0].schema_version, "2");
    EXPECT_EQ(events[0].metadata, "{\"event_metadata\": {\"user\": \"u1\"}}");
    relay.publish({events[0].position});
    relay.fail(events[1], 2, kFutureUs, "OB_SINK_TIMEOUT: the broker was silent for very long");
    relay.die(events[2], 5, "no");
    EXPECT_EQ(state("a-1"), "SENT|0|-|-");
    EXPECT_EQ(state(kSecond), "FAILED|2|4000000000|OB_SINK_TIMEOUT: the broker wa");
    EXPECT_EQ(state("a-3"), "DEAD|5|-|no");
    EXPECT_EQ(pg_.value("SELECT id FROM outbox_dead_letters"), "public.events_out:a-3");
    relay.publish({events[1].position});
    EXPECT_EQ(state(kSecond), "SENT|2|-|OB_SINK_TIMEOUT: the broker wa");
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_delivery"), 0);
}

TEST_F(NewSent, ReadsWhatAFormerWorkerLeft) {
    insert("sending", "PUBLISHING", 1);
    insert("waiting", "FAILED", 3, "to_timestamp(4000000000)");
    insert("gone", "DEAD", 5);
    insert("done", "SENT");
    Relay relay(config("events_out"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].id, "public.events_out:sending");
    EXPECT_EQ(events[0].next_attempt_us, 0);
    // It is returned before it is due, so that its key waits for it.
    EXPECT_EQ(events[1].id, "public.events_out:waiting");
    EXPECT_EQ(events[1].attempts, 3U);
    EXPECT_EQ(events[1].next_attempt_us, kFutureUs);
}

TEST_F(NewSent, GivesFreshAttemptsToWhatTheOwnerSetsBack) {
    insert("a-1");
    Relay relay(config("events_out"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 1U);
    relay.die(events[0], 5);
    pg_.exec("UPDATE events_out SET status = 'NEW'");
    const auto again = relay.read();
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].attempts, 0U);
    EXPECT_EQ(again[0].next_attempt_us, 0);
    // Dead once more: one letter, the newest.
    relay.die(again[0], 6);
    EXPECT_EQ(pg_.value("SELECT string_agg(attempts::text, ',') FROM outbox_dead_letters"), "6");
    EXPECT_EQ(state("a-1"), "DEAD|6|-|OB_RECORD_REFUSED: too odd");
}

TEST_F(NewSent, ReadsOnlyTheTenantsAskedFor) {
    insert("a-1");
    insert("b-1", "NEW", 0, "NULL", "beta");
    insert("c-1", "NEW", 0, "NULL", "it''s");
    auto two = config("events_out");
    two.tenants = {"it's", "acme"};
    Relay relay(two);
    EXPECT_THAT(relay.read_ids(), ElementsAre("public.events_out:a-1", "public.events_out:c-1"));
    EXPECT_EQ(pg_.value("SELECT source FROM outbox_lease"), "public.events_out/acme,it's");
    EXPECT_EQ(counted_backlog(relay.recorder()), 2);
}

TEST_F(NewSent, ServesEveryStateByTheOwnersPartialIndex) {
    Relay relay(config("events_out"));
    EXPECT_THAT(findings(relay.source()), HasSubstr("the read is served by an index"));
    EXPECT_THAT(findings(relay.source(), true), IsEmpty());
}

// What most teams have: the topic says what happened.
TEST_F(AdoptedTable, OfNewSentShapeWithoutAnEventTypeTakesItFromTheTopic) {
    for (const std::string name : {"events_out", "mail"}) {
        create("CREATE TABLE " + name +
               " (id varchar(36) PRIMARY KEY, tenant_id varchar(50), aggregate_id varchar(128), "
               "aggregate_type varchar(128), topic varchar(128) NOT NULL, occurred_at timestamp "
               "NOT NULL DEFAULT now(), payload json NOT NULL, event_metadata json, routing_key "
               "varchar(128), schema_id varchar(64), schema_version integer, status varchar(10) "
               "NOT NULL DEFAULT 'NEW', retry_count integer NOT NULL DEFAULT 0, retry_after "
               "timestamp, error_message text, created_at timestamp NOT NULL DEFAULT now())");
        create("INSERT INTO " + name + " (id, aggregate_id, topic, payload) VALUES ('" + kFirst +
               "', 'o-1', 'order.created', '{}')");
        Relay relay(config(name));
        EXPECT_THAT(findings(relay.source()), HasSubstr("preset new-sent"));
        const auto events = relay.read();
        ASSERT_EQ(events.size(), 1U);
        EXPECT_EQ(events[0].event_type, "order.created");
        EXPECT_EQ(events[0].topic, "order.created");
        relay.publish({events[0].position});
        EXPECT_EQ(row(name, "status, retry_count", kFirst), "SENT|0");
    }
}

class ProcessedAt : public AdoptedTable {
  protected:
    void SetUp() override {
        create(kProcessedAtTable);
        for (const char* id : {kFirst, kSecond, kThird}) {
            pg_.exec(
                "INSERT INTO outbox_messages (id, aggregate_id, event_type, payload) VALUES "
                "('" +
                std::string(id) + "', 'o-1', 'Made', '{\"b\" :  1}')");
        }
    }
};

TEST_F(ProcessedAt, IsReadAndMarked) {
    Relay relay(config("outbox_messages"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].payload, "{\"b\" :  1}");
    relay.publish({events[0].position});
    relay.die(events[1], 5);
    EXPECT_THAT(relay.read_ids(), IsEmpty());
    EXPECT_EQ(pg_.value("SELECT string_agg(right(id::text, 1), '' ORDER BY id) FROM "
                        "outbox_messages WHERE processed_at IS NULL"),
              "3");
    pg_.exec("UPDATE outbox_messages SET processed_at = NULL WHERE id = '" + std::string(kFirst) +
             "'");
    EXPECT_THAT(relay.read_ids(), ElementsAre(kFirst));
}

TEST_F(ProcessedAt, PrunesNoDeadRow) {
    Relay relay(config("outbox_messages"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    relay.publish({events[0].position});
    relay.die(events[1], 5);
    pg_.exec("UPDATE outbox_messages SET processed_at = processed_at - interval '30 days'");
    EXPECT_EQ(value_of(relay.recorder().prune(std::chrono::hours(24 * 7), 1000)), 1U);
    EXPECT_EQ(pg_.value("SELECT string_agg(right(id::text, 1), '' ORDER BY id) FROM "
                        "outbox_messages"),
              "23");
}

// `outbox prune` serves no tenant, whichever relays there are.
TEST_F(ProcessedAt, PrunesNoRowThatIsDeadForARelayOfSomeTenants) {
    Relay relay(config("outbox_messages"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    relay.publish({events[0].position});
    relay.die(events[1], 5);
    pg_.exec(
        "UPDATE outbox_dead_letters SET source = source || '/acme'; UPDATE outbox_messages SET "
        "processed_at = processed_at - interval '30 days'");
    EXPECT_EQ(value_of(relay.recorder().prunable(std::chrono::hours(24 * 7))), 1);
    EXPECT_EQ(value_of(relay.recorder().prune(std::chrono::hours(24 * 7), 1000)), 1U);
    EXPECT_EQ(pg_.value("SELECT string_agg(right(id::text, 1), '' ORDER BY id) FROM "
                        "outbox_messages"),
              "23");
}

TEST_F(AdoptedTable, WithFourColumnsLosesItsRowsWhenTheyAreSent) {
    create(kDeleteWhenSentTable);
    for (const char* id : {kFirst, kSecond, kThird}) {
        pg_.exec("INSERT INTO outbox VALUES ('" + std::string(id) + "', 'Made', 'not json')");
    }
    Relay relay(config("outbox"));
    EXPECT_THAT(findings(relay.source()), HasSubstr("preset delete-when-sent"));
    EXPECT_THAT(findings(relay.source()), HasSubstr("deleted"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].payload, "not json");
    EXPECT_EQ(events[0].order_key().data(), nullptr);
    relay.publish({events[0].position});
    relay.die(events[2], 5);
    EXPECT_EQ(pg_.value("SELECT string_agg(right(id::text, 1), '') FROM outbox"), "2");
    EXPECT_THAT(relay.read_ids(), IsEmpty());
    relay.end();
    Relay next(config("outbox"));
    EXPECT_THAT(next.read_ids(), ElementsAre(kSecond));
}

TEST_F(AdoptedTable, InCamelCaseIsReadByItsNumber) {
    create(kCamelCaseTable);
    pg_.exec(
        "INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") "
        "SELECT 'Made', '{\"n\":' || n || '}' FROM generate_series(1, 12) n");
    Relay relay(config("OutboxMessages"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 12U);
    for (std::size_t i = 0; i < events.size(); ++i) {
        EXPECT_EQ(events[i].id, "public.OutboxMessages:" + std::to_string(i + 1));
    }
    EXPECT_EQ(events[11].event_type, "Made");
    relay.publish({events[0].position, events[1].position});
    relay.die(events[2], 5);
    EXPECT_EQ(pg_.value("SELECT string_agg(\"Id\"::text, ',' ORDER BY \"Id\") FROM "
                        "\"OutboxMessages\" WHERE \"Processed\""),
              "1,2,3");
    EXPECT_THAT(findings(relay.source()), HasSubstr("preset camel-case"));
    EXPECT_THAT(findings(relay.source()), HasSubstr("the read is served by an index"));
    relay.end();
    Relay next(config("public.OutboxMessages"));
    EXPECT_EQ(next.read().size(), 9U);
}

TEST_F(AdoptedTable, OfDebeziumLosesItsRowsWhenTheyAreSent) {
    create(kDebeziumTable);
    for (const char* id : {kSecond, kFirst}) {
        pg_.exec("INSERT INTO shop.outboxevent VALUES ('" + std::string(id) +
                 "', 'Order', 'o-9', 'OrderCreated', '{}')");
    }
    Relay relay(config("shop.outboxevent"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].id, kFirst);
    EXPECT_EQ(events[0].aggregate_type, "Order");
    EXPECT_EQ(events[0].order_key(), "o-9");
    EXPECT_EQ(events[0].event_type, "OrderCreated");
    EXPECT_EQ(events[0].occurred_at_us, 0);
    EXPECT_THAT(findings(relay.source(), true), HasSubstr("order: none"));
    relay.publish({events[0].position, events[1].position});
    EXPECT_EQ(pg_.number("SELECT count(*) FROM shop.outboxevent"), 0);
}

TEST_F(AdoptedTable, MayBeMappedFreely) {
    create(
        "CREATE TYPE phase AS ENUM ('todo', 'doing', 'done', 'broken'); CREATE TABLE \"Odd "
        "Box\" (nr bigserial PRIMARY KEY, \"Kind\" text, body bytea, who text, phase phase NOT "
        "NULL DEFAULT 'todo', due timestamptz, trace text); INSERT INTO \"Odd Box\" (\"Kind\", "
        "body, who, trace) VALUES ('A', '\\x00ff10', 'w', 't-1')");
    auto mapped = config("Odd Box");
    mapped.mapping.columns = {{"id", "nr"},
                              {"event_type", "Kind"},
                              {"payload", "body"},
                              {"key", "who"},
                              {"status", "phase"}};
    mapped.mapping.pending_values = {"todo"};
    mapped.mapping.sending_values = {"doing"};
    mapped.mapping.sent_value = "done";
    mapped.mapping.dead_value = "broken";
    mapped.mapping.metadata_columns = {"trace"};
    Relay relay(mapped);
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].id, "public.Odd Box:1");
    EXPECT_EQ(events[0].payload, std::string_view("\x00\xff\x10", 3));
    EXPECT_EQ(events[0].order_key(), "w");
    EXPECT_EQ(events[0].metadata, "{\"trace\": \"t-1\"}");
    relay.die(events[0], 1);
    EXPECT_EQ(pg_.value("SELECT phase FROM \"Odd Box\""), "broken");
    EXPECT_EQ(pg_.value("SELECT payload FROM outbox_dead_letters"), "\\x00ff10");
}

// A dead letter must tell a column that was NULL from one that was not read.
TEST_F(AdoptedTable, KeepsNullsAmongColumnsThatAreReadAsTexts) {
    create(
        "CREATE TABLE box (nr bigserial PRIMARY KEY, body text, n int, t text, done timestamptz); "
        "INSERT INTO box (body, t) VALUES ('b', 'x')");
    auto mapped = config("box");
    mapped.mapping.columns = {{"id", "nr"}, {"payload", "body"}, {"processed_at", "done"}};
    mapped.mapping.metadata_columns = {"n", "t"};
    mapped.mapping.metadata_as_text = true;
    Relay relay(mapped);
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].metadata, R"({"n": null, "t": "x"})");
    relay.die(events[0], 1);
    EXPECT_EQ(pg_.value("SELECT metadata FROM outbox_dead_letters"), R"({"n": null, "t": "x"})");
}

TEST_F(AdoptedTable, MappedFreelyIsReadInTheOrderOfItsMappedTime) {
    create(
        "CREATE TABLE things (nr uuid PRIMARY KEY DEFAULT gen_random_uuid(), what text, created "
        "timestamptz DEFAULT clock_timestamp(), sent_at timestamptz)");
    for (int n = 1; n <= 8; ++n) {
        pg_.exec("INSERT INTO things (what) VALUES ('" + std::to_string(n) + "')");
    }
    auto mapped = config("things");
    mapped.mapping.columns = {
        {"id", "nr"}, {"payload", "what"}, {"occurred_at", "created"}, {"processed_at", "sent_at"}};
    {
        Relay relay(mapped);
        std::string order;
        for (const auto& event : relay.read()) order += event.payload;
        EXPECT_EQ(order, "12345678");
        EXPECT_THAT(findings(relay.source()), HasSubstr("order: by \"created\""));
        EXPECT_THAT(findings(relay.source(), true), IsEmpty());
    }
    mapped.mapping.columns.erase("occurred_at");
    Relay unordered(mapped);
    EXPECT_THAT(findings(unordered.source(), true),
                AllOf(HasSubstr("order: none"), HasSubstr("occurred_at"),
                      HasSubstr("ADD COLUMN position bigint")));
}

// A store of events looks like an outbox, and so does one whose sent_at nobody has mapped.
TEST_F(AdoptedTable, OfTheUsersOwnIsEmptiedOnlyWhereThatIsWrittenDown) {
    create(
        "CREATE TABLE store (id uuid PRIMARY KEY, aggregate_id text, event_type text, payload "
        "text, created_at timestamptz); CREATE TABLE mail (id uuid PRIMARY KEY, event_type text, "
        "payload text, created_at timestamptz, sent_at timestamptz)");
    for (const char* name : {"store", "mail"}) {
        auto config = this->config(name);
        const auto refused = postgres::make_postgres_source(config);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, ErrorCode::kConfigInvalid);
        EXPECT_THAT(refused.error().message,
                    AllOf(HasSubstr("after_publish = \"delete\""), HasSubstr("processed_at")));
        config.make_side_tables = false;  // as --check does
        EXPECT_THAT(findings(*value_of(postgres::make_postgres_source(config)), true),
                    HasSubstr("after publish: "));
        config.make_side_tables = true;
        config.after_publish = postgres::AfterPublish::kDelete;
        EXPECT_TRUE(postgres::make_postgres_source(config).ok());
        config.after_publish = postgres::AfterPublish::kDefault;
        config.mapping.preset = "delete-when-sent";
        EXPECT_TRUE(postgres::make_postgres_source(config).ok());
    }
}

TEST_F(AdoptedTable, WithAnIdentityThatIsDeletedIsReadByPosition) {
    create(
        "CREATE TABLE box (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_type text, "
        "payload text, created_at timestamptz DEFAULT now()); INSERT INTO box (event_type, "
        "payload) VALUES ('A', 'x')");
    Relay relay(config("box"));
    EXPECT_TRUE(relay.source().stable_positions());
    EXPECT_THAT(relay.read_ids(), ElementsAre("public.box:1"));
    EXPECT_THAT(findings(relay.source()), HasSubstr("order: kept per key"));
    relay.end();
    pg_.exec("ALTER TABLE box ALTER id SET CACHE 10");
    Relay preallocated(config("box"));
    EXPECT_FALSE(preallocated.source().stable_positions());
    EXPECT_THAT(findings(preallocated.source()), Not(HasSubstr("order: kept per key")));
}

TEST_F(AdoptedTable, WithAnIdentityHasNoBacklogOfWhatRelaysOfSomeTenantsEachHaveFinished) {
    create(
        "CREATE TABLE box (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant_id text, "
        "event_type text, payload text, created_at timestamptz DEFAULT now() - interval '1 hour'); "
        "INSERT INTO box (tenant_id, event_type, payload) SELECT t, 'A', 'x' FROM "
        "unnest(ARRAY['a', 'a', 'b', 'b']) t");
    auto whole = config("box");
    whole.after_publish = postgres::AfterPublish::kDelete;
    const auto of = [&](const char* tenant) {
        auto some = whole;
        some.tenants = {tenant};
        return some;
    };
    const auto backlog = [](const postgres::PostgresSourceConfig& some) {
        const auto source = value_of(postgres::make_postgres_source(some));
        return value_of(value_of(source->open_recorder())->stats()).backlog;
    };
    Relay one(of("a"), {{"default", {}}, {"second", {}}});
    Relay other(of("b"));
    const auto finish = [](Relay& relay, std::size_t route, std::vector<spi::Position> positions) {
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({route, std::move(positions)});
        require(relay.recorder().record(batch));
    };
    finish(one, 0, {1, 2});
    finish(other, 0, {3});
    EXPECT_EQ(backlog(whole), 3) << "the second route has finished nothing";
    finish(one, 1, {1});
    EXPECT_EQ(backlog(whole), 2);
    EXPECT_EQ(backlog(of("a")), 1);
    EXPECT_EQ(backlog(of("b")), 1);
}

TEST_F(AdoptedTable, KeepsItsOrderByNumberWhenAnEarlierOneCommitsLate) {
    create(
        "CREATE TABLE box (id bigserial PRIMARY KEY, event_type text, payload text, processed_at "
        "timestamptz)");
    Relay relay(config("box"));
    Pg late(url_);
    late.exec("BEGIN; INSERT INTO box (event_type, payload) VALUES ('A', 'x')");
    pg_.exec("INSERT INTO box (event_type, payload) VALUES ('B', 'x')");
    EXPECT_THAT(relay.read_ids(), ElementsAre("public.box:2"));
    late.exec("COMMIT");
    pg_.exec("INSERT INTO box (event_type, payload) VALUES ('C', 'x')");
    EXPECT_THAT(relay.read_ids(), ElementsAre("public.box:1", "public.box:3"));
}

TEST_F(AdoptedTable, DrainsABacklogInBatchesWithoutLossOrRepeat) {
    create(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, event_type text, payload text, created_at "
        "timestamptz DEFAULT clock_timestamp(), processed_at timestamptz); CREATE INDEX ON "
        "outbox (created_at, id) WHERE processed_at IS NULL; INSERT INTO outbox SELECT "
        "gen_random_uuid(), 'Made', n FROM generate_series(1, 5000) n");
    Relay relay(config("outbox"));
    std::vector<spi::Position> open;
    int expected = 0;
    while (true) {
        const auto events = relay.read({300, std::size_t{1} << 20});
        if (events.empty()) break;
        for (const auto& event : events) {
            ASSERT_EQ(event.payload, std::to_string(++expected));
            open.push_back(event.position);
        }
        // Some are recorded, some stay under way.
        if (open.size() > 700) {
            relay.publish({open.begin(), open.begin() + 500});
            open.erase(open.begin(), open.begin() + 500);
        }
    }
    EXPECT_EQ(expected, 5000);
}

}  // namespace
}  // namespace outbox::test
