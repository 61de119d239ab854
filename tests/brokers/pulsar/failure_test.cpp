// What a real Pulsar does to the sink in mid-stream.

#include <chrono>
#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "brokers/pulsar/sink.h"
#include "tests/brokers/pulsar/server.h"
#include "tests/brokers/troubles.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using pulsar::PulsarConfig;
using pulsar::PulsarSink;
using testing::HasSubstr;
using testing::Not;

// With one of the role relay.
const Certificates& certificates() {
    static Certificates made;
    static const bool signed_now = [] {
        made.sign("server", "localhost", "subjectAltName=DNS:localhost");
        made.sign("relay", "relay", "extendedKeyUsage=clientAuth");
        made.make_ca("other");
        return true;
    }();
    static_cast<void>(signed_now);
    return made;
}

PulsarServer& server() {
    static PulsarServer pulsar(certificates().folder());
    return pulsar;
}

std::string new_topic() {
    static int names = 0;
    return "failure-" + std::to_string(++names);
}

PulsarConfig config_of(const std::string& url) {
    auto made = pulsar::make_config(url, {}).value_or_throw();
    made.connect_timeout = 60s;  // a server may be given no processor for some
    return made;
}

PulsarConfig config() {
    return config_of(server().url());
}

void expect_in_order(const std::string& topic, const std::vector<Letter>& sent) {
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(topic, sent.size())), "");
}

// Delivers; what goes to `other` waits until `repair`, and delays nobody else.
void deliver_while_one_waits(const PulsarConfig& with, const std::string& topic,
                             const std::string& other, const std::function<void()>& repair) {
    PulsarSink sink(with);
    const auto sent = letters_to_two(topic, other);
    test::deliver_while_one_waits(sink, sent, "topic " + other, repair);
    for (const std::string& one : {topic, other}) expect_in_order(one, letters_to(one, sent));
}

// Repeats are dropped there by producers' names and sequence ids, which tell nothing of positions.
// One relay after another; the second's broker is killed under load where that is wanted.
void deliver_where_repeats_are_dropped(PulsarServer& broker, bool kill) {
    broker.make_namespace("dedup", {{"deduplication", "true"}});
    const std::string topic = "public/dedup/" + new_topic();
    broker.admin("PUT", "persistent/" + topic + "/partitions", "3");
    const auto sent = letters(topic, 6'000, 50);
    const std::vector<Letter> some(sent.begin(), sent.begin() + 1'000);
    const std::vector<Letter> rest(sent.begin() + 1'000, sent.end());
    {
        PulsarSink sink(config_of(broker.url()));
        ASSERT_EQ(Courier(sink).deliver(some), "");
    }
    PulsarSink sink(config_of(broker.url()));
    if (kill) {
        deliver_through(sink, rest, 1'000, [&] { broker.kill(); }, [&] { broker.start(); });
    } else {
        ASSERT_EQ(Courier(sink).deliver(rest), "");
    }
    EXPECT_EQ(missing_or_reordered(sent, broker.arrived(topic, sent.size())), "");
}

TEST(PulsarFailure, ABrokerThatDropsRepeatsGetsEachEventOfOneRelayAfterAnother) {
    deliver_where_repeats_are_dropped(server(), false);
}

// A standalone Pulsar that was killed may miss its own bookie for minutes ("Not enough non-faulty
// bookies"), and this fails then: on a server of its own, and with --full only.
class PulsarKilled : public testing::TestWithParam<bool> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PulsarKilled);
INSTANTIATE_TEST_SUITE_P(Full, PulsarKilled, testing::ValuesIn(and_in_full<bool>({}, {true})));

TEST_P(PulsarKilled, ABrokerThatDropsRepeatsAndIsKilledUnderLoadGetsEachEvent) {
    PulsarServer broker;
    deliver_where_repeats_are_dropped(broker, GetParam());
}

TEST(PulsarFailure, AKeyGoesWhereTheJavaClientPutsIt) {
    const std::vector<std::string> keys = {"",
                                           "a",
                                           "key-1",
                                           "Aa",
                                           "BB",
                                           "caf\xC3\xA9",
                                           "\xF0\x9F\x98\x80",
                                           "polygenelubricants",
                                           "\xE2\x82\xAC 100"};
    constexpr int kPartitions = 7;
    const std::string topic = new_topic();
    server().make_partitions(topic, kPartitions);
    const std::vector<int> places = server().places_in_java(topic, keys);
    ASSERT_EQ(places.size(), keys.size());
    const std::string ours = new_topic();
    server().make_partitions(ours, kPartitions);
    PulsarSink sink(config());
    auto sent = letters(ours, keys.size(), 1);
    for (std::size_t i = 0; i < keys.size(); ++i) sent[i].key = keys[i];
    ASSERT_EQ(outcome_of(sink, sent).acknowledged.size(), keys.size());
    std::istringstream lines(server().read(ours, keys.size()));
    std::size_t compared = 0;
    for (std::string line; std::getline(lines, line); ++compared) {
        const auto read = nlohmann::json::parse(line);
        const std::string id = read["id"];
        const auto place = std::stoul(id.substr(id.find('-') + 1));
        EXPECT_EQ(read["partition"], places[place]) << keys[place];
    }
    EXPECT_EQ(compared, keys.size());
}

TEST(PulsarFailure, EventsWithKeysShareABatchOnlyWhereThatIsWanted) {
    const auto last_of_a_batch = [](const PulsarConfig& config, bool keyed) {
        const std::string topic = new_topic();
        PulsarSink sink(config);
        auto sent = letters(topic, 200, 200);
        for (Letter& letter : sent) {
            if (!keyed) letter.key = std::nullopt;
        }
        EXPECT_EQ(outcome_of(sink, sent).acknowledged.size(), sent.size());
        std::istringstream lines(server().read(topic, sent.size()));
        int most = -1;
        for (std::string line; std::getline(lines, line);) {
            most = std::max(most, nlohmann::json::parse(line)["batch_index"].get<int>());
        }
        return most;
    };
    auto mixed = config();
    mixed.mixed_batches = true;
    EXPECT_EQ(last_of_a_batch(config(), true), -1);
    EXPECT_GT(last_of_a_batch(config(), false), 0);
    EXPECT_GT(last_of_a_batch(mixed, true), 0);
}

TEST(PulsarFailure, AMessageTellsWhenTheEventHappenedAndWhoSentIt) {
    const std::string topic = new_topic();
    PulsarSink sink(config());
    const auto sent = letters(topic, 1, 1);
    auto record = sent[0].record(0);
    record.occurred_at_us = 1'700'000'000'123'456;
    ASSERT_TRUE(sink.publish(record));
    spi::Completions out;
    for (int i = 0; i < 600 && out.empty(); ++i) sink.poll(100ms, out);
    ASSERT_EQ(out.acknowledged.size(), 1U);
    const std::string read = server().read(topic, 1);
    EXPECT_THAT(read, HasSubstr("\"event_ms\": 1700000000123"));
    EXPECT_THAT(read, HasSubstr("\"producer\": \"outbox-"));
}

TEST(PulsarFailure, ATopicThatIsUnloadedUnderLoadGetsEachEventWithoutAFailure) {
    const std::string topic = new_topic();
    server().make_partitions(topic, 2);
    PulsarSink sink(config());
    const auto sent = letters(topic, 6'000, 100);
    Courier courier(sink);
    courier.max_publish_per_poll = 50;
    std::size_t unloads = 0;
    courier.after_poll = [&](const Courier& now) {
        if (now.acknowledged() < 1'500 * (unloads + 1) || unloads == 3) return;
        server().unload(topic);
        ++unloads;
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(unloads, 3U);
    EXPECT_EQ(courier.failures(), 0U);
    expect_in_order(topic, sent);
}

std::string admin_path(const std::string& topic, int partitions) {
    return "persistent/public/default/" + topic + (partitions > 0 ? "/partitions" : "");
}

void make_topic(const std::string& topic, int partitions) {
    server().admin("PUT", admin_path(topic, partitions),
                   partitions > 0 ? std::to_string(partitions) : "");
}

TEST(PulsarFailure, ATopicThatIsMadeAnewPartitionedOrNotGetsAllThatComesAfterwards) {
    for (const auto& [before, after] : {std::pair{0, 3}, {3, 0}, {3, 2}}) {
        const std::string topic = new_topic();
        make_topic(topic, before);
        PulsarSink sink(config());
        ASSERT_EQ(Courier(sink).deliver(letters(topic, 100, 20)), "");
        // The sink says and hears nothing meanwhile.
        server().admin("DELETE", admin_path(topic, before) + "?force=true");
        make_topic(topic, after);
        const auto sent = letters(topic, 1'000, 50);
        Courier courier(sink);
        ASSERT_EQ(courier.deliver(sent), "");
        EXPECT_EQ(courier.counted_attempts(), 0U);
        expect_in_order(topic, sent);
        const auto all = nlohmann::json::parse(server().admin("GET", "persistent/public/default"));
        const std::string name = "persistent://public/default/" + topic;
        for (int place = after; place < before; ++place) {
            EXPECT_EQ(
                std::count(all.begin(), all.end(), name + "-partition-" + std::to_string(place)),
                0);
        }
        EXPECT_EQ(std::count(all.begin(), all.end(), name), after > 0 ? 0 : 1);
    }
}

TEST(PulsarFailure, AMissingTopicWaitsForItAndDelaysNobodyElse) {
    server().make_namespace("strict");
    server().admin("POST", "namespaces/public/strict/autoTopicCreation",
                   R"({"allowAutoTopicCreation": false})");
    const std::string missing = "public/strict/" + new_topic();
    deliver_while_one_waits(config(), new_topic(), missing, [&] {
        server().admin("PUT", "persistent/" + missing + "/partitions", "2");
    });
    PulsarSink sink(config());
    const auto failed = failure_of(sink, "public/strict/never");
    EXPECT_EQ(failed.error.code, ErrorCode::kTopicUnknown) << describe(failed.error);
}

TEST(PulsarFailure, AMissingNamespaceOrTenantWaitsForIt) {
    const std::string missing = "public/later/" + new_topic();
    deliver_while_one_waits(config(), new_topic(), missing,
                            [&] { server().make_namespace("later"); });
    PulsarSink sink(config());
    for (const char* topic : {"public/nowhere/t", "nobody/nowhere/t"}) {
        const auto failed = failure_of(sink, topic);
        EXPECT_EQ(failed.error.code, ErrorCode::kTopicUnknown) << describe(failed.error);
        EXPECT_EQ(failed.part, "topic " + std::string(topic));
    }
}

TEST(PulsarFailure, ATopicWhoseBacklogIsFullTakesAllOnceItHasRoom) {
    server().make_namespace("full");
    server().admin("POST", "namespaces/public/full/backlogQuota",
                   R"({"limitSize": 1, "policy": "producer_exception"})");
    const std::string full = "public/full/" + new_topic();
    server().admin("PUT", "persistent/" + full);
    server().admin("PUT", "persistent/" + full + "/subscription/slow", "\"earliest\"");
    {
        PulsarSink first(config());
        ASSERT_EQ(Courier(first).deliver(letters(full, 1, 1)), "");
    }
    deliver_while_one_waits(config(), new_topic(), full, [&] {
        server().admin("POST", "namespaces/public/full/backlogQuota",
                       R"({"limitSize": -1, "policy": "producer_exception"})");
    });
}

TEST(PulsarFailure, ATopicWithAPublishRateGetsEachEventOnceWhileOthersGoOn) {
    constexpr std::size_t kSlow = 600;
    server().make_namespace("slow");
    server().admin("POST", "namespaces/public/slow/publishRate",
                   R"({"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": -1})");
    const std::string slow = "public/slow/" + new_topic();
    const std::string other = new_topic();
    auto impatient = config();
    impatient.stuck_after = 8s;  // less than the slow ones take
    PulsarSink sink(impatient);
    auto sent = letters(slow, kSlow + 20, kSlow + 20);
    for (std::size_t i = kSlow; i < sent.size(); ++i) sent[i].topic = other;
    spi::Completions out;
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink.publish(sent[i].record(i)));
    std::size_t when_others_were_done = 0;
    std::size_t others = 0;
    ASSERT_TRUE(eventually(120s, "all have an outcome", [&] {
        const std::size_t before = out.acknowledged.size();
        sink.poll(10ms, out);
        for (std::size_t i = before; i < out.acknowledged.size(); ++i) {
            if (out.acknowledged[i] >= kSlow && ++others == 20) when_others_were_done = i + 1;
        }
        return out.acknowledged.size() + out.failed.size() == sent.size();
    }));
    EXPECT_TRUE(out.failed.empty()) << describe(out.failed[0].error);
    EXPECT_GT(when_others_were_done, 0U);
    EXPECT_LT(when_others_were_done, kSlow) << "they waited for all of the slow ones";
    EXPECT_EQ(server().arrived(slow, kSlow).size(), kSlow) << "none is repeated";
}

TEST(PulsarFailure, AProducerThatIsFencedWaitsUntilTheOtherIsGone) {
    const std::string fenced = new_topic();
    PulsarSink sink(config());
    ASSERT_EQ(Courier(sink).deliver(letters(fenced, 10, 1)), "");
    const TemporaryFolder folder("fence");
    Process other({.command = server().command({"fence", fenced}),
                   .output_folder = folder.path(),
                   .death_signal = SIGKILL});
    ASSERT_TRUE(eventually(60s, "it has the topic", [&] {
        return read_file(folder / "stdout").find("fenced") != std::string::npos;
    }));
    const auto failed = failure_of(sink, fenced);
    EXPECT_EQ(failed.part, "topic " + fenced);
    EXPECT_THAT(failed.error.message, HasSubstr("for itself"));
    other.kill(SIGKILL);
    other.wait(10s);
    Courier courier(sink);
    courier.max_part_failures = 100'000;
    EXPECT_EQ(courier.deliver(letters(fenced, 10, 1)), "");
    EXPECT_EQ(courier.destination_failures(), 0U);
}

TEST(PulsarFailure, ATopicThatTakesItsSchemaAloneIsSaidSo) {
    server().make_namespace("typed", {{"schemaValidationEnforced", "true"}});
    const std::string topic = "public/typed/" + new_topic();
    server().admin("PUT", "persistent/" + topic);
    server().admin("POST", "schemas/" + topic + "/schema",
                   R"({"type": "STRING", "schema": "", "properties": {}})");
    PulsarSink sink(config());
    const auto failed = failure_of(sink, topic);
    EXPECT_EQ(failed.error.backend_code, "IncompatibleSchema") << describe(failed.error);
    EXPECT_EQ(failed.part, "topic " + topic);
    EXPECT_THAT(failed.error.message, HasSubstr("set-schema-validation-enforce"));
}

TEST(PulsarFailure, ATopicThatWasTerminatedWaits) {
    const std::string topic = new_topic();
    PulsarSink sink(config());
    ASSERT_EQ(Courier(sink).deliver(letters(topic, 10, 1)), "");
    server().admin("POST", "persistent/public/default/" + topic + "/terminate");
    const auto failed = failure_of(sink, topic);
    EXPECT_EQ(failed.error.backend_code, "TopicTerminatedError") << describe(failed.error);
    EXPECT_EQ(failed.part, "topic " + topic);
}

TEST(PulsarFailure, AnEventThatIsTooLargeAloneIsDead) {
    const std::string topic = new_topic();
    auto mixed = config();
    mixed.mixed_batches = true;  // so that good ones are refused with it
    PulsarSink sink(mixed);
    ASSERT_EQ(Courier(sink).deliver(letters(topic, 1, 1)), "");
    server().admin("POST", "persistent/public/default/" + topic + "/maxMessageSize", "50000");
    ASSERT_TRUE(eventually(60s, "the policy is in force", [&] {
        auto large = letters(topic, 1, 1);
        large[0].value = std::string(100'000, 'x');
        return !outcome_of(sink, large).failed.empty();
    }));
    auto sent = letters(topic, 1'000, 100);
    sent[500].value = std::string(100'000, 'x');               // for the topic
    sent[600].value = std::string(std::size_t{6} << 20, 'x');  // for the broker
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 2U);
    for (const auto& dead : courier.dead()) {
        EXPECT_TRUE(dead.index == 500 || dead.index == 600);
        EXPECT_EQ(dead.error.code, ErrorCode::kPayloadTooLarge) << describe(dead.error);
    }
    EXPECT_EQ(courier.failures(), 2U);
    EXPECT_EQ(courier.counted_attempts(), 0U);
    sent.erase(sent.begin() + 600);
    sent.erase(sent.begin() + 500);
    expect_in_order(topic, sent);
}

TEST(PulsarFailure, PartitionsThatAreAddedAreUsed) {
    const std::string topic = new_topic();
    server().make_partitions(topic, 1);
    auto curious = config();
    curious.partitions_for = 1ms;
    PulsarSink sink(curious);
    const auto sent = letters(topic, 4'000, 40);
    Courier courier(sink);
    courier.max_publish_per_poll = 50;
    bool added = false;
    courier.after_poll = [&](const Courier& now) {
        if (added || now.acknowledged() < 1'000) return;
        server().admin("POST", "persistent/public/default/" + topic + "/partitions", "4");
        added = true;
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.counted_attempts(), 0U);
    std::istringstream lines(server().read(topic, sent.size()));
    std::map<int, std::size_t> by_partition;
    for (std::string line; std::getline(lines, line);) {
        ++by_partition[nlohmann::json::parse(line)["partition"].get<int>()];
    }
    ASSERT_EQ(by_partition.size(), 4U);
    EXPECT_GE(by_partition[0], 1'000U);
}

// Who deletes it and makes it anew may come in between.
TEST(PulsarFailure,
     PartitionsThatComeSoonAfterATopicWasLeftAreUsedLongBeforeTheyAreAskedForUsually) {
    const std::string topic = new_topic();
    server().make_partitions(topic, 1);
    auto slow = config();
    slow.partitions_for = 1h;
    PulsarSink sink(slow);
    const auto sent = letters(topic, 10'000, 40);
    Courier courier(sink);
    courier.max_publish_per_poll = 10;
    int step = 0;
    courier.after_poll = [&](const Courier& now) {
        std::this_thread::sleep_for(8ms);
        if (step == 0 && now.acknowledged() > 100) {
            server().unload(topic + "-partition-0");
            step = 1;
        } else if (step == 1 && now.acknowledged() > 300) {
            server().admin("POST", "persistent/public/default/" + topic + "/partitions", "4");
            step = 2;
        }
    };
    ASSERT_EQ(courier.deliver(sent), "");
    std::istringstream lines(server().read(topic, sent.size()));
    std::map<int, std::size_t> by_partition;
    for (std::string line; std::getline(lines, line);) {
        ++by_partition[nlohmann::json::parse(line)["partition"].get<int>()];
    }
    EXPECT_EQ(by_partition.size(), 4U);
}

std::string url_by(const CuttingWay& way) {
    return "pulsar://:" + server().token() + "@localhost:" + std::to_string(way.port());
}

TEST(PulsarFailure, AnEventThatEndsEachConnectionIsFoundWhileOthersPass) {
    const CuttingWay way(server().port());
    PulsarSink sink(config_of(url_by(way)));
    const std::string topic = new_topic();
    expect_what_ends_connections_is_found(sink, topic, "topic " + topic);
}

TEST(PulsarFailure, WhatAConnectionHasCarriedBeforeItsEndIsNoEventsFault) {
    const CuttingWay narrow(server().port(), kManyBytes);
    PulsarSink sink(config_of(url_by(narrow)));
    const std::string topic = new_topic();
    expect_in_order(topic, deliver_many_sizes(sink, topic));
    const CuttingWay single(server().port(), kSecondMessage);
    PulsarSink other(config_of(url_by(single)));
    const std::string second = new_topic();
    expect_in_order(second, deliver_one_by_one(other, second));
}

TEST(PulsarFailure, MoreTopicsThanItKeepsProducersForAreServed) {
    PulsarSink sink(config());
    auto sent = letters("", 1'100, 1'100);
    const std::string topic = new_topic();
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i].topic = topic + "-" + sent[i].id;
    const auto again = sent;
    sent.insert(sent.end(), again.begin(), again.begin() + 10);  // they were forgotten meanwhile
    for (std::size_t i = 1'100; i < sent.size(); ++i) {
        sent[i].id += "-again";
        sent[i].headers = {{"id", sent[i].id}};
    }
    Courier courier(sink);
    courier.max_publish_per_poll = 100;
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.counted_attempts(), 0U);
    std::set<std::string> arrived;  // a slow broker may have got one twice
    for (const Arrived& record : server().arrived(sent[0].topic, 2)) arrived.insert(record.id);
    EXPECT_EQ(arrived, (std::set<std::string>{sent[0].id, sent[0].id + "-again"}));
}

TEST(PulsarFailure, ABrokerThatHangsIsDownUntilItGoesOn) {
    const std::string topic = new_topic();
    auto impatient = config();
    impatient.stuck_after = 1s;
    impatient.connect_timeout = 1s;
    PulsarSink sink(impatient);
    const auto sent = letters(topic, 4'000, 200, 5'000);
    deliver_through(sink, sent, 500, [] { server().pause(); }, [] { server().resume(); });
    expect_in_order(topic, sent);
}

TEST(PulsarFailure, TakesNoMoreThanItsLimitsWhileTheBrokerHangs) {
    auto limited = config();
    limited.max_bytes = 1'000'000;
    PulsarSink sink(limited);
    expect_limits_while_it_hangs(
        sink, new_topic(), [] { server().pause(); }, [] { server().resume(); });
}

TEST(PulsarFailure, ARightToProduceIsEnoughAndATopicWithoutOneWaitsAlone) {
    server().make_namespace("granted");
    server().admin("POST", "namespaces/public/granted/permissions/guest", R"(["produce"])");
    const std::string allowed = "public/granted/" + new_topic();
    PulsarSink sink(config_of(server().url("guest_token") + "?namespace=granted"));
    const Status status = sink.check();
    EXPECT_TRUE(status.ok()) << describe(status.error());
    auto mixed = letters(allowed, 40, 4);
    for (std::size_t i = 1; i < mixed.size(); i += 4) mixed[i].topic = "public/default/secret";
    const auto out = outcome_of(sink, mixed);
    EXPECT_EQ(out.acknowledged.size(), 30U);
    ASSERT_EQ(out.failed.size(), 10U);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kNoRights) << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].part, "topic public/default/secret");
}

TEST(PulsarFailure, ATokenWithTheRightThatWasMissingIsReadAgain) {
    const TemporaryFolder folder("token");
    const std::string file = (folder / "token").string();
    std::ofstream(file) << server().token("guest_token");
    using std::filesystem::perms;
    std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
    PulsarSink sink(
        config_of("pulsar://localhost:" + std::to_string(server().port()) + "?token_file=" + file));
    const std::string topic = new_topic();
    for (int i = 0; i < 2; ++i) {
        const auto failed = failure_of(sink, topic);
        EXPECT_EQ(failed.error.code, ErrorCode::kNoRights) << describe(failed.error);
    }
    std::ofstream(file) << server().token();
    Courier courier(sink);
    courier.max_part_failures = 10;
    ASSERT_EQ(courier.deliver(letters(topic, 10, 10)), "");
    EXPECT_EQ(courier.acknowledged(), 10U);
    EXPECT_EQ(courier.counted_attempts(), 0U);
}

TEST(PulsarFailure, SaysWhatIsWrongWithTokenAndAddress) {
    const auto error_of = [](const std::string& url) {
        const Status status = PulsarSink(config_of(url)).check();
        return status.ok() ? ErrorInfo{} : status.error();
    };
    const std::string address = "localhost:" + std::to_string(server().port());
    const auto old = error_of(server().url("old_token"));
    EXPECT_EQ(old.code, ErrorCode::kAuthFailed) << describe(old);
    EXPECT_THAT(old.message, Not(HasSubstr(server().token("old_token"))));
    const auto none = error_of("pulsar://" + address);
    EXPECT_EQ(none.code, ErrorCode::kAuthFailed) << describe(none);
    EXPECT_EQ(error_of("pulsar://:wrong@" + address).code, ErrorCode::kAuthFailed);
    EXPECT_EQ(error_of("pulsar://127.0.0.1:1").code, ErrorCode::kConnectFailed);
    EXPECT_EQ(error_of("pulsar://no-such-host.invalid").code, ErrorCode::kConnectFailed);
    const auto gone = error_of("pulsar://" + address + "?token_file=/no/such/file");
    EXPECT_EQ(gone.code, ErrorCode::kAuthFailed);
    EXPECT_THAT(gone.message, HasSubstr("/no/such/file"));
    EXPECT_EQ(
        error_of("pulsar://" + address + "?token_file=" + (server().folder() / "token").string())
            .message,
        "");
    PulsarSink refused(config_of(server().url("old_token")));
    const auto failed = failure_of(refused, "t");
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
    EXPECT_EQ(failed.part, "");
    PulsarSink second(config_of("pulsar://:" + server().token() + "@127.0.0.1:1," + address));
    EXPECT_TRUE(second.check().ok()) << "the next host of the URL";
    const auto nowhere = error_of(server().url() + "?namespace=nowhere");
    EXPECT_EQ(nowhere.code, ErrorCode::kTopicUnknown) << describe(nowhere);
}

TEST(PulsarFailure, TlsProvesWhoTheBrokerIs) {
    const std::string port = std::to_string(server().tls_port());
    const auto check = [](const std::string& text) { return PulsarSink(config_of(text)).check(); };
    expect_tls_proves_who_it_is(
        "pulsar.",
        [&](const std::string& host, const std::string& options) {
            return check("pulsar+ssl://:" + server().token() + "@" + host + ":" + port + "?" +
                         options);
        },
        certificates());
    auto no_tls =
        config_of("pulsar+ssl://:t@localhost:" + std::to_string(server().port()) + "?verify=false");
    no_tls.connect_timeout = 5s;
    EXPECT_FALSE(PulsarSink(no_tls).check().ok()) << "a port without TLS";

    // A certificate in the token's place.
    const std::string without =
        "pulsar+ssl://localhost:" + port + "?ca_file=" + certificates().file("ca.crt");
    const std::string with = without + "&cert_file=" + certificates().file("relay.crt") +
                             "&key_file=" + certificates().file("relay.key");
    const Status nobody = check(without);
    EXPECT_EQ(nobody.error().code, ErrorCode::kAuthFailed) << describe(nobody.error());
    const Status somebody = check(with);
    EXPECT_TRUE(somebody.ok()) << describe(somebody.error());

    const std::string topic = new_topic();
    PulsarSink sink(config_of(with));
    const auto sent = letters(topic, 5'000, 20, 2'000);
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.failures(), 0U);
    expect_in_order(topic, sent);
}

}  // namespace
}  // namespace outbox::test
