#include <fstream>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "tests/cli/routes.h"
#include "tests/support/http_client.h"
#include "tests/support/still_sessions.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kToken = "a token that nobody guesses";

// The dashboard of a real database, asked over HTTP.
class Dashboard : public Routes {
  protected:
    void SetUp() override {
        Routes::SetUp();
        token_file_ = outbox_.write("token", std::string(kToken) + "\n").string();
        chmod(token_file_.c_str(), 0600);
    }

    // Side tables are made by a relay.
    void let_a_relay_run() {
        sink_ = subscriber("sink");
        Process running = relay({mailbox("near", sink_)});
        ASSERT_TRUE(
            eventually(60s, "the route is known", [&] { return route("near").is_object(); }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }

    void add_letters(int count, const std::string& code = "OB_RECORD_REFUSED") {
        const std::string source = on_sqlite() ? "outbox_events" : "public.outbox_events";
        const std::string columns =
            "INSERT INTO outbox_dead_letters (source, route, position, id, key, event_type, "
            "payload, attempts, error_code, error, died_at) ";
        if (on_sqlite()) {
            sql(columns +
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i "
                "< " +
                std::to_string(count) + ") SELECT '" + source +
                "', 'near', i, printf('00000000-0000-7000-8000-%012d', i), 'k' || (i % 100), "
                "'Made', '{\"n\":1}', 5, '" +
                code + "', 'no', 1700000000000000 + i FROM n");
        } else {
            sql(columns + "SELECT '" + source +
                "', 'near', i, '00000000-0000-7000-8000-' || lpad(i::text, 12, '0'), 'k' || (i % "
                "100), 'Made', '{\"n\":1}', 5, '" +
                code + "', 'no', to_timestamp(1700000000 + i) FROM generate_series(1, " +
                std::to_string(count) + ") i");
        }
    }

    Process start(std::vector<std::string> more = {}, bool with_token = true) {
        std::vector<std::string> command{OUTBOX_BINARY, "dashboard", "--from",
                                         url_,          "--listen",  "127.0.0.1:0"};
        // A starved machine's database may take long to answer.
        command.insert(command.end(), {"--connect-timeout-s", "60"});
        if (with_token) command.insert(command.end(), {"--admin-token-file", token_file_});
        command.insert(command.end(), more.begin(), more.end());
        Process running({.command = command, .working_folder = outbox_.file("")});
        listens(running);
        return running;
    }
    void listens(Process& running) {
        ASSERT_TRUE(eventually(60s, "it listens", [&] {
            const std::string said = running.stdout_text();
            const auto colon = said.find("1:");
            if (colon == std::string::npos || said.find('/', colon) == std::string::npos) {
                return !running.running();
            }
            port_ = std::stoi(said.substr(colon + 2));
            return true;
        })) << running.stderr_text();
        ASSERT_TRUE(running.running()) << running.stderr_text();
    }

    HttpAnswer get(const std::string& path, const std::string& headers = {}) {
        return http(port_, "GET", path, {}, headers);
    }
    json read(const std::string& path) {
        const HttpAnswer answer = get(path);
        EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
        return json::parse(answer.body);
    }
    HttpAnswer post(const std::string& path, const json& body, const std::string& token = kToken,
                    const std::string& more = {}) {
        std::string headers = "Content-Type: application/json\r\n" + more;
        if (!token.empty()) headers += "Authorization: Bearer " + token + "\r\n";
        return http(port_, "POST", path, body.dump(), headers);
    }
    static constexpr int kLast = 1'000'000;  // beyond all letters
    static json retry_all(std::int64_t expected) {
        return {{"actor", "Ann"},
                {"reason", "mended"},
                {"all", true},
                {"expected", expected},
                {"up_to", kLast}};
    }
    std::string letters() { return sql("SELECT count(*) FROM outbox_dead_letters"); }
    std::string asked() {
        return sql("SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at IS NOT NULL");
    }
    std::string audited() { return sql("SELECT count(*) FROM outbox_audit"); }

    std::string token_file_;
    std::string sink_;
    int port_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Databases, Dashboard, testing::Values(kPostgres, kSqlite),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Dashboard, ShowsADatabaseThatNoRelayHasServed) {
    emit("01");
    Process running = start({}, false);
    EXPECT_THAT(running.stdout_text(), HasSubstr("nothing can be changed here"));
    EXPECT_THAT(get("/").body, HasSubstr("<title>Outbox</title>"));
    const json overview = read("/api/overview");
    EXPECT_EQ(overview["backlog"], 1);
    EXPECT_EQ(overview["lease"]["held"], false);
    EXPECT_EQ(overview["routes"], json::array());
    EXPECT_EQ(overview["this_relay"], nullptr);
    EXPECT_EQ(read("/api/letters")["total"], 0);
    EXPECT_EQ(read("/api/audit")["lines"], json::array());
    EXPECT_EQ(read("/api/held")["events"], json::array());
    EXPECT_EQ(read("/api/explain?id=" + id("01"))["events"][0]["state"], "waiting");
    EXPECT_EQ(get("/api/nothing").status, 404);
    EXPECT_EQ(read("/api/access")["changes"], false);
    EXPECT_EQ(post("/api/letters/retry", retry_all(1)).status, 403);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Dashboard, ShowsRoutesWithTheirDestinationsRatesAndErrors) {
    sink_ = subscriber("sink");
    for (const char* payload : {"01", "02"}) emit(payload);
    let_one_finish(sink_);
    Process running = start();
    const json overview = read("/api/overview");
    ASSERT_EQ(overview["routes"].size(), 2);
    EXPECT_EQ(overview["routes"][0]["name"], "far");
    EXPECT_EQ(overview["routes"][0]["circuit"], "open");
    EXPECT_THAT(overview["routes"][0]["last_error"].get<std::string>(), HasSubstr("OB_"));
    EXPECT_EQ(overview["routes"][1]["circuit"], "closed");
    for (const json& ledger : overview["ledgers"]) {
        EXPECT_EQ(ledger["unfinished"], ledger["name"] == "far" ? 2 : 0);
        if (ledger["name"] == "near") {
            EXPECT_TRUE(ledger["destination"].is_string());
        }
    }
}

TEST_P(Dashboard, ShowsWhatFailsAndHoldsUpItsKey) {
    let_a_relay_run();
    const std::string source = on_sqlite() ? "outbox_events" : "public.outbox_events";
    emit("01");
    sql("INSERT INTO outbox_delivery (source, route, event_id, position, key, attempts, "
        "next_attempt_at, error_code, last_error, first_failed_at) VALUES ('" +
        source + "', 'near', '" + id("01") + "', 1, 'k01', 3, " +
        (on_sqlite() ? "1700000000000000, 'OB_RECORD_REFUSED', '<b>no</b>', 1600000000000000)"
                     : "to_timestamp(1700000000), 'OB_RECORD_REFUSED', '<b>no</b>', "
                       "to_timestamp(1600000000))"));
    Process running = start();
    const json held = read("/api/held");
    ASSERT_EQ(held["events"].size(), 1);
    EXPECT_EQ(held["events"][0]["key"], "k01");
    EXPECT_EQ(held["events"][0]["attempts"], 3);
    EXPECT_EQ(held["events"][0]["error"], "<b>no</b>");
    EXPECT_EQ(held["events"][0]["first_failed_at"], "2020-09-13T12:26:40.000000Z");
    EXPECT_EQ(held["events_are_more"], false);
    const json key = read("/api/explain?key=k01");
    EXPECT_EQ(key["waiting"][0]["routes"][0]["attempts"], 3);
    EXPECT_EQ(read("/api/explain?key=k01&tenant=default")["waiting"].size(), 1);
    EXPECT_EQ(read("/api/explain?key=k01&tenant=acme")["waiting"], json::array());
}

TEST_P(Dashboard, KeysBehindADeadLetterAreThoseOfRoutesThatSaySo) {
    let_a_relay_run();
    add_letters(1);
    EXPECT_EQ(audited(), "0");
    {
        Process running = start();
        EXPECT_EQ(read("/api/held")["dead"], json::array());
    }
    outbox_.write("outbox.toml", "on_dead_letter = \"block_key\"\n");
    Process running = start();
    const json held = read("/api/held");
    ASSERT_EQ(held["dead"].size(), 1);
    EXPECT_EQ(held["dead"][0]["key"], "k1");
}

TEST_P(Dashboard, AHundredThousandDeadLettersArePagedByTheirNumber) {
    let_a_relay_run();
    add_letters(100'000);
    Process running = start();
    std::int64_t last = 0;
    std::string after;
    for (int page = 0; page < 3; ++page) {
        const auto began = std::chrono::steady_clock::now();
        const json letters = read("/api/letters" + after);
        const auto took = std::chrono::steady_clock::now() - began;
        RecordProperty("page_ms", static_cast<int>(took / 1ms));
        EXPECT_EQ(letters["total"], page == 0 ? json(100'000) : json());
        ASSERT_EQ(letters["letters"].size(), 50);
        for (const json& letter : letters["letters"]) {
            EXPECT_EQ(letter["dead_id"], last + 1);
            last = letter["dead_id"];
            EXPECT_FALSE(letter.contains("payload"));
        }
        EXPECT_EQ(letters["next"], last);
        after = "?after=" + std::to_string(last);
    }
    const json end = read("/api/letters?after=99990");
    EXPECT_EQ(end["letters"].size(), 10);
    EXPECT_EQ(end["next"], nullptr);
    const json of_key = read("/api/letters?key=k7&route=near&event_type=Made");
    EXPECT_EQ(of_key["total"], 1'000);
    EXPECT_EQ(of_key["letters"][1]["dead_id"], 107);
    EXPECT_EQ(read("/api/letters?error_code=OB_OTHER")["letters"], json::array());
    EXPECT_EQ(get("/api/letters?after=x").status, 400);
    EXPECT_EQ(get("/api/letters?after=-1").status, 400);
}

// What the server reads for it, by whatever the page filters.
TEST_P(Dashboard, ALaterPageOfDeadLettersReadsNoTableWhole) {
    if (on_sqlite()) GTEST_SKIP() << "it counts no rows that are read";
    let_a_relay_run();
    constexpr int kLetters = 100'000;
    add_letters(kLetters);
    sql("UPDATE outbox_dead_letters SET tenant_id = 'acme' WHERE dead_id % 100 = 0");
    sql("VACUUM ANALYZE outbox_dead_letters");
    const auto counted = [&](const std::string& figure) {
        return std::stoll(sql("SELECT coalesce(sum(" + figure +
                              "), 0) FROM pg_stat_user_tables WHERE relname = "
                              "'outbox_dead_letters'"));
    };
    sql("SELECT pg_stat_reset()");
    ASSERT_TRUE(eventually(60s, "the figures begin anew",
                           [&] { return counted("seq_tup_read + idx_tup_fetch") == 0; }));
    const std::vector<std::string> filters{
        "",        "&route=near",  "&error_code=OB_RECORD_REFUSED",           "&event_type=Made",
        "&key=k7", "&tenant=acme", "&id=00000000-0000-7000-8000-000000099907"};
    constexpr int kPages = 3;
    {
        Process running = start();
        for (const std::string& filter : filters) {
            int after = 1;
            for (int page = 0; page < kPages && after > 0; ++page) {
                const json letters = read("/api/letters?after=" + std::to_string(after) + filter);
                EXPECT_FALSE(letters["letters"].empty()) << filter << after;
                after = letters["next"].is_null() ? 0 : letters["next"].get<int>();
            }
        }
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }  // its figures are told when it goes
    const auto pages = static_cast<std::int64_t>((filters.size() - 1) * kPages + 1);
    ASSERT_TRUE(eventually(60s, "they are told", [&] {
        return counted("seq_scan + idx_scan") >= pages;
    })) << counted("seq_scan + idx_scan");
    EXPECT_EQ(counted("seq_tup_read"), 0);
    // One letter in a hundred matches at the least, and of 51 it is seen that there are more.
    EXPECT_LT(counted("idx_tup_fetch"), pages * 51 * 101);
}

TEST_P(Dashboard, HostilePayloadsAreTextAndAreCut) {
    let_a_relay_run();
    add_letters(2);
    const auto set = [&](int dead_id, const std::string& hex, int times) {
        const std::string bytes =
            on_sqlite()
                ? "CAST(replace(hex(zeroblob(" + std::to_string(times) + ")), '00', '" + hex +
                      "') AS BLOB)"
                : "convert_to(repeat('" + hex + "', " + std::to_string(times) + "), 'UTF8')";
        sql("UPDATE outbox_dead_letters SET payload = " + bytes +
            ", error = '<script>x</script>' WHERE dead_id = " + std::to_string(dead_id));
    };
    set(1, "<script>alert(1)</script>", 50'000);  // 1.25 MB
    sql(std::string("UPDATE outbox_dead_letters SET payload = ") +
        (on_sqlite() ? "x'61ff00c3'" : "'\\x61ff00c3'::bytea") + " WHERE dead_id = 2");
    Process running = start();
    const HttpAnswer answer = get("/api/letter?dead_id=1&id=00000000-0000-7000-8000-000000000001");
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("content-type"), "application/json");
    EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
    const json first = json::parse(answer.body);
    EXPECT_EQ(first["payload_bytes"], 1'250'000);
    EXPECT_EQ(first["payload_shown_bytes"], 65'536);
    EXPECT_LT(first["payload"].get<std::string>().size(), 65'600U);
    EXPECT_EQ(first["error"], "<script>x</script>");
    const json second = read("/api/letter?dead_id=2&id=00000000-0000-7000-8000-000000000002");
    EXPECT_EQ(second["payload_is_text"], false);
    EXPECT_EQ(second["payload"].get<std::string>(), std::string("a\uFFFD\0\uFFFD", 8));
    EXPECT_EQ(get("/api/letter?dead_id=3&id=00000000-0000-7000-8000-000000000001").status, 404);
    EXPECT_EQ(get("/api/letter?dead_id=1").status, 400);
    EXPECT_EQ(get("/api/letters?key=%ff").status, 400);
    EXPECT_EQ(get("/api/letters?key=a%00b").status, 400);
}

TEST_P(Dashboard, ChangesNeedTheTokenAndAreWrittenDown) {
    let_a_relay_run();
    add_letters(3);
    Process running = start();
    EXPECT_EQ(read("/api/access")["changes"], true);
    EXPECT_EQ(read("/api/letters/count?key=k1")["matched"], 1);

    EXPECT_EQ(post("/api/letters/retry", retry_all(3), "").status, 401);
    EXPECT_EQ(post("/api/letters/retry", retry_all(3), "wrong").status, 401);
    const HttpAnswer foreign =
        post("/api/letters/retry", retry_all(3), kToken, "Origin: https://evil.example\r\n");
    EXPECT_EQ(foreign.status, 403);
    EXPECT_EQ(json::parse(foreign.body)["error"], "origin_foreign");
    const HttpAnswer rebound = http_raw(
        port_, "GET /api/overview HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(rebound.status, 403);
    EXPECT_EQ(json::parse(rebound.body)["error"], "host_foreign");
    EXPECT_EQ(asked(), "0");
    EXPECT_EQ(audited(), "0");

    json one{{"actor", "Ann"}, {"reason", "mended"}, {"expected", 1}, {"route", "near"}};
    one["up_to"] = kLast;
    one["ids"] = {"00000000-0000-7000-8000-000000000001"};
    const HttpAnswer retried = post("/api/letters/retry", one);
    EXPECT_EQ(retried.status, 200) << retried.body;
    EXPECT_EQ(json::parse(retried.body)["matched"], 1);
    EXPECT_EQ(asked(), "1");
    EXPECT_EQ(read("/api/letters")["letters"][0]["state"], "retrying");

    json all = retry_all(3);
    all["retrying"] = 1;
    const HttpAnswer discarded = post("/api/letters/discard", all);
    EXPECT_EQ(discarded.status, 200) << discarded.body;
    EXPECT_EQ(json::parse(discarded.body)["matched"], 2);
    EXPECT_EQ(letters(), "1") << "the one that is being retried stays";

    const json lines = read("/api/audit")["lines"];
    ASSERT_EQ(lines.size(), 2);
    EXPECT_EQ(lines[0]["action"], "dead discard");
    EXPECT_EQ(lines[0]["events"], 2);
    EXPECT_EQ(lines[0]["detail"], "all; reason: mended");
    EXPECT_EQ(lines[1]["action"], "dead retry");
    EXPECT_EQ(lines[1]["detail"], "ids 1, route near; reason: mended");
    EXPECT_THAT(lines[1]["who"].get<std::string>(), HasSubstr("Ann (dashboard)"));
    EXPECT_EQ(read("/api/audit?before=" + lines[0]["audit_id"].dump())["lines"].size(), 1);
}

TEST_P(Dashboard, TheAuditShowsWhatWasDoneToWebhooksSagasAndConsumersOfTheDatabaseToo) {
    let_a_relay_run();
    const std::string key =
        outbox_.write("key", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n").string();
    chmod(key.c_str(), 0400);
    sql("INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error) VALUES ('stock', 'm-1', 'orders', 5, 'OB_HANDLER', 'no')");
    sql("INSERT INTO outbox_saga (saga_id, name, version, state, steps, data, topic, leader, "
        "timer, step) VALUES ('s-1', 'order', 1, 'running', "
        "'[{\"step\":\"reserve\",\"state\":\"sent\",\"attempts\":1,\"late\":0,\"can_undo\":true}]',"
        " "
        "'{}', 'sagas', 'sagas', 0, 'reserve')");
    for (const std::vector<std::string>& change :
         {std::vector<std::string>{"webhook", "add", "https://192.0.2.9/hook", "--id", "shop-7",
                                   "--allow", "192.0.2.0/24", "--key-file", key},
          {"dead", "discard", "--consumer", "stock", "--all"},
          {"saga", "abort", "s-1"},
          {"routes", "accept", "near"}}) {
        const Finished done = run_on(change);
        ASSERT_EQ(done.status.code, 0) << change[0] << done.err;
    }
    sql("INSERT INTO outbox_audit (at, os_user, source, action, detail, events, event_ids) SELECT "
        "at, 'bob', source || '_2', 'dead retry', 'of another table', 1, event_ids FROM "
        "outbox_audit WHERE action = 'routes accept'");
    Process running = start();
    std::vector<std::string> seen;
    const json page = read("/api/audit");
    for (const json& line : page["lines"]) {
        seen.push_back(line["of"].get<std::string>() + ": " + line["action"].get<std::string>());
    }
    const std::string table = on_sqlite() ? "outbox_events" : "public.outbox_events";
    EXPECT_THAT(seen,
                testing::ElementsAre(table + ": routes accept", "sagas: saga abort",
                                     "consumer stock: dead discard", "webhooks: webhook add"));
}

// As many as were counted, and others than those.
TEST_P(Dashboard, ALetterThatCameSinceTheCountIsNotAmongThoseThatWereMeant) {
    let_a_relay_run();
    add_letters(3);
    Process running = start();
    const json counted = read("/api/letters/count");
    EXPECT_EQ(counted["matched"], 3);
    json meant = retry_all(3);
    meant["up_to"] = counted["up_to"];
    sql("DELETE FROM outbox_dead_letters WHERE dead_id = 1");
    add_letters(1);
    EXPECT_EQ(post("/api/letters/discard", meant).status, 409);
    EXPECT_EQ(letters(), "3");
    meant["expected"] = 2;
    EXPECT_EQ(post("/api/letters/discard", meant).status, 200);
    EXPECT_EQ(sql("SELECT dead_id FROM outbox_dead_letters"), "4");
}

TEST_P(Dashboard, WhoDiscardsWhatSomebodyElsesRetryHoldsIsTold) {
    if (on_sqlite()) GTEST_SKIP() << "nothing tells that the second waits";
    let_a_relay_run();
    add_letters(3);
    Process running = start();
    Pg first(url_);
    first.exec("BEGIN; UPDATE outbox_dead_letters SET retry_requested_at = clock_timestamp()");
    auto second =
        std::async(std::launch::async, [&] { return post("/api/letters/discard", retry_all(3)); });
    EXPECT_TRUE(eventually(60s, "the second waits for the first", [&] {
        return sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
                   "datname = current_database()") == "1";
    }));
    first.exec("COMMIT");
    const HttpAnswer refused = second.get();
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("they are being retried"));
    EXPECT_EQ(letters(), "3");
}

// Two operators: one has them retried, the other discards by the count from before.
TEST_P(Dashboard, WhatSomebodyElseHasRetriedSinceTheCountIsNotDiscarded) {
    let_a_relay_run();
    add_letters(3);
    Process running = start();
    const json counted = read("/api/letters/count");
    EXPECT_EQ(counted["retrying"], 0);
    json one{{"actor", "Ann"}, {"reason", "mended"}, {"expected", 1}, {"route", "near"}};
    one["up_to"] = kLast;
    one["ids"] = {"00000000-0000-7000-8000-000000000001"};
    ASSERT_EQ(post("/api/letters/retry", one).status, 200);
    json meant = retry_all(3);
    meant["up_to"] = counted["up_to"];
    const HttpAnswer refused = post("/api/letters/discard", meant);
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("1 of them are being retried by now"));
    EXPECT_EQ(letters(), "3");
    const json again = read("/api/letters/count");
    EXPECT_EQ(again["matched"], 3);
    EXPECT_EQ(again["retrying"], 1);
    meant["retrying"] = again["retrying"];
    EXPECT_EQ(post("/api/letters/discard", meant).status, 200);
    EXPECT_EQ(letters(), "1") << "it may be on its way";
    meant["expected"] = 1;
    const HttpAnswer only = post("/api/letters/discard", meant);
    EXPECT_EQ(only.status, 409);
    EXPECT_THAT(only.body, HasSubstr("they are being retried"));
    EXPECT_EQ(letters(), "1");
}

TEST_P(Dashboard, WhatIsNotMeantWhollyChangesNothing) {
    let_a_relay_run();
    add_letters(3);
    Process running = start();
    const auto refused = [&](const json& change, const json& what, int status) {
        json body = retry_all(3);
        body.erase("all");
        body.update(change);
        for (const auto& name : what) body.erase(name.get<std::string>());
        const HttpAnswer answer = post("/api/letters/discard", body);
        EXPECT_EQ(answer.status, status) << body << answer.body;
        EXPECT_TRUE(json::parse(answer.body)["message"].is_string());
    };
    const json all{{"all", true}};
    refused(json::object(), {}, 400);  // which ones?
    refused(all, {"actor"}, 400);
    refused(all, {"reason"}, 400);
    refused(all, {"expected"}, 400);
    refused(all, {"up_to"}, 400);
    refused({{"all", true}, {"up_to", 0}}, {}, 400);
    refused({{"all", true}, {"reason", "  \n "}}, {}, 400);
    refused({{"all", true}, {"reason", std::string(501, 'x')}}, {}, 400);
    refused({{"all", true}, {"actor", "a\nb"}}, {}, 400);
    refused({{"all", true}, {"key", "k1"}}, {}, 400);  // both
    refused({{"keys", "k1"}}, {}, 400);                // a field that is not known
    refused({{"key", 1}}, {}, 400);
    refused({{"ids", json::array()}}, {}, 400);
    refused({{"key", std::string("k\0", 2)}}, {}, 400);
    refused({{"all", true}, {"expected", 2}}, {}, 409);  // others than were counted
    refused({{"key", "nobody's"}, {"expected", 0}}, {}, 409);
    for (const char* body :
         {"no json", R"({"actor": "Ann", "reason": "mended", "tenant": "other", "tenant": "default",
                         "expected": 3, "up_to": 1000000})"}) {
        EXPECT_EQ(http(port_, "POST", "/api/letters/discard", body,
                       "Content-Type: application/json\r\nAuthorization: Bearer " +
                           std::string(kToken) + "\r\n")
                      .status,
                  400)
            << body;
    }
    EXPECT_EQ(get("/api/letters/count?keys=k1").status, 400);
    EXPECT_EQ(post("/api/letters/edit", retry_all(3)).status, 404);
    EXPECT_EQ(letters(), "3");
    EXPECT_EQ(audited(), "0");
}

TEST_P(Dashboard, LettersOfARouteThatIsGoneAreNotRetried) {
    let_a_relay_run();
    add_letters(1);
    sql("UPDATE outbox_dead_letters SET route = 'gone'");
    Process running = start();
    EXPECT_EQ(read("/api/letters/count")["routes_that_are_gone"], json({"gone"}));
    EXPECT_EQ(post("/api/letters/retry", retry_all(1)).status, 409);
    EXPECT_EQ(asked(), "0");
    EXPECT_EQ(audited(), "0");
}

TEST_P(Dashboard, ATokenFileThatIsWrittenAnewHoldsAtOnce) {
    let_a_relay_run();
    add_letters(1);
    Process running = start();
    const std::string other = "another one, as long";
    outbox_.write("token", other);
    EXPECT_EQ(post("/api/letters/retry", retry_all(1)).status, 401);
    chmod(token_file_.c_str(), 0644);
    const HttpAnswer open = post("/api/letters/retry", retry_all(1), other);
    EXPECT_EQ(open.status, 503);
    EXPECT_THAT(open.body, HasSubstr("chmod"));
    EXPECT_EQ(asked(), "0");
    chmod(token_file_.c_str(), 0600);
    EXPECT_EQ(post("/api/letters/retry", retry_all(1), other).status, 200);
    EXPECT_EQ(asked(), "1");
}

TEST_P(Dashboard, ConsumersOfOtherDatabasesAreShownAlsoWhereOneIsAway) {
    const std::string there = subscriber("there");
    sql(there, "INSERT INTO outbox_inbox_floor (consumer) VALUES ('stock')");
    sql(there, "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', 'applied')");
    sql(there,
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error) VALUES ('stock', 'bad', 'orders', 5, 'OB_HANDLER_FAILED', 'no stock')");
    sql(there,
        "INSERT INTO outbox_mailbox (mailbox, id, topic) VALUES ('parcels', 'a', 'orders'), "
        "('parcels', 'b', 'orders')");
    const std::string away =
        on_sqlite() ? "sqlite:///nowhere/at/all.db"
                    : "postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    Process running = start({"--consumer-db", there, "--consumer-db", away});
    const json databases = read("/api/consumers")["databases"];
    ASSERT_EQ(databases.size(), 2);
    ASSERT_EQ(databases[0]["consumers"].size(), 1) << databases;
    EXPECT_EQ(databases[0]["consumers"][0]["name"], "stock");
    EXPECT_EQ(databases[0]["consumers"][0]["dead"], 1);
    ASSERT_EQ(databases[0]["mailboxes"].size(), 1) << databases;
    EXPECT_EQ(databases[0]["mailboxes"][0]["name"], "parcels");
    EXPECT_EQ(databases[0]["mailboxes"][0]["waiting"], 2);
    EXPECT_EQ(databases[0]["error"], nullptr);
    EXPECT_THAT(databases[1]["error"].get<std::string>(), HasSubstr("OB_"));
}

TEST_P(Dashboard, ExplainAsksEveryConsumersDatabaseAndSaysWhichDidNotAnswer) {
    let_a_relay_run();
    const std::string other = subscriber("other");
    const std::string applied = subscriber("applied");
    const std::string away =
        on_sqlite() ? "sqlite:///nowhere/at/all.db"
                    : "postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    sql(applied,
        "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', '" + id("01") + "')");
    Process running =
        start({"--consumer-db", away, "--consumer-db", other, "--consumer-db", applied});
    const json event = read("/api/explain?id=" + id("01"))["events"][0];
    EXPECT_EQ(event["state"], "applied");
    ASSERT_EQ(event["remarks"].size(), 1) << event["remarks"];
    EXPECT_THAT(event["remarks"][0].get<std::string>(),
                AllOf(HasSubstr("what this consumer's database knows is not said"),
                      HasSubstr(on_sqlite() ? "/nowhere/at/all.db" : "/x: OB_")));
}

TEST_P(Dashboard, SagasAreShownWithTheirSteps) {
    Process running = start();
    EXPECT_EQ(read("/api/sagas?state=stuck")["total"], 0);
    EXPECT_EQ(get("/api/saga?id=s-1").status, 404);
    EXPECT_EQ(get("/api/saga").status, 400);
    sql("INSERT INTO outbox_saga (saga_id, name, version, state, step, steps, data, leader, topic, "
        "timer, trouble) VALUES ('s-1', 'order', 1, 'stuck', 'charge', "
        "'[{\"step\":\"reserve\",\"state\":\"done\",\"attempts\":1,\"late\":0,\"can_undo\":true},"
        "{\"step\":\"charge\",\"state\":\"sent\",\"attempts\":3,\"late\":0,\"can_undo\":false}]', "
        "'{\"order\":\"o-1\"}', 'orders', 'answers', 3, 'no answer to charge'), "
        "('s-2', 'order', 1, 'running', 'reserve', "
        "'[{\"step\":\"reserve\",\"state\":\"sent\",\"attempts\":1,\"late\":0,\"can_undo\":true}]',"
        " "
        "'{}', 'orders', 'answers', 1, NULL)");
    const json all = read("/api/sagas");
    EXPECT_EQ(all["total"], 2);
    EXPECT_EQ(all["sagas"].size(), 2);
    const json stuck = read("/api/sagas?state=stuck");
    EXPECT_EQ(stuck["total"], 1);
    ASSERT_EQ(stuck["sagas"].size(), 1) << stuck;
    EXPECT_EQ(stuck["sagas"][0]["id"], "s-1");
    EXPECT_EQ(stuck["sagas"][0]["step"], "charge");
    EXPECT_EQ(stuck["sagas"][0]["trouble"], "no answer to charge");
    const json saga = read("/api/saga?id=s-1");
    ASSERT_EQ(saga["steps"].size(), 2) << saga;
    EXPECT_EQ(saga["steps"][0]["step"], "reserve");
    EXPECT_EQ(saga["steps"][0]["state"], "done");
    EXPECT_EQ(saga["steps"][1]["step"], "charge");
    EXPECT_EQ(saga["steps"][1]["attempts"], 3);
    EXPECT_EQ(saga["data"], R"({"order":"o-1"})") << "as text: it is not ours";
    EXPECT_EQ(get("/api/saga?id=s-3").status, 404);
    ASSERT_TRUE(eventually(60s, "the next reading counts them",
                           [&] { return read("/api/overview")["sagas"].size() == 2; }));
    EXPECT_EQ(read("/api/overview")["has_sagas"], true);
}

TEST_P(Dashboard, RelaysThatStandByAndEndpointsOfWebhooksAreShown) {
    sink_ = subscriber("sink");
    Process leader = relay({mailbox("near", sink_)});
    ASSERT_TRUE(eventually(60s, "one leads", [&] { return route("near").is_object(); }))
        << leader.stderr_text();
    Process second = relay({mailbox("near", sink_), mailbox("more", sink_)});
    sql(
        std::string("INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets, last_error) "
                    "VALUES ('shop-7', 'https://shop.example/h', '', 'HTTP 503'), ('off', "
                    "'https://off.example/h', '', NULL)"));
    sql("UPDATE outbox_webhook_endpoints SET state = 'disabled' WHERE endpoint_id = 'off'");
    sql("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('shop-7', 'e1')");
    Process running = start();
    json overview;
    ASSERT_TRUE(eventually(60s, "the second stands by", [&] {
        overview = read("/api/overview");
        return overview["standbys"].size() == 1;
    })) << second.stderr_text();
    const json& standby = overview["standbys"][0];
    EXPECT_THAT(standby["owner"].get<std::string>(), HasSubstr(":" + std::to_string(second.pid())));
    EXPECT_EQ(standby["routes"], json({"near", "more"}));
    EXPECT_EQ(standby["other_routes"], true);
    EXPECT_THAT(overview["lease"]["owner"].get<std::string>(),
                HasSubstr(":" + std::to_string(leader.pid())));
    const json& webhooks = overview["webhooks"];
    EXPECT_EQ(webhooks["delivered_by"], nullptr);
    EXPECT_THAT(webhooks["remark"].get<std::string>(), HasSubstr("no relay delivers webhooks"));
    ASSERT_EQ(webhooks["endpoints"].size(), 2) << webhooks;
    for (const json& one : webhooks["endpoints"]) {
        const bool off = one["id"] == "off";
        EXPECT_EQ(one["state"], off ? "disabled" : "enabled");
        EXPECT_EQ(one["waiting"], off ? 0 : 1);
        EXPECT_EQ(one["last_error"], off ? json() : json("HTTP 503"));
    }
    EXPECT_EQ(second.stop(), (ExitStatus{0, 0})) << second.stderr_text();
    EXPECT_EQ(leader.stop(), (ExitStatus{0, 0})) << leader.stderr_text();
}

TEST_P(Dashboard, RunsOfReplayAreShownWithTheirPaceAndWhoBeganThemAndWhy) {
    let_a_relay_run();
    constexpr int kLetters = 1'000;
    add_letters(kLetters);
    Process running = start();
    EXPECT_EQ(read("/api/replays")["replays"], json::array());
    Process replay({.command = {OUTBOX_BINARY, "replay", "--from", url_, "--to",
                                mailbox("near", sink_), "--dead-letters", "--rate", "50/s",
                                "--event-type", "Made", "--yes", "--reason", "billing lost a disk"},
                    .working_folder = outbox_.file("")});
    json run;
    ASSERT_TRUE(eventually(60s, "its pace is shown", [&] {
        const json runs = read("/api/replays")["replays"];
        if (runs.empty()) return false;
        run = runs[0];
        return run["sent"] > 0 && run["rate_per_s"] > 0;
    })) << replay.stderr_text();
    EXPECT_EQ(run["state"], "running");
    EXPECT_THAT(run["runner"].get<std::string>(), HasSubstr(":" + std::to_string(replay.pid())));
    EXPECT_EQ(run["route"], "near");
    EXPECT_EQ(run["scope"], "dead letters of route near, event type Made");
    EXPECT_EQ(run["expected"], kLetters);
    EXPECT_EQ(run["rate"], 50);
    EXPECT_THAT(run["who"].get<std::string>(), HasSubstr("user "));
    EXPECT_EQ(run["reason"], "billing lost a disk");

    EXPECT_EQ(replay.stop(), (ExitStatus{1, 0})) << replay.stderr_text();
    run = read("/api/replays")["replays"][0];
    EXPECT_EQ(run["state"], "running");
    EXPECT_EQ(run["runner"], nullptr) << "it is stopped";
    EXPECT_EQ(run["rate_per_s"], 0);

    const std::string id = run["run"];
    ASSERT_EQ(outbox_.run({"replay", "cancel", id, "--from", url_, "--reason", "enough"}).status,
              (ExitStatus{0, 0}));
    EXPECT_EQ(read("/api/replays")["replays"][0]["state"], "cancelled");
}

TEST_P(Dashboard, TenantsThatArePausedAndTheLongestBacklogsAreShown) {
    let_a_relay_run();
    emit("01");
    Process running = start();
    EXPECT_EQ(read("/api/tenants")["tenants"], json::array()) << "nobody has named a tenant";
    sql("INSERT INTO outbox_events (topic, payload, tenant_id) VALUES ('t', '{}', 'acme'), ('t', "
        "'{}', 'acme'), ('t', '{}', 'globex')");
    ASSERT_EQ(
        outbox_.run({"tenant", "pause", "globex", "--db", url_, "--reason", "moves"}).status.code,
        0);
    const json shown = read("/api/tenants");
    EXPECT_EQ(shown["paused"], 1);
    ASSERT_EQ(shown["tenants"].size(), 3U) << shown;
    EXPECT_EQ(shown["tenants"][0]["tenant"], "globex");
    EXPECT_EQ(shown["tenants"][0]["paused"], true);
    EXPECT_EQ(shown["tenants"][0]["reason"], "moves");
    EXPECT_EQ(shown["tenants"][1]["tenant"], "acme");
    EXPECT_EQ(shown["tenants"][1]["waiting"], 2);
    add_letters(3);
    sql("UPDATE outbox_dead_letters SET tenant_id = 'acme' WHERE dead_id = 2");
    EXPECT_EQ(read("/api/letters?tenant=acme")["total"], 1);
    const json change{{"actor", "Ann"},
                      {"reason", "moved"},
                      {"tenant", "acme"},
                      {"expected", 1},
                      {"up_to", kLast}};
    EXPECT_EQ(post("/api/letters/discard", change).status, 200);
    EXPECT_EQ(letters(), "2");
}

TEST_P(Dashboard, WithoutATableOfReplaysNoneIsShownAndNoneIsMade) {
    Process running = start();
    EXPECT_EQ(read("/api/replays")["replays"], json::array()) << "no relay has run";
    let_a_relay_run();
    sql("DROP TABLE outbox_replays");
    EXPECT_EQ(read("/api/replays")["replays"], json::array());
    EXPECT_EQ(sql(on_sqlite() ? "SELECT count(*) FROM sqlite_master WHERE name = 'outbox_replays'"
                              : "SELECT count(to_regclass('outbox_replays'))"),
              "0");
}

TEST_P(Dashboard, ARelayServesItBesideHealthAndMetrics) {
    sink_ = subscriber("sink");
    const int port = free_port();
    std::vector<std::string> arguments{"--from",  url_,
                                       "--to",    mailbox("near", sink_),
                                       "--admin", "127.0.0.1:" + std::to_string(port)};
    {
        Process without = outbox_.start_relay(arguments);
        port_ = port;
        ASSERT_TRUE(eventually(60s, "it serves", [&] {
            return without.stderr_text().find("admin_listening") != std::string::npos;
        }));
        EXPECT_EQ(get("/").status, 404);
        EXPECT_EQ(without.stop(), (ExitStatus{0, 0}));
    }
    arguments.insert(arguments.end(), {"--admin-token-file", token_file_});
    Process running = outbox_.start_relay(arguments);
    emit("01");
    ASSERT_TRUE(eventually(60s, "the event is sent and told of", [&] {
        if (running.stderr_text().find("admin_listening") == std::string::npos) return false;
        const HttpAnswer answer = get("/api/overview");
        if (answer.status != 200) return false;
        const json overview = json::parse(answer.body);
        return overview["backlog"] == 0 && overview["lease"]["held"] == true &&
               !overview["routes"].empty() && overview["routes"][0]["published_total"] == 1;
    })) << running.stderr_text();
    const json relay = read("/api/overview")["this_relay"];
    EXPECT_EQ(relay["routes"][0]["published"], 1);
    std::int64_t counted = 0;
    for (const json& count : relay["routes"][0]["latency_counts"]) counted += count.get<int>();
    EXPECT_LE(counted, 1);
    EXPECT_EQ(relay["routes"][0]["latency_counts"].size(), relay["latency_bounds_ms"].size() + 1);
    EXPECT_EQ(get("/health/ready").status, 200);
    EXPECT_THAT(get("/metrics").body, HasSubstr("outbox_published_total"));
    EXPECT_THAT(get("/").body, HasSubstr("<title>Outbox</title>"));
    EXPECT_EQ(post("/api/letters/retry", retry_all(1), "").status, 401);
    EXPECT_EQ(post("/metrics", {}).status, 405);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// --- What goes wrong

class DashboardRefuses : public Dashboard {
  protected:
    Finished run_dashboard(std::vector<std::string> more) {
        more.insert(more.begin(), "dashboard");
        return outbox_.run(more);
    }
};

INSTANTIATE_TEST_SUITE_P(Databases, DashboardRefuses, testing::Values(kSqlite),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DashboardRefuses, OptionsThatCannotBe) {
    const TakenPort taken(0);
    const Finished busy = run_dashboard({"--from", url_, "--listen", taken.address()});
    EXPECT_EQ(busy.status.code, 2);
    EXPECT_THAT(busy.err,
                HasSubstr("another program uses this port; give another address with --listen"));
    for (const char* address : {"auto", "off", "9465", "127.0.0.1:x", ":1"}) {
        EXPECT_EQ(run_dashboard({"--from", url_, "--listen", address}).status.code, 2) << address;
    }
    EXPECT_EQ(run_dashboard({}).status.code, 2);
    EXPECT_EQ(run_dashboard({"--from", "kafka://localhost"}).status.code, 2);
    const auto refused = [&](const std::string& file) {
        const Finished ended = run_dashboard({"--from", url_, "--admin-token-file", file});
        EXPECT_EQ(ended.status.code, 2) << ended.err;
        return ended.err;
    };
    EXPECT_THAT(refused("nowhere"), HasSubstr("No such file"));
    outbox_.write("token", "");
    EXPECT_THAT(refused(token_file_), HasSubstr("it is empty"));
    outbox_.write("token", "short");
    EXPECT_THAT(refused(token_file_), HasSubstr("could be guessed"));
    outbox_.write("token", kToken);
    chmod(token_file_.c_str(), 0644);
    EXPECT_THAT(refused(token_file_), HasSubstr("other users may read"));
    EXPECT_THAT(refused(token_file_), Not(HasSubstr(kToken)));
    const std::vector<std::string> relay{"relay",    "--from",  url_,  "--to",
                                         "null:",    "--admin", "off", "--admin-token-file",
                                         token_file_};
    chmod(token_file_.c_str(), 0600);
    const Finished off = outbox_.run(relay);
    EXPECT_EQ(off.status.code, 2);
    EXPECT_THAT(off.err, HasSubstr("there is no dashboard where admin is off"));
}

TEST_P(DashboardRefuses, ATableThatIsNotThere) {
    const Finished ended =
        run_dashboard({"--from", url_, "--table", "nothing", "--listen", "127.0.0.1:0"});
    EXPECT_EQ(ended.status.code, 4);
    EXPECT_THAT(ended.err, HasSubstr("nothing"));
}

TEST_P(DashboardRefuses, WhereOthersReachItReadingNeedsTheToken) {
    Process running({.command = {OUTBOX_BINARY, "dashboard", "--from", url_, "--listen",
                                 "0.0.0.0:" + std::to_string(port_ = free_port()),
                                 "--admin-token-file", token_file_}});
    ASSERT_TRUE(eventually(60s, "it listens", [&] {
        return running.stdout_text().find("http://") != std::string::npos;
    })) << running.stderr_text();
    EXPECT_THAT(running.stderr_text(), HasSubstr("other machines reach this page, in clear"));
    EXPECT_EQ(get("/api/overview").status, 401);
    EXPECT_EQ(get("/api/overview", "Authorization: Bearer " + std::string(kToken) + "\r\n").status,
              200);
    EXPECT_EQ(get("/").status, 200);
    EXPECT_EQ(read("/api/access")["reading_needs_token"], true);
}

// A server of its own: it is stopped.
TEST(DashboardAway, SaysThatTheDatabaseIsAwayAndComesBack) {
    PostgresServer server;
    OutboxBinary outbox;
    const std::string url = server.create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Process running({.command = {OUTBOX_BINARY, "dashboard", "--from", url, "--listen",
                                 "127.0.0.1:0", "--connect-timeout-s", "5"}});
    int port = 0;
    ASSERT_TRUE(eventually(60s, "it listens", [&] {
        const std::string said = running.stdout_text();
        if (said.find("/\n") == std::string::npos) return false;
        port = std::stoi(said.substr(said.find("1:") + 2));
        return true;
    })) << running.stderr_text();
    EXPECT_EQ(http(port, "GET", "/api/overview").status, 200);
    server.stop();
    ASSERT_TRUE(eventually(60s, "the page is told",
                           [&] { return http(port, "GET", "/api/overview").status == 503; }));
    EXPECT_THAT(http(port, "GET", "/api/overview").body, HasSubstr("OB_CONNECT_FAILED"));
    EXPECT_EQ(http(port, "GET", "/").status, 200);
    server.start();
    EXPECT_TRUE(eventually(60s, "it comes back",
                           [&] { return http(port, "GET", "/api/overview").status == 200; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST(DashboardAway, AConsumersSessionThatStandsStillHoldsUpNeitherThePageNorTheEnd) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    const std::string consumer = shared_postgres().create_database();
    for (const std::string& one : {url, consumer}) {
        ASSERT_EQ(outbox.run({"migrate", "--db", one}).status.code, 0);
    }
    Process running({.command = {OUTBOX_BINARY, "dashboard", "--from", url, "--listen",
                                 "127.0.0.1:0", "--consumer-db", consumer}});
    int port = 0;
    ASSERT_TRUE(eventually(60s, "it listens", [&] {
        const std::string said = running.stdout_text();
        if (said.find("/\n") == std::string::npos) return false;
        port = std::stoi(said.substr(said.find("1:") + 2));
        return true;
    })) << running.stderr_text();
    const auto status_of = [&](const std::string& path) {
        try {
            return http(port, "GET", path).status;
        } catch (const std::exception&) {
            return 0;
        }
    };
    ASSERT_EQ(status_of("/api/consumers"), 200);
    StillSessions still(consumer, "outbox consumer", "outbox_inbox, outbox_inbox_dead_letters");
    std::future<void> asked;
    ASSERT_TRUE(eventually(60s, "a request waits for a session that stands still", [&] {
        return still.keep_waiting([&] { status_of("/api/consumers"); }, asked);
    }));
    EXPECT_EQ(status_of("/"), 200);
    EXPECT_EQ(status_of("/api/access"), 200);
    EXPECT_EQ(status_of("/api/overview"), 503);
    running.kill(SIGTERM);
    EXPECT_EQ(running.wait(60s), (ExitStatus{1, 0})) << running.stderr_text();
    EXPECT_THAT(running.stderr_text(), HasSubstr("has not answered what the page asked"));
}

}  // namespace
}  // namespace outbox::test
