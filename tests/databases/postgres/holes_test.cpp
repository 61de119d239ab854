#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>

#include <outbox/producer/migrate.h>

#include "tests/databases/postgres/support.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

class Holes : public testing::TestWithParam<TableLayoutKind> {
  protected:
    void SetUp() override { migrate_to(url_, GetParam()); }

    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = postgres::Mode::kPolling;
        return config;
    }

    static std::string insert(const std::string& payload, const std::string& key = "k") {
        return "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', '" + key + "', '" +
               payload + "')";
    }

    static std::vector<std::string> payloads(Relay& relay) {
        std::vector<std::string> out;
        for (const spi::EventView& event : relay.read()) out.emplace_back(event.payload);
        return out;
    }

    static bool closed(const Relay& relay, spi::Position position) {
        return std::any_of(relay.closed().begin(), relay.closed().end(), [&](const auto& range) {
            return range.first <= position && position <= range.last;
        });
    }

    // Reads for so long that the writers are looked at several times.
    static void read_on(Relay& relay, spi::Position open_hole) {
        const auto until = std::chrono::steady_clock::now() + 150ms;
        while (std::chrono::steady_clock::now() < until) {
            ASSERT_THAT(payloads(relay), IsEmpty());
            ASSERT_FALSE(closed(relay, open_hole));
        }
    }

    static testing::AssertionResult closes(Relay& relay, spi::Position position) {
        return eventually(60s, "the hole is closed", [&] {
            EXPECT_THAT(payloads(relay), IsEmpty());
            return closed(relay, position);
        });
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

// The position is taken before the transaction has an id: no horizon of ids knows of this writer.
TEST_P(Holes, StayOpenForAnInsertHeldBetweenItsPositionAndItsTransactionId) {
    pg_.exec(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.key = 'held' THEN PERFORM pg_advisory_xact_lock(42); END IF; RETURN NEW; "
        "END $$; CREATE TRIGGER hold BEFORE INSERT ON outbox_events FOR EACH ROW EXECUTE "
        "FUNCTION hold()");
    // Every 32nd position is written to the log and for that takes an id; the next one does not.
    pg_.exec(insert("0"));
    Relay relay(config());
    EXPECT_THAT(payloads(relay), ElementsAre("0"));
    Pg gate(url_);
    gate.exec("SELECT pg_advisory_lock(42)");
    std::thread held([&] { Pg(url_).exec(insert("1", "held")); });
    ASSERT_TRUE(eventually(60s, "the insert waits", [&] {
        return pg_.number(
                   "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT "
                   "granted") == 1;
    }));
    // The server's own workers take ids, too.
    EXPECT_EQ(pg_.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                         "AND backend_type = 'client backend' AND backend_xid IS NOT NULL"),
              0);
    pg_.exec(insert("2"));
    EXPECT_THAT(payloads(relay), ElementsAre("2"));
    read_on(relay, 2);
    gate.exec("SELECT pg_advisory_unlock(42)");
    held.join();
    EXPECT_THAT(payloads(relay), ElementsAre("1"));
}

// By its own name, as PostgreSQL 17 allows where the root has the identity: the root is not locked.
TEST_P(Holes, StayOpenForAWriterOfAPartition) {
    pg_.exec(
        "CREATE TABLE events (position bigint GENERATED ALWAYS AS IDENTITY, id uuid DEFAULT "
        "gen_random_uuid(), payload jsonb, key text) PARTITION BY RANGE (position); "
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (100)");
    auto events = config();
    events.table = "events";
    events.mapping.columns["id"] = "id";
    events.after_publish = postgres::AfterPublish::kDelete;
    Relay relay(events);
    Pg late(url_);
    late.exec(
        "BEGIN; INSERT INTO events_1 (position, id, payload) OVERRIDING SYSTEM VALUE VALUES "
        "(nextval(pg_get_serial_sequence('events', 'position')), gen_random_uuid(), '1')");
    pg_.exec("INSERT INTO events (payload) VALUES ('2')");
    EXPECT_THAT(payloads(relay), ElementsAre("2"));
    read_on(relay, 1);
    late.exec("COMMIT");
    EXPECT_THAT(payloads(relay), ElementsAre("1"));
}

TEST_P(Holes, StayOpenForAPreparedTransaction) {
    Relay relay(config());
    pg_.exec("BEGIN; " + insert("1") + "; PREPARE TRANSACTION 'late'");
    pg_.exec(insert("2"));
    EXPECT_THAT(payloads(relay), ElementsAre("2"));
    read_on(relay, 1);
    pg_.exec("COMMIT PREPARED 'late'");
    EXPECT_THAT(payloads(relay), ElementsAre("1"));
}

TEST_P(Holes, StayOpenForATransactionThatIsPreparedWhileTheyAreWatched) {
    Relay relay(config());
    Pg late(url_);
    late.exec("BEGIN; " + insert("1"));
    pg_.exec(insert("2"));
    EXPECT_THAT(payloads(relay), ElementsAre("2"));
    read_on(relay, 1);
    late.exec("PREPARE TRANSACTION 'turned'");
    read_on(relay, 1);
    pg_.exec("COMMIT PREPARED 'turned'");
    EXPECT_THAT(payloads(relay), ElementsAre("1"));
}

// A crash ends the term; the next one finds a hole for which nobody but the survivor answers, whom
// the server knows under another name since.
TEST(HolesOfACrash, StayOpenForAPreparedTransactionThatSurvivedIt) {
    PostgresServer server;
    const std::string url = server.create_database();
    migrate(url);
    postgres::PostgresSourceConfig config;
    config.url = url;
    config.mode = postgres::Mode::kPolling;
    const auto insert = [](const char* payload) {
        return std::string("INSERT INTO outbox_events (topic, payload) VALUES ('t', '") + payload +
               "')";
    };
    const auto read_for = [](Relay& relay, std::chrono::milliseconds time) {
        const auto until = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < until) ASSERT_TRUE(relay.read().empty());
    };
    Pg(url).exec("BEGIN; " + insert("1") + "; PREPARE TRANSACTION 'survivor'");
    Pg(url).exec(insert("2"));
    {
        Relay relay(config);
        EXPECT_EQ(relay.read().size(), 1U);
        read_for(relay, 100ms);
        server.stop(PostgresServer::Stop::kImmediate);
        spi::EventBatch lost;
        EXPECT_FALSE(relay.reader().read(kAll, lost).ok());
        server.start();
        EXPECT_TRUE(eventually(60s, "the term ends", [&] {
            const Status status = relay.reader().read(kAll, lost);
            return !status.ok() && status.error().code == ErrorCode::kServerChanged;
        }));
    }
    Relay relay(config);
    const auto again = relay.read();
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].payload, "2");
    read_for(relay, 150ms);
    EXPECT_TRUE(relay.closed().empty());
    Pg(url).exec("COMMIT PREPARED 'survivor'");
    const auto late = relay.read();
    ASSERT_EQ(late.size(), 1U);
    EXPECT_EQ(late[0].payload, "1");
}

TEST_P(Holes, AreClosedWhenAPreparedTransactionIsRolledBack) {
    Relay relay(config());
    pg_.exec("BEGIN; " + insert("1") + "; PREPARE TRANSACTION 'never'");
    pg_.exec(insert("2"));
    EXPECT_THAT(payloads(relay), ElementsAre("2"));
    read_on(relay, 1);
    pg_.exec("ROLLBACK PREPARED 'never'");
    EXPECT_TRUE(closes(relay, 1));
}

TEST_P(Holes, AreClosedWhileLaterWritersGoOn) {
    Relay relay(config());
    pg_.exec("BEGIN; " + insert("1") + "; ROLLBACK");
    pg_.exec(insert("2"));
    EXPECT_THAT(payloads(relay), ElementsAre("2"));
    read_on(relay, 99);
    // There is always a writer, but never one that was there when the hole was first seen.
    Pg first(url_);
    Pg second(url_);
    first.exec("BEGIN; " + insert("3"));
    EXPECT_TRUE(eventually(60s, "the hole is closed", [&] {
        second.exec("BEGIN; " + insert("4"));
        static_cast<void>(payloads(relay));
        first.exec("COMMIT; BEGIN; " + insert("5"));
        second.exec("COMMIT");
        static_cast<void>(payloads(relay));
        return closed(relay, 1);
    }));
}

TEST_P(Holes, LeftByASavepointAreClosedAfterTheTransaction) {
    Relay relay(config());
    Pg writer(url_);
    writer.exec("BEGIN; " + insert("1") + "; SAVEPOINT s; " + insert("2") +
                "; ROLLBACK TO SAVEPOINT s; " + insert("3") + "; COMMIT");
    EXPECT_THAT(payloads(relay), ElementsAre("1", "3"));
    EXPECT_TRUE(closes(relay, 2));
}

TEST_P(Holes, BelowTheFirstRowMayStillBeFilled) {
    Pg late(url_);
    late.exec("BEGIN; " + insert("1"));
    pg_.exec(insert("2"));
    Relay relay(config());
    EXPECT_THAT(payloads(relay), ElementsAre("2"));
    read_on(relay, 1);
    late.exec("COMMIT");
    EXPECT_THAT(payloads(relay), ElementsAre("1"));
}

TEST_P(Holes, KeepNoEventBackHoweverManyThereAre) {
    // Every other row is gone: 15,000 holes, none of which is closed while a writer lives.
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM "
        "generate_series(1, 30000); DELETE FROM outbox_events WHERE position % 2 = 1");
    Relay relay(config());
    Pg writer(url_);
    writer.exec("BEGIN; " + insert("2"));
    std::size_t events = 0;
    while (const std::size_t got = relay.read({500, 1U << 20}).size()) events += got;
    EXPECT_EQ(events, 15'000U);
    // Later ones come as they are written, and each after what was committed before it.
    std::string seen;
    const auto next = [&] {
        return eventually(60s, "the next event is read", [&] {
            for (const spi::EventView& event : relay.read()) seen += event.payload;
            return !seen.empty();
        });
    };
    for (int i = 0; i < 50; ++i) {
        pg_.exec(insert("3"));
        seen.clear();
        ASSERT_TRUE(next());
        EXPECT_EQ(seen, "3");
    }
    writer.exec("COMMIT");
    pg_.exec(insert("4"));
    seen.clear();
    ASSERT_TRUE(next());
    EXPECT_EQ(seen, "24");
}

// A relay that starts finds a range for each of them: far more than one read looks at.
TEST_P(Holes, AreOpenAmongManyRowsOfOtherTenantsWhileARouteLags) {
    const auto insert_rows = [&](const std::string& key, int count) {
        pg_.exec("INSERT INTO outbox_events (topic, key, tenant_id, payload) SELECT 't', '" + key +
                 "', CASE WHEN n % 2 = 0 THEN 'beta' ELSE 'acme' END, to_jsonb(n) FROM "
                 "generate_series(1, " +
                 std::to_string(count) + ") n");
    };
    auto acme = config();
    acme.tenants = {"acme"};
    const std::vector<spi::RouteName> routes{{"default", {}}, {"lags", {}}};
    insert_rows("below", 20'000);
    Pg late(shared_postgres().with_password(url_));
    late.exec("BEGIN");
    late.exec("INSERT INTO outbox_events (topic, tenant_id, payload) VALUES ('t', 'acme', '0')");
    const auto hole = late.number("SELECT currval('outbox_events_position_seq')");
    insert_rows("above", 20'000);
    std::vector<spi::Position> unfinished;
    {
        Relay relay(acme, routes);
        std::vector<spi::Position> finished;
        for (auto events = relay.read(); !events.empty(); events = relay.read()) {
            for (const spi::EventView& event : events) {
                const bool left = event.position % 1'000 == 501 || event.position % 2'000 == 1'003;
                (left ? unfinished : finished).push_back(event.position);
            }
        }
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, finished});  // and the rows stay, for the other route
        require(relay.recorder().record(batch));
    }
    ASSERT_GT(unfinished.size(), 20U);
    // Of few events or few bytes at once, and all at once.
    for (const spi::ReadLimits& limits :
         {kAll, spi::ReadLimits{7, 1U << 20}, spi::ReadLimits{1'000, 500}}) {
        Relay relay(acme, routes);
        std::vector<spi::Position> got;
        for (auto events = relay.read(limits); !events.empty(); events = relay.read(limits)) {
            for (const spi::EventView& event : events) got.push_back(event.position);
        }
        EXPECT_EQ(got, unfinished);
        EXPECT_FALSE(closed(relay, hole));
        EXPECT_TRUE(closed(relay, 2));
        EXPECT_TRUE(closed(relay, hole - 1));
        EXPECT_TRUE(closed(relay, hole + 20'000));
        for (const spi::Position position : unfinished) EXPECT_FALSE(closed(relay, position));
    }
    Relay relay(acme, routes);
    for (auto events = relay.read(); !events.empty(); events = relay.read()) {
    }
    late.exec("COMMIT");
    EXPECT_THAT(payloads(relay), ElementsAre("0"));
    EXPECT_THAT(payloads(relay), IsEmpty());
}

// Writers of a key serialise by a row lock before they insert; some roll back, some use
// savepoints, and the reader publishes while they write.
TEST_P(Holes, NeverCostAnEventNorTheOrderOfItsKey) {
    constexpr int kKeys = 5;
    constexpr int kWriters = 4;
    constexpr int kTurns = 150;
    pg_.exec("CREATE TABLE counters (key text PRIMARY KEY, n integer NOT NULL DEFAULT 0)");
    for (int key = 0; key < kKeys; ++key) {
        pg_.exec("INSERT INTO counters VALUES ('" + std::to_string(key) + "')");
    }
    std::atomic<int> writing{kWriters};
    std::vector<std::thread> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
        writers.emplace_back([&, writer] {
            Pg pg(url_);
            std::mt19937 random(static_cast<unsigned>(writer));
            for (int turn = 0; turn < kTurns; ++turn) {
                const std::string key = std::to_string(random() % kKeys);
                const std::string event =
                    "INSERT INTO outbox_events (topic, key, payload) SELECT 't', key, to_jsonb(n) "
                    "FROM counters WHERE key = '" +
                    key + "'";
                pg.exec("BEGIN; UPDATE counters SET n = n + 1 WHERE key = '" + key + "'");
                if (random() % 4 == 0) {
                    pg.exec("SAVEPOINT s; " + event + "; ROLLBACK TO SAVEPOINT s");
                }
                pg.exec(event);
                if (random() % 8 == 0) pg.exec("SELECT pg_sleep(0.003)");
                pg.exec(random() % 5 == 0 ? "ROLLBACK" : "COMMIT");
            }
            --writing;
        });
    }
    Relay relay(config());
    std::map<std::string, int> last;
    int events = 0;
    bool ended = false;
    while (!ended) {
        ended = writing == 0;
        std::vector<spi::Position> positions;
        for (const spi::EventView& event : relay.read({50, 1U << 20})) {
            const int n = std::stoi(std::string(event.payload));
            EXPECT_EQ(n, ++last[std::string(event.key)]) << "key " << event.key;
            positions.push_back(event.position);
            ended = false;
        }
        events += static_cast<int>(positions.size());
        if (!positions.empty()) relay.publish(positions);
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(events, pg_.number("SELECT sum(n) FROM counters"));
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_status WHERE status <> 'PUBLISHED'"), 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Holes, kEachLayout, name_of_layout);

}  // namespace
}  // namespace outbox::test
