// What a real broker does to the sink in mid-stream, and that key order survives it.

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "brokers/kafka/sink.h"
#include "tests/brokers/kafka/admin.h"
#include "tests/conformance/letters.h"
#include "tests/support/kafka_client.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using kafka::KafkaConfig;
using kafka::KafkaSink;

KafkaServer& server() {
    static KafkaServer kafka({.auto_create_topics = false,
                              .properties = "authorizer.class.name=org.apache.kafka.metadata."
                                            "authorizer.StandardAuthorizer\n"
                                            "allow.everyone.if.no.acl.found=true\n"});
    return kafka;
}

KafkaConfig config() {
    return kafka::make_config("kafka://" + server().bootstrap(), {}).value_or_throw();
}

std::string new_topic(int partitions = 3) {
    static int topics = 0;
    const std::string topic = "failure-" + std::to_string(++topics);
    create_topic(server().bootstrap(), topic, partitions);
    return topic;
}

std::vector<Arrived> arrived(const std::string& topic, std::size_t count) {
    return kafka_arrived(server().bootstrap(), topic, count);
}

// One record, so that the sink knows the topic's limit and believes it for a while.
void learn_limit(KafkaSink& sink, const std::string& topic) {
    auto first = letters(topic, 1, 1);
    first[0].id = "first";
    first[0].key = "first";
    first[0].headers = {{"id", "first"}};
    ASSERT_EQ(Courier(sink).deliver(first), "");
}

// Without the dead ones.
std::vector<Letter> delivered(const std::vector<Letter>& sent, const Courier& courier) {
    std::set<std::size_t> dead;
    for (const auto& letter : courier.dead()) dead.insert(letter.index);
    std::vector<Letter> rest;
    for (std::size_t i = 0; i < sent.size(); ++i) {
        if (!dead.contains(i)) rest.push_back(sent[i]);
    }
    return rest;
}

TEST(KafkaFailure, RecordOverTheTopicsLimitIsDeadBeforeItIsSentAndDelaysNobody) {
    const std::string topic = new_topic();
    const auto sink = KafkaSink::open(config()).value_or_throw();
    auto sent = letters(topic, 500, 10);
    sent[200].value = std::string(2'000'000, 'x');
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 200U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_NE(courier.dead()[0].error.message.find("max.message.bytes"), std::string::npos);
    EXPECT_EQ(sink->rebuilds(), 0U);
    EXPECT_EQ(missing_or_reordered(delivered(sent, courier), arrived(topic, 499)), "");
}

// The proof of max.in.flight=1: with several requests under way a leader that is not ready yet
// refuses the first ones, takes a later one, and calls the repeats of the first ones duplicates.
TEST(KafkaFailure, FirstRecordsOfANewTopicAreNotLost) {
    for (int round = 0; round < 20; ++round) {
        const std::string topic = new_topic(12);
        auto single_records = config();
        single_records.options["batch.num.messages"] = "1";
        const auto sink = KafkaSink::open(single_records).value_or_throw();
        const auto sent = letters(topic, 60, 12);
        ASSERT_EQ(Courier(*sink).deliver(sent), "");
        ASSERT_EQ(missing_or_reordered(sent, arrived(topic, sent.size())), "") << round;
    }
}

TEST(KafkaFailure, LimitIsExactToTheByte) {
    const std::string topic = new_topic(1);
    set_max_message_bytes(server().bootstrap(), topic, 50'000);
    const auto sink = KafkaSink::open(config()).value_or_throw();
    auto sent = letters(topic, 400, 1, 49'750);
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i].value->append(i, 'x');
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    // Nothing too large was sent (it would have cost a rebuild), and nothing that fits was kept.
    EXPECT_EQ(sink->rebuilds(), 0U);
    ASSERT_FALSE(courier.dead().empty());
    const std::size_t first_dead = courier.dead()[0].index;
    EXPECT_EQ(courier.dead().size(), sent.size() - first_dead);
    EXPECT_NE(courier.dead()[0].error.message.find("has 50001 bytes"), std::string::npos)
        << courier.dead()[0].error.message;
}

TEST(KafkaFailure, RecordRefusedByTheBrokerInMidStreamAloneIsDeadAndOrderIsKept) {
    const std::string topic = new_topic();
    const auto sink = KafkaSink::open(config()).value_or_throw();
    learn_limit(*sink, topic);
    set_max_message_bytes(server().bootstrap(), topic, 20'000);
    auto sent = letters(topic, 3'000, 10);
    sent[1'500].value = std::string(100'000, 'x');
    Courier courier(*sink);
    courier.max_publish_per_poll = 200;
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_GE(sink->rebuilds(), 1U);
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 1'500U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(missing_or_reordered(delivered(sent, courier), arrived(topic, 3'000)), "");
}

// The proof of fail_stop_order: without gap-less production the broker takes what follows.
TEST(KafkaFailure, NothingBehindARefusedRecordOnItsKeyIsAccepted) {
    constexpr std::size_t kRefused = 100;
    for (int round = 0; round < 5; ++round) {
        const std::string topic = new_topic(1);
        auto small_batches = config();
        small_batches.options["batch.size"] = "3000";  // many requests under way at once
        const auto sink = KafkaSink::open(small_batches).value_or_throw();
        learn_limit(*sink, topic);
        set_max_message_bytes(server().bootstrap(), topic, 20'000);
        auto sent = letters(topic, 300, 1, 500);
        sent[kRefused].value = std::string(100'000, 'x');
        for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink->publish(sent[i].record(i)));
        spi::Completions completions;
        const auto deadline = std::chrono::steady_clock::now() + 120s;
        while (completions.acknowledged.size() + completions.failed.size() < sent.size() &&
               std::chrono::steady_clock::now() < deadline) {
            sink->poll(50ms, completions);
        }
        ASSERT_EQ(completions.acknowledged.size() + completions.failed.size(), sent.size());
        for (const auto token : completions.acknowledged) EXPECT_LT(token, kRefused);
        EXPECT_EQ(completions.failed.front().token, kRefused);
        EXPECT_EQ(completions.failed.front().error.code, ErrorCode::kPayloadTooLarge);
        EXPECT_EQ(sink->rebuilds(), 1U);
        // The destination agrees: a last record shows that nothing else had come before it.
        learn_limit(*sink, topic);
        std::set<std::string> ids;
        for (const Arrived& record : arrived(topic, completions.acknowledged.size() + 1)) {
            ids.insert(record.id);
        }
        for (std::size_t i = kRefused; i < sent.size(); ++i) EXPECT_FALSE(ids.contains(sent[i].id));
    }
}

TEST(KafkaFailure, BatchesThatATopicRefusesAreMadeSmallerWithoutADeadLetter) {
    const std::string topic = new_topic(1);
    const auto sink = KafkaSink::open(config()).value_or_throw();
    learn_limit(*sink, topic);
    set_max_message_bytes(server().bootstrap(), topic, 3'000);
    auto sent = letters(topic, 2'000, 5, 1'000);
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(missing_or_reordered(sent, arrived(topic, 2'001)), "");
}

TEST(KafkaFailure, MissingTopicFailsItsOwnRecordsAndNobodyElses) {
    const std::string topic = new_topic();
    const auto sink = KafkaSink::open(config()).value_or_throw();
    auto sent = letters(topic, 300, 10);
    sent[100].topic = "not-there";
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 100U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kTopicUnknown);
    EXPECT_EQ(courier.dead()[0].error.advice, Advice::kRetryEvent);
    EXPECT_NE(courier.dead()[0].error.message.find("not-there"), std::string::npos);
    EXPECT_EQ(courier.counted_attempts(), 0U) << "an operator may have forgotten it";
    EXPECT_EQ(sink->rebuilds(), 0U);
    EXPECT_EQ(missing_or_reordered(delivered(sent, courier), arrived(topic, 299)), "");
}

TEST(KafkaFailure, ManyRecordsForAMissingTopicLeaveRoomForOthers) {
    const auto sink = KafkaSink::open(config()).value_or_throw();
    const auto sent = letters("forgotten-by-all", 2'000, 2'000);
    Courier courier(*sink);
    courier.max_part_failures = 1;
    ASSERT_EQ(courier.deliver({sent[0]}), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    // The answer is fresh: each fails in the next turn and takes nobody's room.
    std::size_t at_once = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
        ASSERT_TRUE(sink->publish(sent[i].record(i)));
        spi::Completions completions;
        sink->poll(0ms, completions);
        at_once += completions.failed.size();
        while (completions.failed.empty()) sink->poll(10ms, completions);
        ASSERT_EQ(completions.failed[0].token, i);
        EXPECT_EQ(completions.failed[0].part, "topic forgotten-by-all");
    }
    EXPECT_GE(at_once, sent.size() / 2);
}

TEST(KafkaFailure, TopicDeletedInMidStreamAndMadeAgainLosesNoOrder) {
    const std::string topic = new_topic();
    const auto sink = KafkaSink::open(config()).value_or_throw();
    // Far more than can be sent before the broker has carried out the deletion.
    const auto sent = letters(topic, 60'000, 10);
    Courier courier(*sink);
    courier.max_publish_per_poll = 100;
    courier.max_part_failures = 1'000'000;
    bool deleted = false;
    bool made_again = false;
    std::size_t acknowledged_before = 0;
    courier.after_poll = [&](const Courier& now) {
        if (!deleted && now.acknowledged() >= 1'000) {
            deleted = true;
            remove_topic(server().bootstrap(), topic);
        } else if (deleted && !made_again && now.failures_by_code().contains("OB_TOPIC_UNKNOWN")) {
            made_again = true;
            acknowledged_before = now.acknowledged();
            create_topic(server().bootstrap(), topic, 3);
        }
    };
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_TRUE(made_again);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_GE(courier.failures_by_code().at("OB_TOPIC_UNKNOWN"), 1U);
    // What the topic held before went with it; of the rest, each key's order is whole.
    const auto found = arrived(topic, sent.size() - acknowledged_before);
    std::map<std::string, std::vector<int>> by_key;
    std::set<std::string> seen;
    for (const Arrived& record : found) {
        if (!seen.insert(record.id).second) continue;
        by_key[*record.key].push_back(std::stoi(record.id.substr(3)));
    }
    ASSERT_EQ(by_key.size(), 10U);
    for (const auto& [key, numbers] : by_key) {
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const auto from_end = static_cast<int>(numbers.size() - 1 - i);
            EXPECT_EQ(numbers[i], numbers.back() - 10 * from_end) << key;
        }
        EXPECT_GE(numbers.back(), 59'990) << key;
    }
}

TEST(KafkaFailure, BrokerKilledAndRestartedInMidStreamLosesNothing) {
    const std::string topic = new_topic();
    const auto sink = KafkaSink::open(config()).value_or_throw();
    const auto sent = letters(topic, 20'000, 50);
    Courier courier(*sink);
    courier.max_publish_per_poll = 2'000;
    bool killed = false;
    courier.after_poll = [&](const Courier& now) {
        if (killed || now.acknowledged() < 5'000) return;
        killed = true;
        server().kill();
        server().start();
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(killed);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(missing_or_reordered(sent, arrived(topic, sent.size())), "");
}

TEST(KafkaFailure, HungBrokerFailsEverythingForTheDestinationAndLosesNothingAfterwards) {
    const std::string topic = new_topic();
    auto quick = config();
    quick.stuck_after = 1s;
    quick.connect_timeout = 1s;
    const auto sink = KafkaSink::open(quick).value_or_throw();
    const auto sent = letters(topic, 5'000, 20);
    // The first part is through before the broker hangs, the second is sent while it does.
    const std::vector first(sent.begin(), sent.begin() + 1'000);
    const std::vector second(sent.begin() + 1'000, sent.end());
    Courier before(*sink);
    ASSERT_EQ(before.deliver(first), "");
    server().pause();
    Courier courier(*sink);
    courier.max_publish_per_poll = 500;
    bool resumed = false;
    courier.after_poll = [&](const Courier& now) {
        if (resumed || now.failures() == 0) return;
        resumed = true;
        EXPECT_FALSE(sink->check().ok());
        server().resume();
    };
    const std::string fault = courier.deliver(second);
    server().resume();
    ASSERT_EQ(fault, "");
    EXPECT_TRUE(resumed);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(missing_or_reordered(sent, arrived(topic, sent.size())), "");
}

TEST(KafkaFailure, TopicThatMayNotBeWrittenNamesTheMissingRightAndCountsNoAttempt) {
    const std::string topic = new_topic();
    deny_write(server().bootstrap(), topic);
    const auto sink = KafkaSink::open(config()).value_or_throw();
    const auto sent = letters(topic, 100, 5);
    Courier courier(*sink);
    bool allowed = false;
    courier.after_poll = [&](const Courier& now) {
        if (allowed || now.failures() == 0) return;
        allowed = true;
        allow_write_again(server().bootstrap(), topic);
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(allowed);
    EXPECT_TRUE(courier.failures_by_code().contains("OB_NO_RIGHTS"));
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(missing_or_reordered(sent, arrived(topic, sent.size())), "");
}

// Letters of `keys` keys to each of two topics, by turns.
std::vector<Letter> two_topics(const std::string& first, const std::string& second,
                               std::size_t count, std::size_t keys) {
    const auto to_first = letters(first, count, keys);
    const auto to_second = letters(second, count, keys);
    std::vector<Letter> all;
    for (std::size_t i = 0; i < count; ++i) {
        all.push_back(to_first[i]);
        all.back().key = "first-" + *all.back().key;
        all.push_back(to_second[i]);
        all.back().key = "second-" + *all.back().key;
        all.back().id += "-second";
        all.back().headers = {{"id", all.back().id}};
    }
    return all;
}

class KafkaDeniedTopic : public testing::TestWithParam<bool> {};

TEST_P(KafkaDeniedTopic, IsAPartThatIsDownWhileOthersGoOnWithoutAPause) {
    const std::string denied = new_topic();
    const std::string other = new_topic();
    (GetParam() ? deny_only_write : deny_write)(server().bootstrap(), denied);
    const auto sink = KafkaSink::open(config()).value_or_throw();
    const auto sent = two_topics(denied, other, 1'000, 40);
    std::vector<Letter> healthy;
    std::vector<Letter> waiting;
    for (const Letter& letter : sent) (letter.topic == other ? healthy : waiting).push_back(letter);
    Courier courier(*sink);
    courier.max_part_failures = 1'000'000;
    bool allowed = false;
    courier.after_poll = [&](const Courier& now) {
        if (allowed || now.acknowledged() < healthy.size()) return;
        allowed = true;
        EXPECT_EQ(now.failures_by_part().size(), 1U);
        EXPECT_TRUE(now.failures_by_part().contains("topic " + denied));
        EXPECT_EQ(now.destination_failures(), 0U) << "the circuit would have opened";
        EXPECT_LE(sink->rebuilds(), 1U) << "trials cost the other topics nothing";
        allow_write_again(server().bootstrap(), denied);
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(allowed);
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(missing_or_reordered(healthy, arrived(other, healthy.size())), "");
    EXPECT_EQ(missing_or_reordered(waiting, arrived(denied, waiting.size())), "");
}

INSTANTIATE_TEST_SUITE_P(Rights, KafkaDeniedTopic, testing::Bool(), [](const auto& chosen) {
    return std::string(chosen.param ? "DescribeOnly" : "Nothing");
});

// Before the sink has heard of it, and with records for it under way.
class KafkaLeaderlessPartition : public testing::TestWithParam<bool> {};

TEST_P(KafkaLeaderlessPartition, IsAPartThatIsDownWhileOthersGoOn) {
    const bool in_mid_stream = GetParam();
    KafkaServer second({.auto_create_topics = false, .properties = "", .first = &server()});
    const std::string topic = "leaderless-" + std::to_string(in_mid_stream);
    create_topic_on(server().bootstrap(), topic, {1, 2, 1});
    auto quick = config();
    // The one that is silent is told from the other by it, which may be given no processor for half
    // of that.
    if (in_mid_stream) quick.stuck_after = 8s;
    const auto sink = KafkaSink::open(quick).value_or_throw();
    const auto lose_leader = [&] {
        second.stop();
        wait_for_leader(server().bootstrap(), topic, 1, false);
    };
    if (in_mid_stream) {
        learn_limit(*sink, topic);
        second.pause();  // its records are taken and not answered
    } else {
        lose_leader();
    }
    auto sent = letters(topic, 9'000, 60);
    for (std::size_t i = 0; i < sent.size(); i += 10) sent[i].key.reset();
    std::size_t for_it = 0;
    for (const Letter& letter : sent) {
        for_it += letter.key && kafka::Client::partition_of(*letter.key, 3) == 1 ? 1 : 0;
    }
    ASSERT_GT(for_it, 1'000U);
    Courier courier(*sink);
    courier.max_part_failures = 1'000'000;
    // Each letter of the partition is tried now and then; keep it from a busy loop.
    courier.max_publish_per_poll = 500;
    bool back = false;
    // The first look for the topic may have been at the broker that is gone.
    std::size_t at_the_start = 0;
    courier.after_poll = [&](const Courier& now) {
        if (!in_mid_stream && now.acknowledged() == 0) at_the_start = now.destination_failures();
        if (back || now.failures() == 0 || now.acknowledged() < sent.size() - for_it) return;
        back = true;
        EXPECT_TRUE(now.failures_by_part().contains("topic " + topic + "[1]"));
        EXPECT_EQ(now.failures_by_part().size(), 1U);
        EXPECT_EQ(now.destination_failures(), at_the_start) << "the circuit would have opened";
        if (in_mid_stream) {
            second.resume();
        } else {
            second.start();
        }
    };
    EXPECT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(back);
    if (!back && in_mid_stream) second.resume();
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_TRUE(courier.dead().empty());
    auto found = arrived(topic, sent.size() + (in_mid_stream ? 1 : 0));
    std::erase_if(sent, [](const Letter& letter) { return !letter.key; });  // in no order
    EXPECT_EQ(missing_or_reordered(sent, found), "");
    remove_topic(server().bootstrap(), topic);
}

INSTANTIATE_TEST_SUITE_P(Lost, KafkaLeaderlessPartition, testing::Bool(), [](const auto& chosen) {
    return std::string(chosen.param ? "SilentInMidStream" : "BeforeTheStart");
});

TEST(KafkaFailure, EachOfManyRefusedRecordsIsFoundWithoutEndingTheProducerForOthers) {
    const std::string topic = "compacted";
    create_topic(server().bootstrap(), topic, 1, {{"cleanup.policy", "compact"}});
    const auto sink = KafkaSink::open(config()).value_or_throw();
    auto sent = letters(topic, 5'000, 20);
    std::set<std::size_t> keyless;
    for (std::size_t i = 100; i < sent.size(); i += 200) {
        sent[i].key.reset();
        keyless.insert(i);
    }
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    std::set<std::size_t> dead;
    for (const auto& letter : courier.dead()) {
        EXPECT_EQ(letter.error.code, ErrorCode::kRecordRefused);
        dead.insert(letter.index);
    }
    EXPECT_EQ(dead, keyless);
    EXPECT_LE(sink->rebuilds(), 3U);
    EXPECT_EQ(courier.destination_failures(), 0U) << "the circuit would have opened";
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(missing_or_reordered(delivered(sent, courier), arrived(topic, 4'975)), "");
}

TEST(KafkaFailure, ATopicWhoseLimitMayNotBeReadGetsSmallerBatches) {
    const std::string topic = new_topic(1);
    set_max_message_bytes(server().bootstrap(), topic, 20'000);
    deny_describing_settings(server().bootstrap(), topic);
    const auto sink = KafkaSink::open(config()).value_or_throw();
    auto sent = letters(topic, 20'000, 20, 500);
    sent[7'000].value = std::string(30'000, 'x');
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 7'000U);
    EXPECT_LE(sink->rebuilds(), 12U) << "each halves the batch";
    EXPECT_EQ(courier.destination_failures(), 0U) << "the circuit would have opened";
    EXPECT_EQ(missing_or_reordered(delivered(sent, courier), arrived(topic, 19'999)), "");
}

}  // namespace
}  // namespace outbox::test
