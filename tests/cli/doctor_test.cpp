// A preflight: what it says of a table as it should be, and of each thing that is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Doctor : public testing::Test {
  protected:
    Doctor() {
        EXPECT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
        admin_.exec(
            "DO $$ BEGIN CREATE ROLE doctor_relay LOGIN PASSWORD 'test'; EXCEPTION WHEN "
            "duplicate_object THEN END $$");
    }
    std::string as_relay() const {
        std::string url = url_;
        return url.replace(url.find("postgres@"), 8, "doctor_relay");
    }
    Finished doctor(const std::vector<std::string>& more, const std::string& url = {}) {
        std::vector<std::string> words{"doctor", "--from", url.empty() ? url_ : url, "--to",
                                       "stdout:"};
        words.insert(words.end(), more.begin(), more.end());
        return outbox_.run(std::move(words));
    }
    static std::string nobody() {
        return "postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    }

    OutboxBinary outbox_;
    std::string url_ = shared_postgres().create_database();
    Pg admin_{url_};
};

TEST_F(Doctor, FindsNothingWrongWithWhatMigrateMade) {
    const Finished good = doctor({"--consumer-db", url_});
    EXPECT_EQ(good.status.code, 0) << good.err;
    EXPECT_THAT(good.out,
                AllOf(HasSubstr("ok       source public.outbox_events"),
                      HasSubstr("ok       clock: "), HasSubstr("ok       durability: "),
                      HasSubstr("ok       vacuum: "), HasSubstr("ok       route stdout"),
                      HasSubstr("ok       consumers in "), HasSubstr("0 problems, 0 warnings")));
    const auto json = nlohmann::json::parse(doctor({"--json"}).out);
    EXPECT_EQ(json.at("problems"), 0);
    EXPECT_EQ(json.at("warnings"), 0);
    EXPECT_EQ(json.at("ok"), json.at("findings").size());
    EXPECT_EQ(json.at("findings").at(0).at("subject"), "source");
    EXPECT_TRUE(json.at("findings").at(0).at("fix").is_null());
}

TEST_F(Doctor, SaysWhichRightsAreMissingAndItsStatementsGiveThem) {
    const Finished bad = doctor({}, as_relay());
    EXPECT_EQ(bad.status.code, 1);
    EXPECT_THAT(bad.out, HasSubstr("problem  rights: user doctor_relay lacks SELECT, INSERT, "
                                   "UPDATE, DELETE on \"public\".\"outbox_events\""));
    const Finished shown = doctor({"--fix", "--dry-run"}, as_relay());
    EXPECT_EQ(shown.status.code, 0) << shown.err;
    EXPECT_EQ(doctor({}, as_relay()).status.code, 1) << "a dry run changes nothing";
    const Finished own = doctor({"--fix"}, as_relay());
    EXPECT_EQ(own.status.code, 1) << "who lacks a right cannot give it";
    EXPECT_THAT(own.err, HasSubstr("OB_NO_RIGHTS (42501)"));
    const Finished mended = doctor({"--fix", "--fix-as", url_}, as_relay());
    EXPECT_EQ(mended.status.code, 0) << mended.err;
    EXPECT_EQ(mended.out, shown.out) << "what a dry run prints is what runs";
    const Finished good = doctor({}, as_relay());
    EXPECT_EQ(good.status.code, 0) << good.out;
    EXPECT_THAT(good.out, Not(HasSubstr("problem ")));
}

// The side tables with the relay's rights to them, in a transaction; CREATE INDEX CONCURRENTLY in
// none.
TEST_F(Doctor, MakesTheSideTablesAndTheUniqueIndexOfAnAdoptedTable) {
    const std::string url = shared_postgres().create_database();
    Pg owner(url);
    owner.exec(
        "CREATE TABLE mine (id text NOT NULL, topic text, key text, event_type text, payload "
        "text, created_at timestamptz DEFAULT clock_timestamp(), status text DEFAULT 'PENDING', "
        "retry_count int DEFAULT 0, published_at timestamptz)");
    owner.exec("REVOKE CREATE ON SCHEMA public FROM public");
    owner.exec("GRANT SELECT, UPDATE, DELETE ON mine TO doctor_relay");
    const std::string relay = std::string(url).replace(url.find("postgres@"), 8, "doctor_relay");
    const auto look = [&](std::vector<std::string> more) {
        more.insert(more.end(), {"--table", "mine"});
        return doctor(more, relay);
    };
    EXPECT_EQ(look({}).status.code, 1);
    const Finished shown = look({"--fix", "--dry-run"});
    EXPECT_THAT(shown.out,
                AllOf(HasSubstr("CREATE UNIQUE INDEX CONCURRENTLY ON \"public\".\"mine\""),
                      HasSubstr("\nCOMMIT;\n")));
    const Finished mended = look({"--fix", "--fix-as", url});
    EXPECT_EQ(mended.status.code, 0) << mended.err;
    EXPECT_EQ(mended.out, shown.out) << "what a dry run prints is what runs";
    EXPECT_EQ(look({}).status.code, 0) << look({}).out;
}

// To the server that is a warning, and a pipeline would go on.
TEST_F(Doctor, AStatementThatGaveNothingIsNoMend) {
    admin_.exec(
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO doctor_relay; GRANT ALL ON ALL SEQUENCES IN "
        "SCHEMA public TO doctor_relay; REVOKE SELECT ON outbox_events FROM doctor_relay");
    const Finished own = doctor({"--fix"}, as_relay());
    EXPECT_EQ(own.status.code, 1) << own.out;
    EXPECT_THAT(own.err, HasSubstr("problem: rights: user doctor_relay lacks SELECT on"));
}

// Delayed events would be delivered by nobody.
TEST_F(Doctor, NamesTheFunctionOfACheckThatTheRoleMayNotCall) {
    admin_.exec(
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO doctor_relay; GRANT ALL ON ALL SEQUENCES IN "
        "SCHEMA public TO doctor_relay; REVOKE EXECUTE ON FUNCTION outbox_refuse_event FROM "
        "PUBLIC");
    EXPECT_THAT(
        doctor({}, as_relay()).out,
        HasSubstr("GRANT EXECUTE ON FUNCTION \"public\".outbox_refuse_event(text, text, text)"));
    EXPECT_EQ(doctor({"--fix", "--fix-as", url_}, as_relay()).status.code, 0);
    EXPECT_EQ(doctor({}, as_relay()).status.code, 0);
}

TEST_F(Doctor, NamesTheSchemaThatTheRoleMayNotLookInto) {
    admin_.exec("CREATE SCHEMA ob; ALTER TABLE outbox_events SET SCHEMA ob");
    const Finished bad = doctor({"--schema", "ob"}, as_relay());
    EXPECT_EQ(bad.status.code, 4) << bad.out;
    EXPECT_THAT(bad.err, HasSubstr("GRANT USAGE ON SCHEMA ob TO"));
    EXPECT_THAT(doctor({"--table", "ob.outbox_events"}, as_relay()).err,
                HasSubstr("GRANT USAGE ON SCHEMA ob"));
    EXPECT_THAT(doctor({"--table", "nothing"}, as_relay()).err, HasSubstr("there is no table"));
}

// The relay would send the events of tenants that are paused.
TEST_F(Doctor, WarnsOfARelayThatCannotReadWhoIsPausedAndPausesNobodyThen) {
    for (const std::string table :
         {"events", "scheduled", "lease", "routes", "ledger", "route_done", "delivery",
          "dead_letters", "route_stats", "standbys", "audit", "migrations"}) {
        admin_.exec("GRANT ALL ON outbox_" + table + " TO doctor_relay");
    }
    admin_.exec("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO doctor_relay");
    const Finished warned = doctor({}, as_relay());
    EXPECT_EQ(warned.status.code, 0) << warned.out << warned.err;
    EXPECT_THAT(warned.out, HasSubstr("warning  rights: user doctor_relay lacks SELECT on "
                                      "\"public\".outbox_paused_tenants"));
    const std::vector<std::string> pause{"tenant", "pause", "acme", "--reason",
                                         "moves",  "--db",  url_};
    {
        const Pg relay(as_relay());
        const Finished refused = outbox_.run(pause);
        EXPECT_EQ(refused.status.code, 4) << refused.out;
        EXPECT_THAT(refused.err, HasSubstr("GRANT SELECT ON"));
        EXPECT_EQ(admin_.value("SELECT count(*) FROM outbox_paused_tenants"), "0");
        admin_.exec("GRANT SELECT ON outbox_paused_tenants TO doctor_relay");
        EXPECT_EQ(outbox_.run(pause).status.code, 0);
    }
    EXPECT_THAT(doctor({}, as_relay()).out, HasSubstr("has all it needs"));
}

TEST_F(Doctor, WarnsOfWhatWorksAndLosesSomething) {
    admin_.exec("ALTER TABLE outbox_events SET (autovacuum_enabled = off)");
    const Finished warned = doctor({});
    EXPECT_EQ(warned.status.code, 0) << "a warning stops no deploy";
    EXPECT_THAT(warned.out, AllOf(HasSubstr("warning  vacuum: autovacuum is off for"),
                                  HasSubstr("0 problems, 1 warning\n")));
    EXPECT_THAT(doctor({"--fix"}).out, HasSubstr("RESET (autovacuum_enabled);"));
    EXPECT_THAT(doctor({}).out, HasSubstr("0 warnings"));
    // It is not to come between.
    admin_.exec("ALTER TABLE outbox_events SET (autovacuum_enabled = off)");
    {
        Pg writer(url_);
        writer.exec(
            "INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM "
            "generate_series(1, 120000)");
        writer.exec("DELETE FROM outbox_events");
    }  // its figures are told when it goes
    EXPECT_THAT(doctor({}).out, HasSubstr("warning  vacuum: 120000 dead rows beside 0 live ones"));
    EXPECT_THAT(doctor({"--fix"}).out, HasSubstr("VACUUM \"public\".\"outbox_events\";"));
    EXPECT_THAT(doctor({}).out, Not(HasSubstr("120000 dead rows")));
}

// Not mended by --fix: a relay that runs would stop.
TEST_F(Doctor, WarnsOfDelayedEventsThatTheTableRefuses) {
    EXPECT_THAT(doctor({}).out, HasSubstr("ok       delayed events: none is overdue"));
    admin_.exec(
        "ALTER TABLE outbox_events ADD CHECK (topic <> 'no'); "
        "SELECT outbox_emit(topic => 'no', payload => '{}', available_at => now() + interval '1 "
        "day') FROM generate_series(1, 2); "
        "UPDATE outbox_scheduled SET available_at = now() - interval '11 minutes'");
    const Finished found = doctor({});
    EXPECT_EQ(found.status.code, 0) << found.err;
    EXPECT_THAT(found.out, AllOf(HasSubstr("warning  delayed events: 2 were due more than 10 min"),
                                 HasSubstr("event=delayed_refused"),
                                 HasSubstr(admin_.value("SELECT min(id::text) FROM "
                                                        "outbox_scheduled"))));
}

TEST_F(Doctor, WarnsOfAnUnloggedTable) {
    admin_.exec("DROP PUBLICATION outbox");
    admin_.exec("ALTER TABLE outbox_events SET UNLOGGED");
    const Finished warned = doctor({});
    EXPECT_THAT(warned.out,
                AllOf(HasSubstr("is unlogged: a crash of the server empties it"),
                      HasSubstr("outbox routes continue"), Not(HasSubstr("ok       durability"))));
    EXPECT_THAT(doctor({"--fix", "--dry-run"}).out, Not(HasSubstr("SET LOGGED;")));
}

TEST_F(Doctor, WarnsOfEachSideTableThatACrashEmpties) {
    admin_.exec("ALTER TABLE outbox_ledger SET UNLOGGED");
    admin_.exec("ALTER TABLE outbox_inbox SET UNLOGGED");
    const Finished warned = doctor({"--consumer-db", url_});
    EXPECT_EQ(warned.status.code, 0) << warned.err;
    EXPECT_THAT(
        warned.out,
        AllOf(HasSubstr("warning  durability: table public.outbox_ledger is unlogged"),
              HasSubstr("table public.outbox_inbox is unlogged: a crash of the server empties it, "
                        "and what it remembers is forgotten: repeats are applied again. ALTER "
                        "TABLE public.outbox_inbox SET LOGGED"),
              HasSubstr("2 warnings"), Not(HasSubstr("ok       durability"))));
    for (const char* table : {"outbox_ledger", "outbox_inbox"}) {
        admin_.exec("ALTER TABLE " + std::string(table) + " SET LOGGED");
    }
    EXPECT_THAT(doctor({"--consumer-db", url_}).out, HasSubstr("0 warnings"));
}

// Of a server of its own: what waits for its standby would hold up every other test.
TEST(DoctorOfAServer, WarnsOfCommitsThatACrashOrAFailoverTakesBack) {
    PostgresServer server;
    const std::string url = server.create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg pg(url);
    const auto doctor = [&](const std::string& setting) {
        pg.exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = " +
                setting + "', current_database()); END $$");
        return outbox.run({"doctor", "--from", url, "--to", "stdout:"}).out;
    };
    EXPECT_THAT(doctor("off"), HasSubstr("synchronous_commit is off for some: a crash of"));
    EXPECT_THAT(doctor("local"), HasSubstr("ok       durability"));
    pg.exec("SET synchronous_commit = local");
    pg.exec("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    pg.exec("SELECT pg_reload_conf()");
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "the setting is in force", [&] {
        return Pg(url).value("SHOW synchronous_standby_names") == "nobody";
    }));
    EXPECT_THAT(doctor("local"),
                AllOf(HasSubstr("synchronous_commit is local for some: a failover"),
                      Not(HasSubstr("ok       durability"))));
}

TEST(DoctorOfAServer, WarnsOfSettingsThatLoseEventsOrLetDeadRowsPileUp) {
    PostgresServer server;
    const std::string url = server.create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg pg(url);
    const auto with_off = [&](const std::string& setting) {
        pg.exec("ALTER SYSTEM SET " + setting + " = off");
        pg.exec("SELECT pg_reload_conf()");
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "the setting is in force",
                               [&] { return Pg(url).value("SHOW " + setting) == "off"; }));
        const Finished ended = outbox.run({"doctor", "--from", url, "--to", "stdout:"});
        EXPECT_EQ(ended.status.code, 0) << ended.out;
        EXPECT_THAT(ended.out,
                    AllOf(HasSubstr("1 warning\n"),
                          HasSubstr("ALTER SYSTEM SET " + setting + " = on, and reload")));
        pg.exec("ALTER SYSTEM RESET " + setting);
        pg.exec("SELECT pg_reload_conf()");
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "the setting is back",
                               [&] { return Pg(url).value("SHOW " + setting) == "on"; }));
        return ended.out;
    };
    for (const std::string setting : {"fsync", "full_page_writes"}) {
        EXPECT_THAT(with_off(setting),
                    AllOf(HasSubstr("warning  durability: " + setting + " is off"),
                          Not(HasSubstr("ok       durability"))));
    }
    EXPECT_THAT(with_off("autovacuum"), AllOf(HasSubstr("warning  vacuum: autovacuum is off: "),
                                              Not(HasSubstr("ok       vacuum"))));
}

TEST_F(Doctor, CountsTheSegmentsOfATableThatKeepsItsRows) {
    const Finished laid = outbox_.run({"migrate", "--after-publish", "keep", "--db", url_});
    if (laid.err.find("PostgreSQL 14") != std::string::npos) {
        GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
    }
    ASSERT_EQ(laid.status.code, 0) << laid.err;
    const Finished good = doctor({});
    EXPECT_EQ(good.status.code, 0) << good.out;
    EXPECT_THAT(good.out, AllOf(HasSubstr("published rows stay"), HasSubstr("0 warnings"),
                                Not(HasSubstr(" 0 bytes in all"))));
    admin_.exec("ALTER TABLE outbox_events_2 SET (autovacuum_enabled = off)");
    EXPECT_THAT(doctor({}).out, HasSubstr("warning  vacuum: autovacuum is off for"));
}

// Both have every insert fail.
TEST_F(Doctor, MendsWhatKeepsWritersFromTheSegmentOfATableThatKeepsItsRows) {
    if (!rows_may_stay()) GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
    ASSERT_EQ(outbox_.run({"migrate", "--after-publish", "keep", "--db", url_}).status.code, 0);
    admin_.exec(
        "GRANT INSERT (topic, payload) ON outbox_events TO doctor_relay;"
        "REVOKE SELECT ON SEQUENCE outbox_segment FROM PUBLIC");
    const std::string insert = "INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')";
    Pg writer(as_relay());
    EXPECT_THROW(writer.exec(insert), std::runtime_error);
    const auto mend = [&](const std::string& problem, const std::string& statement) {
        const Finished bad = doctor({});
        EXPECT_EQ(bad.status.code, 1) << bad.out;
        EXPECT_THAT(bad.out, AllOf(HasSubstr("problem  " + problem), HasSubstr("1 problem,")));
        EXPECT_EQ(doctor({"--fix", "--dry-run"}).out, statement + ";\n");
        EXPECT_EQ(doctor({}).status.code, 1) << "a dry run changes nothing";
        const Finished mended = doctor({"--fix"});
        EXPECT_EQ(mended.status.code, 0) << mended.out << mended.err;
        EXPECT_EQ(mended.out, statement + ";\n");
        EXPECT_THAT(doctor({}).out, HasSubstr("0 problems, 0 warnings"));
        writer.exec(insert);
    };
    mend(
        "rights: role doctor_relay may insert into \"public\".\"outbox_events\" and not ask which "
        "segment is written to",
        "GRANT SELECT ON SEQUENCE \"public\".outbox_segment TO \"doctor_relay\"");
    admin_.exec("SELECT setval('outbox_segment', 99)");
    EXPECT_THROW(writer.exec(insert), std::runtime_error);
    mend("segments: writers write to segment 99, which the table does not have",
         "SELECT \"public\".outbox_segment_turn('100 years')");
}

TEST_F(Doctor, WarnsWhereAnInboxHasForgottenWhatIsStillToCome) {
    admin_.exec(
        "INSERT INTO outbox_events (topic, payload, occurred_at) VALUES ('t', '1', now() - "
        "interval '10 days'); INSERT INTO outbox_inbox_floor (consumer, floor) VALUES ('billing', "
        "now() - interval '7 days')");
    const Finished warned = doctor({"--consumer-db", url_});
    EXPECT_EQ(warned.status.code, 0) << warned.err;
    EXPECT_THAT(warned.out, HasSubstr("consumer billing has forgotten the ids from before "));
    admin_.exec("UPDATE outbox_inbox_floor SET floor = now() - interval '30 days'");
    EXPECT_THAT(doctor({"--consumer-db", url_}).out, Not(HasSubstr("has forgotten")));
    // A dead letter is as old, and seen with the relay's rights.
    admin_.exec(
        "INSERT INTO outbox_dead_letters (source, route, id, occurred_at, attempts, error_code, "
        "error) VALUES ('public.outbox_events', 'stdout', 'old', now() - interval '40 days', 1, "
        "'E', 'e')");
    const Finished rights = outbox_.run({"roles", "--print", "--relay", "doctor_relay"});
    admin_.exec(rights.out);
    const Finished of_relay = doctor({"--consumer-db", url_}, as_relay());
    EXPECT_EQ(of_relay.status.code, 0) << of_relay.out << of_relay.err;
    EXPECT_THAT(of_relay.out, HasSubstr("the oldest dead letter is of "));
    // The oldest by its event's time: letters come in any order.
    admin_.exec("DELETE FROM outbox_dead_letters");
    for (const char* days : {"20", "40", "10"}) {
        admin_.exec(
            "INSERT INTO outbox_dead_letters (source, route, id, occurred_at, attempts, "
            "error_code, error) VALUES ('public.outbox_events', 'stdout', 'd" +
            std::string(days) + "', now() - interval '" + days + " days', 1, 'E', 'e')");
    }
    EXPECT_THAT(doctor({"--consumer-db", url_}).out, HasSubstr("the oldest dead letter is of "));
    const Finished missing = doctor({"--consumer-db", shared_postgres().create_database()});
    EXPECT_EQ(missing.status.code, 1);
    EXPECT_THAT(missing.out, HasSubstr("their tables are missing. outbox migrate --only consumer"));
}

TEST_F(Doctor, TellsOfADestinationThatIsAwayAndOfWrongWords) {
    const Finished away = outbox_.run({"doctor", "--from", url_, "--to", "mailbox+" + nobody()});
    EXPECT_EQ(away.status.code, 1);
    EXPECT_THAT(away.out, HasSubstr("problem  route mailbox"));
    const Finished consumers = doctor({"--consumer-db", nobody()});
    EXPECT_EQ(consumers.status.code, 1);
    EXPECT_THAT(consumers.out, HasSubstr("problem  consumers in postgresql://app@"));
    const Finished dry = doctor({"--dry-run"});
    EXPECT_EQ(dry.status.code, 2);
    EXPECT_THAT(dry.err, HasSubstr("--dry-run: it goes with --fix"));
    EXPECT_EQ(doctor({"--fix-as", url_}).status.code, 2);
    EXPECT_EQ(doctor({"--fix", "--json"}).status.code, 2);
    EXPECT_EQ(doctor({}, nobody()).status.code, 3);
    EXPECT_EQ(
        outbox_.run({"doctor", "--from", url_, "--to", "kafka://192.0.2.1:9092", "--require-tls"})
            .status.code,
        2)
        << "a way in clear";
}

TEST(DoctorOnSqlite, HasTheJournalMended) {
    OutboxBinary outbox;
    const std::string path = outbox.file("shop.db").string();
    ASSERT_EQ(outbox.run({"migrate", "--db", "sqlite://" + path}).status.code, 0);
    Sqlite(path).exec("PRAGMA journal_mode = DELETE");
    const auto doctor = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"doctor", "--from", "sqlite://" + path, "--to", "stdout:"});
        return outbox.run(words);
    };
    const Finished found = doctor({});
    EXPECT_EQ(found.status.code, 0) << found.out << found.err;
    EXPECT_THAT(found.out, HasSubstr("warning  journal: no write-ahead log"));
    EXPECT_EQ(doctor({"--fix"}).out, "PRAGMA journal_mode = WAL;\n");
    EXPECT_THAT(doctor({}).out, AllOf(HasSubstr("ok       journal: write-ahead log"),
                                      HasSubstr("0 problems, 0 warnings")));
}

TEST(DoctorOnSqlite, WarnsOfDelayedEventsThatTheTableRefuses) {
    OutboxBinary outbox;
    const std::string path = outbox.file("shop.db").string();
    ASSERT_EQ(outbox.run({"migrate", "--db", "sqlite://" + path}).status.code, 0);
    Sqlite(path).exec(
        "INSERT INTO outbox_scheduled (id, topic, payload, available_at) VALUES "
        "('01939d3e-7c00-7aaa-8000-000000000001', 't', '{}', (unixepoch() - 660) * 1000000)");
    EXPECT_THAT(outbox.run({"doctor", "--from", "sqlite://" + path, "--to", "stdout:"}).out,
                HasSubstr("warning  delayed events: 1 was due more than 10 minutes ago"));
}

TEST(DoctorOnSqlite, LooksAtTheConsumersDatabaseToo) {
    OutboxBinary outbox;
    const auto url = [&](const std::string& name) {
        return "sqlite://" + outbox.file(name + ".db").string();
    };
    ASSERT_EQ(outbox.run({"migrate", "--db", url("shop")}).status.code, 0);
    ASSERT_EQ(outbox.run({"migrate", "--only", "consumer", "--db", url("billing")}).status.code, 0);
    const auto doctor = [&](const std::string& consumers) {
        return outbox.run(
            {"doctor", "--from", url("shop"), "--to", "stdout:", "--consumer-db", url(consumers)});
    };
    EXPECT_THAT(doctor("billing").out, AllOf(HasSubstr("ok       consumers in sqlite://"),
                                             HasSubstr("none yet"), HasSubstr("0 warnings")));
    Sqlite billing(outbox.file("billing.db"));
    billing.exec(
        "INSERT INTO outbox_inbox_floor (consumer, floor) VALUES ('billing', (unixepoch() - 7 * "
        "86400) * 1000000);"
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error) VALUES ('billing', 'a', 't', 1, 'E', 'e')");
    Sqlite(outbox.file("shop.db"))
        .exec(
            "INSERT INTO outbox_events (id, topic, payload, occurred_at) VALUES ('a', 't', '1', "
            "(unixepoch() - 10 * 86400) * 1000000)");
    const Finished warned = doctor("billing");
    EXPECT_EQ(warned.status.code, 0) << warned.err;
    EXPECT_THAT(warned.out, AllOf(HasSubstr("consumer billing has forgotten the ids from before "),
                                  HasSubstr("1 dead letter, which blocks nothing and is applied"),
                                  HasSubstr("0 problems, 2 warnings")));
    Sqlite(outbox.file("empty.db")).exec("CREATE TABLE other (a)");
    const Finished missing = doctor("empty");
    EXPECT_EQ(missing.status.code, 1);
    EXPECT_THAT(missing.out, HasSubstr("their tables are missing. outbox migrate --only consumer"));
}

}  // namespace
}  // namespace outbox::test
