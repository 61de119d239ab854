// Adopted tables whose numbers come again: what is remembered of the old rows is not the new ones'.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "databases/postgres/source/operations.h"
#include "databases/postgres/source/trace.h"
#include "tests/databases/postgres/support.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/pg.h"

namespace outbox::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kAnew = "TRUNCATE \"OutboxMessages\" RESTART IDENTITY";
constexpr const char* kSequence = "pg_get_serial_sequence('\"OutboxMessages\"', 'Id')";

class NumbersThatComeAgain : public testing::Test {
  protected:
    void SetUp() override { pg_.exec(kCamelCaseTable); }

    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.table = "OutboxMessages";
        return config;
    }
    void insert(const std::string& content, int count) {
        pg_.exec("INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") SELECT 'Made', '" +
                 content + "' FROM generate_series(1, " + std::to_string(count) + ")");
    }
    static inline const std::vector<spi::RouteName> kRoutes{{"default", {}}, {"far", {}}};
    // The route "default" has finished all, and "far" lags.
    static void finish_here(Relay& relay) {
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {}});
        for (const auto& event : relay.read())
            batch.finished[0].positions.push_back(event.position);
        require(relay.recorder().record(batch));
    }
    static std::vector<std::string> payloads(const std::vector<spi::EventView>& events) {
        std::vector<std::string> out;
        for (const auto& event : events) out.emplace_back(event.payload);
        return out;
    }
    std::int64_t unfinished() {
        return pg_.number("SELECT count(*) FROM \"OutboxMessages\" WHERE NOT \"Processed\"");
    }
    std::string letters() {
        std::string out;
        for (const Pg::Row& row :
             pg_.query("SELECT id || '=' || convert_from(payload, 'utf8') FROM outbox_dead_letters "
                       "ORDER BY dead_id")) {
            out += (out.empty() ? "" : " ") + row[0].value_or("");
        }
        return out;
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

TEST_F(NumbersThatComeAgain, AreNewEventsInATableThatBeganAnewWhileNoRelayRan) {
    insert("old", 3);
    {
        Relay relay(config(), kRoutes);
        finish_here(relay);
    }
    pg_.exec(kAnew);
    insert("new", 2);
    Relay next(config(), kRoutes);
    EXPECT_THAT(payloads(next.read()), ElementsAre("new", "new"));
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_route_done"), 0);
}

// As whoever asks what the routes have finished sees it.
TEST_F(NumbersThatComeAgain, AreNotTakenForOldOnesByAnyCommand) {
    std::unique_ptr<Operations> operations;
    const auto finish_all = [&] {
        insert("old", 3);
        Relay relay(config(), kRoutes);
        finish_here(relay);
        pg_.exec("UPDATE outbox_lease SET owner = NULL, expires_at = NULL");
    };
    const auto unfinished_of = [&](const std::string& name) {
        for (const LedgerRoute& route : value_of(operations->ledger_routes(true))) {
            if (route.name == name) return route.unfinished.count;
        }
        return std::int64_t{-1};
    };
    const auto near_has_finished = [&](const std::string& id) {
        const auto found = value_of(value_of(postgres::open_tracer(config()))->find(id));
        EXPECT_EQ(found.size(), 1U);
        return found.at(0).routes.at(0).finished;
    };
    for (const std::string& anew :
         {std::string(kAnew), std::string("DELETE FROM \"OutboxMessages\"; SELECT setval(") +
                                  kSequence + ", 1, false)"}) {
        finish_all();
        operations = value_of(postgres::open_operations(config(), "public.OutboxMessages"));
        EXPECT_FALSE(value_of(operations->is_other_table()));
        EXPECT_EQ(unfinished_of("default"), 0);
        const std::string id = pg_.value("SELECT min(\"Id\") FROM \"OutboxMessages\"");
        EXPECT_TRUE(near_has_finished(id));
        pg_.exec(anew);
        insert("new", 2);
        EXPECT_TRUE(value_of(operations->is_other_table())) << anew;
        EXPECT_EQ(unfinished_of("default"), 2);
        EXPECT_FALSE(near_has_finished("1"));
        const auto asked = operations->unfinished_of_tenant("default");
        ASSERT_FALSE(asked.ok());
        EXPECT_EQ(asked.error().code, ErrorCode::kTableReset);
        EXPECT_THAT(payloads(Relay(config(), kRoutes).read()), ElementsAre("new", "new"));
        EXPECT_FALSE(value_of(operations->is_other_table()));
        pg_.exec("TRUNCATE \"OutboxMessages\"; UPDATE outbox_lease SET owner = NULL");
    }
}

// What a destination remembers of the ids goes by it.
TEST_F(NumbersThatComeAgain, MakeAnotherProducerOfEachRoute) {
    const auto producers = [&](const std::vector<spi::RouteName>& routes = kRoutes) {
        return Relay(config(), routes).producers();
    };
    std::set<std::string> all;
    const auto add = [&](const std::vector<std::string>& more) {
        all.insert(more.begin(), more.end());
    };
    const auto first = producers();
    EXPECT_EQ(producers(), first) << "of the same life";
    add(first);
    EXPECT_EQ(all.size(), 2U);
    pg_.exec(kAnew);
    add(producers());
    EXPECT_EQ(all.size(), 4U) << "numbers begun anew";
    pg_.exec("DROP TABLE \"OutboxMessages\"");
    pg_.exec(kCamelCaseTable);
    const auto last = producers();
    add(last);
    EXPECT_EQ(all.size(), 6U) << "another table";
    // As `routes rename` does.
    pg_.exec("UPDATE outbox_routes SET route = 'near' WHERE route = 'default'");
    EXPECT_EQ(producers({{"near", {}}, {"far", {}}}), last);
    // As `routes retire` does.
    pg_.exec("DELETE FROM outbox_routes WHERE route = 'near'");
    const auto made_anew = producers({{"near", {}}, {"far", {}}});
    add(made_anew);
    EXPECT_EQ(all.size(), 7U) << "a route made anew";
    EXPECT_EQ(made_anew[1], last[1]);
    pg_.exec("UPDATE outbox_routes SET since = '2026-01-01'");
    add(producers({{"near", {}}, {"far", {}}}));
    EXPECT_EQ(all.size(), 9U) << "begun in one instant";
    const std::string other = shared_postgres().create_database();
    Pg(other).exec(kCamelCaseTable);
    auto there = config();
    there.url = other;
    add(Relay(there, kRoutes).producers());
    EXPECT_EQ(all.size(), 11U) << "another database";
}

TEST_F(NumbersThatComeAgain, AreNewEventsInATableThatWasMadeAnew) {
    insert("old", 3);
    {
        Relay relay(config(), kRoutes);
        finish_here(relay);
    }
    pg_.exec("DROP TABLE \"OutboxMessages\"");
    pg_.exec(kCamelCaseTable);
    insert("new", 2);
    Relay next(config(), kRoutes);
    ASSERT_EQ(next.notes().size(), 1U);
    EXPECT_THAT(next.notes()[0], HasSubstr("began anew"));
    EXPECT_THAT(payloads(next.read()), ElementsAre("new", "new"));
}

TEST_F(NumbersThatComeAgain, FromASequenceOfTheTeamsOwnAreNewEventsToo) {
    pg_.exec(
        "CREATE SEQUENCE ids; ALTER TABLE \"OutboxMessages\" ALTER \"Id\" DROP IDENTITY, ALTER "
        "\"Id\" SET DEFAULT nextval('ids')");
    insert("old", 3);
    {
        Relay relay(config(), kRoutes);
        finish_here(relay);
    }
    pg_.exec("TRUNCATE \"OutboxMessages\"; ALTER SEQUENCE ids RESTART");
    insert("new", 2);
    Relay next(config(), kRoutes);
    EXPECT_THAT(payloads(next.read()), ElementsAre("new", "new"));
}

TEST_F(NumbersThatComeAgain, GivenByTheTeamsProgramAreNewEventsInATableThatWasTruncated) {
    pg_.exec("ALTER TABLE \"OutboxMessages\" ALTER \"Id\" DROP IDENTITY");
    const auto write = [&](const std::string& content) {
        pg_.exec(
            "INSERT INTO \"OutboxMessages\" (\"Id\", \"EventType\", \"Payload\") VALUES (1, "
            "'Made', '" +
            content + "'), (2, 'Made', '" + content + "')");
    };
    write("old");
    {
        Relay relay(config(), kRoutes);
        finish_here(relay);
    }
    pg_.exec("TRUNCATE \"OutboxMessages\"");
    write("new");
    Relay next(config(), kRoutes);
    EXPECT_THAT(payloads(next.read()), ElementsAre("new", "new"));
}

TEST_F(NumbersThatComeAgain, FromASequenceThatWasSetBackAreNewEvents) {
    insert("old", 5);
    {
        Relay relay(config(), kRoutes);
        finish_here(relay);
    }
    pg_.exec(std::string("DELETE FROM \"OutboxMessages\"; SELECT setval(") + kSequence +
             ", 1, false)");
    insert("new", 2);
    Relay next(config(), kRoutes);
    EXPECT_THAT(payloads(next.read()), ElementsAre("new", "new"));
}

TEST_F(NumbersThatComeAgain, EndTheTermOfARunningRelayBeforeItFinishesNewRowsForOldOnes) {
    insert("old", 3);
    Relay relay(config());
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    pg_.exec(kAnew);
    insert("new", 3);
    spi::RecordBatch batch = relay.fresh();
    batch.finished.push_back({0, {events[0].position, events[1].position}});
    const Status refused = relay.recorder().record(batch);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(unfinished(), 3);
    EXPECT_EQ(relay.recorder().tidy(relay.epoch()).status().error().code,
              ErrorCode::kServerChanged);
    relay.end();
    Relay next(config());
    EXPECT_THAT(payloads(next.read()), ElementsAre("new", "new", "new"));
}

TEST_F(NumbersThatComeAgain, AreSeenByARelayThatHasNothingToDo) {
    insert("old", 3);
    Relay relay(config(), kRoutes);
    finish_here(relay);
    EXPECT_TRUE(relay.recorder().tidy(relay.epoch()).ok());
    pg_.exec(kAnew);
    insert("new", 2);
    const auto tidied = relay.recorder().tidy(relay.epoch());
    ASSERT_FALSE(tidied.ok());
    EXPECT_EQ(tidied.error().code, ErrorCode::kServerChanged);
}

TEST_F(NumbersThatComeAgain, TakeNoLetterOfAnOldEvent) {
    insert("old", 2);
    {
        Relay relay(config());
        const auto events = relay.read();
        relay.die(events[0], 1);
        relay.die(events[1], 1);
    }
    pg_.exec(kAnew);
    insert("new", 2);
    Relay next(config());
    const auto events = next.read();
    ASSERT_EQ(events.size(), 2U);
    next.publish({events[0].position});
    next.die(events[1], 1);
    EXPECT_EQ(letters(),
              "public.OutboxMessages:1~1=old public.OutboxMessages:2~2=old "
              "public.OutboxMessages:2=new");
    // The old ones can be retried, and name no row.
    spi::RecordBatch batch = next.fresh();
    batch.redelivered = {1, 2};
    require(next.recorder().record(batch));
    EXPECT_EQ(letters(), "public.OutboxMessages:2=new");
}

TEST_F(NumbersThatComeAgain, AreNoneWhereTheTableWasOnlyRewritten) {
    insert("old", 3);
    {
        Relay relay(config(), kRoutes);
        finish_here(relay);
    }
    pg_.exec("VACUUM FULL \"OutboxMessages\"");
    pg_.exec("ALTER TABLE \"OutboxMessages\" ALTER \"Payload\" TYPE varchar(100)");
    Relay next(config(), kRoutes);
    EXPECT_THAT(next.notes(), IsEmpty());
    EXPECT_THAT(next.read(), IsEmpty());
}

}  // namespace
}  // namespace outbox::test
