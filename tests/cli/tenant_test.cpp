// Tenants that are paused, drained and resumed, with a relay of the real binary.
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/http_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

struct Place {
    friend void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }
    const char* name;
    bool sqlite = false;
    std::vector<std::string> migrate = {};
    std::vector<std::string> relay = {};
    const char* table = "outbox_events";
};

class Tenants : public testing::TestWithParam<Place> {
  protected:
    void SetUp() override {
        url_ = GetParam().sqlite ? "sqlite://" + outbox_.file("shop.db").string()
                                 : shared_postgres().create_database();
        if (adopted()) {
            sql("CREATE TABLE mine (id text PRIMARY KEY, tenant_id text, topic text, key text, "
                "event_type text, payload text, created_at timestamptz DEFAULT " +
                std::string(GetParam().sqlite ? "CURRENT_TIMESTAMP" : "clock_timestamp()") +
                ", status text DEFAULT 'PENDING', retry_count int DEFAULT 0, published_at "
                "timestamptz)");
            return;
        }
        if (GetParam().name == std::string("keep") && !rows_may_stay()) {
            GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
        }
        std::vector<std::string> migrate{"migrate", "--db", url_};
        migrate.insert(migrate.end(), GetParam().migrate.begin(), GetParam().migrate.end());
        const Finished made = outbox_.run(migrate);
        ASSERT_EQ(made.status.code, 0) << made.err;
    }
    bool adopted() const { return GetParam().table != std::string("outbox_events"); }

    void sql(const std::string& statement) {
        if (GetParam().sqlite)
            Sqlite(outbox_.file("shop.db")).exec(statement);
        else
            Pg(url_).exec(statement);
    }
    std::string value(const std::string& statement) {
        return GetParam().sqlite ? Sqlite(outbox_.file("shop.db")).value(statement)
                                 : Pg(url_).value(statement);
    }
    // The next `count` events of the tenant's one key, each by a transaction of its own.
    void write(const std::string& tenant, int count) {
        for (int i = 0; i < count; ++i) {
            const std::string n = std::to_string(++written_[tenant]);
            sql(std::string("INSERT INTO ") + GetParam().table +
                " (id, tenant_id, topic, key, event_type, payload) VALUES "
                "('00000000-0000-7000-8000-" +
                tenant + std::string(8 - n.size(), '0') + n + "', '" + tenant + "', 'things', '" +
                tenant + "', 'Made', '" + n + "')");
        }
    }
    Process relay(const std::vector<std::string>& more = {}, const std::string& admin = "off") {
        std::vector<std::string> arguments{"--from", url_,          "--table", GetParam().table,
                                           "--to",   "out=stdout:", "--admin", admin};
        for (const auto& list : {GetParam().relay, more}) {
            arguments.insert(arguments.end(), list.begin(), list.end());
        }
        return outbox_.start_relay(arguments);
    }
    Finished run_on(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url_, "--table", GetParam().table});
        return outbox_.run(arguments);
    }
    json result(std::vector<std::string> arguments) {
        arguments.emplace_back("--json");
        const Finished ended = run_on(std::move(arguments));
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }
    // What of the tenant a relay has printed, as "1 2 3 ".
    static std::string sent(Process& running, const std::string& tenant) {
        std::istringstream lines(running.stdout_text());
        std::string out;
        for (std::string line; std::getline(lines, line);) {
            const json event = json::parse(line, nullptr, false);
            if (event.is_discarded() || event["key"] != tenant) continue;
            const std::string id = event["id"];
            out += std::to_string(std::stoi(id.substr(id.size() - 8))) + " ";
        }
        return out;
    }
    static std::string numbers(int from, int to) {
        std::string out;
        for (int n = from; n <= to; ++n) out += std::to_string(n) + " ";
        return out;
    }
    static void await_sent(Process& running, const std::string& tenant, const std::string& what) {
        EXPECT_TRUE(eventually(60s, "events of " + tenant + " are sent",
                               [&] { return sent(running, tenant) == what; }))
            << sent(running, tenant) << "\n"
            << running.stderr_text();
    }
    static void await_logged(Process& running, const std::string& what) {
        EXPECT_TRUE(eventually(60s, what, [&] {
            return running.stderr_text().find(what) != std::string::npos;
        })) << running.stderr_text();
    }

    OutboxBinary outbox_;
    std::string url_;
    std::map<std::string, int> written_;
};

TEST_P(Tenants, APausedOneIsKeptOverARestartWhileOthersGoOnAndGoesOnInOrder) {
    Process first = relay();
    write("aaaa", 3);
    write("bbbb", 3);
    await_sent(first, "aaaa", numbers(1, 3));
    await_sent(first, "bbbb", numbers(1, 3));

    const Finished paused = run_on({"tenant", "pause", "aaaa", "--reason", "their topic moves"});
    ASSERT_EQ(paused.status.code, 0) << paused.err;
    EXPECT_THAT(paused.out, HasSubstr("tenant aaaa is paused; 0 events kept"));
    await_logged(first, "tenant_paused");
    // The route's turn in which it is said may be reading still.
    write("bbbb", 1);
    await_sent(first, "bbbb", numbers(1, 4));
    write("aaaa", 4);
    write("bbbb", 3);
    await_sent(first, "bbbb", numbers(1, 7));
    EXPECT_EQ(sent(first, "aaaa"), numbers(1, 3));
    const json list = result({"tenant", "list"});
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0]["tenant"], "aaaa");
    EXPECT_EQ(list[0]["waiting"], 4);
    EXPECT_EQ(list[0]["reason"], "their topic moves");
    EXPECT_THAT(run_on({"status"}).out,
                AllOf(HasSubstr("tenant aaaa, 4 of the backlog kept, since "),
                      HasSubstr(": their topic moves")));
    EXPECT_EQ(result({"status"})["paused_tenants"][0]["waiting"], 4);
    const json explained = result({"explain", "00000000-0000-7000-8000-aaaa00000004"})["events"][0];
    ASSERT_EQ(explained["waits"].size(), 1U) << explained;
    EXPECT_EQ(explained["waits"][0]["reason"], "tenant_paused");
    EXPECT_THAT(explained["waits"][0]["text"].get<std::string>(),
                AllOf(HasSubstr("its tenant aaaa is paused since "), HasSubstr("topic moves")));

    first.kill(SIGKILL);
    Process second = relay();
    write("aaaa", 3);
    write("bbbb", 3);
    EXPECT_TRUE(eventually(60s, "the other tenant goes on",
                           [&] { return sent(second, "bbbb").ends_with(numbers(8, 10)); }));
    EXPECT_EQ(sent(second, "aaaa"), "");

    EXPECT_EQ(run_on({"tenant", "resume", "aaaa", "--reason", "it moved"}).status.code, 0);
    await_sent(second, "aaaa", numbers(4, 10));
    EXPECT_TRUE(result({"tenant", "list"}).empty());
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit WHERE action IN ('tenant pause', 'tenant "
                    "resume') AND detail LIKE '%reason: %moves' OR detail LIKE '%it moved'"),
              "2");
    EXPECT_EQ(second.stop(), (ExitStatus{0, 0}));
}

TEST_P(Tenants, EachHasATopicOfItsOwnByTheTemplate) {
    for (const char* tenant : {"'aaaa'", "'bbbb'", "''"}) {
        const std::string n = std::to_string(++written_["none"]);
        sql(std::string("INSERT INTO ") + GetParam().table +
            " (id, tenant_id, key, event_type, payload" + (adopted() ? "" : ", aggregate_type") +
            ") VALUES ('00000000-0000-7000-8000-00000000000" + n + "', " + tenant +
            ", 'k', 'Made', '1'" + (adopted() ? ")" : ", 'Order')"));
    }
    Process running = relay({"--topic-template", "{tenant_id}-orders"});
    const auto topics = [&] {
        std::istringstream lines(running.stdout_text());
        std::set<std::string> out;
        for (std::string line; std::getline(lines, line);) {
            const json event = json::parse(line, nullptr, false);
            if (!event.is_discarded()) out.insert(event["topic"]);
        }
        return out;
    };
    EXPECT_TRUE(eventually(60s, "each is sent to its topic",
                           [&] {
                               return topics() ==
                                      (std::set<std::string>{"aaaa-orders", "bbbb-orders",
                                                             GetParam().table});
                           }))
        << running.stdout_text() << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Tenants, ADrainedOneIsPausedOnceAllOfItIsSentAndNotBefore) {
    {
        Process first = relay();
        write("bbbb", 1);
        await_sent(first, "bbbb", "1 ");
        EXPECT_EQ(first.stop(), (ExitStatus{0, 0}));
    }
    write("aaaa", 20);
    const Finished late =
        run_on({"tenant", "drain", "aaaa", "--reason", "moves", "--within", "1s"});
    EXPECT_EQ(late.status.code, 6) << late.err;
    EXPECT_THAT(late.err, HasSubstr("20 events of tenant aaaa wait; it is not paused"));
    EXPECT_TRUE(result({"tenant", "list"}).empty());

    Process running = relay();
    const Finished drained = run_on({"tenant", "drain", "aaaa", "--reason", "moves"});
    ASSERT_EQ(drained.status.code, 0) << drained.err;
    EXPECT_THAT(drained.out, HasSubstr("tenant aaaa is paused; 0 events kept"));
    await_sent(running, "aaaa", numbers(1, 20));
    await_logged(running, "tenant_paused");
    write("bbbb", 1);
    await_sent(running, "bbbb", "2 ");
    write("aaaa", 2);
    write("bbbb", 1);
    await_sent(running, "bbbb", numbers(2, 3));
    EXPECT_EQ(sent(running, "aaaa"), numbers(1, 20));
    EXPECT_EQ(result({"tenant", "list"})[0]["waiting"], 2);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Tenants, IsNotDrainedBeforeItsDelayedEventsAreSent) {
    if (adopted()) GTEST_SKIP() << "no delayed events";
    Process running = relay();
    write("bbbb", 1);
    await_sent(running, "bbbb", "1 ");
    const auto delay = [&](int n, int seconds, const std::string& tenant = "aaaa") {
        const std::string s = std::to_string(seconds);
        sql("INSERT INTO outbox_scheduled (id, tenant_id, topic, key, event_type, payload, "
            "available_at) VALUES ('00000000-0000-7000-8000-aaaa0000000" +
            std::to_string(n) + "', '" + tenant + "', 'things', 'aaaa', 'Made', '1', " +
            (GetParam().sqlite ? "(strftime('%s', 'now') + " + s + ") * 1000000)"
                               : "clock_timestamp() + interval '" + s + " s')"));
    };
    delay(1, 3600);
    const Finished late =
        run_on({"tenant", "drain", "aaaa", "--reason", "moves", "--within", "1s"});
    EXPECT_EQ(late.status.code, 6) << late.out;
    EXPECT_THAT(late.err,
                AllOf(HasSubstr("0 events and 1 that is delayed until 20"),
                      HasSubstr("it is not paused"), HasSubstr("rows of outbox_scheduled")));
    EXPECT_TRUE(result({"tenant", "list"}).empty());
    const json paused = result({"tenant", "pause", "aaaa", "--reason", "moves"});
    EXPECT_EQ(paused["delayed"], 1);
    EXPECT_TRUE(paused["delayed_until"].is_string());
    EXPECT_EQ(run_on({"tenant", "resume", "aaaa", "--reason", "back"}).status.code, 0);
    EXPECT_EQ(run_on({"scheduled", "cancel", "--all"}).status.code, 0);

    delay(3, 3600, "");
    const Finished nameless =
        run_on({"tenant", "drain", "aaaa", "--reason", "moves", "--within", "1s"});
    EXPECT_EQ(nameless.status.code, 6) << nameless.out;
    EXPECT_THAT(nameless.err, HasSubstr("that name no tenant"));
    EXPECT_EQ(run_on({"scheduled", "cancel", "--all"}).status.code, 0);

    delay(2, 2);
    const json drained = result({"tenant", "drain", "aaaa", "--reason", "moves"});
    EXPECT_EQ(drained["waiting"], 0);
    EXPECT_EQ(drained["delayed"], 0);
    await_sent(running, "aaaa", "2 ");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Tenants, WhoIsPausedAndOfWhomMostWaitsIsShownWithoutARelay) {
    {
        Process served = relay();
        write("aaaa", 1);
        await_sent(served, "aaaa", numbers(1, 1));
        EXPECT_EQ(served.stop(), (ExitStatus{0, 0}));
    }
    write("bbbb", 3);
    write("aaaa", 4);
    write("cccc", 5);
    ASSERT_EQ(run_on({"tenant", "pause", "bbbb", "--reason", "moves"}).status.code, 0);
    const json shown = result({"top", "--once"});
    EXPECT_EQ(shown["tenants_paused"], 1);
    EXPECT_EQ(shown["tenants_are_more"], false);
    ASSERT_EQ(shown["tenants"].size(), 3U) << shown;
    EXPECT_EQ(shown["tenants"][0]["tenant"], "bbbb");
    EXPECT_EQ(shown["tenants"][0]["waiting"], 3);
    EXPECT_EQ(shown["tenants"][0]["paused"], true);
    EXPECT_EQ(shown["tenants"][0]["reason"], "moves");
    EXPECT_EQ(shown["tenants"][1]["tenant"], "cccc");
    EXPECT_EQ(shown["tenants"][1]["waiting"], 5);
    EXPECT_EQ(shown["tenants"][2]["waiting"], 4) << "what was sent does not wait";
}

TEST_P(Tenants, RelaysOfSomeOfThemEachAreToldApart) {
    Process one = relay({"--tenant", "aaaa", "--to", "second=null:"});
    Process other = relay({"--tenant", "bbbb"});
    write("aaaa", 1);
    write("bbbb", 1);
    await_sent(one, "aaaa", numbers(1, 1));
    await_sent(other, "bbbb", numbers(1, 1));
    Process standby = relay({"--tenant", "bbbb"});
    json status;
    EXPECT_TRUE(eventually(60s, "all three are known", [&] {
        status = result({"status"});
        return status["leases"].size() == 2 && status["leases"][1]["held"] == true &&
               status["standbys"].size() == 1;
    })) << status;
    for (const json& lease : status["leases"]) {
        const bool is_one = lease["tenants"] == json::array({"aaaa"});
        EXPECT_THAT(lease["owner"].get<std::string>(),
                    HasSubstr(":" + std::to_string(is_one ? one.pid() : other.pid())));
        EXPECT_EQ(lease["routes"], is_one ? json::array({"out", "second"}) : json::array({"out"}));
    }
    EXPECT_EQ(status["standbys"][0]["other_routes"], false);

    one.kill(SIGKILL);
    write("aaaa", 1);
    json explained;
    EXPECT_TRUE(eventually(60s, "it is known that nobody serves the tenant", [&] {
        explained = result({"explain", "00000000-0000-7000-8000-aaaa00000002"})["events"][0];
        return !explained["waits"].empty() && explained["waits"][0]["reason"] == "no_relay";
    })) << explained;
    EXPECT_THAT(run_on({"status"}).out, AllOf(HasSubstr("none is running for tenants aaaa"),
                                              HasSubstr(" for tenants bbbb, epoch ")));
}

TEST_P(Tenants, DeadLettersOfOneAreListedRetriedAndDiscarded) {
    {
        Process served = relay();
        write("aaaa", 1);
        await_sent(served, "aaaa", numbers(1, 1));
        EXPECT_EQ(served.stop(), (ExitStatus{0, 0}));
    }
    const std::string table = GetParam().table;
    for (const char* tenant : {"'aaaa'", "'aaaa'", "'bbbb'", "NULL"}) {
        const std::string n = std::to_string(++written_["dead"]);
        sql("INSERT INTO outbox_dead_letters (source, route, position, id, tenant_id, attempts, "
            "error_code, error, died_at) VALUES ('" +
            (GetParam().sqlite ? table : "public." + table) + "', 'out', " + n + ", 'd-" + n +
            "', " + tenant + ", 5, 'OB_RECORD_REFUSED', 'no', " +
            (GetParam().sqlite ? "1700000000000000" : "clock_timestamp()") + ")");
    }
    const auto count = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words{"dead", "list"};
        words.insert(words.end(), more.begin(), more.end());
        return result(words).size();
    };
    EXPECT_EQ(count({"--tenant", "aaaa"}), 2U);
    EXPECT_EQ(count({"--tenant", "default"}), 1U) << "that of an event without a tenant";
    EXPECT_EQ(count({"--tenant", "bbbb", "--default-tenant", "bbbb"}), 2U);
    EXPECT_EQ(count({"--tenant", "nobody"}), 0U);
    EXPECT_EQ(result({"dead", "retry", "--tenant", "aaaa"})["matched"], 2);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at IS NOT "
                    "NULL AND tenant_id = 'aaaa'"),
              "2");
    EXPECT_EQ(result({"dead", "discard", "--tenant", "bbbb", "--dry-run"})["matched"], 1);
    EXPECT_EQ(result({"dead", "discard", "--tenant", "bbbb"})["matched"], 1);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_dead_letters"), "3");
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit WHERE detail LIKE '%tenant bbbb%'"), "1");
    for (const std::vector<std::string>& wrong :
         {std::vector<std::string>{"--tenant", ""}, {"--tenant", "aaaa", "--all"}}) {
        std::vector<std::string> words{"dead", "discard"};
        words.insert(words.end(), wrong.begin(), wrong.end());
        EXPECT_EQ(run_on(words).status.code, 2);
    }
    EXPECT_EQ(value("SELECT count(*) FROM outbox_dead_letters"), "3");
}

TEST_P(Tenants, WhatCannotBeDoneIsSaidAndChangesNothing) {
    {
        Process first = relay();
        write("bbbb", 1);
        await_sent(first, "bbbb", "1 ");
    }
    EXPECT_THAT(run_on({"tenant", "pause", "aaaa"}).err, HasSubstr("--reason: why?"));
    EXPECT_EQ(run_on({"tenant", "pause", "--reason", "x"}).status.code, 2);
    EXPECT_EQ(run_on({"tenant", "pause", "a", "b", "--reason", "x"}).status.code, 2);
    EXPECT_THAT(run_on({"tenant", "resume", "aaaa", "--reason", "x"}).err,
                HasSubstr("tenant aaaa is not paused"));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit"), "0");
    EXPECT_EQ(run_on({"tenant", "pause", "aaaa", "--reason", "first"}).status.code, 0);
    for (const char* command : {"pause", "drain"}) {
        const Finished again = run_on({"tenant", command, "aaaa", "--reason", "second"});
        EXPECT_NE(again.status.code, 0);
        EXPECT_THAT(again.err, AllOf(HasSubstr("is paused since"), HasSubstr("first")));
    }
    EXPECT_EQ(value("SELECT reason FROM outbox_paused_tenants"), "first");
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit"), "1");
}

TEST_P(Tenants, TablesOfAnEarlierVersionAreRelayedAndPausedAfterAMigration) {
    if (adopted()) GTEST_SKIP() << "the command makes what is missing";
    sql("DROP TABLE outbox_paused_tenants");
    Process running = relay();
    write("aaaa", 2);
    await_sent(running, "aaaa", "1 2 ");
    EXPECT_THAT(run_on({"tenant", "pause", "aaaa", "--reason", "x"}).err,
                HasSubstr("outbox migrate --db URL makes it"));
    EXPECT_TRUE(result({"tenant", "list"}).empty());
}

// An empty name is none, as NULL is: whoever serves the default tenant sends such events.
TEST_P(Tenants, AnEventWithAnEmptyNameIsTheDefaultTenantsForEveryone) {
    const std::string table = GetParam().table;
    const auto write_as = [&](const std::string& tenant, int n) {
        sql("INSERT INTO " + table +
            " (id, tenant_id, topic, key, event_type, payload) VALUES "
            "('00000000-0000-7000-8000-00000000000" +
            std::to_string(n) + "', '" + tenant + "', 'things', 'k', 'Made', '1')");
    };
    Process running = relay({"--tenant", "dddd", "--default-tenant", "dddd"});
    write_as("", 1);
    write_as("dddd", 2);
    write_as("aaaa", 3);
    write_as("", 4);
    await_sent(running, "k", "1 2 4 ");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    write_as("", 5);
    const auto command = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--default-tenant", "dddd"});
        return run_on(std::move(arguments));
    };
    EXPECT_THAT(command({"tenant", "pause", "dddd", "--reason", "x"}).out,
                HasSubstr("tenant dddd is paused; 1 event kept"));
}

// Only the relays know whose events without a name are, so that a command that was not told waits.
TEST_P(Tenants, IsNotDrainedWhileEventsThatNameNoneMayBeItsOwn) {
    {
        Process first = relay({"--default-tenant", "main"});
        write("bbbb", 1);
        await_sent(first, "bbbb", "1 ");
        EXPECT_EQ(first.stop(), (ExitStatus{0, 0}));
    }
    sql(std::string("INSERT INTO ") + GetParam().table +
        " (id, tenant_id, topic, key, event_type, payload) VALUES "
        "('00000000-0000-7000-8000-000000000001', '', 'things', 'k', 'Made', '1')");
    const auto drain = [&](std::vector<std::string> more) {
        std::vector<std::string> all{"tenant", "drain", "main", "--reason", "x", "--within", "1s"};
        all.insert(all.end(), more.begin(), more.end());
        return run_on(std::move(all));
    };
    const Finished untold = drain({});
    EXPECT_EQ(untold.status.code, 6) << untold.err;
    EXPECT_THAT(untold.err, AllOf(HasSubstr("1 event that name no tenant"),
                                  HasSubstr("give --default-tenant NAME as they have it")));
    EXPECT_EQ(drain({"--default-tenant", "main"}).status.code, 6);
    EXPECT_TRUE(result({"tenant", "list"}).empty());
    EXPECT_EQ(drain({"--default-tenant", "other"}).status.code, 0);
    EXPECT_THAT(run_on({"status", "--default-tenant", "main"}).out,
                HasSubstr("tenant main, 1 of the backlog kept"));
}

TEST_P(Tenants, OneWhomNoRelayServesIsNotDrainedWhileItsEventsWait) {
    {
        Process first = relay({"--tenant", "bbbb"});
        write("bbbb", 1);
        await_sent(first, "bbbb", "1 ");
        EXPECT_EQ(first.stop(), (ExitStatus{0, 0}));
    }
    write("aaaa", 3);
    const Finished late =
        run_on({"tenant", "drain", "aaaa", "--reason", "moves", "--within", "1s"});
    EXPECT_EQ(late.status.code, 6) << late.out;
    EXPECT_THAT(late.err, HasSubstr("3 events of tenant aaaa wait; it is not paused"));
    EXPECT_TRUE(result({"tenant", "list"}).empty());
    EXPECT_THAT(run_on({"tenant", "pause", "aaaa", "--reason", "moves"}).out,
                HasSubstr("tenant aaaa is paused; 3 events kept"));
    EXPECT_EQ(run_on({"tenant", "drain", "cccc", "--reason", "has none"}).status.code, 0);
}

TEST_P(Tenants, ALetterThatIsRetriedWaitsForItsTenantAndThatIsSaid) {
    {
        Process first = relay();
        write("bbbb", 1);
        await_sent(first, "bbbb", "1 ");
    }
    ASSERT_EQ(run_on({"tenant", "pause", "aaaa", "--reason", "x"}).status.code, 0);
    sql("INSERT INTO outbox_dead_letters (source, route, id, tenant_id, attempts, error_code, "
        "error" +
        std::string(GetParam().sqlite ? ", died_at" : "") +
        ") SELECT source, 'out', 'e-' || t, t, 1, "
        "'OB_X', 'x'" +
        std::string(GetParam().sqlite ? ", 1" : "") +
        " FROM outbox_routes, (SELECT 'aaaa' AS t UNION SELECT 'bbbb') tenants");
    const Finished retried = run_on({"dead", "retry", "--all"});
    EXPECT_EQ(retried.status.code, 0) << retried.err;
    EXPECT_EQ(retried.err, "outbox: 1 of them wait until tenant aaaa is resumed: it is paused\n");
    EXPECT_THAT(run_on({"tenant", "resume", "aaaa", "--reason", "x"}).out,
                HasSubstr("0 events and 1 retried dead letter to be sent"));
}

TEST_P(Tenants, ANameTooLongToBePausedIsRefusedBeforeAnythingIsDone) {
    for (const char* command : {"pause", "drain"}) {
        const Finished refused =
            run_on({"tenant", command, std::string(2'001, 'x'), "--reason", "x"});
        EXPECT_EQ(refused.status.code, 2);
        EXPECT_THAT(refused.err, HasSubstr("2,000 at most; nothing was changed"));
    }
}

// Relays that serve some tenants each, which keep what they have done apart.
class TenantsApart : public Tenants {
  protected:
    // The relay of this tenant alone sends its next event and stops.
    void serve(const std::string& tenant, const std::vector<std::string>& more = {}) {
        std::vector<std::string> arguments{"--tenant", tenant};
        arguments.insert(arguments.end(), more.begin(), more.end());
        Process running = relay(arguments);
        write(tenant, 1);
        const int last = written_[tenant];
        await_sent(running, tenant, numbers(last, last));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
    }
    // A dead letter of each relay, by the route that each has.
    void let_one_die_of_each() {
        sql("INSERT INTO outbox_dead_letters (source, route, id, tenant_id, attempts, error_code, "
            "error" +
            std::string(GetParam().sqlite ? ", died_at" : "") +
            ") SELECT source, route, 'e-' || source, " +
            (GetParam().sqlite ? "substr(source, -4)" : "right(source, 4)") + ", 1, 'OB_X', 'x'" +
            (GetParam().sqlite ? ", 1" : "") + " FROM outbox_routes WHERE route = 'out'");
    }
};

TEST_P(TenantsApart, AreSummedUpInStatusAndOnThePageAndEachRelayMeasuresItsOwn) {
    serve("aaaa");
    serve("bbbb");
    ASSERT_EQ(run_on({"tenant", "pause", "aaaa", "--reason", "x"}).status.code, 0);
    write("aaaa", 1);
    write("bbbb", 1);
    sql(std::string("INSERT INTO outbox_delivery (source, route, event_id, position, key, "
                    "attempts, next_attempt_at, error_code, last_error") +
        (GetParam().sqlite ? ", first_failed_at" : "") + ") SELECT r.source, r.route, e.id, " +
        (adopted() ? "NULL" : "e.position") + ", e.key, 1, " +
        (GetParam().sqlite ? "9000000000000000" : "now() + interval '1 day'") + ", 'OB_X', 'x'" +
        (GetParam().sqlite ? ", 1" : "") + " FROM outbox_routes r JOIN " + GetParam().table +
        " e ON r.source LIKE '%/' || e.tenant_id WHERE e.payload = '2'");
    EXPECT_EQ(result({"status"})["failing"], 2);
    EXPECT_THAT(run_on({"status"}).out, HasSubstr("failing     2\n"));

    const std::filesystem::path token = outbox_.write("token", "a token that nobody guesses\n");
    std::filesystem::permissions(token, std::filesystem::perms::owner_read);
    const int port = free_port();
    Process running = relay({"--tenant", "aaaa", "--admin-token-file", token.string()},
                            "127.0.0.1:" + std::to_string(port));
    const auto read = [&](const char* path) {
        try {
            return http(port, "GET", path).body;
        } catch (const std::exception& error) {
            return std::string(error.what());
        }
    };
    EXPECT_TRUE(
        eventually(60s, "the relay counts its own alone",
                   [&] {
                       const std::string page = read("/metrics");
                       const auto at = page.find("\noutbox_failed{");
                       return at != std::string::npos &&
                              page.substr(0, page.find('\n', at + 1)).ends_with("/aaaa\"} 1");
                   }))
        << read("/metrics") << running.stderr_text();
    const json overview = json::parse(read("/api/overview"), nullptr, false);
    EXPECT_EQ(overview["failing"], 2) << overview;
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

TEST_P(TenantsApart, RowsThatTheTableKeepsOfThemAreOwedAndNoBacklog) {
    if (adopted()) {  // what is left of a relay of all is in nobody's way
        Process whole = relay();
        write("cccc", 1);
        await_sent(whole, "cccc", "1 ");
        EXPECT_EQ(whole.stop(), (ExitStatus{0, 0}));
    }
    write("aaaa", 1);
    const std::string table = GetParam().table;
    const std::string time = adopted() ? "created_at" : "occurred_at";
    sql("UPDATE " + table + " SET " + time + " = " +
        (!GetParam().sqlite ? "now() - interval '1 hour'"
         : adopted()        ? "datetime('now', '-1 hour')"
                            : "occurred_at - 3600000000") +
        " WHERE tenant_id = 'aaaa'");
    const std::string when = adopted() ? "UPDATE" : "DELETE";
    if (GetParam().sqlite) {
        sql("CREATE TRIGGER refuse BEFORE " + when + " ON " + table +
            " WHEN old.tenant_id = 'aaaa' BEGIN SELECT RAISE(ABORT, 'no'); END");
    } else {
        sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION "
            "''no''; END'; CREATE TRIGGER refuse BEFORE " +
            when + " ON " + table +
            " FOR EACH ROW WHEN (old.tenant_id = 'aaaa') EXECUTE FUNCTION refuse()");
    }
    {
        Process running = relay({"--tenant", "aaaa"});
        await_sent(running, "aaaa", "1 ");
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
    }
    serve("bbbb");
    write("aaaa", 1);
    write("bbbb", 1);
    for (const json& shown : {result({"status"}), result({"top", "--once"})}) {
        EXPECT_EQ(shown["backlog"], 2) << shown;
        EXPECT_EQ(shown["owed"], adopted() ? 1 : 0) << shown;
        EXPECT_LT(shown["oldest_age_s"], 600) << shown;
    }
    EXPECT_EQ(run_on({"status"}).out.find("\nowed") != std::string::npos, adopted());
}

TEST_P(TenantsApart, DeadLettersGoToRoutesOfTheirOwnRelayAlone) {
    serve("aaaa", {"--to", "second=null:"});
    serve("bbbb");
    let_one_die_of_each();
    const auto refused = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"dead", "retry"});
        const Finished ended = run_on(std::move(arguments));
        EXPECT_EQ(ended.status.code, 1) << ended.out;
        EXPECT_EQ(value("SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at IS NOT "
                        "NULL"),
                  "0");
        return ended.err;
    };
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"--all"}, {"--all", "--dry-run"}, {"--tenant", "bbbb"}}) {
        std::vector<std::string> arguments = more;
        arguments.insert(arguments.end(), {"--to", "second"});
        EXPECT_THAT(refused(arguments),
                    AllOf(HasSubstr("nothing was asked for: the relay of tenant bbbb has no route "
                                    "'second', so that these dead letters would wait for ever"),
                          HasSubstr("; its routes: 'out'\n")));
    }
    EXPECT_THAT(refused({"--all", "--to", "third"}),
                HasSubstr("the table has no route 'third'; its routes: 'out', 'second'"));

    sql("UPDATE outbox_dead_letters SET route = 'second' WHERE tenant_id = 'bbbb'");
    EXPECT_THAT(refused({"--all"}),
                AllOf(HasSubstr("the relay of tenant bbbb has no route 'second' any more"),
                      HasSubstr("; its routes: 'out'\n")));
    sql("UPDATE outbox_dead_letters SET route = 'gone'");
    EXPECT_THAT(refused({"--all"}),
                AllOf(HasSubstr("the relay of tenant aaaa has no route 'gone' any more (its "
                                "routes: 'out', 'second')"),
                      HasSubstr("the relay of tenant bbbb has no route 'gone' any more (its "
                                "routes: 'out')")));

    EXPECT_EQ(result({"dead", "retry", "--tenant", "aaaa", "--to", "second"})["matched"], 1);
    EXPECT_EQ(result({"dead", "retry", "--tenant", "bbbb", "--to", "out"})["matched"], 1);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at IS NOT NULL "
                    "AND (tenant_id, route) IN (VALUES ('aaaa', 'second'), ('bbbb', 'out'))"),
              "2");
}

INSTANTIATE_TEST_SUITE_P(Databases, TenantsApart,
                         testing::Values(Place{"native"},
                                         Place{"keep", false, {"--after-publish", "keep"}, {}},
                                         Place{"sqlite", true},
                                         Place{"adopted", false, {}, {}, "mine"},
                                         Place{"adopted_sqlite", true, {}, {}, "mine"}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Databases, Tenants,
                         testing::Values(Place{"polling", false, {}, {"--mode", "polling"}},
                                         Place{"stream", false, {}, {"--mode", "stream"}},
                                         Place{"keep", false, {"--after-publish", "keep"}, {}},
                                         Place{"sqlite", true},
                                         Place{"adopted", false, {}, {}, "mine"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace outbox::test
