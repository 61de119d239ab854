// The life of one event, and why it waits.
#include <gmock/gmock.h>

#include "tests/cli/routes.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kNobodys = "00000000-0000-7000-8000-000000000099";

std::size_t columns(const std::string& line) {
    return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

std::string on_one_line(std::string text) {
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) {
        const std::size_t end = text.find_first_not_of(" \n", at);
        text.replace(at, end == std::string::npos ? std::string::npos : end - at, " ");
    }
    return text;
}

class Explain : public Routes {
  protected:
    // "01", of a key.
    void put(const std::string& number, const std::string& key,
             const std::string& topic = "orders") {
        sql("INSERT INTO outbox_events (id, topic, key, event_type, payload) VALUES ('" +
            id(number) + "', '" + topic + "', '" + key + "', 'Made', '1')");
    }
    // What is said as text, on lines that a terminal of 80 columns has, and as JSON.
    std::string text_of(std::vector<std::string> arguments, int code = 0) {
        arguments.insert(arguments.begin(), "explain");
        const Finished ended = run_on(std::move(arguments));
        EXPECT_EQ(ended.status.code, code) << ended.out << ended.err;
        std::istringstream lines(ended.out);
        for (std::string line; std::getline(lines, line);) {
            const bool one_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
            EXPECT_TRUE(one_word || columns(line) <= 80U) << line;
        }
        EXPECT_EQ(ended.out.find('\033'), std::string::npos) << "colours outside a terminal";
        return on_one_line(ended.out);
    }
    json whole(std::vector<std::string> arguments, int code = 0) {
        arguments.insert(arguments.begin(), "explain");
        arguments.emplace_back("--json");
        const Finished ended = run_on(std::move(arguments));
        EXPECT_EQ(ended.status.code, code) << ended.out << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }
    json event(const std::string& number, const std::vector<std::string>& more = {}) {
        std::vector<std::string> arguments{id(number)};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const json all = whole(arguments)["events"];
        EXPECT_EQ(all.size(), 1U);
        return all.empty() ? json() : all[0];
    }
    static std::string reasons(const json& event) {
        std::string out;
        for (const json& one : event["waits"]) {
            out += (out.empty() ? "" : " ") + one["reason"].get<std::string>();
        }
        return out;
    }
    std::string dead_letters() { return sql("SELECT count(*) FROM outbox_dead_letters"); }
};

INSTANTIATE_TEST_SUITE_P(Databases, Explain, testing::Values(kPostgres, kSqlite));

TEST_P(Explain, WhereNoRelayHasEverRunThatIsWhy) {
    put("01", "o-1");
    const json one = event("01");
    EXPECT_EQ(one["state"], "waiting");
    EXPECT_EQ(one["key"], "o-1");
    EXPECT_EQ(one["event_type"], "Made");
    EXPECT_EQ(one["position"], 1);
    EXPECT_EQ(reasons(one), "no_relay no_routes");
    ASSERT_EQ(one["timeline"].size(), 1U);
    EXPECT_EQ(one["timeline"][0]["at"], one["occurred_at"]);
    EXPECT_EQ(one["transaction"].is_null(), on_sqlite());
    EXPECT_THAT(text_of({id("01")}),
                AllOf(HasSubstr("state           waiting"), HasSubstr("written (its occurred_at"),
                      HasSubstr("no relay leads, so that nothing is sent; start `outbox relay`")));
}

TEST_P(Explain, AnEventWaitsBehindADeadOneOfItsKey) {
    const std::string box = subscriber("box");
    put("01", "o-1", "elsewhere");
    put("02", "o-1");
    put("03", "o-2");
    const std::string file = outbox_.write(
        "outbox.toml", "[source]\nurl = \"" + url_ +
                           "\"\n[[route]]\nname = \"billing\"\nto = \"mailbox+" + box +
                           "\"\nallowed_topics = [\"orders\"]\non_dead_letter = "
                           "\"block_key\"\n");
    Process running = outbox_.start_relay({"--admin", "off"});
    ASSERT_TRUE(eventually(60s, "one is dead, and the others' key goes on",
                           [&] { return dead_letters() == "1" && received(box) == "03"; }));
    const json one = event("02");
    EXPECT_EQ(one["state"], "waiting");
    EXPECT_EQ(reasons(one), "behind_dead");
    EXPECT_EQ(one["waits"][0]["behind"], id("01"));
    EXPECT_EQ(one["waits"][0]["route"], "billing");
    EXPECT_THAT(text_of({id("02")}),
                AllOf(HasSubstr("route billing: behind the dead letter of event " + id("01") +
                                " (position 1) of its key"),
                      HasSubstr("OB_TOPIC_INVALID"), HasSubstr("`outbox dead retry " + id("01")),
                      Not(HasSubstr("only its configuration says"))));
    // The letter itself.
    const json dead = event("01");
    EXPECT_EQ(dead["state"], "dead");
    EXPECT_EQ(dead["key"], "o-1");
    EXPECT_THAT(
        text_of({id("01")}),
        AllOf(HasSubstr("route billing: given up on, attempts: 1; OB_TOPIC_INVALID"),
              HasSubstr("written (its occurred_at"), HasSubstr("`outbox dead show " + id("01"))));
    // By its key: the letter, and why the first that waits does.
    const json key = whole({"--key", "o-1"});
    EXPECT_EQ(key["dead"][0]["id"], id("01"));
    EXPECT_EQ(key["waiting"][0]["id"], id("02"));
    EXPECT_EQ(reasons(key["events"][0]), "behind_dead");
    EXPECT_THAT(text_of({"--key", "o-1"}),
                AllOf(HasSubstr("dead in billing"), HasSubstr("the first that waits:")));
    // Without the file nobody knows what the route does of that.
    std::filesystem::remove(file);
    EXPECT_EQ(reasons(event("02")), "behind_dead");
    EXPECT_THAT(text_of({id("02")}), HasSubstr("only its configuration says"));
    outbox_.write("outbox.toml", "[source]\nurl = \"" + url_ +
                                     "\"\n[[route]]\nname = \"billing\"\nto = \"null:\"\n");
    EXPECT_EQ(reasons(event("02")).find("behind_dead"), std::string::npos);
}

// What the operator did, and that it waits for a relay then.
TEST_P(Explain, ALetterThatIsRetriedSaysByWhom) {
    const std::string box = subscriber("box");
    let_one_die("billing", box, "01");
    ASSERT_EQ(run_on({"dead", "retry", id("01")}).status.code, 0);
    const json one = event("01");
    EXPECT_EQ(one["state"], "dead");
    EXPECT_EQ(reasons(one), "no_relay");
    ASSERT_EQ(one["timeline"].size(), 4U) << one["timeline"];
    EXPECT_THAT(one["timeline"][2]["text"].get<std::string>() +
                    one["timeline"][3]["text"].get<std::string>(),
                AllOf(HasSubstr("`dead retry` by "), HasSubstr("asked to be delivered again")));
    for (std::size_t i = 1; i < one["timeline"].size(); ++i) {
        EXPECT_LE(one["timeline"][i - 1]["at"], one["timeline"][i]["at"]);
    }
    Process lenient = relay({mailbox("billing", box)});
    ASSERT_TRUE(eventually(60s, "it is delivered", [&] { return dead_letters() == "0"; }));
    EXPECT_EQ(event("01")["state"], "gone");
    EXPECT_THAT(text_of({id("01")}),
                AllOf(HasSubstr("`dead retry` by "), HasSubstr("removes it once it was delivered"),
                      Not(HasSubstr("has this id"))));
    EXPECT_EQ(event("01", {"--consumer-db", box})["state"], "sent");
}

TEST_P(Explain, WhatAnOperatorEndedIsNotUnknown) {
    let_one_die("billing", subscriber("box"), "01");
    ASSERT_EQ(run_on({"dead", "discard", id("01")}).status.code, 0);
    sql("INSERT INTO outbox_scheduled (id, topic, key, payload, available_at) VALUES ('" +
        id("02") + "', 'orders', 'o-1', '1', " +
        (on_sqlite() ? "4102444800000000" : "'2100-01-01Z'") + ")");
    ASSERT_EQ(run_on({"scheduled", "cancel", id("02")}).status.code, 0);
    EXPECT_EQ(event("01")["state"], "gone");
    EXPECT_THAT(text_of({id("01")}), AllOf(HasSubstr("`dead discard` by "),
                                           HasSubstr("the route of that never delivered it")));
    EXPECT_THAT(text_of({id("02")}), AllOf(HasSubstr("`scheduled cancel` by "),
                                           HasSubstr("cancelled before it was due")));
    // As of more letters at once than an audit's line names.
    const std::string what = "'root', 'dead discard', 'all', 1500, '";
    sql("INSERT INTO outbox_audit (at, source, os_user, action, detail, events, event_ids) VALUES "
        "(" +
        (on_sqlite() ? "unixepoch() * 1000000, 'outbox_events', " + what + "[\"x\"]')"
                     : "now(), 'public.outbox_events', " + what + "{x}')"));
    EXPECT_THAT(text_of({id("03")}, 1),
                HasSubstr("its dead letter may have been one of the 1500 that"));
    EXPECT_THAT(text_of({id("01")}), Not(HasSubstr("1500")));
}

TEST_P(Explain, AnEventThatFailsAndThoseBehindItSayWhenTheNextAttemptIs) {
    const std::string box = subscriber("box");
    sql(box, on_sqlite()
                 ? "CREATE TRIGGER refuse BEFORE INSERT ON outbox_mailbox WHEN NEW.topic = 'bad' "
                   "BEGIN SELECT RAISE(ABORT, 'not today'); END"
                 : "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE "
                   "EXCEPTION ''not today''; END'; CREATE TRIGGER refuse BEFORE INSERT ON "
                   "outbox_mailbox FOR EACH ROW WHEN (NEW.topic = 'bad') EXECUTE FUNCTION "
                   "refuse()");
    put("01", "o-1", "bad");
    put("02", "o-1");
    put("03", "o-1");
    Process running =
        relay({mailbox("billing", box)}, {"--retry-base-ms", "30000", "--retry-max-ms", "60000"});
    ASSERT_TRUE(eventually(60s, "an attempt is counted",
                           [&] { return sql("SELECT attempts FROM outbox_delivery") == "1"; }));
    const json first = event("01");
    EXPECT_THAT(reasons(first), HasSubstr("failing"));
    EXPECT_EQ(first["routes"][0]["attempts"], 1);
    EXPECT_GT(first["routes"][0]["next_attempt_at"], first["occurred_at"]);
    EXPECT_THAT(
        text_of({id("01")}),
        AllOf(HasSubstr("route billing: refused for the first time; once so far"),
              HasSubstr("it failed once; the next attempt is due at"), HasSubstr("not today")));
    const json third = event("03");
    EXPECT_THAT(reasons(third), HasSubstr("behind"));
    EXPECT_EQ(third["waits"][0]["behind"], id("01"));
    EXPECT_EQ(third["waits"][0]["next_attempt_at"], first["routes"][0]["next_attempt_at"]);
    EXPECT_THAT(text_of({id("03")}), AllOf(HasSubstr("which failed once and is due again at"),
                                           HasSubstr("2 of its key are before it"),
                                           HasSubstr("`outbox explain " + id("01"))));
    EXPECT_THAT(text_of({"--key", "o-1"}), HasSubstr("failed 1 time "));
    EXPECT_EQ(whole({"--key", "o-1", "--limit", "2"})["waiting_is_more"], true);
}

TEST_P(Explain, ADestinationThatIsDownSaysSoWhileOthersHaveTheEvent) {
    const std::string box = subscriber("box");
    put("01", "o-1");
    Process running = relay({mailbox("near", box), away("far")});
    ASSERT_TRUE(eventually(60s, "the circuit is open", [&] {
        return received(box) == "01" &&
               reasons(event("01")).find("circuit_open") != std::string::npos;
    }));
    const json one = event("01", {"--consumer-db", box});
    EXPECT_EQ(one["state"], "waiting");
    EXPECT_FALSE(one["relay"].is_null());
    for (const json& wait : one["waits"]) EXPECT_EQ(wait["route"], "far");
    EXPECT_THAT(
        text_of({id("01"), "--consumer-db", box}),
        AllOf(HasSubstr("route near: acknowledged by its destination, and recorded"),
              HasSubstr("mailbox default: received, and not applied yet"),
              HasSubstr("route far: its circuit is open: all of the route waits, and no attempt is "
                        "counted; the route's last error, at ")));
}

// What the ledgers call finished is not of its events, for whoever asks them.
TEST_P(Explain, ATableThatBeganAnewKnowsNothingOfItsEvents) {
    const std::string box = subscriber("box");
    emit("01");
    emit("02");
    let_one_finish(box);
    EXPECT_TRUE(result({"top", "--once"})["remark"].is_null());
    sql(on_sqlite() ? "DELETE FROM outbox_events; DELETE FROM sqlite_sequence WHERE name = "
                      "'outbox_events'"
                    : "TRUNCATE outbox_events RESTART IDENTITY");
    emit("03");
    const json one = event("03");
    EXPECT_EQ(one["state"], "waiting");
    EXPECT_EQ(reasons(one), "no_relay other_table");
    EXPECT_THAT(text_of({id("03")}), AllOf(HasSubstr("nothing is known of this event. A relay that "
                                                     "starts sends all that it holds"),
                                           Not(HasSubstr("acknowledged"))));
    EXPECT_EQ(whole({"--key", "k03"})["events"].size(), 1U);
    if (!on_sqlite()) EXPECT_EQ(sql("SELECT status FROM outbox_status"), "PENDING");
    EXPECT_EQ(route("near")["unfinished"], 1);
    EXPECT_THAT(run_on({"routes", "retire", "near"}).err, HasSubstr("has not finished 1 event,"));
    for (const std::string& remark : {result({"top", "--once"})["remark"].get<std::string>(),
                                      result({"status"})["remark"].get<std::string>()}) {
        EXPECT_THAT(remark, HasSubstr("not the one that the ledgers of its routes were kept for"));
    }
    const Finished drained = run_on({"tenant", "drain", "default", "--reason", "moves"});
    EXPECT_EQ(drained.status.code, 5) << drained.out;
    EXPECT_THAT(drained.err,
                AllOf(HasSubstr("OB_TABLE_RESET"), HasSubstr("nobody can say what of it was sent"),
                      HasSubstr("A relay that starts sends all that it holds")));
    EXPECT_TRUE(result({"tenant", "list"}).empty());
    EXPECT_EQ(run_on({"tenant", "pause", "default", "--reason", "moves"}).status.code, 0);
    EXPECT_TRUE(result({"tenant", "list"})[0]["waiting"].is_null());
}

// Where nothing but how far its numbers go tells.
TEST_P(Explain, ATableWhoseNumbersWereSetBackKnowsNothingOfItsEvents) {
    emit("01");
    emit("02");
    let_one_finish(subscriber("box"));
    sql(on_sqlite() ? "DELETE FROM outbox_events; UPDATE sqlite_sequence SET seq = 0 WHERE name = "
                      "'outbox_events'"
                    : "DELETE FROM outbox_events; SELECT setval('outbox_events_position_seq', 1, "
                      "false)");
    emit("03");
    const json one = event("03");
    EXPECT_EQ(one["state"], "waiting");
    EXPECT_EQ(reasons(one), "no_relay other_table");
    if (!on_sqlite()) EXPECT_EQ(sql("SELECT status FROM outbox_status"), "PENDING");
    EXPECT_EQ(route("near")["unfinished"], 1);
    EXPECT_THAT(result({"status"})["remark"].get<std::string>(),
                HasSubstr("not the one that the ledgers of its routes were kept for"));
    EXPECT_EQ(run_on({"tenant", "drain", "default", "--reason", "moves"}).status.code, 5);
}

class ExplainAdopted : public Explain {
  protected:
    json of_one() {
        const json all = whole({"1", "--table", "OutboxMessages"})["events"];
        EXPECT_EQ(all.size(), 1U);
        return all.empty() ? json() : all[0];
    }
};
INSTANTIATE_TEST_SUITE_P(Databases, ExplainAdopted, testing::Values(kPostgres));

TEST_P(ExplainAdopted, ATableThatBeganAnewKnowsNothingOfItsEvents) {
    Pg db(url_);
    db.exec(kCamelCaseTable);
    const auto insert = [&] {
        db.exec(
            "INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") VALUES ('Made', '1'), "
            "('Made', '2')");
    };
    insert();
    {
        Process running =
            relay({mailbox("near", subscriber("box")), away("far")}, {"--table", "OutboxMessages"});
        ASSERT_TRUE(eventually(60s, "the near route has finished", [&] {
            return sql("SELECT count(*) FROM outbox_route_done WHERE route = 'near'") == "2";
        })) << running.stderr_text();
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    db.exec(
        "INSERT INTO outbox_dead_letters (source, route, id, attempts, error_code, error) VALUES "
        "('public.OutboxMessages', 'far', 'public.OutboxMessages:1', 1, 'OB_X', 'x')");
    EXPECT_EQ(of_one()["state"], "dead");
    EXPECT_EQ(of_one()["routes"][1]["finished"], true) << of_one();
    db.exec("TRUNCATE \"OutboxMessages\" RESTART IDENTITY");
    insert();
    const json one = of_one();
    EXPECT_EQ(one["state"], "waiting");
    EXPECT_EQ(reasons(one), "no_relay other_table");
    for (const json& route : one["routes"]) EXPECT_EQ(route["finished"], false) << one;
    for (const json& route : result({"routes", "list", "--table", "OutboxMessages"})) {
        EXPECT_EQ(route["unfinished"], 2) << route;
    }
    const Finished drained =
        run_on({"tenant", "drain", "default", "--reason", "moves", "--table", "OutboxMessages"});
    EXPECT_EQ(drained.status.code, 5) << drained.out;
    EXPECT_THAT(drained.err, HasSubstr("OB_TABLE_RESET"));
}

TEST_P(Explain, ARouteThatLeadsElsewhereSaysWhatToDo) {
    const std::string first = subscriber("first");
    put("01", "o-1");
    {
        Process running = relay({mailbox("billing", first)});
        ASSERT_TRUE(eventually(60s, "it arrived", [&] { return received(first) == "01"; }));
        EXPECT_EQ(running.stop().code, 0);
    }
    put("02", "o-1");
    Process running = relay({mailbox("billing", subscriber("second"))});
    EXPECT_TRUE(eventually(60s, "it is explained", [&] {
        return text_of({id("02")}).find("outbox routes accept billing") != std::string::npos;
    })) << text_of({id("02")});
}

TEST_P(Explain, WhatAConsumerDidIsTold) {
    const std::string box = subscriber("box");
    const std::string now = on_sqlite() ? "1780000000000000" : "'2026-05-28'";
    sql(box, "INSERT INTO outbox_inbox (consumer, message_id, applied_at) VALUES ('stock', '" +
                 id("01") + "', " + now + ")");
    sql(box,
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, "
        "error_code, error, died_at) VALUES ('mail', '" +
            id("01") + "', 'orders', 3, 'OB_HANDLER', 'no such address', " + now + ")");
    // Sent, and removed: the outbox does not know it any more.
    const json one = event("01", {"--consumer-db", box});
    EXPECT_EQ(one["state"], "applied");
    EXPECT_THAT(text_of({id("01"), "--consumer-db", box}),
                AllOf(HasSubstr("consumer stock: applied; a repeat is dropped"),
                      HasSubstr("consumer mail: given up on, attempts: 3; OB_HANDLER: no such")));
    EXPECT_THAT(
        text_of({kNobodys, "--consumer-db", box}, 1),
        HasSubstr(
            "no mailbox, inbox or dead letter of a consumer's database that answered has it"));
    EXPECT_EQ(run_on({"explain", kNobodys, "--consumer-db", database("empty")}).status.code, 4);
}

TEST_P(Explain, AMessageWhoseDeadLetterWasDiscardedWasNotApplied) {
    const std::string box = subscriber("box");
    const std::string now = on_sqlite() ? "1780000000000000" : "'2026-05-28'";
    sql(box, "INSERT INTO outbox_inbox (consumer, message_id, applied_at) VALUES ('mail', '" +
                 id("01") + "', " + now + ")");
    sql(box,
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, "
        "error_code, error) VALUES ('mail', '" +
            id("01") + "', 'orders', 3, 'OB_HANDLER', 'no such address')");
    ASSERT_EQ(
        outbox_.run({"dead", "discard", id("01"), "--consumer", "mail", "--db", box}).status.code,
        0);
    EXPECT_EQ(event("01", {"--consumer-db", box})["state"], "sent");
    EXPECT_THAT(text_of({id("01"), "--consumer-db", box}),
                AllOf(HasSubstr("consumer mail: given up on; its dead letter was discarded since: "
                                "never applied"),
                      Not(HasSubstr("a repeat is dropped"))));
    // Tables from before that was remembered.
    sql(box, "ALTER TABLE outbox_inbox DROP COLUMN discarded");
    EXPECT_EQ(event("01", {"--consumer-db", box})["state"], "applied");
}

TEST_P(Explain, AnIdWithoutItsTableIsThatOfAConsumerOfDebeziumsRecords) {
    if (!on_sqlite()) GTEST_SKIP() << "ids are UUIDs in the table of outbox migrate";
    const std::string box = subscriber("box");
    sql(box,
        "INSERT INTO outbox_inbox (consumer, message_id, applied_at) VALUES ('stock', '17', "
        "1780000000000000)");
    const std::string text = text_of({"outbox_events:17", "--consumer-db", box});
    EXPECT_THAT(text, HasSubstr("consumer stock: applied"));
    EXPECT_THAT(text, HasSubstr("consumers know an event 17"));
    EXPECT_THAT(text_of({"outbox_events:18", "--consumer-db", box}, 1),
                HasSubstr("no mailbox, inbox or dead letter"));
}

TEST_P(Explain, ADelayedEventSaysUntilWhen) {
    const std::string due = on_sqlite() ? "4102444800000000" : "'2100-01-01Z'";
    const std::string past = on_sqlite() ? "1700000000000000" : "'2023-11-14Z'";
    for (const auto& [number, time] : {std::pair("01", due), std::pair("02", past)}) {
        sql("INSERT INTO outbox_scheduled (id, topic, key, payload, available_at) VALUES ('" +
            id(number) + "', 'orders', 'o-1', '1', " + time + ")");
    }
    EXPECT_EQ(event("01")["state"], "delayed");
    EXPECT_EQ(reasons(event("01")), "delayed");
    EXPECT_THAT(text_of({id("01")}), HasSubstr("it is delayed until 2100-01-01T00:00:00Z (in "));
    EXPECT_EQ(reasons(event("02")), "delayed no_relay");
    const json key = whole({"--key", "o-1"});
    EXPECT_EQ(key["delayed"].size(), 2U);
    EXPECT_THAT(text_of({"--key", "o-1"}), HasSubstr("due 2100-01-01T00:00:00Z"));
}

TEST_P(Explain, AnIdThatNobodyKnowsSaysWhatThatCanMean) {
    sql("INSERT INTO outbox_routes (source, route" + std::string(on_sqlite() ? ", since" : "") +
        ") VALUES ('" + (on_sqlite() ? "" : "public.") + "other_events', 'r'" +
        (on_sqlite() ? ", 0" : "") + ")");
    const json one = whole({"01939d3e-7c00-7aaa-8000-000000000001"}, 1)["events"][0];
    EXPECT_EQ(one["state"], "unknown");
    EXPECT_THAT(text_of({"01939d3e-7c00-7aaa-8000-000000000001"}, 1),
                AllOf(HasSubstr("has this id"), HasSubstr("it was made at 2024-12-06T18:32:18Z"),
                      HasSubstr("its transaction was rolled back"), HasSubstr("--consumer-db URL"),
                      HasSubstr("another outbox table: --table "), HasSubstr("other_events"),
                      HasSubstr(on_sqlite() ? "is not seen before it commits"
                                            : "is open: it is not about to appear")));
    EXPECT_THAT(text_of({"fcb15f1a-bbc4-5b62-a532-b9e0dae0d1ae"}, 1),
                HasSubstr("made by `outbox replay --as-new`, too"));
    EXPECT_THAT(text_of({"--key", "nobody's"}, 1), HasSubstr("rows of what was sent are gone"));
}

TEST_P(Explain, WhatARouteDoesNotWantIsPassedOver) {
    put("01", "o-1");
    const std::string box = subscriber("box");
    outbox_.write("outbox.toml", "[source]\nurl = \"" + url_ +
                                     "\"\n[[route]]\nname = \"odd\"\nto = \"mailbox+" + box +
                                     "\"\nevent_type = [\"Odd\"]\n[[route]]\nname = \"rest\"\nto = "
                                     "\"" +
                                     away("x").substr(2) + "\"\n");
    Process running = outbox_.start_relay({"--admin", "off"});
    ASSERT_TRUE(eventually(60s, "it was passed over", [&] {
        const json routes = event("01")["routes"];
        return routes.size() == 2 && routes[0]["passed_over"] == true;
    }));
    EXPECT_THAT(text_of({id("01")}),
                HasSubstr("route odd: passed over: its filter does not want the event"));
}

TEST_P(Explain, BadInputIsRefusedWithItsExitCode) {
    EXPECT_EQ(run_on({"explain"}).status.code, 2);
    EXPECT_EQ(run_on({"explain", ""}).status.code, 2);
    EXPECT_EQ(run_on({"explain", "--key", ""}).status.code, 2);
    EXPECT_EQ(run_on({"explain", kNobodys, "--key", "k"}).status.code, 2);
    EXPECT_EQ(run_on({"explain", kNobodys, kNobodys}).status.code, 2);
    EXPECT_EQ(run_on({"explain", "\xff\xfe"}).status.code, 2);
    EXPECT_EQ(run_on({"explain", std::string(256, 'x')}).status.code, 2);
    const Finished none = run_on({"explain", "not-an-id"});
    EXPECT_EQ(none.status.code, on_sqlite() ? 1 : 2) << none.err;  // SQLite's may be any text
    EXPECT_EQ(run_on({"explain", kNobodys, "--table", "nothing"}).status.code, 4);
    const std::string away =
        on_sqlite() ? "sqlite:///nowhere/x.db"
                    : "postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    EXPECT_EQ(outbox_.run({"explain", kNobodys, "--db", away}).status.code, 3);
    EXPECT_EQ(run_on({"explain", kNobodys, "--consumer-db", away}).status.code,
              on_sqlite() ? 4 : 3);
    EXPECT_EQ(run_on({"explain", kNobodys, "--consumer-db", "kafka://h"}).status.code, 2);
}

TEST_P(Explain, NothingInAnEventCommandsTheTerminal) {
    const std::string key = "k\x1b[31m\nroute: fine\x07";
    put("01", key);
    sql("INSERT INTO outbox_dead_letters (source, route, position, id, key, topic, attempts, "
        "error_code, error, occurred_at, died_at) VALUES ('" +
        std::string(on_sqlite() ? "" : "public.") + "outbox_events', 'r\x1b[2J\n', 9, '" +
        id("02") + "', '" + key + "', 'x\x1b]0;t\x07', 1, 'C\x1b[1m', 'e\x1b[0m\nroute: sent', " +
        (on_sqlite() ? "1, 1" : "now(), now()") + ")");
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{id("01")}, {id("02")}, {"--key", key}}) {
        std::vector<std::string> arguments{"explain"};
        arguments.insert(arguments.end(), words.begin(), words.end());
        const Finished ended = run_on(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        for (const char c : ended.out) {
            EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << int{c};
        }
        EXPECT_EQ(ended.out.find("\nroute: "), std::string::npos) << ended.out;
        EXPECT_THAT(ended.out, Not(HasSubstr("\x1b")));
    }
    EXPECT_EQ(whole({"--key", key})["key"], key);
    EXPECT_EQ(event("01")["key"], key);
}

// Ids that are not ours to choose, and rows that stay.
TEST_P(Explain, AnAdoptedTableIsToldAsItIs) {
    sql(on_sqlite()
            ? "CREATE TABLE orders_outbox (id text PRIMARY KEY, aggregate_type text NOT NULL, "
              "aggregate_id text NOT NULL, event_type text NOT NULL, payload text NOT NULL, "
              "created_at text NOT NULL, published_at text, retry_count integer NOT NULL DEFAULT "
              "0, status text NOT NULL)"
            : "CREATE TABLE orders_outbox (id text PRIMARY KEY, aggregate_type text NOT NULL, "
              "aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL, "
              "created_at timestamptz NOT NULL, published_at timestamptz, retry_count int NOT NULL "
              "DEFAULT 0, status text NOT NULL)");
    const std::string table = on_sqlite() ? "orders_outbox" : "public.orders_outbox";
    sql("INSERT INTO orders_outbox SELECT 'e' || n, 'Order', 'o-1', 'Made', '{}', " +
        std::string(on_sqlite() ? "'2026-01-0' || n || 'T00:00:00Z'"
                                : "timestamptz '2026-01-01Z' + n * interval '1 day'") +
        ", NULL, 0, 'PENDING' FROM (SELECT 1 AS n UNION SELECT 2) x");
    const auto ask = [&](const std::string& id, int code = 0) {
        return whole({id, "--table", "orders_outbox"}, code)["events"][0];
    };
    EXPECT_EQ(reasons(ask("e2")), "no_relay no_routes") << "no relay has ever run";
    {
        Process running = relay({away("far")}, {"--table", "orders_outbox"});
        ASSERT_TRUE(eventually(60s, "the route is down", [&] {
            return reasons(ask("e2")).find("circuit_open") != std::string::npos;
        }));
        const json second = ask("e2");
        EXPECT_EQ(second["id"], table + ":e2");
        EXPECT_EQ(second["waits"].back()["behind"], table + ":e1");
        EXPECT_EQ(running.stop().code, 0);
    }
    ASSERT_EQ(run_on({"routes", "retire", "far", "--yes", "--table", "orders_outbox"}).status.code,
              0);
    const std::string box = subscriber("box");
    Process running = relay({mailbox("near", box)}, {"--table", "orders_outbox"});
    ASSERT_TRUE(eventually(60s, "both are published", [&] {
        return ask("e1")["state"] == "sent" && ask("e2")["state"] == "sent";
    }));
    EXPECT_THAT(text_of({table + ":e1", "--table", "orders_outbox", "--consumer-db", box}),
                AllOf(HasSubstr("published, as its row says"),
                      HasSubstr("mailbox default: received, and not applied yet")));
    EXPECT_EQ(ask("e3", 1)["state"], "unknown");
    EXPECT_THAT(text_of({"e3", "--table", "orders_outbox"}, 1),
                HasSubstr("rows that are published stay until they are pruned"));
}

TEST_P(Explain, OnlyRoutesOfItsTenantAreToldOfAnEvent) {
    for (const std::string number : {"01", "02"}) {
        sql("INSERT INTO outbox_events (id, topic, key, payload, tenant_id) VALUES ('" +
            id(number) + "', 'orders', 'k', '1', 't" + number + "')");
    }
    Process running = relay({away("far")}, {"--tenant", "t01"});
    ASSERT_TRUE(eventually(60s, "its route is known", [&] {
        return reasons(event("01")).find("circuit_open") != std::string::npos;
    }));
    EXPECT_EQ(event("02")["routes"], json::array());
    EXPECT_EQ(reasons(event("02")), "no_routes");
    EXPECT_THAT(event("02")["waits"][0]["text"], HasSubstr("start one with `--tenant t02`"));
}

TEST_P(Explain, AKeyIsItsTenantsOwn) {
    for (const auto& [number, tenant] :
         {std::pair("01", "acme"), {"02", "globex"}, {"03", "acme"}}) {
        sql("INSERT INTO outbox_events (id, topic, key, payload, tenant_id) VALUES ('" +
            id(number) + "', 'orders', 'k', '1', '" + tenant + "')");
    }
    Process running = relay({away("far")});
    ASSERT_TRUE(eventually(60s, "its route is known", [&] {
        return reasons(event("01")).find("circuit_open") != std::string::npos;
    }));
    sql("INSERT INTO outbox_dead_letters (source, route, position, id, tenant_id, key, attempts, "
        "error_code, error, died_at) SELECT source, 'far', 0, '" +
        id("09") + "', 'acme', 'k', 1, 'OB_X', 'x', " + (on_sqlite() ? "1" : "now()") +
        " FROM outbox_routes");
    EXPECT_THAT(reasons(event("02")), Not(HasSubstr("behind")));
    const std::string acme = text_of({id("03")});
    EXPECT_THAT(acme, AllOf(HasSubstr("behind event " + id("01")), Not(HasSubstr(id("02")))));
    EXPECT_THAT(reasons(event("03")), HasSubstr("behind_dead"));

    const json all = whole({"--key", "k"});
    EXPECT_EQ(all["waiting"].size(), 3U);
    EXPECT_EQ(all["waiting"][1]["tenant_id"], "globex");
    EXPECT_EQ(all["dead"][0]["tenant_id"], "acme");
    EXPECT_THAT(text_of({"--key", "k"}), AllOf(HasSubstr("TENANT"), HasSubstr("globex")));
    const json one = whole({"--key", "k", "--tenant", "globex"});
    ASSERT_EQ(one["waiting"].size(), 1U);
    EXPECT_EQ(one["waiting"][0]["id"], id("02"));
    EXPECT_EQ(one["dead_total"], 0);
    EXPECT_THAT(text_of({"--key", "k", "--tenant", "globex"}), Not(HasSubstr("TENANT")));
    text_of({"--key", "k", "--tenant", "nobody"}, 1);
    EXPECT_EQ(run_on({"explain", id("01"), "--tenant", "acme"}).status.code, 2);
    EXPECT_EQ(run_on({"explain", "--key", "k", "--tenant", ""}).status.code, 2);
}

// Infinite, and as far away as a number can mean.
TEST_P(Explain, TimesThatMeanNothingAreShownAsSomething) {
    const std::string times[] = {
        on_sqlite() ? "9223372036854775807" : "'infinity'",
        on_sqlite() ? "-9223372036854775807" : "'-infinity'",
    };
    int number = 1;
    for (const std::string& time : times) {
        const std::string some = "0" + std::to_string(number++);
        const std::string delayed = "0" + std::to_string(number++);
        sql("INSERT INTO outbox_events (id, topic, key, payload, occurred_at) VALUES ('" +
            id(some) + "', 'orders', 'k', '1', " + time + ")");
        sql("INSERT INTO outbox_scheduled (id, topic, key, payload, available_at) VALUES ('" +
            id(delayed) + "', 'orders', 'k', '1', " + time + ")");
        EXPECT_THAT(text_of({id(some)}), HasSubstr("written"));
        EXPECT_THAT(text_of({id(delayed)}), HasSubstr("state           delayed"));
    }
    text_of({"--key", "k"});
    whole({"--key", "k"});
}

TEST(ExplainOnPostgres, ATableWithNumbersForIdsIsToldAsItIs) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    Pg(url).exec(
        "CREATE TABLE outgoing (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "aggregatetype text, aggregateid text, type text, payload jsonb); "
        "INSERT INTO outgoing (aggregatetype, aggregateid, type, payload) SELECT 'Order', 'o-1', "
        "'Made', '{}' FROM generate_series(1, 3)");
    const auto ask = [&](const std::string& id) {
        const Finished ended = outbox.run({"explain", id, "--json", "--table", "outgoing",
                                           "--after-publish", "delete", "--db", url});
        EXPECT_EQ(ended.status.code, 0) << ended.out << ended.err;
        return json::parse(ended.out)["events"][0];
    };
    Process running = outbox.start_relay(
        {"--from", url, "--table", "outgoing", "--after-publish", "delete", "--to",
         "far=mailbox+postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x", "--admin",
         "off"});
    Pg database(url);
    ASSERT_TRUE(eventually(60s, "the relay has made its tables", [&] {
        return database.value("SELECT to_regclass('outbox_route_done') IS NOT NULL") == "t";
    })) << running.stderr_text();
    json third;
    ASSERT_TRUE(eventually(60s, "the route is down",
                           [&] {
                               third = ask("3");
                               return third["waits"].size() == 2 &&
                                      third["waits"][0]["reason"] == "circuit_open";
                           }))
        << third << running.stderr_text();
    EXPECT_EQ(third["id"], "public.outgoing:3");
    EXPECT_EQ(third["position"], 3);
    EXPECT_EQ(third["waits"][1]["behind"], "public.outgoing:1");
    EXPECT_EQ(ask("public.outgoing:3")["id"], "public.outgoing:3");
    EXPECT_EQ(
        outbox
            .run({"explain", "x", "--table", "outgoing", "--after-publish", "delete", "--db", url})
            .status.code,
        1);
}

TEST(ExplainOnPostgres, RowsThatStayAreSentAndNotGone) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    const Finished made = outbox.run({"migrate", "--after-publish", "keep", "--db", url});
    if (made.err.find("PostgreSQL 14") != std::string::npos) {
        GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
    }
    ASSERT_EQ(made.status.code, 0) << made.err;
    Pg(url).exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'o-1', '1')");
    const std::string id = Pg(url).value("SELECT id::text FROM outbox_events");
    const Process running =
        outbox.start_relay({"--from", url, "--to", "stdout:", "--admin", "off"});
    const auto ask = [&](std::vector<std::string> words) {
        words.insert(words.begin(), "explain");
        words.insert(words.end(), {"--db", url});
        return on_one_line(outbox.run(words).out);
    };
    EXPECT_TRUE(eventually(60s, "it is sent, and its row stays", [&] {
        return ask({id}).find("state           sent") != std::string::npos;
    })) << ask({id});
    EXPECT_EQ(Pg(url).number("SELECT count(*) FROM outbox_events"), 1);
    EXPECT_THAT(ask({"--key", "o-1"}), AllOf(HasSubstr("no event of public.outbox_events with the"),
                                             Not(HasSubstr("are gone"))));
    EXPECT_THAT(ask({kNobodys}), HasSubstr("rows that are published stay until they are pruned"));
}

TEST(ExplainOnPostgres, ATransactionThatIsOpenIsNamedWithItsApplication) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg writer(url + "?application_name=checkout");
    writer.exec("BEGIN");
    const std::string id = writer.value("SELECT outbox_emit(topic => 'orders', payload => '1')");
    const auto ask = [&] {
        Finished ended = outbox.run({"explain", id, "--db", url});
        ended.out = on_one_line(ended.out);
        return ended;
    };
    const std::string pid = writer.value("SELECT pg_backend_pid()");
    Finished ended = ask();
    EXPECT_EQ(ended.status.code, 1);
    EXPECT_THAT(ended.out, AllOf(HasSubstr("pid " + pid + " (application 'checkout'"),
                                 HasSubstr("idle in transaction, begun ")));
    const json open = json::parse(outbox.run({"explain", id, "--json", "--db", url}).out);
    const json& transaction = open["events"][0]["open_transactions"][0];
    EXPECT_EQ(transaction["application"], "checkout");
    EXPECT_EQ(
        transaction["statement_at"],
        Pg(url).value("SELECT to_char(query_start AT TIME ZONE 'UTC', "
                      "'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM pg_stat_activity WHERE pid = " +
                      pid));
    EXPECT_NE(transaction["statement_at"], transaction["began_at"]);
    EXPECT_THAT(ended.out, HasSubstr(", last statement "));
    // Who asks for a key knows no id yet.
    EXPECT_THAT(on_one_line(outbox.run({"explain", "--key", "o-1", "--db", url}).out),
                AllOf(HasSubstr("is not seen before its COMMIT: pid " + pid),
                      HasSubstr("(application 'checkout'")));
    writer.exec("PREPARE TRANSACTION 'kept'");
    EXPECT_THAT(ask().out, HasSubstr("prepared transaction 'kept' of user postgres"));
    writer.exec("ROLLBACK PREPARED 'kept'");
    ended = ask();
    EXPECT_EQ(ended.status.code, 1);
    EXPECT_THAT(ended.out, HasSubstr("is open: it is not about to appear"));
    EXPECT_THAT(ended.out, Not(HasSubstr("checkout")));
}

}  // namespace
}  // namespace outbox::test
