// What a real mosquitto does to the sink in mid-stream.

#include <fstream>
#include <gtest/gtest.h>

#include "brokers/mqtt/sink.h"
#include "tests/brokers/guide.h"
#include "tests/brokers/mqtt/server.h"
#include "tests/brokers/troubles.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using mqtt::MqttConfig;
using mqtt::MqttSink;

MqttServer& server() {
    static MqttServer mosquitto(broker_certificates().folder());
    return mosquitto;
}

std::string new_name() {
    static int names = 0;
    return "failure/" + std::to_string(++names);
}

std::string new_topic() {
    std::string name = new_name();
    server().subscribe(name);
    return name;
}

MqttConfig config_of(const std::string& url) {
    auto made = mqtt::make_config(url, {}).value_or_throw();
    made.connect_timeout = 60s;  // a server may be given no processor for some
    return made;
}

MqttConfig config() {
    return config_of(server().url());
}

void expect_in_order(const std::string& topic, const std::vector<Letter>& sent) {
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(topic, sent.size())), "");
}

TEST(MqttFailure, ABrokerThatIsStoppedUnderLoadGetsEachEvent) {
    const std::string topic = new_topic();
    MqttSink sink(config());
    const auto sent = letters(topic, 5'000, 50);
    deliver_through(sink, sent, 1'000, [] { server().stop(); }, [] { server().start(); });
    expect_in_order(topic, sent);
}

TEST(MqttFailure, ATopicThatNobodySubscribesToWaitsAndDelaysNobodyElse) {
    const std::string topic = new_topic();
    const std::string unheard = new_name();
    MqttSink sink(config());
    const auto sent = letters_to_two(topic, unheard);
    deliver_while_one_waits(sink, sent, "topic " + unheard, [&] { server().subscribe(unheard); });
    for (const std::string& one : {topic, unheard}) expect_in_order(one, letters_to(one, sent));
}

TEST(MqttFailure, WhatNobodyHearsIsDoneWhereThatIsWanted) {
    MqttSink sink(config_of(server().url() + "?require_subscriber=false"));
    EXPECT_EQ(outcome_of(sink, letters(new_name(), 10, 5)).acknowledged.size(), 10U);
}

TEST(MqttFailure, TheLastMessageOfATopicIsKeptWhereThatIsWanted) {
    const std::string topic = new_name();
    MqttSink sink(config_of(server().url() + "?retain=true&require_subscriber=false"));
    EXPECT_EQ(outcome_of(sink, letters(topic, 3, 1)).acknowledged.size(), 3U);
    const std::string kept = server().ask({"retained", topic});
    EXPECT_NE(kept.find("\"id\": \"id-2\""), std::string::npos) << kept;
    EXPECT_NE(kept.find("\"retained\": true"), std::string::npos) << kept;
    EXPECT_NE(kept.find("\"qos\": 1"), std::string::npos) << kept;
}

TEST(MqttFailure, AnEventThatIsTooLargeAloneIsDead) {
    // What the broker tells, and what it finds out.
    for (const char* setting : {"max_packet_size 100000", "message_size_limit 100000"}) {
        MqttServer strict({}, setting);
        strict.subscribe("t");
        MqttSink sink(config_of(strict.url()));
        auto sent = letters("t", 500, 10);
        sent[250].value = std::string(200'000, 'x');
        Courier courier(sink);
        courier.max_publish_per_poll = 100;
        ASSERT_EQ(courier.deliver(sent), "") << setting;
        ASSERT_EQ(courier.dead().size(), 1U) << setting;
        EXPECT_EQ(courier.dead()[0].index, 250U);
        EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kPayloadTooLarge)
            << describe(courier.dead()[0].error);
        EXPECT_EQ(courier.counted_attempts(), 0U);
        sent.erase(sent.begin() + 250);
        EXPECT_EQ(missing_or_reordered(sent, strict.arrived("t", sent.size())), "") << setting;
    }
}

TEST(MqttFailure, AHeaderThatNoPropertyHoldsAloneIsDead) {
    const std::string topic = new_topic();
    MqttSink sink(config());
    auto sent = letters(topic, 100, 10);
    sent[30].headers.emplace_back("long", std::string(70'000, 'x'));
    sent[50].headers.emplace_back("a\nb", "x");
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 2U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kRecordRefused);
    sent.erase(sent.begin() + 50);
    sent.erase(sent.begin() + 30);
    expect_in_order(topic, sent);
}

TEST(MqttFailure, AnEventThatEndsEachConnectionIsFoundWhileOthersPass) {
    const CuttingWay way(server().port());
    MqttSink sink(config_of("mqtt://relay:s3cret@127.0.0.1:" + std::to_string(way.port())));
    expect_what_ends_connections_is_found(sink, new_topic());
}

TEST(MqttFailure, WhatAConnectionHasCarriedBeforeItsEndIsNoEventsFault) {
    const std::string url = "mqtt://relay:s3cret@127.0.0.1:";
    const CuttingWay narrow(server().port(), kManyBytes);
    MqttSink sink(config_of(url + std::to_string(narrow.port())));
    const std::string topic = new_topic();
    expect_in_order(topic, deliver_many_sizes(sink, topic));
    const CuttingWay single(server().port(), kSecondMessage);
    MqttSink other(config_of(url + std::to_string(single.port())));
    const std::string second = new_topic();
    expect_in_order(second, deliver_one_by_one(other, second));
}

// What mosquitto ends a connection for.
TEST(MqttFailure, StringsThatABrokerDoesNotTakeArriveAllTheSame) {
    const std::string topic = new_topic();
    MqttSink sink(config());
    auto sent = letters(topic, 4, 4);
    sent[0].headers.emplace_back("note", "a\xC2\x85z");
    sent[1].headers.emplace_back("note", "a\xEF\xBF\xBE");
    sent[2].headers.emplace_back("note", "\xF4\x8F\xBF\xBF\xEF\xB7\x90");
    sent[3].key = "k\xC2\x85";
    const auto out = outcome_of(sink, sent);
    EXPECT_EQ(out.acknowledged.size(), 4U);
    EXPECT_TRUE(out.failed.empty()) << describe(out.failed[0].error);
    const auto arrived = server().arrived(topic, sent.size());
    ASSERT_EQ(arrived.size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
        EXPECT_EQ(arrived[i].id, sent[i].id);
        EXPECT_EQ(arrived[i].key, sent[i].key);
        EXPECT_EQ(arrived[i].headers, sent[i].headers);
    }
}

TEST(MqttFailure, ABrokerThatHangsIsDownUntilItGoesOn) {
    const std::string topic = new_topic();
    auto impatient = config();
    impatient.stuck_after = 500ms;
    impatient.connect_timeout = 1s;
    MqttSink sink(impatient);
    const auto sent = letters(topic, 4'000, 200, 5'000);
    deliver_through(sink, sent, 500, [] { server().pause(); }, [] { server().resume(); });
    expect_in_order(topic, sent);
}

TEST(MqttFailure, TakesNoMoreThanItsLimitsWhileTheBrokerHangs) {
    auto limited = config();
    limited.max_bytes = 1'000'000;
    MqttSink sink(limited);
    expect_limits_while_it_hangs(
        sink, new_topic(), [] { server().pause(); }, [] { server().resume(); });
}

TEST(MqttFailure, AnIdleConnectionThatWasClosedIsNoFailure) {
    MqttSink sink(config());
    expect_no_failure_after_idling(sink, new_topic(), [] {
        server().stop();
        server().start();
    });
}

// More are offered than may be under way.
TEST(MqttFailure, TheBrokersReceiveMaximumIsKept) {
    MqttServer narrow({}, "max_inflight_messages 5");
    narrow.subscribe("t");
    MqttSink sink(config_of(narrow.url()));
    const auto sent = letters("t", 3'000, 3'000);
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.failures(), 0U);
    EXPECT_EQ(missing_or_reordered(sent, narrow.arrived("t", sent.size())), "");
}

// With the rights of the page.
TEST(MqttFailure, ATopicWithoutARightWaitsAlone) {
    const TemporaryFolder folder("acl");
    std::ofstream(folder / "acl") << Guide("mqtt.md", {}).block("conf", 0)
                                  << "user reader\ntopic #\n";
    MqttServer limited({}, "acl_file " + (folder / "acl").string());
    limited.subscribe("orders/new");
    limited.subscribe("secret");
    MqttSink sink(config_of(limited.url()));
    auto mixed = letters("orders/new", 40, 4);
    for (std::size_t i = 1; i < mixed.size(); i += 4) mixed[i].topic = "secret";
    const auto out = outcome_of(sink, mixed);
    EXPECT_EQ(out.acknowledged.size(), 30U);
    ASSERT_EQ(out.failed.size(), 10U);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kNoRights) << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].part, "topic secret");
}

TEST(MqttFailure, SaysWhatIsWrongWithUserAndAddress) {
    const auto error_of = [](const std::string& url) {
        MqttSink sink(config_of(url));
        const Status status = sink.check();
        return status.ok() ? ErrorInfo{} : status.error();
    };
    const auto password = error_of(server().url("relay", "wrong-one"));
    EXPECT_EQ(password.message.find("wrong-one"), std::string::npos);
    EXPECT_NE(password.message.find("check user and password"), std::string::npos)
        << describe(password);
    const std::string address = "127.0.0.1:" + std::to_string(server().port());
    EXPECT_EQ(password.code, ErrorCode::kAuthFailed);
    EXPECT_EQ(error_of("mqtt://" + address).code, ErrorCode::kAuthFailed);
    EXPECT_EQ(error_of("mqtt://127.0.0.1:1").code, ErrorCode::kConnectFailed);
    EXPECT_EQ(error_of("mqtt://no-such-host.invalid").code, ErrorCode::kConnectFailed);
    MqttSink sink(config_of(server().url("relay", "wrong-one")));
    const auto failed = failure_of(sink, "s");
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
    EXPECT_EQ(failed.part, "");
    MqttSink second(config_of("mqtt://relay:s3cret@127.0.0.1:1," + address));
    EXPECT_TRUE(second.check().ok()) << "the next server of the URL";
}

TEST(MqttFailure, TlsProvesWhoTheBrokerIs) {
    const auto url = [](const std::string& host, const std::string& options) {
        return "mqtts://relay:s3cret@" + host + ":" + std::to_string(server().tls_port()) + "?" +
               options;
    };
    expect_tls_proves_who_it_is("mqtt.", [&](const std::string& host, const std::string& options) {
        return MqttSink(config_of(url(host, options))).check();
    });

    const std::string topic = new_topic();
    MqttSink sink(config_of(url("localhost", "ca_file=" + broker_certificates().file("ca.crt"))));
    const auto sent = letters(topic, 5'000, 20, 2'000);
    deliver_through(sink, sent, 1'000, [] { server().stop(); }, [] { server().start(); });
    expect_in_order(topic, sent);
}

// As an editor or `echo` leaves them while they write.
TEST(MqttFailure, AFileThatIsBrokenForAMomentIsAnOutage) {
    const auto restart = [] {
        server().stop();
        server().start();
    };
    const BreakableFile password("s3cret");
    MqttSink sink(config_of("mqtt://relay@127.0.0.1:" + std::to_string(server().port()) +
                            "?password_file=" + password.path()));
    expect_an_outage_while_broken(sink, new_topic(), password, restart);
    const BreakableFile ca(read_file(broker_certificates().file("ca.crt")));
    MqttSink secure(config_of("mqtts://relay:s3cret@localhost:" +
                              std::to_string(server().tls_port()) + "?ca_file=" + ca.path()));
    expect_an_outage_while_broken(secure, new_topic(), ca, restart);
}

}  // namespace
}  // namespace outbox::test
