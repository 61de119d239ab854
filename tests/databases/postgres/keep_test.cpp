// The layout `keep`: rows stay when they are published, and go by whole segments (docs/keep.md).
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

#include <outbox/producer/migrate.h>

#include "databases/postgres/source/operations.h"
#include "tests/databases/postgres/support.h"
#include "tests/support/counted.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Kept : public testing::Test {
  protected:
    void SetUp() override { migrate_to(url_, TableLayoutKind::kKeep); }

    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = postgres::Mode::kPolling;
        return config;
    }
    void insert(int count, const std::string& tenant = "default") {
        pg_.exec(
            "INSERT INTO outbox_events (topic, key, payload, tenant_id) SELECT 't', 'k', "
            "n::text::jsonb, '" +
            tenant + "' FROM generate_series(1, " + std::to_string(count) + ") n");
    }
    static std::vector<spi::Position> positions(const std::vector<spi::EventView>& events) {
        std::vector<spi::Position> out;
        for (const spi::EventView& event : events) out.push_back(event.position);
        return out;
    }
    // Reads all that there is, publishes it, and knows that nothing is left before it.
    static spi::Position publish_all(Relay& relay) {
        const auto all = positions(relay.read());
        if (all.empty()) return 0;
        relay.publish(all);
        relay.settle(all.back());
        return all.back();
    }
    // Lets writers go on to the next segment.
    std::int64_t turn(Relay& relay) {
        value_of(relay.recorder().prune(kLong, 1'000));
        return segment();
    }
    // As if the written segment had been begun long ago, so that the next turn leaves it.
    void grow_old() {
        pg_.exec(
            "UPDATE outbox_segments SET began_at = began_at - interval '30 days', left_at = "
            "left_at - interval '30 days'");
    }
    std::int64_t segment() { return pg_.number("SELECT last_value FROM outbox_segment"); }
    std::int64_t rows() { return pg_.number("SELECT count(*) FROM outbox_events"); }
    std::string statuses() {
        return pg_.value(
            "SELECT string_agg(status || ' ' || n, ', ' ORDER BY status) FROM (SELECT status, "
            "count(*) AS n FROM outbox_status GROUP BY status) s");
    }

    static constexpr std::chrono::seconds kLong{7 * 24 * 3600};
    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

TEST_F(Kept, RowsStayWhenTheyArePublishedAndAreNotSentAgain) {
    insert(10);
    {
        Relay relay(config());
        EXPECT_EQ(relay.read().size(), 10U);
        relay.publish({1, 2, 3, 4, 5, 6, 7, 8, 9});
        EXPECT_EQ(statuses(), "PENDING 1, PUBLISHED 9");
        EXPECT_EQ(counted_backlog(relay.recorder()), 1);
        relay.settle(9);
        EXPECT_EQ(statuses(), "PENDING 1, PUBLISHED 9");
        EXPECT_EQ(counted_backlog(relay.recorder()), 1);
    }
    EXPECT_EQ(rows(), 10);
    Relay next(config());
    EXPECT_THAT(positions(next.read()), ElementsAre(10));
    next.publish({10});
    EXPECT_EQ(statuses(), "PUBLISHED 10");
    EXPECT_EQ(counted_backlog(next.recorder()), 0);
    EXPECT_EQ(value_of(next.recorder().stats()).oldest_age_s, 0);
}

// Neither of rows nor of the ledger below what is settled.
TEST_F(Kept, ATermLoadsNothingOfWhatIsSettled) {
    pg_.exec("SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), 200000)");
    insert(10);
    Relay relay(config());
    const spi::Position last = publish_all(relay);
    EXPECT_EQ(last, 200'010);
    const std::vector<spi::RouteName> routes{{"default", {}}};
    const spi::Beginning next = value_of(relay.recorder().begin(relay.epoch(), routes));
    EXPECT_EQ(next.routes[0].settled, last);
    EXPECT_EQ(next.routes[0].finished.size(), 10U) << "from the lowest row on";
}

TEST_F(Kept, NothingIsWrittenAboutARow) {
    insert(100);
    Relay relay(config());
    publish_all(relay);
    pg_.exec("SELECT pg_stat_force_next_flush()");
    EXPECT_EQ(pg_.value("SELECT sum(n_tup_upd + n_tup_del) || ' ' || sum(n_dead_tup) FROM "
                        "pg_stat_user_tables WHERE relname LIKE 'outbox_events%'"),
              "0 0");
}

TEST_F(Kept, DeadOnesAreShownOnceAndTheirRowsStay) {
    insert(3);
    Relay relay(config());
    const auto events = relay.read();
    relay.publish({1});
    relay.die(events[1], 5);
    EXPECT_EQ(statuses(), "DEAD 1, PENDING 1, PUBLISHED 1");
    relay.publish({3});
    relay.settle(3);
    EXPECT_EQ(statuses(), "DEAD 1, PUBLISHED 2");
    EXPECT_EQ(rows(), 3);
}

// One that waits for long leaves all behind it above what is settled.
TEST_F(Kept, TheBacklogIsCountedBehindAnEventThatWaits) {
    insert(70'000);
    Relay relay(config());
    std::vector<spi::Position> all(70'000);
    std::iota(all.begin(), all.end(), 1);
    std::erase_if(all, [](spi::Position one) { return one == 5 || one == 69'000; });
    relay.publish(all);
    relay.settle(4);
    EXPECT_EQ(counted_backlog(relay.recorder()), 2);
    EXPECT_EQ(statuses(), "PENDING 2, PUBLISHED 69998");
    insert(1);
    EXPECT_EQ(counted_backlog(relay.recorder()), 3);
}

// As of a tenant that is paused: looking at each number between takes longer than a relay looks.
TEST_F(Kept, ALargeBacklogBetweenWhatIsPublishedIsToldAboutRightWithItsAge) {
    constexpr std::int64_t kRows = 300'000;
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload, occurred_at) SELECT 't', '1', "
        "clock_timestamp() - interval '1 hour' FROM generate_series(1, " +
        std::to_string(kRows) + ")");
    Relay relay(config());
    std::vector<spi::Position> odd;
    for (spi::Position position = 1; position <= kRows; position += 2) odd.push_back(position);
    relay.publish(odd);
    pg_.exec("ANALYZE outbox_events");
    insert(100);
    for (int look = 0; look < 3; ++look) {
        EXPECT_TRUE(eventually(60s, "it is told right", [&] {
            const auto stats = value_of(relay.recorder().stats());
            return stats.estimated && stats.backlog == kRows / 2 + 100 &&
                   stats.oldest_age_s >= 3'600 && stats.oldest_age_s < 7'200;
        }));
    }
}

// Whatever the backlog and the history: by the keys of the segments, nothing is sorted.
TEST_F(Kept, TheOldestUnsentAreReadByIndex) {
    insert(30'000);
    Relay relay(config());
    relay.settle(10'000);
    pg_.exec("ANALYZE outbox_events");
    std::string plan;
    for (const auto& row :
         pg_.query("EXPLAIN (ANALYZE, BUFFERS OFF) SELECT * FROM outbox_status WHERE status IN "
                   "('PENDING', 'RETRYING') ORDER BY position LIMIT 50")) {
        plan += row[0].value_or("") + "\n";
    }
    EXPECT_THAT(plan, ContainsRegex("^Limit[^\n]*\n *-> +Merge Append"));
    EXPECT_THAT(plan, HasSubstr("Index Scan using outbox_events_1_pkey"));
    EXPECT_THAT(plan, Not(ContainsRegex("Seq Scan on outbox_events_1[^\n]*actual")));
}

TEST_F(Kept, FailingEventsKeepTheirAttempts) {
    insert(2);
    {
        Relay relay(config());
        relay.fail(relay.read()[0], 3, 1'000);
        relay.publish({2});
    }
    EXPECT_EQ(statuses(), "PUBLISHED 1, RETRYING 1");
    Relay next(config());
    EXPECT_THAT(positions(next.read()), ElementsAre(1));
    EXPECT_EQ(value_of(next.recorder().load_deliveries("default"))[0].attempts, 3U);
}

// By what the sequence says, whoever writes how.
TEST_F(Kept, WritersGoOnToTheNextSegmentOnceTheirsIsOld) {
    Relay relay(config());
    EXPECT_EQ(turn(relay), 1);
    grow_old();
    EXPECT_EQ(turn(relay), 1) << "an empty one is not left";
    insert(1);
    EXPECT_EQ(turn(relay), 2);
    EXPECT_EQ(turn(relay), 2);
    pg_.exec("SELECT outbox_emit(topic => 't', payload => '1')");
    EXPECT_EQ(pg_.value("SELECT string_agg(segment::text, ' ' ORDER BY position) FROM "
                        "outbox_events"),
              "1 2");
    EXPECT_EQ(relay.read().size(), 2U);
}

TEST_F(Kept, ASegmentIsEmptiedOnceItsRowsAreFinishedAndPastTheRetention) {
    insert(5);
    Relay relay(config());
    publish_all(relay);
    grow_old();
    ASSERT_EQ(turn(relay), 2);
    EXPECT_EQ(rows(), 5) << "it was left just now";
    EXPECT_EQ(value_of(relay.recorder().prunable(kLong)), 0);
    grow_old();
    EXPECT_EQ(value_of(relay.recorder().prunable(kLong)), 5);
    EXPECT_EQ(value_of(relay.recorder().prune(kLong, 1'000)), 5U);
    EXPECT_EQ(rows(), 0);
    // Writers come to it again.
    for (int turned = 0; turned < 12; ++turned) {
        insert(1);
        publish_all(relay);
        grow_old();
        turn(relay);
    }
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_segments"), 8);
    EXPECT_LE(rows(), 2);
}

TEST_F(Kept, NothingGoesThatARouteHasNotFinished) {
    insert(5);
    Relay relay(config(), {{"default", {}}, {"other", {}}});
    publish_all(relay);
    grow_old();
    ASSERT_EQ(turn(relay), 2);
    grow_old();
    EXPECT_EQ(value_of(relay.recorder().prune(0s, 1'000)), 0U);
    // Though it says that all is settled: the ledger is what counts.
    pg_.exec("UPDATE outbox_routes SET settled = 5");
    spi::RecordBatch batch = relay.fresh();
    batch.finished.push_back({1, {1, 2, 4, 5}});
    require(relay.recorder().record(batch));
    const auto refused = relay.recorder().prune(0s, 1'000);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("has a row that was written where all was"));
    EXPECT_EQ(rows(), 5);
    EXPECT_EQ(pg_.value("SELECT string_agg(route || ' ' || settled, ', ' ORDER BY route) FROM "
                        "outbox_routes"),
              "default 2, other 2")
        << "the next term looks there again";
    batch.finished = {{1, {3}}};
    require(relay.recorder().record(batch));
    pg_.exec("UPDATE outbox_routes SET settled = 5");
    EXPECT_EQ(value_of(relay.recorder().prune(0s, 1'000)), 5U);
    EXPECT_EQ(rows(), 0);
}

// Relays of parts of the tenants: a row counts for those that serve its tenant, and one that nobody
// serves stays.
TEST_F(Kept, NothingGoesThatARelayOfOtherTenantsHasNotFinished) {
    insert(2, "a");
    insert(2, "b, c");
    auto of_a = config();
    of_a.tenants = {"a"};
    auto of_b = config();
    of_b.tenants = {"b, c"};
    Relay a(of_a);
    EXPECT_THAT(positions(a.read()), ElementsAre(1, 2));
    a.publish({1, 2});
    a.settle(4);
    grow_old();
    ASSERT_EQ(turn(a), 2);
    grow_old();
    EXPECT_EQ(value_of(a.recorder().prune(0s, 1'000)), 0U) << "nobody serves the others";
    EXPECT_EQ(rows(), 4);
    Relay b(of_b);
    EXPECT_THAT(positions(b.read()), ElementsAre(3, 4));
    b.publish({3});
    pg_.exec("UPDATE outbox_routes SET settled = 4");
    EXPECT_FALSE(a.recorder().prune(0s, 1'000).ok());
    EXPECT_EQ(rows(), 4);
    b.publish({4});
    pg_.exec("UPDATE outbox_routes SET settled = 4");
    EXPECT_EQ(value_of(a.recorder().prune(0s, 1'000)), 4U);
    EXPECT_EQ(rows(), 0);
}

// Nobody has sent it: it waits for whoever will, whatever others have come to.
TEST_F(Kept, AnEventOfATenantWhomNobodyServesWaitsAndHoldsBackItsSegmentAlone) {
    insert(2, "a");
    insert(1, "b");
    insert(2, "a");
    auto of_a = config();
    of_a.tenants = {"a"};
    Relay relay(of_a);
    publish_all(relay);
    EXPECT_EQ(statuses(), "PENDING 1, PUBLISHED 4");
    const auto whole_table = value_of(postgres::make_postgres_source(config()));
    EXPECT_EQ(counted_backlog(*value_of(whole_table->open_recorder())), 1);
    for (int turned = 0; turned < 3; ++turned) {
        grow_old();
        turn(relay);
        insert(1, "a");
        publish_all(relay);
    }
    value_of(relay.recorder().prune(std::chrono::seconds(0), 1'000));
    EXPECT_EQ(statuses(), "PENDING 1, PUBLISHED 4");
    EXPECT_EQ(pg_.number("SELECT settled FROM outbox_routes"), 8);
}

TEST_F(Kept, ARelayThatTakesOverTenantsSendsNobodysHistory) {
    insert(3, "a");
    insert(3, "b");
    for (const auto& [tenant, route] : {std::pair("a", "r1"), std::pair("b", "r2")}) {
        auto of_tenant = config();
        of_tenant.tenants = {tenant};
        Relay relay(of_tenant, {{route, {}}});
        publish_all(relay);
    }
    insert(1, "b");
    for (const auto& [first, second] : {std::pair("r1", "r2"), std::pair("r2", "r1")}) {
        Relay of_all(config(), {{first, {}}, {second, {}}});
        EXPECT_THAT(positions(of_all.read()), ElementsAre(7));
    }
}

// The next one of these tenants would know nothing of what was published for them.
TEST_F(Kept, TheOnlyRouteOfSomeTenantsIsNotRetired) {
    insert(1, "a");
    insert(1, "b");
    for (const auto& [tenant, route] : {std::pair("a", "r1"), std::pair("b", "r2")}) {
        auto of_tenant = config();
        of_tenant.tenants = {tenant};
        Relay relay(of_tenant, {{route, {}}});
        publish_all(relay);
    }
    const auto operations = value_of(postgres::open_operations(config(), "public.outbox_events"));
    const auto retired = operations->retire_route({"a"}, "r1", true);
    ASSERT_FALSE(retired.ok());
    EXPECT_THAT(retired.error().message,
                HasSubstr("'r1' is the only one of public.outbox_events/a"));
}

// Whoever asked may not have seen the letter of other tenants.
TEST_F(Kept, OnlyDeadLettersOfTheTenantsWhoseRelayHasTheRouteAreGivenToIt) {
    for (const auto& [tenant, route] : {std::pair("a", "r1"), std::pair("b", "r2")}) {
        auto of_tenant = config();
        of_tenant.tenants = {tenant};
        Relay(of_tenant, {{route, {}}}).end();
    }
    pg_.exec(
        "INSERT INTO outbox_dead_letters (source, route, id, attempts, error_code, error) SELECT "
        "source, 'gone', 'e-' || route, 1, 'OB_X', 'x' FROM outbox_routes");
    const auto operations = value_of(postgres::open_operations(config(), "public.outbox_events"));
    EXPECT_EQ(value_of(operations->reroute_dead({}, "r1")), 1);
    EXPECT_EQ(pg_.value("SELECT string_agg(id || ' ' || route, ', ' ORDER BY id) FROM "
                        "outbox_dead_letters"),
              "e-r1 r1, e-r2 gone");
}

TEST_F(Kept, WhatWasSetBackIsSentByTheNextTermAtOnce) {
    insert(3);
    Relay relay(config());
    publish_all(relay);
    EXPECT_TRUE(relay.recorder().destinations(std::vector<std::string>{"default"}).ok());
    pg_.exec("UPDATE outbox_routes SET settled = 1");
    const auto told = relay.recorder().destinations(std::vector<std::string>{"default"});
    ASSERT_FALSE(told.ok());
    EXPECT_EQ(told.error().code, ErrorCode::kServerChanged);
    EXPECT_THAT(told.error().message, HasSubstr("was set back to 1"));
}

// In an older snapshot a commit that came before the lock could not be seen.
TEST_F(Kept, NoSegmentIsEmptiedInAnOlderSnapshotThanItsLock) {
    EXPECT_THROW(pg_.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT outbox_segment_empty(2, "
                          "'0 s')"),
                 std::runtime_error);
}

// Who writes has the segment's lock, and who began before it was left may still come to it.
TEST_F(Kept, ASegmentStaysWhileSomebodyWhoBeganToWriteBeforeItWasLeftIsThere) {
    insert(1);
    Relay relay(config());
    publish_all(relay);
    Pg late(url_);
    late.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('t', '2')");
    insert(1);
    EXPECT_THAT(positions(relay.read()), ElementsAre(3));
    relay.publish({3});
    pg_.exec("UPDATE outbox_routes SET settled = 3");  // wrongly: 2 is open
    grow_old();
    ASSERT_EQ(turn(relay), 2);
    grow_old();
    EXPECT_EQ(value_of(relay.recorder().prune(0s, 1'000)), 0U);
    late.exec("COMMIT");
    EXPECT_FALSE(relay.recorder().prune(0s, 1'000).ok());
    EXPECT_EQ(rows(), 3);
    EXPECT_THAT(positions(relay.read()), ElementsAre(2)) << "a late commit is read all the same";
}

// One that saw a segment as the written one, and comes to it with its row when that was left.
TEST_F(Kept, NoSegmentIsLockedThatAnInsertUnderWayMayStillComeTo) {
    pg_.exec(
        "CREATE FUNCTION wait_for_test() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM "
        "pg_advisory_xact_lock_shared(42); RETURN '2'; END $$");
    insert(1);
    Relay relay(config());
    publish_all(relay);
    Pg gate(url_);
    gate.exec("SELECT pg_advisory_lock(42)");
    std::thread late([&] {
        Pg(url_).exec(
            "INSERT INTO outbox_events (topic, key, payload, segment) SELECT 't', 'k', "
            "wait_for_test(), 1");
    });
    EXPECT_TRUE(eventually(60s, "the insert waits for the test", [&] {
        return pg_.number(
                   "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT "
                   "granted") == 1;
    }));
    grow_old();
    EXPECT_EQ(turn(relay), 2);
    grow_old();
    EXPECT_EQ(value_of(relay.recorder().prune(0s, 1'000)), 0U);
    EXPECT_EQ(rows(), 1);
    gate.exec("SELECT pg_advisory_unlock(42)");
    late.join();
    publish_all(relay);
    EXPECT_EQ(value_of(relay.recorder().prune(0s, 1'000)), 2U);
}

// However long a reader holds a segment, writers write and others read, and it is emptied later.
TEST_F(Kept, AReadersLockDelaysNoInsertAndNoOtherReader) {
    insert(3);
    Relay relay(config());
    publish_all(relay);
    grow_old();
    ASSERT_EQ(turn(relay), 2);
    grow_old();
    Pg reader(url_);
    reader.exec("BEGIN; SELECT count(*) FROM outbox_events");
    Pg writer(url_);
    writer.exec("SET lock_timeout = '1ms'");
    Pg other(url_);
    other.exec("SET lock_timeout = '1ms'");
    std::atomic<bool> stop{false};
    std::thread rotation([&] {
        while (!stop) static_cast<void>(relay.recorder().prune(0s, 1'000));
    });
    for (int i = 0; i < 200; ++i) {
        EXPECT_NO_THROW(
            writer.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')"));
        EXPECT_NO_THROW(other.exec("SELECT count(*) FROM outbox_events"));
    }
    stop = true;
    rotation.join();
    EXPECT_EQ(rows(), 203);
    reader.exec("COMMIT");
    EXPECT_EQ(value_of(relay.recorder().prune(0s, 1'000)), 3U);
    EXPECT_EQ(rows(), 200);
}

TEST_F(Kept, TheRingGrowsWhileNothingCanBeEmptied) {
    Relay relay(config(), {{"default", {}}, {"away", {}}});
    Pg writer(url_);
    writer.exec(
        "SET lock_timeout = '1ms'; PREPARE w AS INSERT INTO outbox_events (topic, payload) "
        "VALUES ('t', '1')");
    for (int turned = 1; turned <= 12; ++turned) {
        EXPECT_EQ(segment(), turned);
        writer.exec("EXECUTE w");
        grow_old();
        turn(relay);
    }
    EXPECT_EQ(relay.read().size(), 12U);
    EXPECT_EQ(pg_.number("SELECT count(DISTINCT tableoid) FROM outbox_events"), 12);
    // Enough, so that each look has few places: the last one grows.
    pg_.exec(
        "UPDATE outbox_segments SET began_at = now(), left_at = now() WHERE segment > 13; "
        "INSERT INTO outbox_segments SELECT n, now(), now() FROM generate_series(15, 64) n ON "
        "CONFLICT DO NOTHING");
    writer.exec("EXECUTE w");
    grow_old();
    EXPECT_EQ(turn(relay), 13);
    writer.exec("EXECUTE w");
    EXPECT_EQ(relay.read().size(), 2U);
}

// A transaction goes on with the partitions that it has met: a long COPY would fail in a new one.
TEST_F(Kept, ASegmentThatWasAddedIsUsedOnceAllHaveEndedWhoMayNotKnowIt) {
    Relay relay(config(), {{"default", {}}, {"away", {}}});
    Pg copying(url_);
    PGresult* const begun =
        PQexec(copying.handle(), "COPY outbox_events (topic, payload) FROM STDIN");
    ASSERT_EQ(PQresultStatus(begun), PGRES_COPY_IN);
    PQclear(begun);
    const std::string line = "t\t1\n";
    const auto copy_line = [&] {
        EXPECT_EQ(PQputCopyData(copying.handle(), line.data(), static_cast<int>(line.size())), 1);
        EXPECT_EQ(PQflush(copying.handle()), 0);
    };
    copy_line();
    for (int tried = 0; tried < 12; ++tried) {
        insert(1);
        grow_old();
        turn(relay);
    }
    EXPECT_EQ(segment(), 8);
    copy_line();
    ASSERT_EQ(PQputCopyEnd(copying.handle(), nullptr), 1);
    while (PGresult* result = PQgetResult(copying.handle())) {
        EXPECT_EQ(PQresultStatus(result), PGRES_COMMAND_OK) << PQresultErrorMessage(result);
        PQclear(result);
    }
    insert(1);
    grow_old();
    turn(relay);
    insert(1);
    grow_old();
    EXPECT_EQ(turn(relay), 10);
    EXPECT_EQ(relay.read().size(), 16U);
}

// What a sequence says is seen at once, and is not taken back.
TEST_F(Kept, TheSequenceNamesOnlyWhatIsCommitted) {
    Relay relay(config(), {{"default", {}}, {"away", {}}});
    insert(1);
    grow_old();
    // None is left but the one that is added, in a transaction that comes to nothing.
    pg_.exec(
        "UPDATE outbox_segments SET began_at = now(), left_at = now() WHERE began_at IS NULL; "
        "BEGIN; SELECT outbox_segment_spare(64); SELECT outbox_segment_turn('1s'); ROLLBACK");
    EXPECT_EQ(segment(), 1);
    insert(1);
    EXPECT_EQ(relay.read().size(), 2U);
}

// An operator's hand, a segment that was detached.
TEST_F(Kept, ATurnMendsASequenceThatNamesNoSegment) {
    insert(1);
    Relay relay(config());
    pg_.exec("SELECT setval('outbox_segment', 99)");
    EXPECT_THROW(insert(1), std::exception);
    EXPECT_EQ(turn(relay), 1);
    insert(1);
    pg_.exec("ALTER TABLE outbox_events DETACH PARTITION outbox_events_1");
    EXPECT_THROW(insert(1), std::exception);
    EXPECT_EQ(turn(relay), 2);
    insert(1);
}

TEST_F(Kept, SegmentsAreAddedAndEmptiedWhateverColumnsTheOwnerAdds) {
    pg_.exec("ALTER TABLE outbox_events ADD length int GENERATED ALWAYS AS (length(topic)) STORED");
    Relay relay(config(), {{"default", {}}, {"away", {}}});
    for (int turned = 1; turned <= 10; ++turned) {
        EXPECT_EQ(segment(), turned);
        insert(1);
        grow_old();
        turn(relay);
    }
}

// To be archived: it is nobody's to empty any more, nor is its name to be used again.
TEST_F(Kept, ASegmentThatItsOwnerDetachedIsLeftAlone) {
    insert(3);
    Relay relay(config());
    publish_all(relay);
    grow_old();
    ASSERT_EQ(turn(relay), 2);
    grow_old();
    pg_.exec(
        "ALTER TABLE outbox_events DETACH PARTITION outbox_events_1; "
        "ALTER TABLE outbox_events DETACH PARTITION outbox_events_3; CREATE TABLE "
        "outbox_events_9 ()");
    value_of(relay.recorder().prune(std::chrono::seconds(1), 1'000));
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_events_1"), 3);
    for (int turned = 0; turned < 8; ++turned) {
        insert(1);
        grow_old();
        turn(relay);
    }
    EXPECT_EQ(segment(), 12);
    EXPECT_EQ(pg_.value("SELECT string_agg(segment::text, ',' ORDER BY segment) FROM "
                        "outbox_segments WHERE began_at IS NOT NULL"),
              "2,4,5,6,7,8,10,11,12");
}

// The sequence is no part of a transaction: the table follows it.
TEST_F(Kept, ATurnThatDiedInBetweenIsMendedByTheNext) {
    insert(1);
    Relay relay(config());
    pg_.exec("SELECT setval('outbox_segment', 5)");
    insert(1);
    EXPECT_EQ(turn(relay), 5);
    EXPECT_EQ(pg_.value("SELECT string_agg(segment || CASE WHEN left_at IS NULL THEN ' written' "
                        "ELSE ' left' END, ', ' ORDER BY segment) FROM outbox_segments WHERE "
                        "began_at IS NOT NULL"),
              "1 left, 5 written");
}

// A dump without data, TRUNCATE ... RESTART IDENTITY.
TEST_F(Kept, WritersWriteWhereTheSequenceWasNeverUsed) {
    insert(1);
    Relay relay(config());
    grow_old();
    ASSERT_EQ(turn(relay), 2);
    relay.end();
    pg_.exec("TRUNCATE outbox_events RESTART IDENTITY");
    insert(2);
    EXPECT_EQ(pg_.number("SELECT max(segment) FROM outbox_events"), 1);
    Relay next(config());
    EXPECT_EQ(next.read().size(), 2U);
    EXPECT_EQ(turn(next), 1);
    EXPECT_EQ(pg_.number("SELECT segment FROM outbox_segments WHERE began_at IS NOT NULL AND "
                         "left_at IS NULL"),
              1);
}

TEST_F(Kept, ATableThatBeganAnewIsSentAllThoughMoreWasSettled) {
    insert(100);
    {
        Relay relay(config());
        publish_all(relay);
        EXPECT_EQ(pg_.number("SELECT settled FROM outbox_routes"), 100);
    }
    pg_.exec("TRUNCATE outbox_events RESTART IDENTITY; DELETE FROM outbox_ledger");
    insert(50);
    Relay next(config());
    ASSERT_EQ(next.notes().size(), 1U);
    EXPECT_THAT(next.notes()[0], HasSubstr("began anew"));
    EXPECT_EQ(next.read().size(), 50U);
    EXPECT_EQ(pg_.number("SELECT settled FROM outbox_routes"), 0);
}

// Its events cannot be told from those of a dump.
TEST_F(Kept, ATableThatBeganAnewAndReachedAsFarAgainIsLeftToAPersonWhichStatusSays) {
    insert(50);
    const auto operations = value_of(postgres::open_operations(config(), "public.outbox_events"));
    {
        Relay relay(config());
        publish_all(relay);
        EXPECT_FALSE(value_of(operations->is_other_table()));
    }
    pg_.exec("TRUNCATE outbox_events RESTART IDENTITY");
    insert(60);
    EXPECT_TRUE(value_of(operations->is_other_table()));
    EXPECT_THAT([&] { Relay(this->config()); },
                testing::ThrowsMessage<std::runtime_error>(
                    AllOf(HasSubstr("OB_TABLE_RESET"), HasSubstr("outbox routes begin --db URL"))));
    pg_.exec("UPDATE outbox_lease SET owner = NULL, expires_at = NULL");
    value_of(operations->forget_ledgers());
    EXPECT_FALSE(value_of(operations->is_other_table()));
    Relay next(config());
    EXPECT_EQ(next.read().size(), 60U);
}

// The key of a segment does not refuse what stands in another one.
TEST_F(Kept, ASequenceThatWasSetBackStopsNobodyAndIsToldOf) {
    insert(10);
    {
        Relay relay(config());
        publish_all(relay);
        grow_old();
        ASSERT_EQ(turn(relay), 2);
    }
    pg_.exec("SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), 5)");
    insert(3);
    Relay next(config());
    const auto read = positions(next.read());
    EXPECT_THAT(read, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)) << "the table began anew";
    EXPECT_THAT(value_of(next.recorder().stats()).refusal, HasSubstr("have position 8"));
    insert(5);
    EXPECT_THAT(positions(next.read()), ElementsAre(11, 12, 13));
    spi::EventBatch again;
    require(next.reader().fetch(std::vector<spi::Position>{6, 7}, again));
    EXPECT_EQ(again.events().size(), 2U);
}

// By `outbox prune`, with no relay there that would notice: what the ledgers say is of others.
TEST_F(Kept, NothingGoesOfATableThatBeganAnewAndThatNoRelayHasSeen) {
    for (const char* anew :
         {"TRUNCATE outbox_events RESTART IDENTITY",
          "TRUNCATE outbox_events; SELECT setval(pg_get_serial_sequence('outbox_events', "
          "'position'), 3)"}) {
        insert(10);
        {
            Relay relay(config());
            publish_all(relay);
        }
        pg_.exec(anew);
        insert(5);
        const auto source = value_of(postgres::make_postgres_source(config()));
        const auto recorder = value_of(source->open_recorder());
        for (int look = 0; look < 3; ++look) {
            grow_old();
            EXPECT_EQ(value_of(recorder->prune(0s, 1'000)), 0U) << anew;
        }
        EXPECT_EQ(rows(), 5);
        Relay next(config());
        EXPECT_GT(publish_all(next), 0);
        grow_old();
        EXPECT_EQ(value_of(next.recorder().prune(0s, 1'000)), 5U) << anew;
    }
}

TEST_F(Kept, WhatAnOperatorTruncatesIsGoneAndTheRestGoesOn) {
    insert(10);
    Relay relay(config());
    publish_all(relay);
    insert(5);
    pg_.exec("TRUNCATE outbox_events");
    insert(5);
    EXPECT_THAT(positions(relay.read()), ElementsAre(16, 17, 18, 19, 20));
    relay.publish({16, 17, 18, 19, 20});
    EXPECT_EQ(statuses(), "PUBLISHED 5");
}

// It begins behind what every known route has settled: not with the history.
TEST_F(Kept, ANewRouteIsNotSentTheHistory) {
    insert(10);
    {
        Relay relay(config());
        publish_all(relay);
    }
    insert(2);
    const std::vector<spi::RouteName> both{{"default", {}}, {"new", {}}};
    {
        Relay relay(config(), both);
        const spi::Beginning next = value_of(relay.recorder().begin(relay.epoch(), both));
        const auto reader = value_of(relay.source().open_reader("new", next.routes[1].finished));
        spi::EventBatch batch;
        require(reader->read(kAll, batch));
        EXPECT_THAT(positions(batch.events()), ElementsAre(11, 12));
        relay.publish({11, 12});
        spi::RecordBatch rest = relay.fresh();
        rest.finished.push_back({1, {11, 12}});
        require(relay.recorder().record(rest));
    }
    // One in the place of both.
    Relay other(config(), {{"another", {}}});
    EXPECT_EQ(other.notes().size(), 2U);
    EXPECT_THAT(other.read(), IsEmpty());
}

TEST_F(Kept, AnotherFilterReachesNoHistory) {
    insert(4);
    const std::vector<spi::RouteName> before{{"default", {}, "1"}, {"b", {}, "2"}};
    Relay relay(config(), before);
    relay.read();
    spi::RecordBatch batch = relay.fresh();
    batch.finished.push_back({0, {1, 2, 3, 4}, {1, 2, 3, 4}});
    batch.finished.push_back({1, {1, 2}, {1, 2}});
    require(relay.recorder().record(batch));
    pg_.exec("UPDATE outbox_routes SET settled = CASE route WHEN 'b' THEN 2 ELSE 4 END");
    const std::vector<spi::RouteName> after{{"default", {}, "3"}, {"b", {}, "2"}};
    const spi::Beginning next = value_of(relay.recorder().begin(relay.epoch(), after));
    EXPECT_EQ(next.routes[0].settled, 2);
    const auto reader = value_of(relay.source().open_reader("default", next.routes[0].finished));
    spi::EventBatch events;
    require(reader->read(kAll, events));
    EXPECT_THAT(positions(events.events()), ElementsAre(3, 4));
}

// Set back by the database itself, as a row was found: what this term says is not believed.
TEST_F(Kept, ATermDoesNotSettleAgainWhatWasSetBack) {
    insert(3);
    Relay relay(config());
    publish_all(relay);
    pg_.exec("UPDATE outbox_routes SET settled = 1");
    relay.settle(4);
    EXPECT_EQ(pg_.number("SELECT settled FROM outbox_routes"), 1);
}

TEST_F(Kept, IsWhatTheTableSaysWhateverTheOptions) {
    auto other = config();
    other.after_publish = postgres::AfterPublish::kDelete;
    const auto refused = postgres::make_postgres_source(other);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("outbox migrate --after-publish delete"));
    other.after_publish = postgres::AfterPublish::kKeep;
    EXPECT_TRUE(postgres::make_postgres_source(other).ok());
    const std::string plain = shared_postgres().create_database();
    migrate(plain);
    other.url = plain;
    const auto not_laid_out = postgres::make_postgres_source(other);
    ASSERT_FALSE(not_laid_out.ok());
    EXPECT_THAT(not_laid_out.error().message, HasSubstr("outbox migrate --after-publish keep"));
}

}  // namespace
}  // namespace outbox::test
