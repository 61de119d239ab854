// The ledger where it meets what others do: tables that begin anew, rows that are held, positions
// that nobody expected, a neighbour that lags.
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "tests/databases/postgres/support.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LedgerOfPostgres : public testing::Test {
  protected:
    postgres::PostgresSourceConfig config(const std::string& table = "outbox_events") const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.table = table;
        config.mode = postgres::Mode::kPolling;
        return config;
    }
    void insert(int count) {
        pg_.exec(
            "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', n::text::jsonb FROM "
            "generate_series(1, " +
            std::to_string(count) + ") n");
    }
    // A term of the routes "default" and "b".
    static Result<spi::Beginning> begin(Relay& relay) {
        relay.source().begin_term();
        const std::vector<spi::RouteName> routes{{"default", {}}, {"b", {}}};
        return relay.recorder().begin(relay.epoch(), routes);
    }
    static void finish(Relay& relay, std::size_t route, std::vector<spi::Position> positions) {
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({route, std::move(positions)});
        require(relay.recorder().record(batch));
    }
    std::int64_t rows() { return pg_.number("SELECT count(*) FROM outbox_events"); }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

class NativeLedger : public LedgerOfPostgres {
  protected:
    void SetUp() override { migrate(url_); }
    static constexpr const char* kRaise = "RAISE EXCEPTION ''it is kept''";
    void keep_rows(const std::string& which, const std::string& how = kRaise,
                   const std::string& name = "keep") {
        pg_.exec("CREATE FUNCTION " + name + "() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN " +
                 how + "; END'; CREATE TRIGGER " + name +
                 " BEFORE DELETE ON outbox_events FOR EACH ROW WHEN (" + which +
                 ") EXECUTE FUNCTION " + name + "()");
    }
    // What a supervisor does after a relay has ended: another process.
    ErrorInfo refusal() {
        try {
            Relay next(config());
        } catch (const std::runtime_error& error) {
            return {ErrorCode::kInternal, Advice::kStop, {}, error.what()};
        }
        return {};
    }
};

TEST_F(NativeLedger, OfATableThatBeganAnewIsSetAsideAndAllThatTheTableHoldsIsSent) {
    insert(100);
    {
        Relay relay(config());
        static_cast<void>(value_of(begin(relay)));
        std::vector<spi::Position> positions;
        for (const auto& event : relay.read()) positions.push_back(event.position);
        finish(relay, 0, positions);  // the other route is down
    }
    pg_.exec("TRUNCATE outbox_events RESTART IDENTITY");
    insert(50);
    pg_.exec("DELETE FROM outbox_routes WHERE route = 'b'");
    Relay next(config());
    ASSERT_EQ(next.notes().size(), 1U);
    EXPECT_THAT(next.notes()[0], HasSubstr("began anew"));
    EXPECT_EQ(next.read().size(), 50U);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_ledger"), 0);
}

TEST_F(NativeLedger, OfASequenceThatWasSetBackIsSetAside) {
    insert(100);
    {
        Relay relay(config());
        relay.read();
        finish(relay, 0, {90, 91, 100});
    }
    pg_.exec(
        "DELETE FROM outbox_events; SELECT setval(pg_get_serial_sequence('outbox_events', "
        "'position'), 20)");
    insert(5);
    Relay next(config());
    ASSERT_EQ(next.notes().size(), 1U);
    EXPECT_EQ(next.read().size(), 5U);
}

TEST_F(NativeLedger, OfAnotherTableIsRefusedWithTheCommandsThatSettleIt) {
    insert(10);
    {
        Relay relay(config());
        relay.read();
        finish(relay, 0, {3, 7});
    }
    pg_.exec(
        "BEGIN; CREATE TABLE copy (LIKE outbox_events INCLUDING ALL); INSERT INTO copy OVERRIDING "
        "SYSTEM VALUE SELECT * FROM outbox_events; DROP TABLE outbox_events CASCADE; ALTER TABLE "
        "copy RENAME TO outbox_events; SELECT setval(pg_get_serial_sequence('outbox_events', "
        "'position'), 10); COMMIT");
    const std::string said = refusal().message;
    EXPECT_THAT(said, HasSubstr("OB_TABLE_RESET"));
    EXPECT_THAT(said, HasSubstr("outbox routes continue --db URL"));
    EXPECT_THAT(said, HasSubstr("outbox routes begin --db URL"));
    // As the first of these does.
    pg_.exec("UPDATE outbox_ledger SET life = NULL");
    Relay next(config());
    EXPECT_EQ(next.read().size(), 8U);
}

// As while an index of it is made: `outbox status` only reads.
TEST_F(NativeLedger, IsLookedAtWhileSomebodyKeepsOthersFromWritingToIt) {
    Pg holder(url_);
    holder.exec("BEGIN; LOCK TABLE outbox_ledger IN EXCLUSIVE MODE");
    const auto source = value_of(postgres::make_postgres_source(config()));
    const auto recorder = value_of(source->open_recorder());
    EXPECT_EQ(value_of(recorder->stats()).backlog, 0);
}

// Its numbers have a new file then, as those that begin anew.
TEST_F(NativeLedger, OfATableThatBecameUnloggedIsLeftToAPerson) {
    insert(10);
    Relay relay(config());
    ASSERT_EQ(relay.read().size(), 10U);
    finish(relay, 0, {1, 2, 3});
    pg_.exec("DROP PUBLICATION outbox; ALTER TABLE outbox_events SET UNLOGGED");
    ErrorInfo end;
    EXPECT_TRUE(eventually(60s, "the relay stops", [&] {
        spi::EventBatch batch;
        const Status read = relay.reader().read({1'000, 1 << 20}, batch);
        if (!read.ok()) end = read.error();
        return !read.ok();
    }));
    EXPECT_EQ(end.code, ErrorCode::kTableReset) << end.message;
    relay.end();
    EXPECT_THAT(refusal().message, HasSubstr("outbox routes continue --db URL"));
    // As that does.
    pg_.exec("UPDATE outbox_ledger SET life = NULL");
    Relay next(config());
    EXPECT_EQ(next.read().size(), 7U);
}

// The server empties it, and its numbers begin anew where they were.
TEST(UnloggedTable, BeginsAnewWithACrashOfTheServer) {
    PostgresServer server;
    migrate(server.url());
    const auto exec = [&](const std::string& sql) { Pg(server.url()).exec(sql); };
    const auto insert = [&](int count) {
        exec(
            "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', '1' FROM "
            "generate_series(1, " +
            std::to_string(count) + ")");
    };
    exec("DROP PUBLICATION outbox");
    exec("ALTER TABLE outbox_events SET UNLOGGED");
    insert(3);
    postgres::PostgresSourceConfig config;
    config.url = server.url();
    config.mode = postgres::Mode::kPolling;
    const std::vector<spi::RouteName> routes{{"default", {}}, {"b", {}}};
    {
        Relay relay(config, routes);
        ASSERT_EQ(relay.read().size(), 3U);
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {1, 2, 3}});
        require(relay.recorder().record(batch));
    }
    EXPECT_EQ(Pg(server.url()).value("SELECT min(status) FROM outbox_status"), "PENDING");
    exec("CHECKPOINT");
    server.stop(PostgresServer::Stop::kImmediate);
    server.start();
    insert(5);
    EXPECT_EQ(Pg(server.url()).value("SELECT outbox_ledger_source() IS NULL"), "t");
    try {
        Relay next(config, routes);
        FAIL() << "it goes on";
    } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), HasSubstr("outbox routes begin --db URL"));
    }
}

// Where no sequence comes: it is left out, and in no route's way.
TEST_F(NativeLedger, ARowNumberedByHandBelowAllIsNoEventOfARoute) {
    pg_.exec(
        "INSERT INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE VALUES (-5, "
        "'t', '1')");
    Relay relay(config());
    relay.end();
    const std::vector<spi::RouteName> others{{"another", {}}};
    EXPECT_NO_THROW(Relay(config(), others));
}

// The words of a destination come from all over the world.
TEST_F(NativeLedger, OfADatabaseThatIsNotInUtf8KeepsWhatItCanOfAnError) {
    const std::string name = url_.substr(url_.rfind('/') + 1) + "_latin";
    pg_.exec("CREATE DATABASE " + name +
             " ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    const std::string url = url_.substr(0, url_.rfind('/') + 1) + name;
    migrate(url);
    Pg(url).exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
    auto latin = config();
    latin.url = url;
    Relay relay(latin);
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 1U);
    spi::EventView event;
    event.position = events[0].position;
    event.id = events[0].id;
    relay.fail(event, 1, 0, "zu teuer: 100 €");
    EXPECT_EQ(Pg(url).value("SELECT last_error FROM outbox_delivery"), "zu teuer: 100 ???");
}

// However many of them are refused, the others go, and those that are let go later, too.
TEST_F(NativeLedger, RowsThatTheTableKeepsHoldNoOther) {
    constexpr spi::Position kRows = 8'000;
    insert(kRows);
    keep_rows("OLD.position % 20 = 7");
    Relay relay(config());
    std::vector<spi::Position> positions;
    for (spi::Position n = 1; n <= kRows; ++n) positions.push_back(n);
    finish(relay, 0, positions);
    relay.remove(positions);
    EXPECT_TRUE(eventually(120s, "the others are removed", [&] {
        relay.remove();
        return rows() == kRows / 20;
    })) << rows();
    for (int look = 0; look < 10; ++look) {
        std::this_thread::sleep_for(20ms);
        EXPECT_EQ(relay.remove(), kRows / 20);
    }
    pg_.exec("DROP TRIGGER keep ON outbox_events");
    EXPECT_TRUE(eventually(120s, "all are removed", [&] { return relay.remove() == 0; })) << rows();
    EXPECT_EQ(rows(), 0);
}

// What is named to the table again and again is bounded, so that what waits for its turn is. Beside
// more rows than that those that may go do: alone those are forgotten that were asked for alone.
TEST_F(NativeLedger, ATableThatLetsNoRowGoIsAskedForSomeOfThemAlone) {
    constexpr spi::Position kKept = 60'000;
    constexpr spi::Position kMixed = 3'000;
    insert(kKept + kMixed);
    keep_rows("OLD.position <= 60000", "RETURN NULL");
    keep_rows("OLD.position > 60000 AND OLD.position % 20 = 7", kRaise, "refuse");
    Relay relay(config());
    const auto finish_and_remove = [&](spi::Position from, spi::Position to) {
        std::vector<spi::Position> positions;
        for (spi::Position n = from; n <= to; ++n) positions.push_back(n);
        finish(relay, 0, positions);
        return relay.remove(positions);
    };
    for (spi::Position from = 1; from < kKept; from += 10'000) {
        finish_and_remove(from, from + 9'999);
    }
    EXPECT_TRUE(
        eventually(120s, "50,000 are named again", [&] { return relay.remove() == 50'000; }));
    EXPECT_EQ(rows(), kKept + kMixed);
    finish_and_remove(kKept + 1, kKept + kMixed);
    EXPECT_TRUE(eventually(120s, "what may go is removed", [&] {
        relay.remove();
        return rows() == kKept + kMixed / 20;
    })) << rows();
    EXPECT_EQ(relay.remove(), 50'000U);
    relay.end();
    Relay next(config());
    EXPECT_EQ(next.read().size(), 0U) << "all of it is finished";
}

// Many more than are passed over by name; once the table takes them they go.
TEST_F(NativeLedger, HoweverManyDelayedEventsTheTableRefusesTheOthersGo) {
    pg_.exec(
        "INSERT INTO outbox_scheduled (available_at, topic, key, payload) SELECT now() - interval "
        "'1 hour' + n * interval '1 ms', 't', CASE WHEN n <= 2200 THEN 'bad' END, '1' FROM "
        "generate_series(1, 2250) n; CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'not this one'; END $$; CREATE TRIGGER refuse BEFORE INSERT ON "
        "outbox_events FOR EACH ROW WHEN (NEW.key = 'bad') EXECUTE FUNCTION refuse()");
    Relay relay(config());
    const auto move = [&] { require(relay.recorder().move_due(relay.epoch(), 1'000).status()); };
    EXPECT_TRUE(eventually(120s, "the others are moved", [&] {
        move();
        return rows() == 50;
    }));
    auto stats = value_of(relay.recorder().stats());
    EXPECT_EQ(stats.owed, 2'200);
    EXPECT_THAT(stats.due_refusal, HasSubstr("not this one"));
    EXPECT_EQ(stats.refusal, "");
    pg_.exec("DROP TRIGGER refuse ON outbox_events");
    EXPECT_TRUE(eventually(120s, "those up to the place are moved", [&] {
        move();
        return rows() >= 2'050;
    })) << rows();
}

// Who redirects a row keeps it elsewhere; a relay cannot know that.
TEST_F(NativeLedger, ADelayedEventThatATriggerLeavesOutIsKeptAndToldOf) {
    pg_.exec(
        "INSERT INTO outbox_scheduled (available_at, topic, key, payload) SELECT now() - interval "
        "'1 s', 't', CASE WHEN n = 2 THEN 'bad' END, '1' FROM generate_series(1, 3) n; "
        "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; "
        "END $$; CREATE TRIGGER leave_out BEFORE INSERT ON outbox_events FOR EACH ROW WHEN "
        "(NEW.key = 'bad') EXECUTE FUNCTION leave_out()");
    Relay relay(config());
    EXPECT_EQ(value_of(relay.recorder().move_due(relay.epoch(), 1'000)), 2U);
    EXPECT_EQ(rows(), 2);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_scheduled"), 1);
    EXPECT_THAT(value_of(relay.recorder().stats()).due_refusal, HasSubstr("return NULL"));
}

TEST_F(NativeLedger, ARowThatSomebodyHoldsDelaysItsOwnRemovalAlone) {
    insert(5);
    Relay relay(config());
    ASSERT_EQ(relay.read().size(), 5U);
    Pg owner(url_);
    owner.exec("BEGIN; SELECT FROM outbox_events WHERE position = 3 FOR UPDATE");
    relay.publish({1, 2, 3, 4, 5});
    EXPECT_EQ(rows(), 1);
    // Its holder is no writer, and proves nothing about the row.
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(20ms);
        EXPECT_EQ(relay.remove(), 1U);
    }
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_ledger"), 1);
    owner.exec("COMMIT");
    EXPECT_TRUE(eventually(60s, "the row is removed", [&] { return relay.remove() == 0; }));
    EXPECT_EQ(rows(), 0);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_ledger"), 0);
}

TEST_F(NativeLedger, TheLeaseIsRenewedWhileARecordIsOnItsWay) {
    insert(1);
    Relay relay(config());
    const auto lease = value_of(relay.source().open_lease());
    Pg slow(url_);
    // What a recorder holds until its commit.
    slow.exec("BEGIN; SELECT FROM outbox_lease FOR KEY SHARE");
    EXPECT_TRUE(value_of(lease->renew(relay.epoch(), 60s)));
    slow.exec("COMMIT");
}

TEST_F(NativeLedger, WhoTakesTheLeaseWaitsForWhatIsBeingRecorded) {
    Relay relay(config());
    relay.end();
    Pg slow(url_);
    slow.exec("BEGIN; SELECT FROM outbox_lease FOR KEY SHARE");
    const auto lease = value_of(relay.source().open_lease());
    auto taken = std::async(std::launch::async, [&] { return lease->acquire("next", 60s); });
    // It gives up after two seconds, and would try again.
    if (taken.wait_for(300ms) == std::future_status::ready) {
        EXPECT_EQ(taken.get().error().advice, Advice::kRetryDestination);
    }
    slow.exec("COMMIT");
    auto epoch = taken.valid() ? taken.get() : lease->acquire("next", 60s);
    if (!epoch.ok()) {
        EXPECT_EQ(epoch.error().advice, Advice::kRetryDestination);
        epoch = lease->acquire("next", 60s);
    }
    EXPECT_TRUE(value_of(epoch).has_value());
}

TEST_F(NativeLedger, OfTwoThatTakeTheLeaseAtOnceOneHasIt) {
    Relay relay(config());
    relay.end();
    const auto one = value_of(relay.source().open_lease());
    const auto other = value_of(relay.source().open_lease());
    for (int round = 0; round < 20; ++round) {
        Pg slow(url_);
        slow.exec("BEGIN; SELECT FROM outbox_lease FOR KEY SHARE");
        const auto take = [](spi::LeaseStore& lease, const char* owner) {
            return std::async(std::launch::async,
                              [&lease, owner] { return lease.acquire(owner, 60s); });
        };
        auto first = take(*one, "one");
        auto second = take(*other, "other");
        // Both have found it free; they give up after two seconds.
        ASSERT_TRUE(eventually(60s, "both wait for its row", [&] {
            return first.wait_for(0s) == std::future_status::ready ||
                   second.wait_for(0s) == std::future_status::ready ||
                   pg_.number(
                       "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = "
                       "'Lock' AND datname = current_database()") == 2;
        }));
        slow.exec("COMMIT");
        const auto epoch = first.get();
        const auto others = second.get();
        if (epoch.ok() && others.ok()) {
            EXPECT_NE(epoch->has_value(), others->has_value());
            return;
        }
        if (epoch.ok() && *epoch) static_cast<void>(one->release(**epoch));
        if (others.ok() && *others) static_cast<void>(other->release(**others));
    }
    FAIL() << "one of them gave up in each round";
}

TEST_F(NativeLedger, AnEventPutIntoAPlaceThatWasProvedEmptyIsReturnedOnce) {
    pg_.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('t', '1'); ROLLBACK");
    insert(1);
    Relay relay(config());
    ASSERT_EQ(relay.read().size(), 1U);
    EXPECT_TRUE(eventually(60s, "the place is closed", [&] {
        relay.read();
        return !relay.closed().empty();
    }));
    pg_.exec(
        "INSERT INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE VALUES (1, "
        "'t', '\"late\"')");
    EXPECT_TRUE(eventually(60s, "the event is read", [&] { return relay.read().size() == 1; }));
    // Its row stays, for another route perhaps.
    const auto until = std::chrono::steady_clock::now() + 3s;
    while (std::chrono::steady_clock::now() < until) ASSERT_THAT(relay.read(), IsEmpty());
}

TEST_F(NativeLedger, ARollbackBetweenAllEventsOfALaggingRouteCostsNoMoreThanABitEach) {
    // 30,000 events, each behind a position that nobody will ever fill.
    pg_.exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', '1' FROM "
        "generate_series(1, 60000); DELETE FROM outbox_events WHERE position % 2 = 1");
    Relay relay(config());
    static_cast<void>(value_of(begin(relay)));
    std::vector<spi::Position> positions;
    while (positions.size() < 30'000) {
        const auto events = relay.read({1'000, 1U << 24});
        ASSERT_FALSE(events.empty());
        std::vector<spi::Position> now;
        for (const auto& event : events) now.push_back(event.position);
        finish(relay, 0, now);
        positions.insert(positions.end(), now.begin(), now.end());
    }
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_ledger WHERE route = 'default'"), 1);
    EXPECT_LE(pg_.number("SELECT max(pg_column_size(done)) FROM outbox_ledger"), 8'300);
    // The next owner passes over all of them at once and goes on behind them.
    insert(1);
    spi::Beginning next = value_of(begin(relay));
    const auto reader =
        value_of(relay.source().open_reader("default", std::move(next.routes[0].finished)));
    std::size_t reads = 0;
    std::vector<std::string> seen;
    EXPECT_TRUE(eventually(60s, "the new event comes", [&] {
        spi::EventBatch batch;
        require(reader->read(kAll, batch));
        ++reads;
        for (const auto& event : batch.events()) seen.emplace_back(event.payload);
        return !seen.empty();
    }));
    EXPECT_THAT(seen, ElementsAre("1"));
}

// Below the mark only closed holes are looked at again, and a bounded part of them at a time:
// rows that another route still needs, or that a held snapshot keeps, are not read again and again.
TEST_F(NativeLedger, ALookBelowTheMarkReadsNoRowsThatWaitForAnotherRoute) {
    constexpr int kRows = 30'000;
    const std::string read_so_far =
        "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = "
        "'outbox_events'";
    pg_.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('t', '1'); ROLLBACK");
    insert(kRows);
    const long long before = Pg(url_).number(read_so_far);
    {
        Relay relay(config());
        std::vector<spi::Position> positions;
        while (positions.size() < kRows) {
            for (const auto& event : relay.read()) positions.push_back(event.position);
        }
        static_cast<void>(value_of(begin(relay)));
        finish(relay, 0, positions);
        relay.reader().forget(positions);
        const auto until = std::chrono::steady_clock::now() + 3s;  // three looks
        while (std::chrono::steady_clock::now() < until) ASSERT_THAT(relay.read(), IsEmpty());
        EXPECT_FALSE(relay.closed().empty());
    }
    ASSERT_TRUE(eventually(60s, "the reader has told what it read",
                           [&] { return Pg(url_).number(read_so_far) - before >= kRows; }));
    EXPECT_LT(Pg(url_).number(read_so_far) - before, kRows + kRows / 2);
}

// The relay before goes on with it: it neither meets a route that it does not know, nor begins anew
// with one that it had.
TEST_F(NativeLedger, StaysAsItIsWhereARelayThatLacksARightTriesToBegin) {
    std::vector<std::string> rights{"SELECT, DELETE ON outbox_scheduled"};
    for (const std::string table :
         {"outbox_events", "outbox_routes", "outbox_ledger", "outbox_route_done", "outbox_delivery",
          "outbox_dead_letters", "outbox_route_stats", "outbox_standbys"}) {
        for (const std::string right : {"SELECT", "INSERT", "UPDATE", "DELETE"}) {
            rights.push_back(right + " ON " + table);
        }
    }
    insert(2);
    Relay relay(config(), {{"default", {}}, {"b", {}}});
    finish(relay, 0, {1, 2});
    const auto ledger = [this] {
        return pg_.value(
            "SELECT (SELECT string_agg(route || since, ' ' ORDER BY route) FROM outbox_routes) || "
            "(SELECT string_agg(route || md5(done::text), ' ' ORDER BY route) FROM outbox_ledger)");
    };
    const std::string before = ledger();
    pg_.exec(
        "CREATE ROLE half_relay LOGIN PASSWORD 'test'; GRANT ALL ON ALL TABLES IN SCHEMA public TO "
        "half_relay; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO half_relay");
    auto half = config();
    half.url.replace(half.url.find("postgres@"), 8, "half_relay:test");
    const auto source = value_of(postgres::make_postgres_source(half));
    auto recorder = value_of(source->open_recorder());
    const std::vector<spi::RouteName> routes{{"b", {}}, {"new", {}}};
    for (const std::string& right : rights) {
        pg_.exec("REVOKE " + right + " FROM half_relay");
        const auto begun = recorder->begin(relay.epoch(), routes);
        EXPECT_EQ(begun.status().ok() ? ErrorCode::kInternal : begun.error().code,
                  ErrorCode::kNoRights)
            << right;
        EXPECT_EQ(ledger(), before) << right;
        pg_.exec("GRANT " + right + " TO half_relay");
    }
    EXPECT_TRUE(recorder->begin(relay.epoch(), routes).ok());
    EXPECT_NE(ledger(), before);
    recorder.reset();
    pg_.exec("DROP OWNED BY half_relay; DROP ROLE half_relay");
}

TEST_F(LedgerOfPostgres, ANumberingThatBeginsBelowOneIsNoneToProveByAndLosesNothing) {
    pg_.exec(
        "CREATE TABLE numbered (position bigint GENERATED ALWAYS AS IDENTITY (MINVALUE -3 START "
        "-3) PRIMARY KEY, id uuid NOT NULL DEFAULT gen_random_uuid(), aggregatetype text, "
        "aggregateid text, type text, payload jsonb); INSERT INTO numbered (aggregatetype, "
        "aggregateid, type, payload) SELECT 'o', 'k', 't', '1' FROM generate_series(1, 8)");
    auto numbered = config("numbered");
    numbered.after_publish = AfterPublish::kDelete;
    Relay relay(numbered);
    EXPECT_FALSE(relay.source().stable_positions());
    const auto events = relay.read();
    EXPECT_EQ(events.size(), 8U);
    std::vector<spi::Position> positions;
    for (const auto& event : events) positions.push_back(event.position);
    relay.publish(positions);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM numbered"), 0);
}

class AdoptedLedger : public LedgerOfPostgres {
  protected:
    void SetUp() override {
        pg_.exec(kPendingPublishedTable);
        pg_.exec(
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) SELECT "
            "gen_random_uuid(), 'Order', 'o-' || n, 'OrderCreated', '{}' FROM generate_series(1, "
            "4) n");
    }
    std::int64_t count(const std::string& where) {
        return pg_.number("SELECT count(*) FROM outbox WHERE " + where);
    }
};

TEST_F(AdoptedLedger, ARowThatSomebodyHoldsIsOwedItsMarkAndNotSentAgain) {
    Relay relay(config("outbox"));
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 4U);
    Pg owner(url_);
    owner.exec("BEGIN; SELECT FROM outbox WHERE id = '" + std::string(events[1].id) +
               "' FOR UPDATE");
    relay.publish({events[0].position, events[1].position, events[2].position});
    EXPECT_EQ(count("status = 'PUBLISHED'"), 2);
    EXPECT_THAT(relay.read_ids(), IsEmpty());
    {
        const auto reader = value_of(relay.source().open_reader("default", {}));
        spi::EventBatch batch;
        require(reader->read(kAll, batch));
        ASSERT_EQ(batch.size(), 1U);  // the fourth
        EXPECT_EQ(batch.events()[0].id, events[3].id);
    }
    value_of(relay.recorder().tidy(relay.epoch()));
    EXPECT_EQ(count("status = 'PUBLISHED'"), 2);
    owner.exec("COMMIT");
    value_of(relay.recorder().tidy(relay.epoch()));
    EXPECT_EQ(count("status = 'PUBLISHED'"), 3);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_route_done"), 0);
}

TEST_F(AdoptedLedger, RowsThatOnlyARouteWhichIsGoneHadNotFinishedGetTheirMark) {
    Relay relay(config("outbox"));
    static_cast<void>(value_of(begin(relay)));
    std::vector<spi::Position> positions;
    for (const auto& event : relay.read()) positions.push_back(event.position);
    finish(relay, 0, positions);
    EXPECT_EQ(count("status = 'PUBLISHED'"), 0);
    // As outbox routes retire does.
    pg_.exec(
        "DELETE FROM outbox_routes WHERE route = 'b'; DELETE FROM outbox_route_done WHERE route = "
        "'b'");
    const std::vector<spi::RouteName> one{{"default", {}}};
    static_cast<void>(value_of(relay.recorder().begin(relay.epoch(), one)));
    value_of(relay.recorder().tidy(relay.epoch()));
    EXPECT_EQ(count("status = 'PUBLISHED'"), 4);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_route_done"), 0);
}

}  // namespace
}  // namespace outbox::test
