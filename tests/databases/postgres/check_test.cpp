// What `relay --check` says of an outbox table, and what keeps a relay from starting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include <outbox/producer/migrate.h>

#include "tests/databases/postgres/support.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/eventually.h"
#include "tests/support/pg.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CheckOfPostgres : public testing::Test {
  protected:
    ~CheckOfPostgres() override {
        if (role_.empty()) return;
        pg_.exec("DROP OWNED BY " + role_ + "; DROP ROLE " + role_);
    }
    postgres::PostgresSourceConfig config(const std::string& table = "outbox_events") const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.table = table;
        config.mode = postgres::Mode::kPolling;
        return config;
    }
    std::string check(postgres::PostgresSourceConfig config, bool only_problems = true) const {
        config.make_side_tables = false;
        return findings(*value_of(postgres::make_postgres_source(config)), only_problems);
    }
    // One that may do all but what a test is about.
    postgres::PostgresSourceConfig of_role(postgres::PostgresSourceConfig config) {
        role_ = "relay_of_" + url_.substr(url_.rfind('/') + 1);
        pg_.exec("CREATE ROLE " + role_ + " LOGIN PASSWORD 'test'; GRANT ALL ON SCHEMA public TO " +
                 role_ + "; GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role_);
        const auto at = config.url.find("//") + 2;
        config.url.replace(at, config.url.find('@') - at, role_ + ":test");
        return config;
    }
    static std::string refusal(const postgres::PostgresSourceConfig& config) {
        try {
            Relay relay(config);
            relay.read();
        } catch (const std::runtime_error& error) {
            return error.what();
        }
        return {};
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
    std::string role_;
};

TEST_F(CheckOfPostgres, SaysWhereIdsAreNotUnique) {
    pg_.exec(kPendingPublishedTable);
    EXPECT_EQ(check(config("outbox")), "");
    pg_.exec("ALTER TABLE outbox DROP CONSTRAINT outbox_pkey");
    pg_.exec("CREATE UNIQUE INDEX ON outbox (id) WHERE status = 'PENDING'");
    pg_.exec("CREATE UNIQUE INDEX ON outbox (id, created_at)");
    EXPECT_THAT(check(config("outbox")),
                AllOf(HasSubstr("two rows of one id are one event"),
                      HasSubstr("CREATE UNIQUE INDEX CONCURRENTLY ON \"public\".\"outbox\" "
                                "(\"id\")")));
    {
        Relay relay(config("outbox"));
        ASSERT_EQ(relay.notes().size(), 1U);
        EXPECT_THAT(relay.notes()[0], HasSubstr("two rows of one id are one event"));
    }
    pg_.exec("CREATE UNIQUE INDEX ON outbox (id)");
    EXPECT_EQ(check(config("outbox")), "");
}

TEST_F(CheckOfPostgres, TwoEventsOfOneIdThatDieHaveALetterEach) {
    migrate(url_);
    pg_.exec(
        "INSERT INTO outbox_events (id, topic, key, payload) SELECT "
        "'00000000-0000-7000-8000-000000000001', 't', 'k', n::text::jsonb FROM "
        "generate_series(1, 2) n");
    Relay relay(config());
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 2U);
    relay.die(events[0], 1);
    relay.die(events[1], 1);
    relay.die(events[1], 1);  // recorded again, as after an unknown outcome
    EXPECT_EQ(pg_.number("SELECT count(DISTINCT payload) FROM outbox_dead_letters"), 2);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_dead_letters"), 2);
}

TEST_F(CheckOfPostgres, ARelayThatMayNotAskTheSequenceDoesNotStart) {
    migrate(url_);
    const auto limited = of_role(config());
    const std::string grant =
        "GRANT SELECT ON SEQUENCE public.outbox_events_position_seq TO \"" + role_ + "\"";
    EXPECT_THAT(check(limited), HasSubstr(grant));
    EXPECT_THAT(refusal(limited), AllOf(HasSubstr("OB_NO_RIGHTS"), HasSubstr(grant)));
    pg_.exec(grant);
    EXPECT_EQ(check(limited), "");
    EXPECT_EQ(refusal(limited), "");
}

TEST_F(CheckOfPostgres, ARelayFromWhichRowSecurityHidesEventsDoesNotStart) {
    migrate(url_);
    const auto limited = of_role(config());
    pg_.exec("GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO " + role_);
    EXPECT_EQ(check(limited), "");
    pg_.exec(
        "ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON "
        "outbox_events USING (tenant_id = 'a')");
    EXPECT_EQ(check(config()), "") << "a superuser sees all";
    EXPECT_THAT(check(limited), AllOf(HasSubstr("row security"), HasSubstr("CREATE POLICY")));
    EXPECT_THAT(refusal(limited), AllOf(HasSubstr("OB_NO_RIGHTS"), HasSubstr("row security")));
    pg_.exec("CREATE POLICY sees ON outbox_events FOR SELECT TO " + role_ + " USING (true)");
    EXPECT_THAT(check(limited), HasSubstr("row security")) << "and may not remove";
    for (const std::string policy : {"removes ON outbox_events FOR DELETE TO $ USING (true)",
                                     "locks ON outbox_events FOR UPDATE TO $ USING (true)",
                                     "moves ON outbox_events FOR INSERT TO $ WITH CHECK (true)"}) {
        EXPECT_THAT(check(limited), HasSubstr("row security")) << policy;
        pg_.exec("CREATE POLICY " + std::regex_replace(policy, std::regex("\\$"), role_));
    }
    EXPECT_EQ(check(limited), "");
    pg_.exec("CREATE POLICY narrow ON outbox_events AS RESTRICTIVE USING (tenant_id = 'a')");
    EXPECT_THAT(check(limited), HasSubstr("row security"));
    for (const std::string policy : {"narrow", "sees", "removes", "locks", "moves"}) {
        pg_.exec("DROP POLICY " + policy + " ON outbox_events");
    }
    pg_.exec("CREATE POLICY relays ON outbox_events TO " + role_ + " USING (true)");
    EXPECT_EQ(refusal(limited), "");
}

// A trigger of the owner's may meet policies of others, which are to stay what they are.
TEST_F(CheckOfPostgres, WhatRowSecurityHidesFromARunningRelayIsAnErrorAndIsNotGone) {
    migrate(url_);
    const auto limited = of_role(config());
    pg_.exec("GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO " + role_ +
             "; INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', '1' FROM "
             "generate_series(1, 3); CREATE POLICY own ON outbox_events USING (tenant_id = 'a'); "
             "CREATE FUNCTION looks() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'");
    for (const bool triggers : {false, true}) {
        if (triggers) {
            pg_.exec(
                "CREATE TRIGGER looks BEFORE DELETE ON outbox_events FOR EACH ROW EXECUTE "
                "FUNCTION looks()");
        }
        Relay relay(limited);
        const auto events = relay.read();
        ASSERT_EQ(events.size(), triggers ? 2U : 3U);
        const spi::Position first = events[0].position;
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {first}});
        require(relay.recorder().record(batch));
        pg_.exec("ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY");
        spi::EventBatch hidden;
        const Status read = relay.reader().read(kAll, hidden);
        ASSERT_FALSE(read.ok());
        EXPECT_EQ(read.error().code, ErrorCode::kNoRights) << describe(read.error());
        EXPECT_EQ(read.error().advice, Advice::kStop);
        ErrorInfo error;
        std::vector<spi::Position> positions{first};
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "its removal fails", [&] {
            const auto removed = relay.recorder().remove(relay.epoch(), positions);
            positions.clear();
            if (removed.ok()) return false;
            error = removed.error();
            return true;
        }));
        EXPECT_EQ(error.code, ErrorCode::kNoRights) << describe(error);
        relay.end();
        EXPECT_THAT(refusal(limited), HasSubstr("row security"));
        pg_.exec("ALTER TABLE outbox_events DISABLE ROW LEVEL SECURITY");
        Relay next(limited);
        EXPECT_EQ(next.read().size(), triggers ? 1U : 2U) << "it is finished";
        EXPECT_EQ(next.remove({first}), 0U);
    }
}

TEST_F(CheckOfPostgres, ARelayFromWhichRowSecurityHidesASideTableDoesNotStart) {
    migrate(url_);
    const auto limited = of_role(config());
    pg_.exec("GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO " + role_);
    ASSERT_EQ(refusal(limited), "");
    for (const std::string table :
         {"outbox_dead_letters", "outbox_delivery", "outbox_lease", "outbox_ledger",
          "outbox_paused_tenants", "outbox_routes", "outbox_scheduled"}) {
        pg_.exec("ALTER TABLE " + table + " ENABLE ROW LEVEL SECURITY");
        EXPECT_THAT(check(limited), HasSubstr("row security of \"public\"." + table));
        EXPECT_THAT(refusal(limited), AllOf(HasSubstr("OB_NO_RIGHTS"), HasSubstr(table)));
        pg_.exec("CREATE POLICY outbox ON " + table + " TO " + role_ + " USING (true)");
        EXPECT_EQ(check(limited), "") << table;
        pg_.exec("DROP POLICY outbox ON " + table + "; ALTER TABLE " + table +
                 " DISABLE ROW LEVEL SECURITY");
    }
    EXPECT_EQ(refusal(limited), "");
}

TEST_F(CheckOfPostgres, ARuleInPlaceOfARemovalIsNamedWithItsRemedy) {
    migrate(url_);
    pg_.exec("CREATE RULE keeps AS ON DELETE TO outbox_events DO INSTEAD NOTHING");
    const std::string drop = "DROP RULE keeps ON \"public\".\"outbox_events\"";
    EXPECT_THAT(check(config()), HasSubstr(drop));
    pg_.exec(drop + "; CREATE RULE other AS ON UPDATE TO outbox_events DO INSTEAD NOTHING");
    EXPECT_EQ(check(config()), "") << "the relay updates no row of this table";
}

TEST_F(CheckOfPostgres, WhatKeepsRowsOrEndsTheirNumbersIsNamedWithItsRemedy) {
    migrate(url_);
    const std::string sound = check(config(), false);
    EXPECT_THAT(sound, Not(testing::AnyOf(HasSubstr("numbers: "), HasSubstr("references: "))));
    pg_.exec(
        "ALTER SEQUENCE outbox_events_position_seq MAXVALUE 1000 CYCLE; "
        "CREATE TABLE audit (of bigint CONSTRAINT of_event REFERENCES outbox_events (position)); "
        "CREATE TABLE notes (of bigint REFERENCES outbox_events (position) ON DELETE CASCADE)");
    const std::string cycle = "ALTER SEQUENCE public.outbox_events_position_seq NO CYCLE";
    const std::string end = "ALTER SEQUENCE public.outbox_events_position_seq NO MAXVALUE";
    const std::string keeps = "ALTER TABLE public.audit DROP CONSTRAINT of_event";
    EXPECT_THAT(check(config()), AllOf(HasSubstr(cycle), HasSubstr("outbox routes continue")))
        << "a problem, whose mend a relay takes for another table";
    EXPECT_THAT(check(config(), false),
                AllOf(HasSubstr(end), HasSubstr(keeps), Not(HasSubstr("notes"))));
    pg_.exec(end);
    EXPECT_THAT(check(config(), false), AllOf(HasSubstr(cycle), Not(HasSubstr("ends at"))));
    pg_.exec(cycle + ";" + keeps);
    EXPECT_EQ(check(config(), false), sound);
}

TEST_F(CheckOfPostgres, SaysWhatTheTimeOfAnAdoptedTableIsWorthForItsOrder) {
    pg_.exec(kPendingPublishedTable);
    EXPECT_THAT(check(config("outbox"), false), Not(HasSubstr("promise 2")));
    pg_.exec("ALTER TABLE outbox ALTER created_at SET DEFAULT now()");
    EXPECT_THAT(
        check(config("outbox"), false),
        AllOf(HasSubstr("is by default when the transaction began"), HasSubstr("promise 2")));
    pg_.exec("ALTER TABLE outbox ALTER created_at SET DEFAULT CURRENT_TIMESTAMP");
    EXPECT_THAT(check(config("outbox"), false), HasSubstr("when the transaction began"));
    pg_.exec(
        "ALTER TABLE outbox ALTER created_at SET DEFAULT clock_timestamp(), ALTER created_at "
        "TYPE timestamp(0)");
    EXPECT_THAT(check(config("outbox"), false),
                AllOf(HasSubstr("to 0 digits of a second"), HasSubstr("promise 2")));
    pg_.exec("ALTER TABLE outbox ALTER created_at DROP DEFAULT, ALTER created_at TYPE date");
    EXPECT_THAT(check(config("outbox"), false), HasSubstr("to a day"));
}

TEST_F(CheckOfPostgres, TheIndexOfDeadLettersIsMadeAnewOrRefused) {
    migrate(url_);
    pg_.exec("DROP INDEX outbox_dead_letters_event, outbox_delivery_position");
    EXPECT_THAT(check(config(), false),
                AllOf(HasSubstr("outbox_dead_letters_event are missing; the relay makes them"),
                      HasSubstr("without outbox_delivery_position")));
    EXPECT_THAT(check(of_role(config())), HasSubstr("may not create them; have an owner run"));
    pg_.exec("CREATE TABLE mine (a int); CREATE INDEX outbox_dead_letters_event ON mine (a)");
    const char* taken =
        "index outbox_dead_letters_event is of table public.mine, not of outbox_dead_letters";
    EXPECT_THAT(check(config()), HasSubstr(taken));
    EXPECT_THAT(refusal(config()), HasSubstr(taken));
    pg_.exec("ALTER INDEX outbox_dead_letters_event RENAME TO mine_a");
    EXPECT_EQ(refusal(config()), "");
    EXPECT_EQ(pg_.value("SELECT count(*) FROM pg_index WHERE indrelid = "
                        "'outbox_dead_letters'::regclass AND indexrelid = "
                        "'outbox_dead_letters_event'::regclass"),
              "1");
}

}  // namespace
}  // namespace outbox::test
