// The relay itself in front of a real Redis, and the demo.

#include "tests/brokers/demo.h"
#include "tests/brokers/guide.h"
#include "tests/brokers/redis/server.h"
#include "tests/brokers/relay_suite.h"
#include "tests/brokers/troubles.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class RedisRelay : public RelaySuite {};

// The server knows the ids of what was not recorded.
TEST_F(RedisRelay, LosesRepeatsAndReordersNothingWhenItIsKilledInMidFlight) {
    publish_all_through_a_kill(shared_redis().url(), "relay");
    expect_all(shared_redis().arrived("relay", kEvents), 0);
}

TEST_F(RedisRelay, BringsAllThatPostgresCommitsOnceThoughItIsKilledAgainAndAgain) {
    publish_a_load_through_kills(shared_redis().url(), "load", "polling");
    expect_all(shared_redis().arrived("load", committed()), 0);
}

// The server remembers ids of what the ledger no longer stands for.
TEST_F(RedisRelay, ARouteThatIsMadeAnewUnderItsOldNameIsSentAll) {
    retire_and_begin_anew(shared_redis().url(), "anew",
                          [] { return shared_redis().arrived("anew", 100).size(); });
}

TEST_F(RedisRelay, ARouteThatIsRenamedKeepsWhatTheServerRemembers) {
    publish_all_through_a_kill_and_a_rename(shared_redis().url(), "renamed");
    expect_all(shared_redis().arrived("renamed", kEvents), 0);
}

// So does it of what the relay has sent.
TEST_F(RedisRelay, WhatIsReplayedIsNoRepeat) {
    publish_and_replay(shared_redis().url(), "replayed", 50);
    EXPECT_EQ(shared_redis().arrived("replayed", 50).size(), 150U);
    // What a run leaves goes by itself; the relay's stays.
    const std::string left = shared_redis().ask(
        {"EVAL",
         "local out = {0, 0, 0, 0} for _, key in ipairs(redis.call('KEYS', 'outbox:*')) do "
         "local i = string.find(key, 'outbox:{outbox-replay/', 1, true) and 1 or 3 "
         "if redis.call('TTL', key) > 0 then i = i + 1 end out[i] = out[i] + 1 end return out",
         "0"});
    EXPECT_TRUE(left.starts_with("[0, 4, ") && left.find(", 0]") != std::string::npos) << left;
}

TEST_F(RedisRelay, TwoFilesUnderOnePathAreTwoProducers) {
    replace_the_file(shared_redis().url(),
                     [] { return shared_redis().arrived("OutboxMessages", 100).size(); });
}

// A header that no entry can hold; the sink itself refuses that.
TEST_F(RedisRelay, NothingOfABlockedKeyPassesAnEventThatNoEntryHolds) {
    Sqlite(path_).exec(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 29) INSERT INTO "
        "outbox_events (topic, aggregate_type, event_type, key, payload, headers) SELECT "
        "'blocked', 'A', 'T', 'key', json_object('n', i), CASE WHEN i IN (5, 9) THEN "
        "'{\"key\":\"x\"}' END FROM n");
    auto words = arguments(shared_redis().url());
    words.insert(words.end(), {"--on-dead-letter", "block_key"});
    Process relay = outbox_.start_relay(words);
    const auto dead = [&] {
        return Sqlite(path_).number("SELECT count(*) FROM outbox_dead_letters");
    };
    ASSERT_TRUE(eventually(60s, "the letter is there", [&] { return dead() > 0; }));
    Sqlite(path_).exec(
        "INSERT INTO outbox_events (topic, aggregate_type, event_type, key, payload) VALUES "
        "('others', 'A', 'T', 'another', '{}')");
    EXPECT_EQ(shared_redis().arrived("others", 1).size(), 1U);
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(dead(), 1);
    EXPECT_EQ(shared_redis().arrived("blocked", 5).size(), 5U);
}

TEST_F(RedisRelay, CheckSaysWhatIsWrong) {
    const auto right = check(shared_redis().url());
    EXPECT_EQ(right.first, 0) << right.second;
    EXPECT_NE(right.second.find("among the last 10000 ids; append-only file on"), std::string::npos)
        << right.second;
    shared_redis().ask({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
    const auto evicts = check(shared_redis().url());
    shared_redis().ask({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
    EXPECT_EQ(evicts.first, 1);
    EXPECT_NE(evicts.second.find("set it to noeviction"), std::string::npos) << evicts.second;
    const auto password = check(shared_redis().url("relay", "wrong"));
    EXPECT_EQ(password.first, 1) << password.second;
    EXPECT_NE(password.second.find("OB_AUTH_FAILED"), std::string::npos) << password.second;
    const auto option = check(shared_redis().url() + "?maxlen=5");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_NE(option.second.find("no option 'maxlen'"), std::string::npos) << option.second;
    const auto window = check(shared_redis().url() + "?dedup_window=5");
    EXPECT_EQ(window.first, 2) << window.second;
    EXPECT_NE(window.second.find("OB_GUARANTEE_REFUSED"), std::string::npos) << window.second;
}

// Another route of the relay goes on meanwhile.
TEST_F(RedisRelay, APasswordFileThatIsEmptyForAMomentIsAnOutageAndOtherwiseRefused) {
    RedisServer server;
    const BreakableFile password("s3cret");
    const std::string to = "redis://relay@127.0.0.1:" + std::to_string(server.port()) +
                           "/?password_file=" + password.path();
    password.empty();
    auto words = arguments("broken=" + to);
    words.insert(words.end(), {"--to", "sound=" + shared_redis().url()});
    auto command = words;
    command.insert(command.begin(), "relay");
    const Finished refused = outbox_.run(command);
    EXPECT_EQ(refused.status.code, 3) << refused.err;
    EXPECT_NE(refused.err.find("it is empty"), std::string::npos) << refused.err;
    const auto checked = check(to);
    EXPECT_EQ(checked.first, 1) << checked.second;
    EXPECT_NE(checked.second.find("it is empty"), std::string::npos) << checked.second;

    password.mend();
    Process relay = outbox_.start_relay(words);
    write("moment", 100);
    ASSERT_TRUE(eventually(60s, "all are sent", [&] { return left() == 0; }));
    server.kill();
    password.empty();
    server.start();
    write("moment", 100);
    ASSERT_TRUE(eventually(60s, "it says so", [&] {
        return !relay.running() || relay.stderr_text().find("it is empty") != std::string::npos;
    }));
    EXPECT_EQ(shared_redis().arrived("moment", 200).size(), 200U);
    password.mend();
    EXPECT_TRUE(eventually(60s, "all are sent", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
}

// The relay of these events is killed again and again, and events that were delivered come again.
TEST(RedisDemo, TheOrdersEventsGoToABrokerOfTheUsers) {
    const std::size_t events = events_of_demo(shared_redis().url());
    const auto arrived = shared_redis().arrived("order-events", events);
    EXPECT_EQ(ids_of(arrived).size(), events);
    EXPECT_EQ(arrived.size(), events);
}

TEST(RedisDemo, SaysAtOnceThatTheBrokerIsNotThere) {
    const Finished done = run_demo("redis://127.0.0.1:1");
    EXPECT_EQ(done.status, (ExitStatus{1, 0}));
    EXPECT_NE((done.out + done.err).find("check that Redis runs"), std::string::npos)
        << done.out << done.err;
}

// In a database of its own: the demo has a stream of that name, too.
TEST(RedisPage, ItsCommandsBringAnEventToAStreamAndMakeAGroup) {
    std::string url = shared_redis().url();
    url.back() = '1';
    Guide page("redis.md", {.words = {{"redis://localhost:6379/0", url}},
                            .programs = {{"redis-cli", "/usr/bin/redis-cli -e -u " + url}}});
    page.expect_an_event();
    page.run_block(1);
}

}  // namespace
}  // namespace outbox::test
