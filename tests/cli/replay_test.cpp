// Events of the past that are sent again: which, in which order, how marked, and what a run leaves
// behind when it is killed, cancelled or refused.
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/pty.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"
#include "tests/support/kafka_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr const char* kKeep = "keep";
constexpr const char* kMark = "mark";
constexpr const char* kSqlite = "sqlite";
constexpr const char* kReason = "billing lost a volume";
constexpr const char* kUnknownRun = "00000000-0000-4000-8000-000000000000";

// A database whose published events stay, and a mailbox that route `box` leads to.
class Replay : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        mail_url_ = "sqlite://" + outbox_.file("mail.db").string();
        ASSERT_EQ(outbox_.run({"migrate", "--db", mail_url_, "--only", "consumer"}).status.code, 0);
        if (kind() == kKeep) {
            url_ = shared_postgres().create_database();
            const Finished made = outbox_.run({"migrate", "--after-publish", "keep", "--db", url_});
            if (made.err.find("PostgreSQL 14") != std::string::npos) {
                GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
            }
            ASSERT_EQ(made.status.code, 0) << made.err;
            return;
        }
        table_ = "events_out";
        if (kind() == kMark) {
            url_ = shared_postgres().create_database();
            exec(kNewSentTable);
            return;
        }
        url_ = "sqlite://" + outbox_.file("shop.db").string();
        exec(
            "PRAGMA journal_mode = WAL; CREATE TABLE events_out (id text PRIMARY KEY, tenant_id "
            "text NOT NULL, aggregate_type text, aggregate_id text, topic text NOT NULL, "
            "occurred_at text NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), payload "
            "text NOT NULL, event_metadata text, routing_key text, schema_id text, schema_version "
            "text, status text NOT NULL DEFAULT 'NEW', retry_count integer NOT NULL DEFAULT 0, "
            "retry_after text, error_message text, created_at text NOT NULL DEFAULT "
            "(strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), event_type text)");
    }

    std::string kind() const { return GetParam(); }
    void exec(const std::string& sql) {
        if (kind() == kSqlite)
            Sqlite(outbox_.file("shop.db")).exec(sql);
        else
            Pg(url_).exec(sql);
    }
    std::string value(const std::string& sql) {
        return kind() == kSqlite ? Sqlite(outbox_.file("shop.db")).value(sql) : Pg(url_).value(sql);
    }
    static std::string id(int n) {
        const std::string digits = std::to_string(n);
        return "018f2d3c-0000-7000-8000-" + std::string(12 - digits.size(), '0') + digits;
    }
    // `n` is the payload, too.
    void emit(int n, const std::string& key = "k", const std::string& type = "Made",
              const std::string& topic = "orders", const std::string& tenant = "acme") {
        exec("INSERT INTO " + table_ +
             " (id, tenant_id, aggregate_type, aggregate_id, topic, event_type, payload) VALUES "
             "('" +
             id(n) + "', '" + tenant + "', 'Order', '" + key + "', '" + topic + "', '" + type +
             "', '" + std::to_string(n) + "')");
    }
    void emit_many(int count, int keys) {
        const std::string numbers =
            kind() == kSqlite
                ? "(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < " +
                      std::to_string(count) + ") SELECT n FROM g)"
                : "(SELECT generate_series(1, " + std::to_string(count) + ") AS n)";
        const std::string id = kind() == kSqlite
                                   ? "'018f2d3c-0000-7000-8000-' || printf('%012d', n)"
                                   : "('018f2d3c-0000-7000-8000-' || lpad(n::text, 12, '0'))" +
                                         std::string(kind() == kKeep ? "::uuid" : "");
        const std::string payload = kind() == kSqlite ? "n" : "to_jsonb(n)";
        exec("INSERT INTO " + table_ +
             " (id, tenant_id, aggregate_type, aggregate_id, topic, event_type, payload) SELECT " +
             id + ", 'acme', 'Order', 'k' || (n % " + std::to_string(keys) + "), 'orders', " +
             "'Made', " + payload + " FROM " + numbers + " AS numbers ORDER BY n");
    }

    std::vector<std::string> source() const { return {"--from", url_, "--table", table_}; }
    std::string box() const { return "box=mailbox+" + mail_url_; }
    Process relay(const std::vector<std::string>& more = {}) {
        std::vector<std::string> words = source();
        words.insert(words.end(), {"--to", box(), "--admin", "off"});
        words.insert(words.end(), more.begin(), more.end());
        return outbox_.start_relay(words);
    }
    // The relay has sent all, and nobody has it any more.
    void publish(const std::vector<std::string>& more = {}) {
        Process running = relay(more);
        const std::string open =
            kind() == kKeep ? "SELECT count(*) FROM outbox_events WHERE position > (SELECT "
                              "min(settled) FROM outbox_routes)"
                            : "SELECT count(*) FROM events_out WHERE status NOT IN ('SENT', "
                              "'DEAD')";
        ASSERT_TRUE(eventually(60s, "all is published", [&] {
            return has_routes() && value("SELECT count(*) FROM outbox_routes") == "1" &&
                   value(open) == "0";
        })) << running.stderr_text();
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
        clear_mail();
    }
    // Beside an adopted table the relay makes it.
    bool has_routes() {
        return value(kind() == kSqlite
                         ? "SELECT count(*) FROM sqlite_master WHERE name = 'outbox_routes'"
                         : "SELECT count(to_regclass('outbox_routes'))") == "1";
    }
    void clear_mail() { mail_sql("DELETE FROM outbox_mailbox"); }
    void mail_sql(const std::string& sql) { Sqlite(outbox_.file("mail.db")).exec(sql); }
    // What arrived, in its order.
    std::vector<std::string> mail(const std::string& column = "CAST(payload AS text)") {
        std::vector<std::string> out;
        for (const auto& row :
             Sqlite(outbox_.file("mail.db"))
                 .query("SELECT " + column + " FROM outbox_mailbox ORDER BY position")) {
            out.push_back(row[0].value_or(""));
        }
        return out;
    }

    std::vector<std::string> words(const std::vector<std::string>& more,
                                   const std::string& command = "replay") {
        std::vector<std::string> words{"replay"};
        if (command != "replay") words.push_back(command);
        const std::vector<std::string> from = source();
        words.insert(words.end(), from.begin(), from.end());
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    Finished replay(const std::vector<std::string>& more, bool with_reason = true) {
        std::vector<std::string> all = words(more);
        all.insert(all.end(), {"--to", box()});
        if (with_reason) all.insert(all.end(), {"--reason", kReason});
        return outbox_.run(all);
    }
    json replayed(std::vector<std::string> more, int code = 0) {
        more.emplace_back("--json");
        const Finished ended = replay(more);
        EXPECT_EQ(ended.status.code, code) << ended.out << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }
    Process start_replay(const std::vector<std::string>& more) {
        std::vector<std::string> all{OUTBOX_BINARY};
        const std::vector<std::string> said = words(more);
        all.insert(all.end(), said.begin(), said.end());
        all.insert(all.end(), {"--to", box(), "--reason", kReason, "--yes"});
        return Process({.command = all, .working_folder = outbox_.file("")});
    }
    Finished resume(const std::string& run, const std::vector<std::string>& more = {}) {
        std::vector<std::string> all = words({run, "--to", box()}, "resume");
        all.insert(all.end(), more.begin(), more.end());
        return outbox_.run(all);
    }
    json list() {
        const Finished ended = outbox_.run(words({"--json"}, "list"));
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }

    OutboxBinary outbox_;
    std::string url_;
    std::string table_ = "outbox_events";
    std::string mail_url_;
};

TEST_P(Replay, SendsWhatIsChosenInOrderAndMarkedAndWritesDownWhoDidIt) {
    emit(1, "a");
    emit(2, "b");
    emit(3, "a", "Paid");
    publish();
    const json run = replayed({"--key", "a"});
    EXPECT_EQ(run["state"], "finished");
    EXPECT_EQ(run["sent"], 2);
    EXPECT_EQ(run["expected"], 2);
    EXPECT_THAT(mail(), ElementsAre("1", "3"));
    EXPECT_THAT(mail("id"), ElementsAre(id(1), id(3)));
    EXPECT_THAT(mail("headers ->> 'outbox-replay'"), ElementsAre(run["run"], run["run"]));
    EXPECT_EQ(list()[0], [&] {
        json without = run;
        without.erase("estimate");
        return without;
    }());
    EXPECT_EQ(value("SELECT action || ' ' || events FROM outbox_audit"), "replay 2");
    EXPECT_THAT(value("SELECT detail FROM outbox_audit"),
                AllOf(HasSubstr(run["run"].get<std::string>()), HasSubstr("key a"),
                      HasSubstr(std::string("reason: ") + kReason)));
    clear_mail();
    EXPECT_EQ(replayed({"--event-type", "Paid"})["sent"], 1);
    EXPECT_THAT(mail(), ElementsAre("3"));
    clear_mail();
    EXPECT_EQ(replayed({"--yes"})["sent"], 3);
    EXPECT_THAT(mail(), ElementsAre("1", "2", "3"));
}

TEST_P(Replay, ChoosesByTimeAndTenant) {
    emit(1, "a", "Made", "orders", "acme");
    emit(2, "a", "Made", "orders", "umbrella");
    publish();
    exec("UPDATE " + table_ + " SET occurred_at = '2026-01-31T08:15:00Z' WHERE tenant_id = 'acme'");
    EXPECT_EQ(replayed({"--until", "2026-02-01"})["sent"], 1);
    EXPECT_THAT(mail(), ElementsAre("1"));
    clear_mail();
    EXPECT_EQ(replayed({"--since", "1h"})["sent"], 1);
    EXPECT_THAT(mail(), ElementsAre("2"));
    clear_mail();
    const json both = replayed({"--since", "2026-01-31T09:15:00+01:00", "--until",
                                "2026-01-31T08:15:00.000001Z", "--tenant", "acme"});
    EXPECT_EQ(both["sent"], 1);
    EXPECT_EQ(both["estimate"]["first_at"], "2026-01-31T08:15:00.000000Z");
    EXPECT_EQ(replayed({"--tenant", "umbrella", "--until", "2026-02-01"}, 1)["estimate"]["events"],
              0);
}

TEST_P(Replay, AsNewGivesEachEventAnIdOfTheRunAndItsTime) {
    emit(1);
    publish();
    exec("UPDATE " + table_ + " SET occurred_at = '2026-01-31T08:15:00Z'");
    const json first = replayed({"--as-new", "--yes"});
    const json second = replayed({"--as-new", "--yes"});
    const std::vector<std::string> ids = mail("id");
    ASSERT_EQ(ids.size(), 2U);
    EXPECT_NE(ids[0], ids[1]);
    EXPECT_NE(ids[0], id(1));
    EXPECT_EQ(ids[0].substr(14, 1), "5");
    EXPECT_EQ(mail("headers ->> 'id'"), ids);
    EXPECT_THAT(mail("headers ->> 'occurred_at'"),
                ElementsAre(first["started_at"], second["started_at"]));
}

TEST_P(Replay, SaysWhatItWouldSendAndSendsNothing) {
    emit(1);
    emit(2);
    publish();
    const json told = replayed({"--key", "k", "--dry-run"});
    EXPECT_EQ(told["estimate"]["events"], 2);
    EXPECT_EQ(told["estimate"]["of"], 2);
    EXPECT_GT(told["estimate"]["bytes"], 0);
    const Finished text = replay({"--key", "k", "--dry-run"}, false);
    EXPECT_EQ(text.status.code, 0) << text.err;
    EXPECT_THAT(text.out, AllOf(HasSubstr("2 of 2"), HasSubstr("500/s")));
    EXPECT_TRUE(mail().empty());
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit"), "0");
}

TEST_P(Replay, CountsWhatAnInboxWouldQuarantine) {
    emit(1);
    exec("INSERT INTO " + table_ +
         " (id, tenant_id, aggregate_type, aggregate_id, topic, event_type, payload) VALUES "
         "('0fffffff-ffff-7000-8000-000000000001', 'acme', 'Order', 'k', 'orders', 'Made', '2'), "
         // A hash, whose time is that of its row.
         "('0fffffff-ffff-7000-0000-000000000002', 'acme', 'Order', 'k', 'orders', 'Made', '3')");
    publish();
    mail_sql(
        "INSERT INTO outbox_inbox_floor (consumer, floor) VALUES ('billing', 1750000000000000)");
    const std::vector<std::string> asks{"--key", "k", "--dry-run", "--consumer-db", mail_url_};
    json consumers = replayed(asks)["estimate"]["consumers"];
    ASSERT_EQ(consumers.size(), 1U) << consumers;
    EXPECT_EQ(consumers[0]["consumer"], "billing");
    EXPECT_EQ(consumers[0]["quarantined"], 1);
    EXPECT_THAT(replay(asks).out, HasSubstr("would be quarantined"));
    std::vector<std::string> as_new = asks;
    as_new.emplace_back("--as-new");
    EXPECT_EQ(replayed(as_new)["estimate"]["consumers"][0]["quarantined"], 0);
}

TEST_P(Replay, OfDeadLettersSendsCopiesOfThem) {
    emit(1, "a", "Made", "elsewhere");
    emit(2, "b");
    publish({"--allowed-topic", "orders"});
    // What was given up is no published event.
    EXPECT_EQ(replayed({"--yes"})["sent"], 1);
    EXPECT_THAT(mail(), ElementsAre("2"));
    clear_mail();
    const json run = replayed({"--dead-letters", "--yes"});
    EXPECT_EQ(run["sent"], 1);
    EXPECT_EQ(run["from"], "dead_letters");
    EXPECT_THAT(mail(), ElementsAre("1"));
    EXPECT_THAT(mail("id"), ElementsAre(id(1)));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_dead_letters"), "1");
}

TEST_P(Replay, OfAnEventThatIsRefusedListsItAndGoesOn) {
    emit(1, "a", "Made", "elsewhere");
    emit(2, "a");
    emit(3, "b");
    publish();
    const json run = replayed({"--yes", "--allowed-topic", "orders"}, 1);
    EXPECT_EQ(run["state"], "finished");
    EXPECT_EQ(run["sent"], 2);
    EXPECT_EQ(run["refused"], 1);
    ASSERT_EQ(run["refusals"].size(), 1U);
    EXPECT_EQ(run["refusals"][0]["id"], id(1));
    EXPECT_THAT(run["refusals"][0]["error"], HasSubstr("OB_TOPIC_INVALID"));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_dead_letters"), "0") << "it was published once";
    EXPECT_THAT(mail(), UnorderedElementsAre("2", "3"));
}

TEST_P(Replay, ThatIsKilledGoesOnWhereItWasAndMissesNothing) {
    constexpr int kEvents = 1'500;
    emit_many(kEvents, 7);
    publish();
    Process first = start_replay({"--as-new", "--rate", "500/s"});
    ASSERT_TRUE(eventually(60s, "some are written down as sent", [&] {
        const json runs = list();
        return !runs.empty() && runs[0]["sent"] >= 300;
    })) << first.stderr_text();
    // Killed while some are under way that nobody has taken, and after that was written down.
    Sqlite other(outbox_.file("mail.db"));
    other.exec("BEGIN IMMEDIATE");
    ASSERT_TRUE(eventually(60s, "they are not taken", [&] {
        return first.stderr_text().find("event=circuit_open") != std::string::npos;
    })) << first.stderr_text();
    const json then = list()[0]["updated_at"];
    ASSERT_TRUE(
        eventually(60s, "it is written down", [&] { return list()[0]["updated_at"] > then; }));
    first.kill(SIGKILL);
    ASSERT_TRUE(first.wait(60s).has_value());
    other.exec("ROLLBACK");
    const json killed = list()[0];
    const std::size_t before = mail().size();
    EXPECT_LT(before, static_cast<std::size_t>(kEvents));
    const auto sent = killed["sent"].get<std::size_t>();
    EXPECT_LE(sent, before);
    const std::set<std::string> known = [&] {
        const auto ids = mail("id");
        return std::set<std::string>(ids.begin(), ids.end());
    }();
    // What the first one sent and did not write down comes again, under the same id.
    clear_mail();
    const Finished ended = resume(killed["run"], {"--json", "--reason", "after the kill"});
    ASSERT_EQ(ended.status.code, 0) << ended.out << ended.err;
    const json run = json::parse(ended.out);
    EXPECT_EQ(run["state"], "finished");
    EXPECT_EQ(run["sent"], kEvents);
    const auto ids = mail("id");
    EXPECT_EQ(ids.size(), kEvents - sent) << "repeats are what was not written down";
    std::set<std::string> all(ids.begin(), ids.end());
    all.insert(known.begin(), known.end());
    EXPECT_EQ(all.size(), static_cast<std::size_t>(kEvents)) << "no id but those of the run";
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit WHERE action = 'replay resume' AND detail "
                    "LIKE '%after the kill'"),
              "1");
}

TEST_P(Replay, WhoIsPausedPastItsLeaseSendsNothingOnceAnotherGoesOnWithItsRun) {
    constexpr int kEvents = 400;
    emit_many(kEvents, 3);
    publish();
    const auto started = [&](std::vector<std::string> all) {
        all.insert(all.begin(), OUTBOX_BINARY);
        all.insert(all.end(), {"--to", "other=stdout:"});
        return Process({.command = all, .working_folder = outbox_.file("")});
    };
    const auto sent = [](const Process& running) {
        const std::string text = running.stdout_text();
        return std::count(text.begin(), text.end(), '\n');
    };
    Process paused =
        started(words({"--route", "box", "--yes", "--reason", kReason, "--rate", "100/s"}));
    ASSERT_TRUE(eventually(60s, "some are written down", [&] {
        const json runs = list();
        return !runs.empty() && runs[0]["sent"] >= 100;
    })) << paused.stderr_text();
    // Right behind a record, so that it has no lock of the table.
    const json then = list()[0]["updated_at"];
    ASSERT_TRUE(eventually(60s, "it writes", [&] { return list()[0]["updated_at"] > then; }));
    paused.kill(SIGSTOP);
    const std::string run = list()[0]["run"];
    const auto before = sent(paused);
    Process next = started(words({run}, "resume"));
    EXPECT_EQ(next.wait(120s), (ExitStatus{0, 0})) << next.stderr_text();
    EXPECT_EQ(list()[0]["state"], "finished");
    EXPECT_EQ(list()[0]["sent"], kEvents);
    paused.kill(SIGCONT);
    EXPECT_EQ(paused.wait(60s), (ExitStatus{5, 0})) << paused.stderr_text();
    EXPECT_THAT(paused.stderr_text(), HasSubstr("another process goes on with run " + run));
    constexpr int kUnderWay = 50;  // half a second's, that it had handed out when it was paused
    EXPECT_LE(sent(paused), before + kUnderWay);
    EXPECT_EQ(list()[0]["sent"], kEvents) << "and writes nothing";
}

TEST_P(Replay, ThatIsKilledGoesOnAlsoWhereTheClockWasSetBackMeanwhile) {
    emit_many(400, 3);
    publish();
    Process first = start_replay({"--rate", "100/s"});
    ASSERT_TRUE(eventually(60s, "some are written down as sent", [&] {
        const json runs = list();
        return !runs.empty() && runs[0]["sent"] >= 50;
    })) << first.stderr_text();
    first.kill(SIGKILL);
    ASSERT_TRUE(first.wait(60s).has_value());
    // What was written an hour ago by a clock that was an hour ahead.
    const std::string hour = kind() == kSqlite ? " + 3600000000" : " + interval '1 hour'";
    exec("UPDATE outbox_replays SET runner_until = runner_until" + hour +
         ", updated_at = updated_at" + hour);
    const std::string run = list()[0]["run"];
    std::vector<std::string> again = words({run, "--to", box()}, "resume");
    again.insert(again.begin(), OUTBOX_BINARY);
    Process next({.command = again, .working_folder = outbox_.file("")});
    EXPECT_EQ(next.wait(60s), (ExitStatus{0, 0})) << next.stderr_text();
    EXPECT_EQ(list()[0]["sent"], 400);
}

TEST_P(Replay, ToLookForRunsMakesNoTableOfThem) {
    emit(1);
    publish();
    if (kind() == kKeep) exec("DROP TABLE outbox_replays");
    EXPECT_EQ(list(), json::array());
    const Finished shown = outbox_.run(words({}, "list"));
    EXPECT_EQ(shown.out, "no replays\n") << shown.err;
    EXPECT_THAT(resume(kUnknownRun).err, HasSubstr("there is no run"));
    const Finished cancelled = outbox_.run(words({kUnknownRun, "--reason", "r"}, "cancel"));
    EXPECT_THAT(cancelled.err, HasSubstr("there is no run"));
    EXPECT_EQ(
        value(kind() == kSqlite ? "SELECT count(*) FROM sqlite_master WHERE name = 'outbox_replays'"
                                : "SELECT count(to_regclass('outbox_replays'))"),
        "0");
}

TEST_P(Replay, KeepsTheOrderOfEachKey) {
    constexpr int kEvents = 2'000;
    emit_many(kEvents, 5);
    publish();
    EXPECT_EQ(replayed({"--yes", "--rate", "100000"})["sent"], kEvents);
    std::map<std::string, int> last;
    const auto keys = mail("key");
    const auto payloads = mail();
    for (std::size_t i = 0; i < keys.size(); ++i) {
        EXPECT_LT(last[keys[i]], std::stoi(payloads[i])) << keys[i];
        last[keys[i]] = std::stoi(payloads[i]);
    }
}

// Two operators: each has seen it running.
TEST_P(Replay, WhoCancelsBesideAnotherIsToldThatItIsCancelled) {
    if (kind() == kSqlite) GTEST_SKIP() << "nothing tells that the second waits";
    emit_many(10, 1);
    publish();
    const Finished sent = replay({"--as-new", "--yes"});
    ASSERT_EQ(sent.status.code, 0) << sent.err;
    const std::string run = list()[0]["run"];
    exec("UPDATE outbox_replays SET state = 'running'");
    const auto cancel = [&] {
        return outbox_.run(words({run, "--reason", "wrong key"}, "cancel"));
    };
    Pg first(url_);
    first.exec("BEGIN; UPDATE outbox_replays SET state = 'cancelled'");
    auto second = std::async(std::launch::async, cancel);
    EXPECT_TRUE(eventually(60s, "the second waits for the first", [&] {
        return Pg(url_).number(
                   "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = "
                   "'Lock' AND datname = current_database()") == 1;
    }));
    first.exec("COMMIT");
    EXPECT_THAT(second.get().err, HasSubstr("it is cancelled; nothing was changed"));
}

TEST_P(Replay, IsCancelledByAnother) {
    emit_many(1'000, 3);
    publish();
    Process running = start_replay({"--rate", "50/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail().empty(); }))
        << running.stderr_text();
    const std::string run = list()[0]["run"];
    // Another does not take it meanwhile.
    const Finished second = resume(run);
    EXPECT_EQ(second.status.code, 1);
    EXPECT_THAT(second.err,
                AllOf(HasSubstr("is run by"), HasSubstr(std::to_string(running.pid()))));
    const Finished cancelled = outbox_.run(words({run, "--reason", "wrong key"}, "cancel"));
    EXPECT_EQ(cancelled.status.code, 0) << cancelled.err;
    EXPECT_EQ(running.wait(60s), (ExitStatus{1, 0}));
    EXPECT_THAT(running.stdout_text(), HasSubstr("cancelled"));
    const json left = list()[0];
    EXPECT_EQ(left["state"], "cancelled");
    EXPECT_EQ(left["sent"], mail().size());
    EXPECT_LT(left["sent"], 1'000);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit WHERE action = 'replay cancel' AND detail "
                    "LIKE '%reason: wrong key'"),
              "1");
    const Finished again = outbox_.run(words({run, "--reason", "once more"}, "cancel"));
    EXPECT_EQ(again.status.code, 1);
    EXPECT_THAT(again.err, HasSubstr("it is cancelled; nothing was changed"));
    const Finished late = resume(run);
    EXPECT_EQ(late.status.code, 1);
    EXPECT_THAT(late.err, HasSubstr("is over: it is cancelled"));
}

TEST_P(Replay, ThatIsStoppedCanBeGoneOnWithAtOnce) {
    emit_many(600, 3);
    publish();
    Process running = start_replay({"--rate", "200/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail().empty(); }))
        << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{1, 0})) << running.stderr_text();
    EXPECT_THAT(running.stderr_text(), HasSubstr("outbox replay resume"));
    const json stopped = list()[0];
    EXPECT_EQ(stopped["state"], "running");
    EXPECT_EQ(stopped["runner"], nullptr);
    EXPECT_EQ(stopped["sent"], mail().size()) << "what was under way is written down";
    EXPECT_EQ(resume(stopped["run"]).status.code, 0);
    EXPECT_EQ(mail().size(), 600U);
}

TEST_P(Replay, GoesOnToTheTopicsThatItBeganWith) {
    emit_many(600, 3);
    exec("UPDATE " + table_ + " SET topic = " + (kind() == kKeep ? "NULL" : "''"));
    publish();
    Process running = start_replay({"--rate", "200/s", "--topic-template", "again-{event_type}"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail().empty(); }))
        << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{1, 0})) << running.stderr_text();
    const std::string run = list()[0]["run"];
    for (const auto& [option, value] :
         {std::pair{"--topic-template", "elsewhere"}, std::pair{"--format", "cloudevents"}}) {
        const Finished refused = resume(run, {option, value});
        EXPECT_EQ(refused.status.code, 2) << refused.out;
        EXPECT_THAT(refused.err, HasSubstr("goes on as it began"));
    }
    EXPECT_EQ(resume(run).status.code, 0) << "the route's own template is another one";
    EXPECT_EQ(mail().size(), 600U);
    for (const std::string& topic : mail("topic")) ASSERT_EQ(topic, "again-Made");
}

TEST_P(Replay, OfARouteThatIsRenamedGoesOnUnderTheNewName) {
    emit_many(600, 3);
    publish();
    Process running = start_replay({"--rate", "200/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail().empty(); }))
        << running.stderr_text();
    const auto rename = [this] {
        return outbox_.run({"routes", "rename", "box", "crate", "--db", url_, "--table", table_});
    };
    const Finished refused = rename();
    EXPECT_EQ(refused.status.code, 1) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("outbox replay cancel"));
    running.stop();
    const Finished renamed = rename();
    ASSERT_EQ(renamed.status.code, 0) << renamed.err;
    const json stopped = list()[0];
    EXPECT_EQ(stopped["route"], "crate");
    const Finished ended =
        outbox_.run(words({stopped["run"], "--to", "crate=mailbox+" + mail_url_}, "resume"));
    EXPECT_EQ(ended.status.code, 0) << ended.err;
    EXPECT_EQ(mail().size(), 600U);
}

TEST_P(Replay, WaitsForADestinationThatIsAway) {
    emit_many(400, 3);
    publish();
    Process running = start_replay({"--rate", "200/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail().empty(); }))
        << running.stderr_text();
    Sqlite other(outbox_.file("mail.db"));
    other.exec("BEGIN IMMEDIATE");
    ASSERT_TRUE(eventually(60s, "it waits", [&] {
        return running.stderr_text().find("event=circuit_open") != std::string::npos;
    })) << running.stderr_text();
    other.exec("ROLLBACK");
    EXPECT_EQ(running.wait(60s), (ExitStatus{0, 0})) << running.stderr_text();
    EXPECT_EQ(mail().size(), 400U);
    EXPECT_EQ(list()[0]["refused"], 0) << "an outage is no event's fault";
}

TEST_P(Replay, OfEverythingIsAskedFor) {
    emit_many(1'200, 3);
    publish();
    for (const std::vector<std::string>& asked :
         {std::vector<std::string>{}, {"--event-type", "Made"}}) {
        const Finished refused = replay(asked);
        EXPECT_EQ(refused.status.code, 2);
        EXPECT_THAT(refused.err, AllOf(HasSubstr("of the history of route box: 1,200 events"),
                                       HasSubstr("--yes")));
    }
    EXPECT_TRUE(mail().empty());
    if (kind() == kSqlite) {
        // On a terminal the number is typed.
        std::vector<std::string> all{OUTBOX_BINARY};
        const std::vector<std::string> said = words({"--to", box(), "--reason", kReason});
        all.insert(all.end(), said.begin(), said.end());
        for (const bool right : {false, true}) {
            PtyProcess terminal(all, outbox_.file("").string(), {}, 100, 30);
            ASSERT_TRUE(eventually(60s, "it asks", [&] {
                terminal.look();
                return terminal.all().find("Type their number") != std::string::npos;
            }));
            terminal.type(right ? "1,200\n" : "1\n");
            ASSERT_TRUE(eventually(60s, "it ends", [&] { return terminal.ended().has_value(); }));
            EXPECT_EQ(*terminal.ended(), (ExitStatus{right ? 0 : 1, 0})) << terminal.all();
            EXPECT_EQ(mail().size(), right ? 1'200U : 0U);
        }
        EXPECT_THAT(outbox_.run(words({}, "list")).out, HasSubstr("finished"));
    }
}

TEST_P(Replay, LeavesTheRowsOfTheTableAsTheyAre) {
    emit(1);
    publish();
    const std::string state = kind() == kKeep
                                  ? "SELECT string_agg(position || ' ' || settled, ',') FROM "
                                    "outbox_events, outbox_routes"
                                  : "SELECT status || ' ' || retry_count FROM events_out";
    const std::string figures = "SELECT sum(published_total) FROM outbox_route_stats";
    const std::string before = value(state) + value(figures);
    EXPECT_EQ(replayed({"--yes"})["sent"], 1);
    EXPECT_EQ(value(state) + value(figures), before);
}

TEST_P(Replay, ToStandardOutputLeavesItToTheEvents) {
    emit_many(3, 1);
    publish();
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--json"}}) {
        std::vector<std::string> all =
            words({"--route", "box", "--to", "copy=stdout:", "--yes", "--reason", kReason});
        all.insert(all.end(), more.begin(), more.end());
        const Finished ended = outbox_.run(all);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        std::istringstream lines(ended.out);
        int events = 0;
        for (std::string line; std::getline(lines, line); ++events) {
            EXPECT_TRUE(json::accept(line)) << line;
        }
        EXPECT_EQ(events, 3) << ended.out;
        EXPECT_THAT(ended.err, HasSubstr("finished"));
    }
}

TEST_P(Replay, NothingThatMatchesIsAClearAnswer) {
    emit(1);
    publish();
    const Finished none = replay({"--key", "nobody"});
    EXPECT_EQ(none.status.code, 1);
    EXPECT_THAT(none.err, HasSubstr("no event matches; nothing was sent"));
    const Finished unknown = replay({"--route", "billing", "--key", "k"});
    EXPECT_EQ(unknown.status.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("the table has no route 'billing'"));
    EXPECT_THAT(outbox_.run(words({}, "list")).out, HasSubstr("no replays"));
    const Finished no_run = resume(kUnknownRun);
    EXPECT_EQ(no_run.status.code, 1);
    EXPECT_THAT(no_run.err, HasSubstr("there is no run"));
}

// A table that keeps its rows knows only up to where all is finished.
class ReplayOfKeptRows : public Replay {};

TEST_P(ReplayOfKeptRows, OneEventThatWaitsKeepsThoseBehindItOutAndThatIsSaid) {
    emit(1);
    publish();
    ASSERT_EQ(
        outbox_.run({"tenant", "pause", "idle", "--reason", "moves", "--db", url_}).status.code, 0);
    emit(2, "k", "Made", "orders", "idle");
    for (int n = 3; n <= 5; ++n) emit(n, "z");
    {
        Process running = relay();
        ASSERT_TRUE(eventually(60s, "the others arrive", [&] { return mail().size() == 3; }));
    }
    const Finished none = replay({"--key", "z", "--dry-run"});
    EXPECT_EQ(none.status.code, 1) << none.out;
    EXPECT_THAT(none.err, AllOf(HasSubstr("no event that can be replayed now matches"),
                                HasSubstr("left out: 3, behind the first event")));
    const Finished some = replay({"--tenant", "acme", "--dry-run"});
    EXPECT_EQ(some.status.code, 0) << some.err;
    EXPECT_THAT(some.out, HasSubstr("3, behind the first event"));
    EXPECT_EQ(json::parse(replay({"--tenant", "acme", "--dry-run", "--json"}).out)
                  .at("estimate")
                  .at("left_out"),
              3);
    const Finished sent = replay({"--tenant", "acme"});
    EXPECT_EQ(sent.status.code, 0) << sent.err;
    EXPECT_THAT(sent.out, HasSubstr("finished"));
    EXPECT_THAT(sent.err, HasSubstr("left out when the run began: 3, behind the first event"));
}

TEST_P(ReplayOfKeptRows, OfATableThatBeganAnewIsRefusedAsNothingOfItIsKnownToBePublished) {
    emit(1);
    publish();
    EXPECT_EQ(Pg(url_).value("SELECT status FROM outbox_status"), "PUBLISHED");
    Pg(url_).exec("TRUNCATE outbox_events RESTART IDENTITY");
    emit(2);
    EXPECT_EQ(Pg(url_).value("SELECT status FROM outbox_status"), "PENDING");
    const Finished refused = replay({"--key", "k"});
    EXPECT_EQ(refused.status.code, 5) << refused.out;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("OB_TABLE_RESET"), HasSubstr("nobody can say what of it was sent"),
                      HasSubstr("A relay that starts sends all that it holds")));
    EXPECT_EQ(
        outbox_.run({"tenant", "drain", "acme", "--reason", "moves", "--db", url_}).status.code, 5);
    const Finished told = outbox_.run(
        {"explain", Pg(url_).value("SELECT id::text FROM outbox_events"), "--db", url_, "--json"});
    EXPECT_EQ(json::parse(told.out)["events"][0]["state"], "waiting") << told.out;
}

TEST_P(ReplayOfKeptRows, OfATableWhoseNumbersWereSetBackIsRefused) {
    emit(1);
    emit(2);
    publish();
    Pg(url_).exec("TRUNCATE outbox_events; SELECT setval('outbox_events_position_seq', 1, false)");
    emit(3);
    EXPECT_EQ(Pg(url_).value("SELECT status FROM outbox_status"), "PENDING");
    const Finished refused = replay({"--key", "k"});
    EXPECT_EQ(refused.status.code, 5) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("OB_TABLE_RESET"));
}

TEST_P(ReplayOfKeptRows, SendsNothingOfATableThatBeginsAnewUnderItNorOnceItIsGoneOnWith) {
    emit_many(300, 3);
    publish();
    Process running = start_replay({"--rate", "20/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail("id").empty(); }))
        << running.stderr_text();
    exec(
        "BEGIN; TRUNCATE outbox_events RESTART IDENTITY; INSERT INTO outbox_events (tenant_id, "
        "aggregate_type, aggregate_id, topic, event_type, payload) SELECT 'acme', 'Order', 'k', "
        "'orders', 'Made', to_jsonb(n) FROM generate_series(1001, 1200) n; COMMIT");
    EXPECT_EQ(running.wait(60s), (ExitStatus{5, 0})) << running.stdout_text();
    EXPECT_THAT(running.stderr_text(),
                AllOf(HasSubstr("OB_TABLE_RESET"), HasSubstr("outbox replay cancel RUN")));
    for (const std::string& payload : mail()) EXPECT_LE(std::stoi(payload), 300);
    const json run = list()[0];
    EXPECT_EQ(run["state"], "failed");
    {
        Process goes_on = relay();
        ASSERT_TRUE(eventually(60s, "the new rows are published", [&] {
            return value("SELECT settled FROM outbox_routes") == "200";
        })) << goes_on.stderr_text();
        ASSERT_EQ(goes_on.stop(), (ExitStatus{0, 0}));
        clear_mail();
    }
    const Finished resumed = resume(run["run"]);
    EXPECT_EQ(resumed.status.code, 5) << resumed.out;
    EXPECT_THAT(resumed.err, AllOf(HasSubstr("OB_TABLE_RESET"), HasSubstr("the run began with")));
    EXPECT_TRUE(mail("id").empty());
    EXPECT_EQ(list()[0]["state"], "failed");
    EXPECT_EQ(replayed({"--yes"})["sent"], 200);
}

TEST_P(ReplayOfKeptRows, ARunDoesNotGoOnWithTheRowsOfATableWhoseNumbersWereSetBack) {
    emit_many(300, 3);
    publish();
    Process running = start_replay({"--rate", "20/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail("id").empty(); }))
        << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{1, 0})) << running.stderr_text();
    exec("TRUNCATE outbox_events; SELECT setval('outbox_events_position_seq', 1, false)");
    emit_many(200, 3);
    {
        Process goes_on = relay();
        ASSERT_TRUE(eventually(60s, "the new rows are published", [&] {
            return value("SELECT settled FROM outbox_routes") == "200";
        })) << goes_on.stderr_text();
        ASSERT_EQ(goes_on.stop(), (ExitStatus{0, 0}));
        clear_mail();
    }
    const Finished resumed = resume(list()[0]["run"]);
    EXPECT_EQ(resumed.status.code, 5) << resumed.out;
    EXPECT_THAT(resumed.err, AllOf(HasSubstr("OB_TABLE_RESET"), HasSubstr("the run began with")));
    EXPECT_TRUE(mail("id").empty());
}

// Nobody can tell any more who removed them.
TEST_P(ReplayOfKeptRows, RowsThatVanishMeanwhileAreToldWithAllThatMayHaveRemovedThem) {
    emit_many(10'500, 3);
    publish();
    Process running = start_replay({"--rate", "5000/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail("id").empty(); }))
        << running.stderr_text();
    exec("TRUNCATE outbox_events");
    EXPECT_EQ(running.wait(60s), (ExitStatus{0, 0})) << running.stderr_text();
    EXPECT_THAT(running.stdout_text(),
                AllOf(HasSubstr(" were no longer there when their turn came: "),
                      HasSubstr("--after-publish"), HasSubstr("TRUNCATE")));
}

TEST_P(Replay, ToAnotherDestinationNeedsItsOwnName) {
    emit(1);
    publish();
    const std::string other = "sqlite://" + outbox_.file("audit.db").string();
    ASSERT_EQ(outbox_.run({"migrate", "--db", other, "--only", "consumer"}).status.code, 0);
    const auto to = [&](const std::string& name) {
        std::vector<std::string> all = words({"--route", "box", "--yes", "--reason", kReason});
        all.insert(all.end(), {"--to", name + "mailbox+" + other});
        return outbox_.run(all);
    };
    const Finished refused = to("box=");
    EXPECT_EQ(refused.status.code, 5);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("route 'box' led to"), HasSubstr("--to NAME=URL")));
    const Finished sent = to("audit=");
    EXPECT_EQ(sent.status.code, 0) << sent.err;
    EXPECT_TRUE(mail().empty());
    EXPECT_EQ(Sqlite(outbox_.file("audit.db")).value("SELECT count(*) FROM outbox_mailbox"), "1");
    EXPECT_EQ(list()[0]["to"], "mailbox+" + other);
}

INSTANTIATE_TEST_SUITE_P(OnKeep, ReplayOfKeptRows, testing::Values(kKeep));

INSTANTIATE_TEST_SUITE_P(Databases, Replay,
                         testing::ValuesIn(and_in_full<const char*>({kKeep, kSqlite}, {kMark})),
                         [](const auto& info) { return std::string(info.param); });

// Numbers come again once a table began anew.
class ReplayOfNumberedRows : public Replay {
  protected:
    void make_anew(int rows) {
        const bool sqlite = kind() == kSqlite;
        exec("DROP TABLE events_out");
        exec("CREATE TABLE events_out (id " +
             std::string(sqlite ? "integer PRIMARY KEY AUTOINCREMENT" : "bigserial PRIMARY KEY") +
             ", aggregate_type text, aggregate_id text, topic text, payload text NOT NULL, "
             "status text NOT NULL DEFAULT 'NEW')");
        if (rows == 0) return;
        exec("WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < " +
             std::to_string(rows) +
             ") INSERT INTO events_out (aggregate_type, aggregate_id, topic, payload) SELECT "
             "'Order', 'k', 'orders', '1' FROM g");
    }
};
INSTANTIATE_TEST_SUITE_P(Databases, ReplayOfNumberedRows, testing::Values(kMark, kSqlite),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ReplayOfNumberedRows, ARunDoesNotGoOnWithTheRowsOfATableThatBeganAnew) {
    outbox_.write("outbox.toml", "[source.table]\npreset = \"new-sent\"\n");
    make_anew(300);
    publish();
    Process running = start_replay({"--rate", "20/s"});
    ASSERT_TRUE(eventually(60s, "it sends", [&] { return !mail("id").empty(); }))
        << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{1, 0})) << running.stderr_text();
    const json run = list()[0];
    const std::size_t sent = mail("id").size();
    for (const int rows : {0, 200}) {
        make_anew(rows);
        if (rows > 0) publish();
        const Finished resumed = resume(run["run"]);
        EXPECT_EQ(resumed.status.code, 5) << resumed.out << resumed.err;
        EXPECT_THAT(resumed.err,
                    AllOf(HasSubstr("OB_TABLE_RESET"), HasSubstr("the run began with")));
        EXPECT_EQ(mail("id").size(), rows == 0 ? sent : 0) << rows;
        EXPECT_EQ(list()[0]["state"], "failed");
    }
}

// Where nothing but a number that several rows have tells their order.
class ReplayByPosition : public Replay {};
INSTANTIATE_TEST_SUITE_P(Databases, ReplayByPosition, testing::Values(kSqlite),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ReplayByPosition, SendsAllRowsOfOnePositionOnceWhereverAPageEnds) {
    exec("ALTER TABLE events_out ADD COLUMN sequence real");
    outbox_.write("outbox.toml",
                  "batch_size = 5\n[source.table]\npreset = \"new-sent\"\n[source.table.columns]\n"
                  "position = \"sequence\"\n");
    emit_many(60, 60);
    exec("UPDATE events_out SET sequence = (rowid / 7) * 1.1");
    publish();
    EXPECT_EQ(replayed({"--route", "box", "--yes"}).at("sent"), 60);
    EXPECT_EQ(mail().size(), 60U);
    auto numbers = mail();
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(std::unique(numbers.begin(), numbers.end()) - numbers.begin(), 60);
}

// Without a history, and what is wrong with a command line.
class ReplayInput : public testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0); }
    Finished replay(std::vector<std::string> words, const std::string& command = "") {
        std::vector<std::string> all{"replay"};
        if (!command.empty()) all.push_back(command);
        all.insert(all.end(), words.begin(), words.end());
        all.insert(all.end(), {"--from", url_});
        return outbox_.run(all);
    }
    void expect(const std::vector<std::string>& words, int code, const std::string& said) {
        const Finished ended = replay(words);
        EXPECT_EQ(ended.status.code, code) << ended.err;
        EXPECT_THAT(ended.err, HasSubstr(said));
    }

    OutboxBinary outbox_;
    std::string url_ = "sqlite://" + outbox_.file("shop.db").string();
};

TEST_F(ReplayInput, SaysWhatIsWrongAndWhatToDo) {
    const std::vector<std::string> good{"--to", "out=stdout:", "--reason", "r"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), good.begin(), good.end());
        return more;
    };
    expect({"--to", "out=stdout:"}, 2, "--reason: why?");
    expect({"--to", "out=stdout:", "--reason", " "}, 2, "--reason: why?");
    expect({"--to", "out=stdout:", "--reason", std::string(501, 'x')}, 2, "more than 500 bytes");
    expect({"--reason", "r"}, 2, "where shall events go?");
    expect(with({"--to", "b=stdout:"}), 2, "a replay has one destination");
    expect(with({"--rate", "0/s"}), 2, "'0/s' is no rate");
    expect(with({"--rate", "5/m"}), 2, "'5/m' is no rate");
    expect(with({"--rate", "1000001"}), 2, "from 1/s to 1000000/s");
    expect(with({"--until", "1970-01-01"}), 2, "--until: it is before 1970");
    expect(with({"--since", "9000000000000000s"}), 2, "is not a time; give 2026-");
    expect(with({"--since", "yesterday"}), 2, "--since: 'yesterday' is not a time; give 2026-");
    expect(with({"--since", "2026-02-30"}), 2, "is not a time");
    expect(with({"--until", "2026-01-31T25:00:00Z"}), 2, "is not a time");
    expect(with({"--since", "1h", "--until", "2h"}), 2, "--until: it is not later than --since");
    expect(with({"--key", ""}), 2, "--key: must not be empty");
    expect(with({"--key", std::string(4'097, 'k')}), 2, "more than 4096 bytes");
    expect(with({"--claim-check-above", "1"}), 2, "give --claim-check URL");
    expect(with({}), 1, "has no route 'out'");
    expect(with({}), 1, "--route NAME takes the events of one of them, wherever --to leads");
    EXPECT_THAT(replay({}, "resume").err, HasSubstr("which run?"));
    EXPECT_THAT(replay({"x"}, "cancel").err, HasSubstr("--reason: why?"));
    EXPECT_EQ(replay({"x", "--reason", "r"}, "cancel").status.code, 1);
    outbox_.write("outbox.toml",
                  "[[route]]\nname = \"a\"\nto = \"stdout:\"\n[[route]]\nname = \"b\"\nto = "
                  "\"null:\"\n");
    expect({"--reason", "r"}, 2, "which route's events? There are: a, b");
    expect({"--reason", "r", "--route", "c"}, 2, "has no route 'c'; there are: a, b");
}

TEST_F(ReplayInput, WithoutAHistoryItNamesWhatKeepsOne) {
    Sqlite(outbox_.file("shop.db"))
        .exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
    {
        Process running =
            outbox_.start_relay({"--from", url_, "--to", "out=null:", "--admin", "off"});
        ASSERT_TRUE(eventually(60s, "it is sent", [&] {
            return Sqlite(outbox_.file("shop.db")).value("SELECT count(*) FROM outbox_events") ==
                   "0";
        }));
    }
    const Finished none = replay({"--to", "out=null:", "--reason", "r", "--yes"});
    EXPECT_EQ(none.status.code, 4);
    EXPECT_THAT(none.err, AllOf(HasSubstr("there is no history"), HasSubstr("keep"),
                                HasSubstr("--dead-letters")));
}

TEST(ReplayOnPostgres, WithoutAHistoryItNamesKeep) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg(url).exec("INSERT INTO outbox_routes (source, route) VALUES ('public.outbox_events', 'o')");
    const Finished none =
        outbox.run({"replay", "--from", url, "--to", "o=null:", "--reason", "r", "--yes"});
    EXPECT_EQ(none.status.code, 4);
    EXPECT_THAT(none.err, AllOf(HasSubstr("there is no history"),
                                HasSubstr("outbox migrate --after-publish keep")));
}

// A server of its own: it hangs.
TEST(ReplayOnPostgres, EndsOnSignalsAlsoWhileTheDatabaseHangs) {
    if (!rows_may_stay()) GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
    PostgresServer server;
    OutboxBinary outbox;
    const std::string url = server.create_database();
    ASSERT_EQ(outbox.run({"migrate", "--after-publish", "keep", "--db", url}).status.code, 0);
    Pg database(url);
    constexpr const char* kEvents = "600";
    database.exec("INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM " +
                  ("generate_series(1, " + std::string(kEvents)) + ")");
    Process relay = outbox.start_relay({"--from", url, "--to", "out=null:", "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "all is published", [&] {
        return database.value("SELECT min(settled) >= " + std::string(kEvents) +
                              " FROM outbox_routes") == "t";
    })) << relay.stderr_text();
    ASSERT_EQ(relay.stop(), (ExitStatus{0, 0}));

    // A run under way, whose database hangs from now on.
    std::string run;
    const auto hanging = [&](const std::string& grace_s) {
        const std::string earlier = run;
        Process running(
            {.command = {OUTBOX_BINARY, "replay", "--from", url, "--to", "out=null:", "--reason",
                         kReason, "--yes", "--rate", "20/s", "--shutdown-grace-s", grace_s},
             .working_folder = outbox.file("")});
        EXPECT_TRUE(eventually(60s, "some are written down", [&] {
            run = database.value(
                "SELECT coalesce((SELECT run FROM outbox_replays WHERE sent > 0 AND run <> '" +
                earlier + "'), '')");
            return !run.empty();
        })) << running.stderr_text();
        server.pause();
        return running;
    };
    Process patient = hanging("0");
    patient.kill(SIGINT);
    EXPECT_EQ(patient.wait(60s), (ExitStatus{1, 0})) << patient.stderr_text();
    EXPECT_THAT(patient.stderr_text(),
                AllOf(HasSubstr("did not answer within the shutdown grace"),
                      HasSubstr("`outbox replay resume " + run + "` goes on")));
    server.resume();
    Process urged = hanging("3600");
    urged.kill(SIGINT);
    urged.kill(SIGTERM);
    EXPECT_EQ(urged.wait(60s), (ExitStatus{1, 0})) << urged.stderr_text();
    EXPECT_THAT(urged.stderr_text(), HasSubstr("event=killed"));
    server.resume();
    EXPECT_EQ(database.number("SELECT count(*) FROM outbox_replays WHERE state = 'running'"), 2);
}

TEST(ReplayToKafka, KeepsOrderMarksRecordsAndGivesNewIds) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    const Finished made = outbox.run({"migrate", "--after-publish", "keep", "--db", url});
    if (made.err.find("PostgreSQL 14") != std::string::npos) GTEST_SKIP() << "PostgreSQL 14";
    ASSERT_EQ(made.status.code, 0) << made.err;
    const std::string bootstrap = shared_kafka().bootstrap();
    create_topic(bootstrap, "replayed", 3);
    constexpr std::size_t kEvents = 900;
    Pg(url).exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 'replayed', 'k' || n % 10, "
        "to_jsonb(n) FROM generate_series(1, " +
        std::to_string(kEvents) + ") n ORDER BY n");
    const std::string to = "orders=kafka://" + bootstrap;
    {
        Process running = outbox.start_relay({"--from", url, "--to", to, "--admin", "off"});
        ASSERT_TRUE(eventually(60s, "all is published", [&] {
            return Pg(url).value("SELECT coalesce(min(settled), 0) FROM outbox_routes") ==
                   std::to_string(kEvents);
        })) << running.stderr_text();
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    const auto replay = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"replay", "--from", url, "--to", to, "--yes", "--reason", "r",
                                   "--rate", "20000/s", "--json"});
        const Finished ended = outbox.run(more);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out);
    };
    const std::string plain = replay({})["run"];
    const std::string as_new = replay({"--as-new"})["run"];
    KafkaReader reader(bootstrap, "replayed");
    const auto& records = reader.read(3 * kEvents, 60s);
    ASSERT_EQ(records.size(), 3 * kEvents);
    std::map<std::string, std::map<std::string, int>> last;  // by run and key
    std::map<std::string, std::set<std::string>> ids;        // by run
    for (const KafkaRecord& record : records) {
        const std::string run = record.header("outbox-replay").value_or("live");
        int& before = last[run][*record.key];
        EXPECT_LT(before, std::stoi(*record.value)) << run << " " << *record.key;
        before = std::stoi(*record.value);
        ids[run].insert(record.header("id").value_or(""));
    }
    ASSERT_EQ(ids.size(), 3U);
    EXPECT_EQ(ids["live"], ids[plain]);
    EXPECT_EQ(ids[as_new].size(), kEvents);
    for (const std::string& id : ids[as_new]) EXPECT_FALSE(ids["live"].contains(id));
}

TEST(ReplayPage, EveryExampleWorks) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    const Finished made = outbox.run({"migrate", "--after-publish", "keep", "--db", url});
    if (made.err.find("PostgreSQL 14") != std::string::npos) GTEST_SKIP() << "PostgreSQL 14";
    Pg(url).exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('pages', 'o-1', '1')");
    const std::string bootstrap = shared_kafka().bootstrap();
    {
        Process running =
            outbox.start_relay({"--from", url, "--to", "kafka://" + bootstrap, "--admin", "off"});
        ASSERT_TRUE(eventually(60s, "all is published", [&] {
            return Pg(url).value("SELECT coalesce(min(settled), 0) FROM outbox_routes") == "1";
        })) << running.stderr_text();
    }
    std::istringstream page(read_file(REPLAY_PAGE));
    int commands = 0;
    for (std::string line; std::getline(page, line);) {
        if (!line.starts_with("outbox ")) continue;
        std::istringstream stream(line);
        std::vector<std::string> words;
        stream >> line;
        for (std::string word; stream >> word;) {
            if (word == "postgresql://app@localhost/shop") word = url;
            if (word == "kafka://localhost:9092") word = "kafka://" + bootstrap;
            words.push_back(word);
        }
        const Finished done = outbox.run(words);
        EXPECT_EQ(done.status.code, 0) << words[0] << ": " << done.err;
        ++commands;
    }
    EXPECT_EQ(commands, 3);
    KafkaReader reader(bootstrap, "pages");
    EXPECT_EQ(reader.read(2, 60s).size(), 2U);
}

}  // namespace
}  // namespace outbox::test
