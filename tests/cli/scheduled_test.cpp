// What operators do to delayed events and dead letters, and what is kept of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/eventually.h"
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

constexpr ExitStatus kStopped{0, 0};
constexpr const char* kFirst = "00000000-0000-7000-8000-000000000001";
constexpr const char* kSecond = "00000000-0000-7000-8000-000000000002";

class Audited : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        url_ = on_sqlite() ? "sqlite://" + outbox_.file("shop.db").string()
                           : shared_postgres().create_database();
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    }
    bool on_sqlite() const { return GetParam() == std::string("sqlite"); }
    // The first column of the first row.
    std::string value(const std::string& statement) {
        return on_sqlite() ? Sqlite(outbox_.file("shop.db")).value(statement)
                           : Pg(url_).value(statement);
    }
    void sql(const std::string& statement) {
        if (on_sqlite())
            Sqlite(outbox_.file("shop.db")).exec(statement);
        else
            Pg(url_).exec(statement);
    }
    // As a user writes it by plain SQL.
    void delay(const std::string& id, const std::string& key, const std::string& when) {
        const std::string time = on_sqlite() ? "unixepoch('now', '" + when + "') * 1000000"
                                             : "now() + interval '" + when + "'";
        sql("INSERT INTO outbox_scheduled (available_at, id, topic, key, event_type, payload) "
            "VALUES (" +
            time + ", '" + id + "', 'orders', '" + key + "', 'Reminder', '{\"n\": 1}')");
    }
    void let_one_die(const std::string& id) {
        sql("INSERT INTO outbox_events (id, topic, key, event_type, payload) VALUES ('" + id +
            "', 'elsewhere', 'k', 'Made', '{\"n\": 1}')");
        Process strict = relay({"--allowed-topic", "orders"});
        ASSERT_TRUE(eventually(60s, "the event is dead", [&] {
            return value("SELECT count(*) FROM outbox_dead_letters WHERE id = '" + id + "'") == "1";
        }));
        ASSERT_EQ(strict.stop(), kStopped);
    }
    Process relay(std::vector<std::string> more) {
        more.insert(more.begin(), {"--from", url_, "--to", "out=stdout:", "--admin", "off"});
        return outbox_.start_relay(more);
    }
    Finished run_on(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url_});
        return outbox_.run(arguments);
    }
    json result(std::vector<std::string> arguments) {
        arguments.emplace_back("--json");
        const Finished ended = run_on(std::move(arguments));
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }

    OutboxBinary outbox_;
    std::string url_;
};

TEST_P(Audited, DelayedEventsAreListedCancelledAndDeliveredWhenDue) {
    delay(kFirst, "o-1", "1 day");
    delay(kSecond, "o-2", "-1 day");
    json list = result({"scheduled", "list"});
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["id"], kSecond);
    EXPECT_EQ(list[1]["key"], "o-1");
    EXPECT_EQ(list[1]["event_type"], "Reminder");
    EXPECT_THAT(run_on({"scheduled", "list", "--limit", "1"}).out,
                AllOf(HasSubstr(kSecond), HasSubstr("1 of 2")));
    EXPECT_EQ(result({"scheduled", "list", "--key", "o-1"}).size(), 1U);
    EXPECT_EQ(run_on({"scheduled", "cancel"}).status.code, 2);
    EXPECT_EQ(run_on({"scheduled", "cancel", "--key", ""}).status.code, 2);
    EXPECT_EQ(result({"scheduled", "cancel", "--all", "--dry-run"})["matched"], 2);

    Process running = relay({});
    ASSERT_TRUE(eventually(60s, "the one that is due is sent", [&] {
        return running.stdout_text().find(kSecond) != std::string::npos;
    }));
    const Finished late = run_on({"scheduled", "cancel", kSecond});
    EXPECT_EQ(late.status.code, 1);
    EXPECT_THAT(late.err, HasSubstr("on its way already"));
    EXPECT_THAT(run_on({"scheduled", "cancel", kFirst}).out,
                HasSubstr("cancelled 1 delayed event"));
    EXPECT_TRUE(result({"scheduled", "list"}).empty());
    EXPECT_EQ(value("SELECT action FROM outbox_audit"), "scheduled cancel");
    EXPECT_EQ(running.stop(), kStopped);
}

TEST_P(Audited, DelayedEventsOfATenantAreListedAndCancelledAlone) {
    delay(kFirst, "o-1", "1 day");
    delay(kSecond, "o-1", "2 days");
    sql("UPDATE outbox_scheduled SET tenant_id = 'acme' WHERE id = '" + std::string(kFirst) + "'");
    sql("UPDATE outbox_scheduled SET tenant_id = '' WHERE id = '" + std::string(kSecond) + "'");
    const json acme = result({"scheduled", "list", "--tenant", "acme"});
    ASSERT_EQ(acme.size(), 1U);
    EXPECT_EQ(acme[0]["id"], kFirst);
    EXPECT_EQ(acme[0]["tenant_id"], "acme");
    EXPECT_EQ(result({"scheduled", "list", "--tenant", "default"}).size(), 1U);
    EXPECT_EQ(result({"scheduled", "list", "--tenant", "acme", "--default-tenant", "acme"}).size(),
              2U);
    EXPECT_EQ(result({"explain", "--key", "o-1", "--tenant", "acme"})["delayed_total"], 1);
    EXPECT_EQ(run_on({"scheduled", "cancel", "--tenant", ""}).status.code, 2);
    EXPECT_EQ(result({"scheduled", "cancel", "--tenant", "acme"})["matched"], 1);
    EXPECT_EQ(result({"scheduled", "list"})[0]["id"], kSecond);
    EXPECT_THAT(value("SELECT detail FROM outbox_audit"), HasSubstr("tenant acme"));
}

TEST_P(Audited, ADelayedEventThatIsNeverDueIsListedToo) {
    if (GetParam() == std::string("sqlite")) GTEST_SKIP() << "no time there is infinite";
    delay(kFirst, "o-1", "1 day");
    sql("UPDATE outbox_scheduled SET available_at = 'infinity'");
    EXPECT_EQ(result({"scheduled", "list"}).size(), 1U);
}

// It would wait for ever, and nothing but the relay's log would tell.
TEST_P(Audited, NoLimitOfPayloadsKeepsADelayedEventFromBeingSent) {
    delay(kFirst, "k", "+1 hour");
    sql("UPDATE outbox_scheduled SET payload = '{\"n\": \"" + std::string(3'000, 'x') + "\"}'");
    const Finished refused = run_on({"migrate", "--max-payload", "2048"});
    EXPECT_EQ(refused.status.code, 4);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("1 delayed event with more than 2048 bytes"),
                                   HasSubstr("--max-payload of at least 3009")));
    sql("INSERT INTO outbox_events (topic, payload) VALUES ('t', '{\"n\": \"" +
        std::string(4'000, 'x') + "\"}')");
    EXPECT_EQ(result({"migrate", "--max-payload", "3009"})["max_payload"], 3009);
    EXPECT_EQ(result({"scheduled", "cancel", "--key", "k"})["matched"], 1);
    EXPECT_THAT(run_on({"migrate", "--max-payload", "2048"}).out,
                HasSubstr("outbox_events takes payloads of up to 2048 bytes from now on"));
}

TEST_P(Audited, DelayedEventsOfATableOfOnesOwnThereAreNone) {
    sql("CREATE TABLE mine (id bigint PRIMARY KEY, event_type text, payload text, created_at "
        "timestamp)");
    sql("INSERT INTO outbox_lease (source) VALUES ('x')");
    const Finished none = run_on({"scheduled", "list", "--table", "mine"});
    EXPECT_EQ(none.status.code, 2) << none.out;
    EXPECT_THAT(none.err, HasSubstr("has no delayed events"));
}

TEST_P(Audited, ADeadLetterIsEditedAndDeliveredAsItIsThen) {
    let_one_die(kFirst);
    const auto edit = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"dead", "edit", kFirst});
        return run_on(std::move(more));
    };
    EXPECT_EQ(edit({}).status.code, 2);
    EXPECT_EQ(edit({"--headers", "[1]"}).status.code, 2);
    EXPECT_THAT(edit({"--topic", "bad topic!"}).err, HasSubstr("OB_TOPIC_INVALID"));
    const std::string broken = outbox_.write("broken.json", "{");
    EXPECT_THAT(edit({"--payload-file", broken}).err, HasSubstr("the new one is not"));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit"), "0");

    const std::string fixed = outbox_.write("fixed.json", "{\"n\": 2}");
    const Finished done = edit({"--payload-file", fixed, "--topic", "orders", "--key", "k2",
                                "--headers", "{\"why\": \"mended\"}"});
    EXPECT_EQ(done.status.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("changed 1 dead letter"));
    const json shown = result({"dead", "show", kFirst})[0];
    EXPECT_EQ(shown["payload"], json({{"n", 2}}));
    EXPECT_EQ(shown["topic"], "orders");
    EXPECT_EQ(shown["headers"], json({{"why", "mended"}}));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_status"), "1");

    EXPECT_EQ(run_on({"dead", "retry", kFirst}).status.code, 0);
    EXPECT_THAT(edit({"--key", "k3"}).err, HasSubstr("being retried"));
    Process running = relay({"--allowed-topic", "orders"});
    ASSERT_TRUE(eventually(60s, "it is sent", [&] {
        const std::string out = running.stdout_text();
        return out.find("mended") != std::string::npos && out.ends_with('\n');
    }));
    const json line = json::parse(running.stdout_text());
    EXPECT_EQ(line["key"], "k2");
    EXPECT_EQ(line["payload"], json({{"n", 2}}));
    EXPECT_EQ(running.stop(), kStopped);
}

// With it the event would be dead again.
TEST_P(Audited, ADeadLetterGetsNoHeaderThatItsDestinationNeverCarries) {
    let_one_die(kFirst);
    const auto edit = [&](const std::string& headers) {
        return run_on({"dead", "edit", kFirst, "--headers", headers});
    };
    EXPECT_EQ(edit(R"({"no such: name": "x"})").status.code, 0) << "its route is stdout's";
    const auto expect_refused = [&](const std::string& headers, const std::string& why) {
        const Finished refused = edit(headers);
        EXPECT_EQ(refused.status.code, 2) << refused.out;
        EXPECT_THAT(refused.err, HasSubstr(why));
    };
    // By the configuration.
    const std::string route = value("SELECT route FROM outbox_dead_letters");
    outbox_.write("outbox.toml", "[[route]]\nname = \"" + route +
                                     "\"\nto = \"redis://localhost\"\n[[route]]\nname = "
                                     "\"other\"\nto = \"stdout:\"\n");
    expect_refused(R"({"ok": "1", "key": "x"})", "the field 'key' of an entry is the relay's");
    EXPECT_EQ(edit(R"({"ok": "1"})").status.code, 0);
    outbox_.write("outbox.toml", "");
    // By the name that a route to webhooks has by itself.
    sql("UPDATE outbox_dead_letters SET route = 'webhook'");
    expect_refused(R"({"no such: name": "x"})", "HTTP has no header of the name");
    EXPECT_THAT(edit(R"({"content-length": "x"})").err, HasSubstr("route 'webhook'"));
}

TEST_P(Audited, AnEmptyTopicOrKeyTakesADeadLettersOwnAway) {
    let_one_die(kFirst);
    EXPECT_EQ(result({"dead", "show", kFirst})[0]["key"], "k");
    const Finished done = run_on({"dead", "edit", kFirst, "--topic", "", "--key", ""});
    EXPECT_EQ(done.status.code, 0) << done.err;
    const json shown = result({"dead", "show", kFirst})[0];
    EXPECT_TRUE(shown["topic"].is_null()) << shown;
    EXPECT_TRUE(shown["key"].is_null()) << shown;
    EXPECT_EQ(run_on({"dead", "retry", "--key", ""}).status.code, 2);
}

TEST_P(Audited, ExportedHeadersAreAsTheyAreWritten) {
    let_one_die(kFirst);
    sql("UPDATE outbox_dead_letters SET headers = '{\"n\": 12345678901234567890.10, \"one\": "
        "\"a, \\\" b\"}'");
    const Finished all = run_on({"dead", "export"});
    ASSERT_EQ(all.status.code, 0) << all.err;
    EXPECT_THAT(
        all.out,
        HasSubstr(R"("headers":{"n":12345678901234567890.10,"one":"a, \" b"},"metadata":)"));
    EXPECT_TRUE(json::accept(all.out)) << all.out;
}

TEST_P(Audited, DeadLettersAreExportedWholeAndExactly) {
    let_one_die(kFirst);
    let_one_die(kSecond);
    sql(on_sqlite() ? "UPDATE outbox_dead_letters SET payload = x'ff00fe' WHERE id = '" +
                          std::string(kSecond) + "'"
                    : "UPDATE outbox_dead_letters SET payload = '\\xff00fe' WHERE id = '" +
                          std::string(kSecond) + "'");
    sql("UPDATE outbox_dead_letters SET payload = '12345678901234567890.10' WHERE id = '" +
        std::string(kFirst) + "'");
    const Finished all = run_on({"dead", "export"});
    ASSERT_EQ(all.status.code, 0) << all.err;
    std::istringstream lines(all.out);
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(json::parse(line)["payload"], "12345678901234567890.10");
    EXPECT_EQ(json::parse(line)["error_code"], "OB_TOPIC_INVALID");
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(json::parse(line)["payload_base64"], "/wD+");
    EXPECT_FALSE(json::parse(line).contains("payload"));
    EXPECT_FALSE(std::getline(lines, line));
    EXPECT_EQ(run_on({"dead", "export", "--route", "none"}).out, "");
}

TEST_P(Audited, WhatOperatorsDoIsWrittenDownForGood) {
    let_one_die(kFirst);
    let_one_die(kSecond);
    Process other = outbox_.start_relay(
        {"--from", url_, "--to", "out=stdout:", "--to", "other=null:", "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "the route is known",
                           [&] { return result({"routes", "list"}).size() == 2; }));
    EXPECT_EQ(run_on({"dead", "retry", kFirst, "--to", "other"}).status.code, 0);
    EXPECT_EQ(
        run_on({"dead", "discard", "--event-type", "Made", "--error-code", "OB_NONE"}).status.code,
        0);
    EXPECT_EQ(run_on({"dead", "discard", kSecond}).status.code, 0);
    ASSERT_TRUE(
        eventually(60s, "it is delivered", [&] { return result({"dead", "list"}).empty(); }));
    EXPECT_EQ(other.stop(), kStopped);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit"), "2");
    const std::string table = on_sqlite() ? "outbox_events" : "public.outbox_events";
    EXPECT_EQ(value("SELECT action || '|' || detail || '|' || source || '|' || events FROM "
                    "outbox_audit WHERE audit_id = 1"),
              "dead retry --to other|ids 1|" + table + "|1");
    EXPECT_EQ(value("SELECT action FROM outbox_audit WHERE audit_id = 2"), "dead discard");
    EXPECT_THAT(value("SELECT CAST(event_ids AS text) FROM outbox_audit WHERE audit_id = 2"),
                HasSubstr(kSecond));
    EXPECT_NE(value("SELECT os_user FROM outbox_audit WHERE audit_id = 1"), "");
    if (!on_sqlite()) {
        EXPECT_EQ(value("SELECT DISTINCT role FROM outbox_audit"), "postgres");
    }
    EXPECT_THROW(sql("UPDATE outbox_audit SET os_user = 'nobody'"), std::runtime_error);
    EXPECT_THROW(sql("DELETE FROM outbox_audit"), std::runtime_error);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit"), "2");
}

TEST_P(Audited, StatusListsStandbysAndWhetherTheyHaveOtherRoutes) {
    Process leader = relay({});
    // With its routes, which it writes down when it has the lease.
    ASSERT_TRUE(eventually(60s, "it leads", [&] {
        const json status = result({"status"});
        return status["lease"]["held"] == true && !status["routes"].empty();
    }));
    Process same = relay({});
    json standbys;
    ASSERT_TRUE(eventually(60s, "one stands by", [&] {
        standbys = result({"status"})["standbys"];
        return standbys.size() == 1;
    }));
    EXPECT_EQ(standbys[0]["other_routes"], false);
    Process other =
        outbox_.start_relay({"--from", url_, "--to", "other=stdout:", "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "two stand by",
                           [&] { return result({"status"})["standbys"].size() == 2; }));
    EXPECT_THAT(run_on({"status"}).out,
                AllOf(HasSubstr("standby     "), HasSubstr(" has other routes: other")));
    EXPECT_EQ(other.stop(), kStopped);
    const json others = result({"status"})["standbys"];
    for (const json& standby : others) {
        EXPECT_EQ(standby["other_routes"], false) << "it is not gone";
    }
    EXPECT_EQ(leader.stop(), kStopped);
    ASSERT_TRUE(eventually(60s, "it has taken over", [&] {
        const json status = result({"status"});
        return status["lease"]["held"] == true && status["standbys"].empty();
    }));
    EXPECT_EQ(same.stop(), kStopped);
}

TEST_P(Audited, StatusTellsWhenTheLastErrorWas) {
    let_one_die(kFirst);
    const json route = result({"status"})["routes"][0];
    EXPECT_THAT(route["last_error"], HasSubstr("OB_TOPIC_INVALID"));
    const std::string when = route["last_error_at"];
    EXPECT_THAT(run_on({"status"}).out, HasSubstr(when.substr(0, 19) + "Z"));
    // It stays when it was, whatever happens afterwards.
    sql("INSERT INTO outbox_events (topic, key, payload) VALUES ('orders', 'k', '1')");
    Process running = relay({});
    ASSERT_TRUE(eventually(60s, "another is published", [&] {
        return result({"status"})["routes"][0]["published_total"] == 1;
    }));
    EXPECT_EQ(result({"status"})["routes"][0]["last_error_at"], when);
    EXPECT_EQ(running.stop(), kStopped);
}

INSTANTIATE_TEST_SUITE_P(On, Audited, testing::Values("postgres", "sqlite"),
                         [](const auto& tested) { return std::string(tested.param); });

// Held back for ever by an INSERT that knew the column: it is an event like others.
TEST(TimesWithoutEnd, AreInTheWayOfNoFigure) {
    const std::string url = shared_postgres().create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    for (const char* time : {"infinity", "-infinity"}) {
        Pg(url).exec("INSERT INTO outbox_events (topic, available_at, occurred_at) VALUES ('t', '" +
                     std::string(time) + "', '" + time + "')");
        const Finished status = outbox.run({"status", "--db", url, "--json"});
        EXPECT_EQ(status.status.code, 0) << status.err;
    }
}

}  // namespace
}  // namespace outbox::test
