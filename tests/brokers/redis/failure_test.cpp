// What a real Redis does to the sink in mid-stream.

#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "brokers/redis/scripts.h"
#include "brokers/redis/sink.h"
#include "tests/brokers/redis/server.h"
#include "tests/brokers/troubles.h"
#include "tests/support/eventually.h"
#include "tests/support/process.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using redis::RedisConfig;
using redis::RedisSink;

RedisServer& server() {
    static RedisServer redis(broker_certificates().folder(), "proto-max-bulk-len 1mb");
    return redis;
}

std::string new_name() {
    static int names = 0;
    return "failure-" + std::to_string(++names);
}

RedisConfig config_of(const std::string& url, const std::string& producer = new_name()) {
    auto made = redis::make_config(url, {{"producer", producer}}, 10'000).value_or_throw();
    made.connect_timeout = 60s;  // a server may be given no processor for some
    return made;
}

RedisConfig config(const std::string& producer = new_name()) {
    return config_of(server().url(), producer);
}

void expect_once_in_order(RedisServer& at, const std::string& stream,
                          const std::vector<Letter>& sent) {
    test::expect_once_in_order(sent, at.arrived(stream, sent.size()));
}

TEST(RedisFailure, AServerThatIsKilledUnderLoadGetsEachEventOnce) {
    const std::string stream = new_name();
    RedisSink sink(config());
    const auto sent = letters(stream, 5'000, 50);
    deliver_through(sink, sent, 1'000, [] { server().kill(); }, [] { server().start(); });
    expect_once_in_order(server(), stream, sent);
}

TEST(RedisFailure, WhatAnotherRelayLeftUnrecordedIsNotAppendedAgain) {
    const std::string stream = new_name();
    const std::string producer = new_name();
    const auto sent = letters(stream, 2'000, 50);
    RedisSink first(config(producer));
    ASSERT_EQ(Courier(first).deliver(sent), "");
    RedisSink second(config(producer));
    ASSERT_EQ(Courier(second).deliver(sent), "");
    expect_once_in_order(server(), stream, sent);

    auto without = config(new_name());
    without.dedup_window = 0;
    RedisSink third(without);
    ASSERT_EQ(Courier(third).deliver(sent), "");
    EXPECT_EQ(server().arrived(stream, sent.size()).size(), 2 * sent.size());
}

TEST(RedisFailure, TheWindowHoldsSoManyIdsAndNoMore) {
    const std::string stream = new_name();
    const std::string producer = new_name();
    auto small = config(producer);
    small.dedup_window = 100;
    const auto sent = letters(stream, 1'000, 10);
    ASSERT_EQ(Courier(*std::make_unique<RedisSink>(small)).deliver(sent), "");
    EXPECT_NE(server().ask({"LLEN", redis::ids_key(producer)}).find("100"), std::string::npos);
    ASSERT_EQ(Courier(*std::make_unique<RedisSink>(small)).deliver(sent), "");
    EXPECT_EQ(server().arrived(stream, sent.size()).size(), 1'900U);
}

TEST(RedisFailure, ARelayThatWasPausedAppendsNothingMore) {
    const std::string stream = new_name();
    const std::string producer = new_name();
    RedisSink paused(config(producer));
    const auto sent = letters(stream, 20, 1);
    ASSERT_EQ(outcome_of(paused, {sent[0]}).acknowledged.size(), 1U);
    RedisSink successor(config(producer));
    ASSERT_EQ(outcome_of(successor, {sent[1]}).acknowledged.size(), 1U);
    const auto late = outcome_of(paused, {sent[0]});
    ASSERT_EQ(late.failed.size(), 1U);
    EXPECT_EQ(late.failed[0].error.backend_code, "FENCED");
    EXPECT_EQ(late.failed[0].error.advice, Advice::kRetryDestination);
    EXPECT_NE(late.failed[0].error.message.find("redis.producer"), std::string::npos);
    EXPECT_EQ(server().arrived(stream, 2).size(), 2U);
}

// Bytes of an old connection that come when a new session has begun, and a batch whose forerunner
// was refused.
TEST(RedisFailure, NoBatchOvertakesOne) {
    const std::string stream = new_name();
    const std::string producer = new_name();
    const auto run = [&](const std::string& session, const std::string& batch) {
        return server().ask({"EVAL", std::string(redis::kBatchScript), "2",
                             redis::session_key(producer), redis::ids_key(producer), session, batch,
                             "10", "0", "0", "0", stream, "2", "id", session + "-" + batch});
    };
    server().ask({"EVAL", std::string(redis::kBeginScript), "2", redis::session_key(producer),
                  redis::ids_key(producer), "10", "0"});
    EXPECT_NE(run("1", "1").find("[]"), std::string::npos);
    EXPECT_THROW(run("1", "3"), std::runtime_error);
    EXPECT_NE(run("1", "2").find("[]"), std::string::npos);
    server().ask({"EVAL", std::string(redis::kBeginScript), "2", redis::session_key(producer),
                  redis::ids_key(producer), "10", "0"});
    EXPECT_THROW(run("1", "3"), std::runtime_error);
    EXPECT_NE(run("2", "1").find("[]"), std::string::npos);
    std::vector<std::string> ids;
    for (const Arrived& entry : server().arrived(stream, 3)) ids.push_back(entry.id);
    EXPECT_EQ(ids, (std::vector<std::string>{"1-1", "1-2", "2-1"}));
}

TEST(RedisFailure, AKeyThatIsNoStreamDelaysItsStreamAlone) {
    const std::string stream = new_name();
    const std::string taken = new_name();
    server().ask({"SET", taken, "x"});
    RedisSink sink(config());
    const auto sent = letters_to_two(stream, taken);
    deliver_while_one_waits(sink, sent, "stream " + taken, [&] { server().ask({"DEL", taken}); });
    for (const std::string& one : {stream, taken}) {
        expect_once_in_order(server(), one, letters_to(one, sent));
    }
}

TEST(RedisFailure, AnEventThatIsTooLargeAloneIsDead) {
    const std::string stream = new_name();
    RedisSink sink(config());
    auto sent = letters(stream, 1'000, 10);
    sent[500].value = std::string(3'000'000, 'x');
    Courier courier(sink);
    courier.max_publish_per_poll = 100;
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 500U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(courier.counted_attempts(), 0U);
    sent.erase(sent.begin() + 500);
    expect_once_in_order(server(), stream, sent);
}

// proto-max-bulk-len counts each part of an event for itself.
TEST(RedisFailure, AnEventThatIsLargerInAllAndFitsIsNotTakenForOneThatDoesNot) {
    const std::string stream = new_name();
    RedisSink sink(config());
    auto sent = letters(stream, 100, 10);
    sent[50].value = std::string(1'060'000, 'x');
    for (const std::size_t fits : {49U, 51U, 52U, 53U}) {
        sent[fits].value = std::string(1'000'000, 'y');
        sent[fits].headers.emplace_back("much", std::string(200'000, 'z'));
    }
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 50U);
    sent.erase(sent.begin() + 50);
    expect_once_in_order(server(), stream, sent);
}

TEST(RedisFailure, AHeaderThatIsAFieldOfTheRelayAloneIsDead) {
    RedisSink sink(config());
    auto sent = letters(new_name(), 100, 10);
    sent[50].headers.emplace_back("value", "x");
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 50U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kRecordRefused);
}

TEST(RedisFailure, AnEventWithAsManyHeadersAsThereMayBeIsAppended) {
    const std::string stream = new_name();
    RedisSink sink(config());
    auto sent = letters(stream, 2, 1);
    for (Letter& letter : sent) {
        letter.headers.clear();
        for (int i = 0; i < 3'500; ++i) letter.headers.emplace_back("h" + std::to_string(i), "v");
    }
    ASSERT_EQ(outcome_of(sink, sent).acknowledged.size(), 2U);
    const auto arrived = server().arrived(stream, 2);
    ASSERT_EQ(arrived.size(), 2U);
    EXPECT_EQ(arrived[0].headers.size(), 3'501U);  // with the id
}

TEST(RedisFailure, AServerWithoutMemoryIsDownUntilItHasSome) {
    const std::string stream = new_name();
    RedisSink sink(config());
    const auto sent = letters(stream, 3'000, 20);
    deliver_through(
        sink, sent, 500, [] { server().ask({"CONFIG", "SET", "maxmemory", "1"}); },
        [&] {
            const Status status = sink.check();
            EXPECT_FALSE(status.ok());
            if (!status.ok()) EXPECT_EQ(status.error().backend_code, "OOM");
            server().ask({"CONFIG", "SET", "maxmemory", "0"});
        });
    expect_once_in_order(server(), stream, sent);
}

TEST(RedisFailure, ScriptsAndSessionsThatAreForgottenAreMadeAnew) {
    const std::string stream = new_name();
    const std::string producer = new_name();
    RedisSink sink(config(producer));
    const auto sent = letters(stream, 300, 10);
    const std::vector<Letter> first(sent.begin(), sent.begin() + 100);
    const std::vector<Letter> second(sent.begin() + 100, sent.begin() + 200);
    const std::vector<Letter> third(sent.begin() + 200, sent.end());
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(first), "");
    server().ask({"SCRIPT", "FLUSH"});
    Courier after_flush(sink);
    ASSERT_EQ(after_flush.deliver(second), "");
    EXPECT_EQ(after_flush.destination_failures(), 0U);
    EXPECT_EQ(notes_of(sink), "") << "nothing is lost with the scripts";
    server().ask({"DEL", redis::session_key(producer)});
    Courier after_loss(sink);
    ASSERT_EQ(after_loss.deliver(third), "");
    EXPECT_EQ(after_loss.destination_failures(), 0U);
    EXPECT_NE(notes_of(sink).find("destination_set_back"), std::string::npos);
    expect_once_in_order(server(), stream, sent);
}

// As after a crash that lost what was not yet on disk, or a failover to a replica that lagged.
TEST(RedisFailure, AServerThatLostWhatItAcknowledgedIsSaid) {
    const std::string stream = new_name();
    const std::string producer = new_name();
    RedisSink sink(config(producer));
    const auto sent = letters(stream, 300, 10);
    Courier courier(sink);
    ASSERT_EQ(courier.deliver({sent.begin(), sent.begin() + 100}), "");
    const auto begin_anew = [&](const std::vector<Letter>& more) {
        server().ask({"SCRIPT", "FLUSH"});
        Courier next(sink);
        return next.deliver(more);
    };
    ASSERT_EQ(begin_anew({sent.begin() + 100, sent.begin() + 200}), "");
    ASSERT_EQ(notes_of(sink), "");
    server().ask({"HINCRBY", redis::session_key(producer), "batch", "-1"});
    ASSERT_EQ(begin_anew({sent.begin() + 200, sent.end()}), "");
    const std::string notes = notes_of(sink);
    EXPECT_NE(notes.find("destination_set_back"), std::string::npos) << notes;
    EXPECT_NE(notes.find("events that it had acknowledged are gone"), std::string::npos) << notes;
    EXPECT_EQ(notes_of(sink), "") << "it is said once";
}

// Each term of a relay makes its sinks anew, and a crash of both servers ends the term.
TEST(RedisFailure, AServerThatLostWhatAnEarlierSinkWasAcknowledgedIsSaid) {
    const std::string stream = new_name();
    const std::string producer = new_name();
    const auto sent = letters(stream, 300, 10);
    const auto deliver = [&](std::size_t from) {
        RedisSink sink(config(producer));
        const auto begin = sent.begin() + static_cast<std::ptrdiff_t>(from);
        EXPECT_EQ(Courier(sink).deliver({begin, begin + 100}), "");
        return notes_of(sink);
    };
    ASSERT_EQ(deliver(0), "");
    ASSERT_EQ(deliver(100), "");
    server().ask({"DEL", redis::session_key(producer)});
    const std::string notes = deliver(200);
    EXPECT_NE(notes.find("destination_set_back"), std::string::npos) << notes;
}

TEST(RedisFailure, AServerThatHangsIsDownUntilItGoesOn) {
    const std::string stream = new_name();
    auto impatient = config();
    impatient.stuck_after = 500ms;
    impatient.connect_timeout = 1s;
    RedisSink sink(impatient);
    const auto sent = letters(stream, 4'000, 200, 5'000);
    deliver_through(sink, sent, 500, [] { server().pause(); }, [] { server().resume(); });
    expect_once_in_order(server(), stream, sent);
}

TEST(RedisFailure, TakesNoMoreThanItsLimitsWhileTheServerHangs) {
    auto limited = config();
    limited.max_bytes = 1'000'000;
    RedisSink sink(limited);
    expect_limits_while_it_hangs(
        sink, new_name(), [] { server().pause(); }, [] { server().resume(); });
}

TEST(RedisFailure, AnIdleConnectionThatWasClosedIsNoFailure) {
    const std::string stream = new_name();
    RedisSink sink(config());
    ASSERT_EQ(Courier(sink).deliver(letters(stream, 10, 10)), "");
    server().ask({"CLIENT", "KILL", "TYPE", "normal"});
    auto more = letters(stream, 20, 10);
    more.erase(more.begin(), more.begin() + 10);
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(more), "");
    EXPECT_EQ(courier.failures(), 0U);
}

TEST(RedisFailure, APromotedReplicaTakesOver) {
    RedisServer replica({}, "replicaof 127.0.0.1 " + std::to_string(server().port()));
    ASSERT_TRUE(eventually(60s, "it follows", [&] {
        return replica.ask({"ROLE"}).find("connected") != std::string::npos;
    }));
    const std::string both = "redis://relay:s3cret@127.0.0.1:" + std::to_string(replica.port()) +
                             ",127.0.0.1:" + std::to_string(server().port());
    const std::string stream = new_name();
    RedisSink sink(config_of(both));
    const auto sent = letters(stream, 3'000, 20);
    EXPECT_TRUE(sink.check().ok());
    deliver_through(
        sink, sent, 1'000,
        [&] {
            ASSERT_TRUE(eventually(60s, "it has followed", [&] {
                return server().ask({"WAIT", "1", "1000"}).find('1') != std::string::npos;
            }));
            server().stop();
        },
        [&] { replica.ask({"REPLICAOF", "NO", "ONE"}); });
    const auto arrived = replica.arrived(stream, sent.size());
    EXPECT_EQ(missing_or_reordered(sent, arrived), "");
    server().start();
}

TEST(RedisFailure, AReplicaAloneSaysThatItIsOne) {
    RedisServer replica({}, "replicaof 127.0.0.1 " + std::to_string(server().port()));
    RedisSink sink(config_of(replica.url()));
    ASSERT_TRUE(eventually(60s, "it follows", [&] {
        return replica.ask({"ROLE"}).find("connected") != std::string::npos;
    }));
    EXPECT_EQ(sink.check().error().backend_code, "READONLY");
    EXPECT_EQ(failure_of(sink, "s").error.backend_code, "READONLY");
}

TEST(RedisFailure, SaysWhatIsWrongWithUserRightAndAddress) {
    const auto error_of = [](const std::string& url) {
        RedisSink sink(config_of(url));
        const Status status = sink.check();
        return status.ok() ? ErrorInfo{} : status.error();
    };
    const auto password = error_of(server().url("relay", "wrong-one"));
    EXPECT_EQ(password.code, ErrorCode::kAuthFailed) << describe(password);
    EXPECT_EQ(password.message.find("wrong-one"), std::string::npos);
    const std::string address = "127.0.0.1:" + std::to_string(server().port());
    EXPECT_EQ(error_of("redis://" + address).code, ErrorCode::kAuthFailed);
    EXPECT_EQ(error_of(server().url() + "00").backend_code, "");  // database 0
    const auto database = error_of("redis://relay:s3cret@" + address + "/5000");
    EXPECT_EQ(database.code, ErrorCode::kConfigInvalid) << describe(database);
    EXPECT_EQ(error_of("redis://127.0.0.1:1").code, ErrorCode::kConnectFailed);
    EXPECT_EQ(error_of("redis://no-such-host.invalid").code, ErrorCode::kConnectFailed);

    server().ask({"ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read"});
    RedisSink sink(config_of(server().url("reader", "pw")));
    EXPECT_EQ(sink.check().error().code, ErrorCode::kNoRights);
    const auto failed = failure_of(sink, "s");
    EXPECT_EQ(failed.error.code, ErrorCode::kNoRights);
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
}

// The line of the guide that begins with ACL SETUSER.
TEST(RedisFailure, TheDocumentedRightsAreEnough) {
    std::istringstream lines(read_file(GUIDE_PAGE));
    std::vector<std::string> words;
    for (std::string line; words.empty() && std::getline(lines, line);) {
        const std::size_t at = line.find("ACL SETUSER publisher");
        if (at == std::string::npos) continue;
        std::istringstream rest(line.substr(at));
        for (std::string word; rest >> word;) words.push_back(word);
    }
    ASSERT_GT(words.size(), 5U);
    server().ask(words);
    const std::string open = "orders." + new_name();
    auto limited = config_of(server().url("publisher", "s3cret"));
    RedisSink sink(limited);
    const Status status = sink.check();
    EXPECT_TRUE(status.ok()) << describe(status.error());
    const auto sent = letters(open, 100, 10);
    ASSERT_EQ(Courier(sink).deliver(sent), "");
    expect_once_in_order(server(), open, sent);

    // A stream that the user may not write to waits alone.
    auto mixed = letters(open, 40, 4);
    for (std::size_t i = 0; i < mixed.size(); ++i) {
        mixed[i].id = "mixed-" + std::to_string(i);
        mixed[i].headers.clear();
    }
    for (std::size_t i = 1; i < mixed.size(); i += 4) mixed[i].topic = "secret";
    const auto out = outcome_of(sink, mixed);
    EXPECT_EQ(out.acknowledged.size(), 30U);
    ASSERT_EQ(out.failed.size(), 10U) << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kNoRights) << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].part, "stream secret");
    EXPECT_TRUE(out.failed[1].behind);
}

// A script is not rolled back, so what it appended before a right was missing comes again.
TEST(RedisFailure, WithoutARightOfItsLastStepsNothingIsAppended) {
    const std::string user = new_name();
    const std::string stream = new_name();
    server().ask({"ACL", "SETUSER", user, "on", ">pw", "~*", "+@all"});
    RedisSink sink(config_of(server().url(user, "pw")));
    ASSERT_EQ(Courier(sink).deliver(letters(stream, 10, 1)), "");
    for (const std::string right : {"RPUSH", "LTRIM", "HDEL", "HEXISTS", "HMGET", "HINCRBY"}) {
        server().ask({"ACL", "SETUSER", user, "-" + right});
        const Status status = sink.check();
        ASSERT_FALSE(status.ok()) << right;
        EXPECT_EQ(status.error().code, ErrorCode::kNoRights) << describe(status.error());
        EXPECT_NE(status.error().message.find("(" + right + ")"), std::string::npos)
            << status.error().message;
        RedisSink another(config_of(server().url(user, "pw")));
        const auto failed = failure_of(another, stream);
        EXPECT_EQ(failed.error.code, ErrorCode::kNoRights) << describe(failed.error);
        server().ask({"ACL", "SETUSER", user, "+" + right});
    }
    // In mid-run.
    auto more = letters(stream, 10, 1);
    for (Letter& letter : more) letter.id += "-more";
    for (const std::string right : {"RPUSH", "LTRIM"}) {
        server().ask({"ACL", "SETUSER", user, "-" + right});
        EXPECT_EQ(outcome_of(sink, more).failed.size(), more.size()) << right;
        server().ask({"ACL", "SETUSER", user, "+" + right});
    }
    EXPECT_EQ(server().arrived(stream, 10).size(), 10U);
    EXPECT_TRUE(sink.check().ok());
    ASSERT_EQ(Courier(sink).deliver(more), "");
    EXPECT_EQ(server().arrived(stream, 20).size(), 20U);
}

TEST(RedisFailure, AClusterIsRefusedWithAReason) {
    // Else its bus is 10,000 above its port, where outgoing connections have theirs.
    RedisServer cluster({}, "cluster-enabled yes\ncluster-port " + std::to_string(free_port()));
    RedisSink sink(config_of(cluster.url()));
    const Status status = sink.check();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported) << describe(status.error());
}

TEST(RedisFailure, ASentinelIsRefusedWithAReason) {
    const TemporaryFolder folder("sentinel");
    const std::string port = std::to_string(free_port());
    std::ofstream(folder / "sentinel.conf")
        << "port " << port << "\nsentinel monitor shop 127.0.0.1 " << server().port() << " 1\n";
    const Process sentinel({.command = {"redis-server", folder / "sentinel.conf", "--sentinel"},
                            .output_folder = folder.path(),
                            .death_signal = SIGKILL});
    RedisSink sink(config_of("redis://127.0.0.1:" + port));
    Status status;
    ASSERT_TRUE(eventually(60s, "it answers", [&] {
        status = sink.check();
        return status.error().backend_code != "CONNECT";
    }));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported) << describe(status.error());
}

TEST(RedisFailure, OldEntriesAreCutWhereItIsWanted) {
    const std::string stream = new_name();
    auto cut = config();
    cut.max_len = 1'000;
    RedisSink sink(cut);
    ASSERT_EQ(Courier(sink).deliver(letters(stream, 5'000, 10)), "");
    const std::size_t left = std::stoul(server().ask({"XLEN", stream}));
    EXPECT_GE(left, 1'000U);
    EXPECT_LT(left, 2'000U);
}

TEST(RedisFailure, TlsProvesWhoTheServerIs) {
    const auto url = [](const std::string& host, const std::string& options) {
        return "rediss://relay:s3cret@" + host + ":" + std::to_string(server().tls_port()) + "/?" +
               options;
    };
    expect_tls_proves_who_it_is("redis.", [&](const std::string& host, const std::string& options) {
        return RedisSink(config_of(url(host, options))).check();
    });
    auto without = config_of("rediss://relay:s3cret@localhost:" + std::to_string(server().port()) +
                             "/?verify=false");
    without.connect_timeout = 2s;  // it says nothing
    const Status clear = RedisSink(without).check();
    ASSERT_FALSE(clear.ok());
    EXPECT_EQ(clear.error().code, ErrorCode::kConnectFailed) << describe(clear.error());

    const std::string stream = new_name();
    RedisSink sink(config_of(url("localhost", "ca_file=" + broker_certificates().file("ca.crt"))));
    const auto sent = letters(stream, 5'000, 20, 2'000);
    deliver_through(sink, sent, 1'000, [] { server().kill(); }, [] { server().start(); });
    expect_once_in_order(server(), stream, sent);
}

// As an editor or `echo` leaves them while they write.
TEST(RedisFailure, AFileThatIsBrokenForAMomentIsAnOutage) {
    const auto restart = [] {
        server().kill();
        server().start();
    };
    const BreakableFile password("s3cret");
    RedisSink sink(config_of("redis://relay@127.0.0.1:" + std::to_string(server().port()) +
                             "/?password_file=" + password.path()));
    expect_an_outage_while_broken(sink, new_name(), password, restart);
    const BreakableFile ca(read_file(broker_certificates().file("ca.crt")));
    RedisSink secure(config_of("rediss://relay:s3cret@localhost:" +
                               std::to_string(server().tls_port()) + "/?ca_file=" + ca.path()));
    expect_an_outage_while_broken(secure, new_name(), ca, restart);
}

}  // namespace
}  // namespace outbox::test
