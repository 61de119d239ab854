// The layout of outbox_events is changed between `delete` and `keep`, with events under way.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include <outbox/producer/migrate.h>

#include "databases/postgres/source/operations.h"
#include "tests/databases/postgres/support.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LayoutChange : public testing::Test {
  protected:
    void SetUp() override {
        migrate(url_);
        if (old_server()) GTEST_SKIP() << "PostgreSQL 14 has one layout";
    }

    bool old_server() { return pg_.number("SHOW server_version_num") < 150000; }
    void change(TableLayoutKind kind) { migrate_to(url_, kind); }
    std::string refusal(TableLayoutKind kind) {
        MigrateOptions options;
        options.layout = kind;
        try {
            migrate(url_, options);
        } catch (const Error& error) {
            return error.what();
        }
        return {};
    }
    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = postgres::Mode::kPolling;
        return config;
    }
    void insert(int count) {
        pg_.exec(
            "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', n::text::jsonb FROM "
            "generate_series(1, " +
            std::to_string(count) + ") n");
    }
    static std::vector<spi::Position> positions(const std::vector<spi::EventView>& events) {
        std::vector<spi::Position> out;
        for (const spi::EventView& event : events) out.push_back(event.position);
        return out;
    }
    bool waits(const std::string& table) {
        return pg_.number(
                   "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = "
                   "to_regclass('" +
                   table + "')") > 0;
    }
    std::string kind() {
        return pg_.value("SELECT relkind FROM pg_class WHERE oid = 'outbox_events'::regclass");
    }

    static constexpr auto kKeep = TableLayoutKind::kKeep;
    static constexpr auto kDelete = TableLayoutKind::kDelete;
    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

TEST_F(LayoutChange, SendsNothingAgainAndLosesNothing) {
    insert(5);
    {
        Relay relay(config(), {{"default", {}}, {"other", {}}});
        EXPECT_EQ(relay.read().size(), 5U);
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {1, 2, 4}});
        batch.finished.push_back({1, {2, 5}});
        require(relay.recorder().record(batch));
    }
    change(kKeep);
    EXPECT_EQ(kind(), "p");
    insert(2);
    {
        Relay relay(config(), {{"default", {}}, {"other", {}}});
        EXPECT_THAT(relay.notes(), testing::IsEmpty());
        EXPECT_THAT(positions(relay.read()), ElementsAre(3, 5, 6, 7));
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {3, 5, 6}});
        batch.finished.push_back({1, {1, 3, 4, 6}});
        require(relay.recorder().record(batch));
        relay.settle(6);
        pg_.exec("UPDATE outbox_routes SET settled = 6");
    }
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_events"), 7);
    change(kDelete);
    EXPECT_EQ(kind(), "r");
    insert(1);
    EXPECT_EQ(pg_.value("SELECT string_agg(position::text, ' ' ORDER BY position) FROM "
                        "outbox_events"),
              "7 8")
        << "the history went";
    Relay relay(config(), {{"default", {}}, {"other", {}}});
    EXPECT_THAT(relay.notes(), testing::IsEmpty());
    EXPECT_THAT(positions(relay.read()), ElementsAre(7, 8));
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_segments"), 0);
}

// `setval` with false names the number that comes next.
TEST_F(LayoutChange, GoesOnWithTheNumberThatWasSetToComeNext) {
    spi::Position next = 80;
    for (const auto kind : {kKeep, kDelete}) {
        insert(5);
        {
            Relay relay(config());
            const auto read = positions(relay.read());
            ASSERT_EQ(read.size(), 5U);
            relay.publish(read);
            relay.settle(read.back());
        }
        pg_.exec("SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), " +
                 std::to_string(next) + ", false)");
        change(kind);
        insert(1);
        Relay relay(config());
        EXPECT_THAT(relay.notes(), testing::IsEmpty());
        EXPECT_THAT(positions(relay.read()), ElementsAre(next));
        relay.publish({next});
        relay.settle(next);
        next += 100;
    }
}

TEST_F(LayoutChange, NoWriterFailsAndNoEventIsLost) {
    std::atomic<bool> stop{false};
    std::atomic<int> written{0};
    std::vector<std::thread> writers;
    for (int writer = 0; writer < 3; ++writer) {
        writers.emplace_back([&] {
            Pg pg(url_);
            pg.exec("PREPARE w AS INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
            while (!stop) {
                ASSERT_NO_THROW(pg.exec("EXECUTE w"));
                ASSERT_NO_THROW(pg.exec("SELECT outbox_emit(topic => 't', payload => '2')"));
                written += 2;
            }
        });
    }
    for (int round = 0; round < 3; ++round) {
        const int before = written;
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "more is written",
                               [&] { return written > before + 50; }));
        change(kKeep);
        const int between = written;
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "more is written",
                               [&] { return written > between + 50; }));
        change(kDelete);
    }
    stop = true;
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(pg_.value("SELECT count(*) || ' ' || count(DISTINCT position) FROM outbox_events"),
              std::to_string(written) + " " + std::to_string(written));
}

// Whoever writes waits behind a change that waits.
TEST_F(LayoutChange, BehindAnOpenTransactionStopsNoWriterAndNamesIt) {
    Pg holder(url_);
    holder.exec(
        "SET application_name = 'shop'; BEGIN; INSERT INTO outbox_events (topic, payload) VALUES "
        "('t', '1')");
    std::atomic<bool> stop{false};
    std::chrono::steady_clock::duration longest{};
    std::thread writer([&] {
        Pg pg(url_);
        while (!stop) {
            const auto began = std::chrono::steady_clock::now();
            pg.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
            longest = std::max(longest, std::chrono::steady_clock::now() - began);
        }
    });
    const std::string refused = refusal(kKeep);
    stop = true;
    writer.join();
    EXPECT_THAT(refused, testing::AllOf(HasSubstr("probably held by pid "),
                                        HasSubstr("(application 'shop', user "),
                                        HasSubstr("idle in transaction, begun "),
                                        HasSubstr("End that transaction, or run this again")));
    EXPECT_LT(longest, std::chrono::seconds(4)) << "an attempt takes half a second";
    holder.exec("COMMIT");
    change(kKeep);
    EXPECT_EQ(kind(), "p");
}

TEST_F(LayoutChange, NamesWhoHoldsAnotherTableAndNobodyWhoCameLater) {
    Pg holder(url_);
    holder.exec("SET application_name = 'shop'; BEGIN; LOCK outbox_lease");
    std::string refused;
    std::thread changing([&] { refused = refusal(kKeep); });
    EXPECT_TRUE(
        eventually(std::chrono::seconds(60), "it waits", [&] { return waits("outbox_lease"); }));
    Pg later(url_);
    later.exec(
        "SET application_name = 'later'; BEGIN; INSERT INTO outbox_events (topic, payload) VALUES "
        "('t', '1')");
    changing.join();
    EXPECT_THAT(refused, testing::AllOf(HasSubstr("probably held by pid "),
                                        HasSubstr("(application 'shop', user "),
                                        testing::Not(HasSubstr("'later'"))));
}

TEST_F(LayoutChange, IsTriedAgainUntilAnOpenTransactionHasEnded) {
    Pg holder(url_);
    holder.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
    std::thread changing([&] { change(kKeep); });
    EXPECT_TRUE(
        eventually(std::chrono::seconds(60), "it waits", [&] { return waits("outbox_events"); }));
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it has given up",
                           [&] { return !waits("outbox_events"); }));
    holder.exec("COMMIT");
    changing.join();
    EXPECT_EQ(kind(), "p");
}

TEST_F(LayoutChange, IsNoChangeWhereItIsSoAlready) {
    change(kDelete);
    change(kKeep);
    const std::string table = pg_.value("SELECT 'outbox_events'::regclass::oid");
    change(kKeep);
    EXPECT_EQ(pg_.value("SELECT 'outbox_events'::regclass::oid"), table);
    migrate(url_);
    EXPECT_EQ(kind(), "p");
}

TEST_F(LayoutChange, IsRefusedWhileARelayRuns) {
    Relay relay(config());
    EXPECT_THAT(refusal(kKeep), HasSubstr("relay test (host:process) is running"));
    EXPECT_EQ(kind(), "r");
    relay.end();
    change(kKeep);
    // One that was only paused may write nothing more.
    Relay paused(config());
    pg_.exec("UPDATE outbox_lease SET expires_at = now()");
    change(kDelete);
    spi::RecordBatch batch = paused.fresh();
    batch.finished.push_back({0, {1}});
    const Status status = paused.recorder().record(batch);
    ASSERT_FALSE(status.ok());
}

// It says of the events that are there what the ledgers said of others.
TEST_F(LayoutChange, IsRefusedWhereTheTableBeganAnew) {
    insert(3);
    {
        Relay relay(config());
        EXPECT_EQ(relay.read().size(), 3U);
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {1, 2, 3}});
        require(relay.recorder().record(batch));
    }
    pg_.exec("UPDATE outbox_lease SET owner = NULL, expires_at = NULL");
    pg_.exec("TRUNCATE outbox_events RESTART IDENTITY");
    insert(5);
    EXPECT_THAT(refusal(kKeep), HasSubstr("not the one that the ledgers of its routes"));
    EXPECT_EQ(kind(), "r");
    value_of(
        value_of(postgres::open_operations(config(), "public.outbox_events"))->forget_ledgers());
    for (const TableLayoutKind layout : {kKeep, kDelete}) {
        change(layout);
        EXPECT_THAT(pg_.value("SELECT pg_get_viewdef('outbox_status'::regclass)"),
                    HasSubstr("outbox_ledger_source"));
    }
    EXPECT_EQ(Relay(config()).read().size(), 5U);
}

// Table, sequence and file are the same where the rows of a dump alone were restored.
TEST_F(LayoutChange, IsRefusedWhereTheNumbersWereSetBack) {
    change(kKeep);
    const auto restore = [&](const std::string& last) {
        pg_.exec("UPDATE outbox_lease SET owner = NULL, expires_at = NULL; TRUNCATE outbox_events");
        pg_.exec("SELECT setval('outbox_events_position_seq', " + last + ")");
        insert(2);
    };
    insert(8);
    {
        Relay relay(config());
        relay.publish(positions(relay.read()));
        relay.settle(8);
    }
    // Not where only the next number was set by hand.
    pg_.exec("SELECT setval('outbox_events_position_seq', 9, false)");
    const auto operations = value_of(postgres::open_operations(config(), "public.outbox_events"));
    EXPECT_FALSE(value_of(operations->is_other_table()));
    restore("5");
    EXPECT_TRUE(value_of(operations->is_other_table()));
    EXPECT_EQ(value_of(operations->ledger_routes(true))[0].unfinished.count, 2);
    EXPECT_THAT(refusal(kDelete), HasSubstr("not the one that the ledgers of its routes"));
    EXPECT_EQ(kind(), "p");
    {
        Relay next(config());
        EXPECT_EQ(positions(next.read()), (std::vector<spi::Position>{6, 7}));
    }
    pg_.exec("UPDATE outbox_lease SET owner = NULL, expires_at = NULL");
    change(kDelete);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_events"), 2);
    {
        Relay relay(config(), {{"default", {}}, {"lags", {}}});
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {6, 7}});
        require(relay.recorder().record(batch));
    }
    EXPECT_FALSE(value_of(operations->is_other_table()));
    restore("3");
    EXPECT_TRUE(value_of(operations->is_other_table()));
    EXPECT_THAT(refusal(kKeep), HasSubstr("not the one that the ledgers of its routes"));
    EXPECT_EQ(kind(), "r");
    // Nothing is concluded by who may not ask how far they are.
    pg_.exec(
        "DROP ROLE IF EXISTS asks_nothing; CREATE ROLE asks_nothing LOGIN PASSWORD 'test'; GRANT "
        "SELECT ON ALL TABLES IN SCHEMA public TO asks_nothing");
    auto others = config();
    others.url.replace(others.url.find("postgres@"), 9, "asks_nothing@");
    EXPECT_FALSE(value_of(
        value_of(postgres::open_operations(others, "public.outbox_events"))->is_other_table()));
    pg_.exec("DROP OWNED BY asks_nothing; DROP ROLE asks_nothing");
}

TEST_F(LayoutChange, IsRefusedWhereTheOwnersThingsWouldBeLost) {
    pg_.exec(
        "ALTER TABLE outbox_events ADD COLUMN mine text; CREATE INDEX mine ON outbox_events (id); "
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE "
        "TRIGGER mine BEFORE INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION f(); CREATE "
        "POLICY mine ON outbox_events USING (true); CREATE VIEW mine_too AS SELECT id FROM "
        "outbox_events");
    EXPECT_THAT(refusal(kKeep),
                HasSubstr("column mine, index public.mine, policy mine, trigger mine, view "
                          "public.mine_too"));
    EXPECT_EQ(kind(), "r");
}

// Nothing of it would be lost by the table, and all of it without a word.
TEST_F(LayoutChange, IsRefusedWhereOthersWouldMissTheTable) {
    const std::vector<std::pair<std::string, std::string>> things{
        {"CREATE PUBLICATION theirs FOR TABLE outbox_events", "a place in publication theirs"},
        {"DROP PUBLICATION theirs; ALTER TABLE outbox_events REPLICA IDENTITY FULL",
         "a REPLICA IDENTITY"},
        {"ALTER TABLE outbox_events REPLICA IDENTITY DEFAULT; ALTER TABLE outbox_events ENABLE ROW "
         "LEVEL SECURITY",
         "row level security"},
        {"ALTER TABLE outbox_events DISABLE ROW LEVEL SECURITY; ALTER TABLE outbox_events SET "
         "(autovacuum_enabled = false)",
         "option autovacuum_enabled=false"},
        {"ALTER TABLE outbox_events RESET (autovacuum_enabled); CREATE STATISTICS mine ON topic, "
         "key FROM outbox_events",
         "statistics object public.mine"},
        {"DROP STATISTICS mine; CREATE VIEW waiting AS SELECT id FROM outbox_status",
         "view public.waiting"},
        {"DROP VIEW waiting; CREATE FUNCTION of_row(outbox_events) RETURNS text LANGUAGE sql AS "
         "'SELECT $1.topic'",
         "function public.of_row"},
        {"DROP FUNCTION of_row; CREATE TABLE log (what outbox_events[])", "public.log"}};
    for (const auto& [sql, said] : things) {
        pg_.exec(sql);
        EXPECT_THAT(refusal(kKeep),
                    HasSubstr("the table has " + (said == "public.log" ? "" : said)))
            << sql;
        EXPECT_THAT(refusal(kKeep), HasSubstr(said));
    }
    pg_.exec("DROP TABLE log; CREATE PUBLICATION of_all FOR ALL TABLES");
    EXPECT_THAT(refusal(kKeep), HasSubstr("ALTER PUBLICATION of_all SET"));
    pg_.exec(
        "ALTER PUBLICATION of_all SET (publish_via_partition_root = true); COMMENT ON TABLE "
        "outbox_events IS 'ours'");
    EXPECT_EQ(kind(), "r");
    for (const TableLayoutKind layout : {kKeep, kDelete, kKeep}) {
        change(layout);
        EXPECT_EQ(pg_.value("SELECT obj_description('outbox_events'::regclass)"), "ours");
    }
}

// It has stood by since before.
TEST_F(LayoutChange, ARelayThatOutlivesItSaysSo) {
    const auto source = value_of(postgres::make_postgres_source(config()));
    change(kKeep);
    const auto lease = value_of(source->open_lease());
    const std::uint64_t epoch = value_of(lease->acquire("late", std::chrono::hours(1))).value();
    source->begin_term();
    const auto recorder = value_of(source->open_recorder());
    const std::vector<spi::RouteName> routes{{"default", {}}};
    const auto begun = recorder->begin(epoch, routes);
    ASSERT_FALSE(begun.ok());
    EXPECT_EQ(begun.error().code, ErrorCode::kTableReset);
    EXPECT_THAT(begun.error().message, HasSubstr("layout of table"));
    require(lease->release(epoch));
}

TEST_F(LayoutChange, TakesTheEventsOfTenantsWhomNobodyServesAlong) {
    change(kKeep);
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload, tenant_id) VALUES ('t', '1', 'a'), ('t', '2', "
        "'b'), ('t', '3', 'a')");
    {
        auto of_a = config();
        of_a.tenants = {"a"};
        Relay relay(of_a);
        EXPECT_EQ(relay.read().size(), 2U);
        relay.publish({1, 3});
        relay.settle(3);
    }
    change(kDelete);
    EXPECT_EQ(pg_.value("SELECT string_agg(position || tenant_id, ',') FROM outbox_events"), "2b");
}

TEST_F(LayoutChange, IsRefusedWhereAnUnfinishedEventLiesBelowAllThatWasSettled) {
    change(kKeep);
    insert(3);
    {
        Relay relay(config());
        relay.read();
        relay.publish({1, 3});
        relay.settle(3);
    }
    EXPECT_THAT(refusal(kDelete), HasSubstr("the event at position 2 stands where all was"));
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_events"), 3);
}

TEST_F(LayoutChange, RolesKeepTheirRights) {
    pg_.exec(
        "DROP ROLE IF EXISTS layout_writer; CREATE ROLE layout_writer; GRANT INSERT (topic, "
        "payload) ON outbox_events TO layout_writer; GRANT SELECT ON outbox_status, "
        "outbox_events_position_seq TO layout_writer; GRANT TRUNCATE ON outbox_events TO "
        "layout_writer WITH GRANT OPTION");
    const auto rights = [&] {
        return pg_.value(
            "SELECT concat_ws(' ', has_column_privilege('layout_writer', 'outbox_events', 'topic', "
            "'INSERT'), has_column_privilege('layout_writer', 'outbox_events', 'key', 'INSERT'), "
            "has_table_privilege('layout_writer', 'outbox_events', 'SELECT'), "
            "has_table_privilege('layout_writer', 'outbox_events', 'TRUNCATE WITH GRANT OPTION'), "
            "has_table_privilege('layout_writer', 'outbox_status', 'SELECT'), "
            "has_sequence_privilege('layout_writer', 'outbox_events_position_seq', 'SELECT'))");
    };
    EXPECT_EQ(rights(), "t f f t t t");
    for (const TableLayoutKind kind : {kKeep, kDelete, kKeep}) {
        change(kind);
        EXPECT_EQ(rights(), "t f f t t t");
        pg_.exec("REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC");
        pg_.exec(
            "SET ROLE layout_writer; INSERT INTO outbox_events (topic, payload) VALUES ('t', '1'); "
            "RESET ROLE");
    }
    EXPECT_THROW(pg_.exec("SET ROLE layout_writer; SELECT nextval('outbox_segment')"),
                 std::runtime_error)
        << "a number beyond all segments would make every insert fail";
    pg_.exec("RESET ROLE; DROP OWNED BY layout_writer; DROP ROLE layout_writer");
}

TEST_F(LayoutChange, ThePublicationFollows) {
    const std::string published =
        "SELECT string_agg(tablename, ' ') FROM pg_publication_tables WHERE pubname = 'outbox'";
    EXPECT_EQ(pg_.value(published), "outbox_events");
    change(kKeep);
    EXPECT_EQ(pg_.value(published), "outbox_events");
    change(kDelete);
    EXPECT_EQ(pg_.value(published), "outbox_events");
}

TEST_F(LayoutChange, WorksInASchemaOfAnyNameAndForEachPayload) {
    pg_.exec(R"(CREATE SCHEMA "o'd%s \ d")");
    const std::string url = url_ + R"(?options=-csearch_path%3D%22o'd%25s%5C%20%5C%5C%5C%20d%22)";
    MigrateOptions options;
    options.layout = kKeep;
    options.payload = PayloadType::kBytea;
    migrate(url, options);
    Pg pg(url);
    pg.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '\\x00')");
    pg.exec(
        "SELECT outbox_segment_spare(64); UPDATE outbox_segments SET began_at = began_at - "
        "interval '1 "
        "day'; SELECT outbox_segment_turn('1 hour')");
    pg.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '\\x00')");
    EXPECT_EQ(pg.value("SELECT string_agg(segment::text, ' ' ORDER BY position) FROM "
                       "outbox_events"),
              "1 2");
    EXPECT_EQ(pg.value("SELECT why FROM outbox_segment_empty(1, '0 s')"), "waits");
    EXPECT_EQ(pg.number("SELECT unserved FROM outbox_unfinished('outbox_events_1', 100)"), 1);
    options.layout = kDelete;
    options.max_payload_bytes = 2'000;
    migrate(url, options);
    EXPECT_EQ(pg.number("SELECT count(*) FROM outbox_status WHERE status = 'PENDING'"), 2);
}

class LayoutOfAnOldServer : public LayoutChange {
    void SetUp() override {
        migrate(url_);
        if (!old_server()) GTEST_SKIP() << "for POSTGRES_VERSION=14";
    }
};

TEST_F(LayoutOfAnOldServer, IsDeleteAlone) {
    EXPECT_THAT(refusal(kKeep), HasSubstr("keep needs 15 or newer"));
    EXPECT_EQ(kind(), "r");
}

}  // namespace
}  // namespace outbox::test
