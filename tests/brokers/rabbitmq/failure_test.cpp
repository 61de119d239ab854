// What a real RabbitMQ does to the sink in mid-stream.

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "brokers/rabbitmq/sink.h"
#include "tests/brokers/rabbitmq/server.h"
#include "tests/brokers/troubles.h"
#include "tests/conformance/letters.h"
#include "tests/support/eventually.h"
#include "tests/support/process.h"
#include "tests/support/two_addresses.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using rabbitmq::RabbitmqConfig;
using rabbitmq::RabbitmqSink;

RabbitmqServer& server() {
    static RabbitmqServer rabbitmq(broker_certificates().folder(), "max_message_size = 500000");
    static const bool made = [] {
        rabbitmq.make_exchange("events");
        return true;
    }();
    static_cast<void>(made);
    return rabbitmq;
}

RabbitmqConfig config_of(const std::string& url) {
    return rabbitmq::make_config(url, {}).value_or_throw();
}

RabbitmqConfig config() {
    return config_of(server().url() + "?exchange=events");
}

std::string new_name() {
    static int names = 0;
    return "failure-" + std::to_string(++names);
}

std::string new_queue(const std::string& arguments = "{}") {
    std::string queue = new_name();
    server().make_queue(queue, "events", "", arguments);
    return queue;
}

std::string part_of(const std::string& routing_key) {
    return "routing key '" + routing_key + "' of exchange 'events' of vhost '/'";
}

void expect_in_order(const std::string& queue, const std::vector<Letter>& sent) {
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(queue, sent.size())), "");
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

spi::FailedRecord failure_of(spi::Sink& sink, const Letter& letter) {
    EXPECT_TRUE(sink.publish(letter.record(1)));
    spi::Completions out;
    for (int i = 0; i < 600 && out.empty(); ++i) sink.poll(100ms, out);
    if (out.failed.size() != 1) throw std::runtime_error("it did not fail");
    return out.failed[0];
}

TEST(RabbitmqFailure, AMessageCarriesWhatTheEventSaysOfItself) {
    const std::string queue = new_queue();
    RabbitmqSink sink(config());
    auto letter = letters("another-topic", 1, 1)[0];
    letter.headers = {{"tenant_id", "t"}};
    letter.value = R"({"order_id": 1})";
    spi::Record record = letter.record(7);
    record.routing_key = queue;
    record.event_type = "OrderCreated";
    record.occurred_at_us = 1'700'000'000'123'456;
    ASSERT_TRUE(sink.publish(record));
    spi::Completions out;
    for (int i = 0; i < 600 && out.empty(); ++i) sink.poll(100ms, out);
    ASSERT_EQ(out.acknowledged, std::vector<std::uint64_t>{7});
    const auto messages = server().read(queue, 1);
    ASSERT_EQ(messages.size(), 1U);
    EXPECT_EQ(messages[0].record.id, letter.id);
    EXPECT_EQ(messages[0].record.key, letter.key);
    EXPECT_EQ(messages[0].record.headers, letter.headers);
    EXPECT_EQ(messages[0].routing_key, queue);
    EXPECT_EQ(messages[0].type, "OrderCreated");
    EXPECT_EQ(messages[0].app_id, "outbox");
    EXPECT_EQ(messages[0].content_type, "application/json");
    EXPECT_EQ(messages[0].timestamp, 1'700'000'000);
    EXPECT_EQ(messages[0].delivery_mode, 2);
}

TEST(RabbitmqFailure, AMessageThatGoesToNoQueueWaitsForOneAndDelaysNobodyElse) {
    const std::string queue = new_queue();
    const std::string missing = new_name();
    RabbitmqSink sink(config());
    const auto sent = letters_to_two(queue, missing);
    deliver_while_one_waits(sink, sent, part_of(missing),
                            [&] { server().make_queue(missing, "events"); });
    for (const std::string& one : {queue, missing}) expect_in_order(one, letters_to(one, sent));
}

// A producer gives two events one id where they are of two keys, or are one request's.
TEST(RabbitmqFailure, OfTwoEventsOfOneIdTheOneThatNoQueueTakesWaits) {
    const std::string queue = new_queue();
    const std::string missing = new_name();
    RabbitmqSink sink(config());
    auto sent = letters(queue, 200, 200);
    for (std::size_t i = 1; i < sent.size(); i += 2) {
        sent[i].id = sent[i - 1].id;
        sent[i].topic = missing;
    }
    Courier courier(sink);
    courier.max_publish_per_poll = 50;
    courier.max_part_failures = 1'000;
    bool made = false;
    courier.after_poll = [&](const Courier& now) {
        if (made || now.acknowledged() < 100) return;
        server().make_queue(missing, "events");
        made = true;
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(server().arrived(queue, 100).size(), 100U);
    EXPECT_EQ(server().arrived(missing, 100).size(), 100U);
}

// Where headers route, all else of the two is the same.
TEST(RabbitmqFailure, OfTwoEventsThatDifferInAHeaderTheOneThatNoQueueTakesWaits) {
    const std::string exchange = new_name();
    const std::string queue = new_name();
    RabbitmqSink sink(config_of(server().url() + "?exchange=" + exchange +
                                "&declare=true&exchange_type=headers"));
    static_cast<void>(failure_of(sink, letters("any", 1, 1)[0]));  // makes the exchange
    server().api("PUT", "queues/%2F/" + queue, R"({"durable":true})");
    server().api("POST", "bindings/%2F/e/" + exchange + "/q/" + queue,
                 R"({"routing_key":"","arguments":{"x-match":"all","to":"here"}})");
    auto one = letters("any", 1, 1)[0];
    auto other = one;
    one.headers = {{"to", "here"}};
    other.headers = {{"to", "nowhere"}};
    ASSERT_TRUE(sink.publish(one.record(1)));
    ASSERT_TRUE(sink.publish(other.record(2)));
    spi::Completions all;
    ASSERT_TRUE(eventually(60s, "both have an outcome", [&] {
        spi::Completions out;
        sink.poll(100ms, out);
        for (const auto token : out.acknowledged) all.acknowledged.push_back(token);
        for (const auto& failed : out.failed) all.failed.push_back(failed);
        return all.acknowledged.size() + all.failed.size() == 2;
    }));
    EXPECT_EQ(all.acknowledged, std::vector<std::uint64_t>{1});
    ASSERT_EQ(all.failed.size(), 1U);
    EXPECT_EQ(all.failed[0].token, 2U);
}

TEST(RabbitmqFailure, AMessageThatIsTooLargeAloneIsDead) {
    const std::string queue = new_queue();
    RabbitmqSink sink(config());
    auto sent = letters(queue, 1'000, 10);
    sent[500].value = std::string(600'000, 'x');
    Courier courier(sink);
    courier.max_publish_per_poll = 100;
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 500U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(missing_or_reordered(delivered(sent, courier), server().arrived(queue, 999)), "");
}

TEST(RabbitmqFailure, AHeaderThatTheBrokerTakesForItsOwnAloneIsDead) {
    const std::string queue = new_queue();
    RabbitmqSink sink(config());
    auto sent = letters(queue, 100, 10);
    sent[50].headers.emplace_back("CC", "x");
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 50U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kRecordRefused);
    EXPECT_NE(courier.dead()[0].error.message.find("'CC'"), std::string::npos);
}

TEST(RabbitmqFailure, AFullQueueDelaysItsRoutingKeyAlone) {
    const std::string queue = new_queue();
    const std::string full = new_queue("{\"x-max-length\":5,\"x-overflow\":\"reject-publish\"}");
    RabbitmqSink sink(config());
    const auto sent = letters_to_two(queue, full, 500);
    const auto waiting = letters_to(full, sent);
    Courier courier(sink);
    courier.max_publish_per_poll = 50;
    courier.max_part_failures = 1'000;
    std::vector<Arrived> taken;
    const auto take = [&](std::size_t count) {
        const auto some = server().arrived(full, count);
        taken.insert(taken.end(), some.begin(), some.end());
    };
    courier.after_poll = [&](const Courier& now) {
        if (now.acknowledged() >= sent.size() - waiting.size() + 5 + taken.size()) take(5);
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(courier.destination_failures(), 0U);
    ASSERT_EQ(courier.failures_by_part().size(), 1U);
    EXPECT_EQ(courier.failures_by_part().begin()->first, part_of(full));
    take(waiting.size() - std::min(waiting.size(), taken.size()));
    EXPECT_EQ(missing_or_reordered(waiting, taken), "");
    expect_in_order(queue, letters_to(queue, sent));
}

TEST(RabbitmqFailure, AMissingExchangeIsADestinationThatIsDownUntilItIsMade) {
    const std::string name = new_name();
    auto missing = config_of(server().url() + "?exchange=" + name);
    RabbitmqSink sink(missing);
    const Status status = sink.check();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kTopicUnknown);
    EXPECT_NE(status.error().message.find(name), std::string::npos);
    const auto failed = failure_of(sink, letters("q", 1, 1)[0]);
    EXPECT_EQ(failed.error.code, ErrorCode::kTopicUnknown);
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);

    server().make_exchange(name);
    const std::string queue = new_name();
    server().make_queue(queue, name);
    EXPECT_TRUE(sink.check().ok());
    const auto sent = letters(queue, 100, 10);
    ASSERT_EQ(Courier(sink).deliver(sent), "");
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(queue, 100)), "");
}

TEST(RabbitmqFailure, MakesItsExchangeOnlyWhereItIsToldTo) {
    const std::string name = new_name();
    RabbitmqSink sink(config_of(server().url() + "?exchange=" + name + "&declare=true"));
    const auto first = failure_of(sink, letters("nowhere", 1, 1)[0]);
    EXPECT_EQ(first.error.code, ErrorCode::kTopicUnknown);
    EXPECT_NE(first.part, "");  // the exchange is there, and no queue
    const std::string queue = new_name();
    server().make_queue(queue, name);
    EXPECT_EQ(Courier(sink).deliver(letters(queue, 10, 1)), "");
}

TEST(RabbitmqFailure, SaysWhatIsWrongWithAUserAVhostAndARight) {
    const auto error_of = [](const std::string& url) {
        RabbitmqSink sink(config_of(url));
        const Status status = sink.check();
        return status.ok() ? ErrorInfo{ErrorCode::kInternal, Advice::kStop, "", "no error"}
                           : status.error();
    };
    const auto password = error_of(server().url("relay", "wrong-one") + "?exchange=events");
    EXPECT_EQ(password.code, ErrorCode::kAuthFailed) << describe(password);
    EXPECT_EQ(password.message.find("wrong-one"), std::string::npos);
    const auto vhost = error_of(server().url() + "nowhere?exchange=events");
    EXPECT_EQ(vhost.code, ErrorCode::kNoRights) << describe(vhost);
    EXPECT_EQ(error_of("amqp://127.0.0.1:1/").code, ErrorCode::kConnectFailed);
    EXPECT_EQ(error_of("amqp://no-such-host.invalid/").code, ErrorCode::kConnectFailed);

    server().make_user("reader", {"", "", ".*"});
    RabbitmqSink sink(config_of(server().url("reader", "pw") + "?exchange=events"));
    const auto failed = failure_of(sink, letters("q", 1, 1)[0]);
    EXPECT_EQ(failed.error.code, ErrorCode::kNoRights);
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
    EXPECT_NE(failed.error.message.find("set_permissions"), std::string::npos);
}

// As the page says, of the exchange `orders`.
TEST(RabbitmqFailure, TheDocumentedRightsAreEnough) {
    const RabbitmqRights rights = rights_of_page("relay");
    server().make_user("writer", rights);
    server().make_user("maker", {rights.write, rights.write, rights.read});
    server().make_user("queues",
                       {rights.configure, "^" + default_exchange_of_page() + "$", rights.read});
    const auto deliver = [](const std::string& user, const std::string& exchange,
                            const std::string& options) {
        RabbitmqSink sink(config_of(server().url(user, "pw") + "?exchange=" + exchange + options));
        if (!options.empty()) static_cast<void>(failure_of(sink, letters("none", 1, 1)[0]));
        const Status status = sink.check();
        EXPECT_TRUE(status.ok()) << describe(status.error());
        const auto name = sink.destination();
        EXPECT_TRUE(name.ok()) << describe(name.status().error());
        const std::string queue = new_name();
        server().make_queue(queue, exchange);
        const auto sent = letters(queue, 100, 10);
        EXPECT_EQ(Courier(sink).deliver(sent), "");
        expect_in_order(queue, sent);
    };
    deliver("maker", "orders", "&declare=true");
    deliver("writer", "orders", "");
    deliver("queues", "", "");
}

// Who may write to routing keys that begin with "failure-" alone.
void make_user_of_topics(const std::string& name) {
    server().make_user(name, {"", ".*", ".*"});
    server().api("PUT", "topic-permissions/%2F/" + name,
                 R"({"exchange":"events","write":"^failure-.*","read":".*"})");
}

TEST(RabbitmqFailure, ARoutingKeyThatTheUserMayNotWriteToDelaysItselfAlone) {
    make_user_of_topics("some");
    const std::string queue = new_queue();
    RabbitmqSink sink(config_of(server().url("some", "pw") + "?exchange=events"));
    const auto sent = letters_to_two(queue, "secret", 300);
    deliver_while_one_waits(sink, sent, part_of("secret"), [] {
        server().make_queue("secret", "events");
        server().api("PUT", "topic-permissions/%2F/some",
                     R"({"exchange":"events","write":".*","read":".*"})");
    });
    for (const std::string& one : {queue, std::string("secret")}) {
        expect_in_order(one, letters_to(one, sent));
    }
}

// Letters of keys of their own, to `topic` and a number behind it.
std::vector<Letter> letters_apart(const std::string& topic, std::size_t count) {
    auto made = letters(topic, count, count);
    for (std::size_t i = 0; i < count; ++i) made[i].topic += "." + std::to_string(i);
    return made;
}

// Hands over records whose tokens are numbers of the test's own.
class Hand {
  public:
    explicit Hand(spi::Sink& sink) : sink_(sink) {}
    void publish(const std::vector<Letter>& letters) {
        for (const Letter& letter : letters) {
            ASSERT_TRUE(sink_.publish(letter.record(next_token_++)));
        }
    }
    // Until so many have passed and failed; which is false where nothing comes any more.
    bool poll(std::size_t passed, std::size_t failed) {
        for (int idle = 0; idle < 600 && (passed_ < passed || failed_ < failed); ++idle) {
            spi::Completions out;
            sink_.poll(100ms, out);
            if (!out.empty()) idle = 0;
            passed_ += out.acknowledged.size();
            failed_ += out.failed.size();
            for (const spi::FailedRecord& one : out.failed) {
                EXPECT_FALSE(one.part.empty()) << describe(one.error);
            }
        }
        return passed_ >= passed && failed_ >= failed;
    }
    [[nodiscard]] std::size_t passed() const { return passed_; }
    [[nodiscard]] std::size_t failed() const { return failed_; }

  private:
    spi::Sink& sink_;
    std::uint64_t next_token_ = 0;
    std::size_t passed_ = 0;
    std::size_t failed_ = 0;
};

// The broker closes a channel for each, so that they are tried one after the other.
void expect_known_ones_wait_for_no_refused_ones(const std::string& user, std::size_t refused_keys,
                                                std::size_t most_repeats) {
    const std::string queue = new_name();
    server().make_queue(queue, "events", queue + ".#");
    RabbitmqSink sink(config_of(server().url(user, "pw") + "?exchange=events"));
    const auto before = letters_apart(queue, 3);
    const auto refused = letters_apart("secret", refused_keys);
    const auto after = letters_apart(queue, 3);
    Hand hand(sink);
    hand.publish(before);
    ASSERT_TRUE(hand.poll(3, 0));
    hand.publish(refused);
    hand.publish(after);
    ASSERT_TRUE(hand.poll(6, 0));
    EXPECT_LT(hand.failed(), refused_keys / 2);
    ASSERT_TRUE(hand.poll(6, refused_keys));
    EXPECT_EQ(hand.passed(), 6U);
    EXPECT_EQ(hand.failed(), refused_keys);
    EXPECT_LE(server().left(queue), 6 + most_repeats);
    EXPECT_GE(server().left(queue), 6U);
}

TEST(RabbitmqFailure, WhatHasPassedBeforeDoesNotWaitBehindManyFreshRoutingKeysThatAreRefused) {
    make_user_of_topics("flood");
    // What was under way at the first refusal, once more.
    expect_known_ones_wait_for_no_refused_ones("flood", 2'000, 3);
}

// Those that are refused have no channel to themselves.
TEST(RabbitmqFailure, NorDoesItWithFewChannels) {
    for (const std::size_t most : {1, 2, 3}) {
        const std::string user = "few-" + std::to_string(most);
        make_user_of_topics(user);
        server().api("PUT", "user-limits/" + user + "/max-channels",
                     R"({"value":)" + std::to_string(most) + "}");
        expect_known_ones_wait_for_no_refused_ones(user, 200, 12);
    }
}

// The search for a message that ends connections has little under way, and must not have all wait
// behind those that are refused one by one.
TEST(RabbitmqFailure, AConnectionThatEndsAmongManyRefusedRoutingKeysHoldsUpNothingThatHasPassed) {
    constexpr std::size_t kRefused = 2'000;
    make_user_of_topics("cut");
    const std::string queue = new_name();
    server().make_queue(queue, "events", queue + ".#");
    CuttingWay way(server().port());
    RabbitmqSink sink(
        config_of("amqp://cut:pw@127.0.0.1:" + std::to_string(way.port()) + "/?exchange=events"));
    const auto known = letters_apart(queue, 3);
    const auto refused = letters_apart("secret", kRefused);
    Hand hand(sink);
    hand.publish(known);
    ASSERT_TRUE(hand.poll(3, 0));
    hand.publish(refused);
    ASSERT_TRUE(hand.poll(3, 20));
    for (std::size_t cuts = 1; cuts <= 3; ++cuts) {
        way.cut();
        ASSERT_TRUE(hand.poll(3 * cuts, hand.failed() + 5));
        hand.publish(known);
        ASSERT_TRUE(hand.poll(3 * (cuts + 1), 0));
    }
    EXPECT_LT(hand.failed(), kRefused / 2);
    ASSERT_TRUE(hand.poll(12, kRefused));
    EXPECT_EQ(hand.passed(), 12U);
    EXPECT_EQ(hand.failed(), kRefused);
}

// Each of its messages would keep its place for as long as an answer is waited for.
TEST(RabbitmqFailure, AQueueThatGivesNoConfirmsDelaysNobodyElseWhileARoutingKeyIsRefused) {
    constexpr std::size_t kSilent = 30;
    constexpr std::size_t kOthers = 200;
    make_user_of_topics("silent");
    const std::string hanging = new_name();
    const std::string queue = new_name();
    server().make_queue(hanging, "events", hanging + ".#");
    server().make_queue(queue, "events", queue + ".#");
    RabbitmqConfig config = config_of(server().url("silent", "pw") + "?exchange=events");
    config.stuck_after = 10min;
    RabbitmqSink sink(config);
    const auto refused = letters_apart("secret", 1);
    const auto silent = letters_apart(hanging, kSilent);
    const auto others = letters_apart(queue, kOthers);
    Hand hand(sink);
    hand.publish(refused);
    ASSERT_TRUE(hand.poll(0, 1));
    server().hang(hanging, true);
    hand.publish(silent);
    hand.publish(others);
    const bool passed = hand.poll(kOthers, 1);
    EXPECT_EQ(hand.passed(), kOthers);
    server().hang(hanging, false);
    ASSERT_TRUE(passed);
    ASSERT_TRUE(hand.poll(kOthers + kSilent, 1));
    EXPECT_EQ(hand.failed(), 1U);
    EXPECT_EQ(server().left(queue), kOthers);
    EXPECT_EQ(server().left(hanging), kSilent);
}

// The broker ends the connection for one more, and says that for no message.
TEST(RabbitmqFailure, AUserWithFewChannelsGoesOnBesideARoutingKeyThatIsRefused) {
    for (const std::string most : {"1", "2"}) {
        const std::string user = "channels-" + most;
        make_user_of_topics(user);
        server().api("PUT", "user-limits/" + user + "/max-channels", R"({"value":)" + most + "}");
        const std::string queue = new_queue();
        RabbitmqSink sink(config_of(server().url(user, "pw") + "?exchange=events"));
        auto sent = letters(queue, 300, 10);
        sent[0].topic = "secret";
        sent[0].key = "refused";
        Courier courier(sink);
        courier.max_publish_per_poll = 5;
        courier.max_part_failures = 3;
        ASSERT_EQ(courier.deliver(sent), "") << most;
        EXPECT_EQ(courier.acknowledged(), 299U) << most;
        EXPECT_EQ(courier.failures_by_part().size(), 1U) << most;
        EXPECT_EQ(courier.failures(), 3U) << most;
        EXPECT_EQ(courier.destination_failures(), 0U) << most;
        EXPECT_EQ(courier.counted_attempts(), 0U) << most;
        EXPECT_EQ(missing_or_reordered(delivered(sent, courier), server().arrived(queue, 299)), "")
            << most;
    }
}

// The broker tells so much of a long one only.
TEST(RabbitmqFailure, ALongRoutingKeyThatTheUserMayNotWriteToDelaysItselfAlone) {
    make_user_of_topics("long");
    const std::string queue = new_queue();
    RabbitmqSink sink(config_of(server().url("long", "pw") + "?exchange=events"));
    auto sent = letters(queue, 300, 10);
    const std::vector<std::size_t> bad = {0, 1, 2};
    for (const std::size_t i : bad) {
        sent[i].topic = "secret." + std::string(195 + 20 * i, 'y');
        sent[i].key = "bad-" + std::to_string(i);
    }
    Courier courier(sink);
    courier.max_part_failures = 3;
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.dead().size(), bad.size());
    EXPECT_EQ(courier.failures_by_part().size(), bad.size());
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(courier.destination_failures(), 0U);
    EXPECT_EQ(missing_or_reordered(delivered(sent, courier), server().arrived(queue, 297)), "");
}

TEST(RabbitmqFailure, AnEventThatEndsEachConnectionIsFoundWhileOthersPass) {
    const CuttingWay way(server().port());
    const std::string address = "127.0.0.1:" + std::to_string(way.port());
    RabbitmqSink sink(config_of("amqp://relay:s3cret@" + address + "/?exchange=events"));
    expect_what_ends_connections_is_found(sink, new_queue());
}

TEST(RabbitmqFailure, WhatAConnectionHasCarriedBeforeItsEndIsNoEventsFault) {
    const auto url = [](const CuttingWay& way) {
        return "amqp://relay:s3cret@127.0.0.1:" + std::to_string(way.port()) + "/?exchange=events";
    };
    const CuttingWay narrow(server().port(), kManyBytes);
    RabbitmqSink sink(config_of(url(narrow)));
    const std::string queue = new_queue();
    auto sent = deliver_many_sizes(sink, queue);
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(queue, sent.size())), "");
    const CuttingWay single(server().port(), kSecondMessage);
    RabbitmqSink other(config_of(url(single)));
    const std::string second = new_queue();
    sent = deliver_one_by_one(other, second);
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(second, sent.size())), "");
}

TEST(RabbitmqFailure, ANodeThatEndsEachConnectionIsLeftForOneThatTakesAll) {
    const CuttingWay way(server().port(), kFirstMessage);
    const std::string nodes =
        "127.0.0.1:" + std::to_string(way.port()) + ",127.0.0.1:" + std::to_string(server().port());
    RabbitmqSink sink(config_of("amqp://relay:s3cret@" + nodes + "/?exchange=events"));
    const std::string queue = new_queue();
    const auto sent = deliver_one_by_one(sink, queue);
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(queue, sent.size())), "");
}

TEST(RabbitmqFailure, AConnectionThatEndsWhileItIsIdleIsNoFailure) {
    const CuttingWay way(server().port(), kFirstAnswer);
    const std::string address = "127.0.0.1:" + std::to_string(way.port());
    RabbitmqSink sink(config_of("amqp://relay:s3cret@" + address + "/?exchange=events"));
    const std::string queue = new_queue();
    const auto sent = deliver_one_by_one(sink, queue, 1);
    EXPECT_EQ(missing_or_reordered(sent, server().arrived(queue, sent.size())), "");
}

TEST(RabbitmqFailure, ABrokerWithAnAlarmIsDownAndNothingIsLost) {
    const std::string queue = new_queue();
    auto patient = config();
    patient.blocked_grace = 200ms;
    RabbitmqSink sink(patient);
    const auto sent = letters(queue, 3'000, 20);
    deliver_through(
        sink, sent, 500, [] { server().alarm(true); },
        [&] {
            const Status status = sink.check();
            server().alarm(false);
            ASSERT_FALSE(status.ok());
            EXPECT_EQ(status.error().code, ErrorCode::kSinkUnavailable);
            EXPECT_NE(status.error().message.find("alarm"), std::string::npos);
        });
    expect_in_order(queue, sent);
}

TEST(RabbitmqFailure, WhatWasSentBeforeTheAlarmWasKnownIsGivenUp) {
    const std::string queue = new_queue();
    auto patient = config();
    patient.stuck_after = 600s;
    RabbitmqSink sink(patient);
    ASSERT_EQ(Courier(sink).deliver(letters(queue, 10, 10)), "");
    server().alarm(true);
    const auto sent = letters(queue, 50, 50);
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink.publish(sent[i].record(i)));
    spi::Completions out;
    const auto end = std::chrono::steady_clock::now() + 120s;
    while (out.failed.size() < sent.size() && std::chrono::steady_clock::now() < end) {
        sink.poll(100ms, out);
    }
    server().alarm(false);
    EXPECT_EQ(out.failed.size(), sent.size());
    EXPECT_TRUE(out.acknowledged.empty());
    for (const spi::FailedRecord& failed : out.failed) {
        EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
        EXPECT_EQ(failed.part, "");
    }
}

TEST(RabbitmqFailure, ABrokerThatHangsIsDownUntilItGoesOn) {
    const std::string queue = new_queue();
    auto impatient = config();
    impatient.stuck_after = 1'000ms;
    impatient.heartbeat = 2s;
    impatient.connect_timeout = 1s;
    RabbitmqSink sink(impatient);
    const auto sent = letters(queue, 4'000, 200, 5'000);
    deliver_through(sink, sent, 500, [] { server().pause(); }, [] { server().resume(); });
    expect_in_order(queue, sent);
}

TEST(RabbitmqFailure, TakesNoMoreThanItsLimitsWhileTheBrokerHangs) {
    auto limited = config();
    limited.max_bytes = 1'000'000;
    RabbitmqSink sink(limited);
    expect_limits_while_it_hangs(
        sink, new_queue(), [] { server().pause(); }, [] { server().resume(); });
}

TEST(RabbitmqFailure, AMessageThatTheBrokerDoesNotReadIsGivenUp) {
    const std::string queue = new_queue();
    auto impatient = config();
    impatient.stuck_after = 1'000ms;
    impatient.heartbeat = 600s;
    RabbitmqSink sink(impatient);
    ASSERT_EQ(Courier(sink).deliver(letters(queue, 10, 10)), "");
    server().pause();
    auto large = letters(queue, 1, 1)[0];
    large.value.emplace(20'000'000, 'x');  // fits no socket
    EXPECT_TRUE(sink.publish(large.record(1)));
    spi::Completions out;
    for (int i = 0; i < 300 && out.empty(); ++i) sink.poll(100ms, out);
    server().resume();
    ASSERT_EQ(out.failed.size(), 1U);
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryDestination);
}

TEST(RabbitmqFailure, EndsAtOnceWhileABrokerHangs) {
    const std::string queue = new_queue();
    const auto sent = letters(queue, 5'000, 5'000, 5'000);
    {
        RabbitmqSink sink(config());
        ASSERT_EQ(Courier(sink).deliver(letters(queue, 10, 10)), "");
        server().pause();
        std::size_t next = 0;
        while (next < sent.size() && sink.publish(sent[next].record(next))) ++next;
        spi::Completions out;
        for (int i = 0; i < 5; ++i) sink.poll(50ms, out);
    }
    server().resume();
}

TEST(RabbitmqFailure, TlsProvesWhoTheBrokerIs) {
    const auto url = [](const std::string& host, const std::string& options) {
        return "amqps://relay:s3cret@" + host + ":" + std::to_string(server().tls_port()) +
               "/?exchange=events&" + options;
    };
    expect_tls_proves_who_it_is("rabbitmq.",
                                [&](const std::string& host, const std::string& options) {
                                    return RabbitmqSink(config_of(url(host, options))).check();
                                });

    const std::string queue = new_queue();
    RabbitmqSink sink(
        config_of(url("localhost", "ca_file=" + broker_certificates().file("ca.crt"))));
    const auto sent = letters(queue, 2'000, 20);
    ASSERT_EQ(Courier(sink).deliver(sent), "");
    expect_in_order(queue, sent);
}

// A proxy that stands before several brokers goes by that name.
TEST(RabbitmqFailure, TlsAsksForTheHostByItsName) {
    // Says what it is asked for on each of two connections, and ends it.
    const std::string proxy_of_names = R"(
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
context.sni_callback = lambda _, name, __: print("asked for", name, flush=True)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
for _ in range(2):
    context.wrap_socket(listener.accept()[0], server_side=True).close()
)";
    Process proxy({.command = {"/usr/bin/python3", "-B", "-c", proxy_of_names,
                               broker_certificates().file("server.pem")}});
    ASSERT_TRUE(eventually(60s, "it listens", [&] { return proxy.stdout_text().ends_with('\n'); }));
    const std::string port = std::to_string(std::stoi(proxy.stdout_text()));
    for (const std::string host : {"127.0.0.1", "localhost"}) {
        auto config = config_of("amqps://u:p@" + host + ":" + port + "/?verify=false");
        config.connect_timeout = 60s;
        EXPECT_FALSE(RabbitmqSink(config).check().ok());
    }
    EXPECT_TRUE(proxy.wait(60s).has_value());
    EXPECT_EQ(proxy.stdout_text(), port + "\nasked for None\nasked for localhost\n")
        << "an address is no name " << proxy.stderr_text();
}

TEST(RabbitmqFailure, AnAddressThatSwallowsPacketsLeavesTimeForTheNextOne) {
    const auto check = [](const std::string& scheme, int port, const std::string& options) {
        const TwoAddresses two(port);
        auto config = config_of(scheme + "://relay:s3cret@localhost:" + std::to_string(port) +
                                "/?exchange=events" + options);
        config.connect_timeout = 10s;
        return RabbitmqSink(config).check();
    };
    const Status clear = check("amqp", server().port(), "");
    EXPECT_TRUE(clear.ok()) << describe(clear.error());
    const Status secure =
        check("amqps", server().tls_port(), "&ca_file=" + broker_certificates().file("ca.crt"));
    EXPECT_TRUE(secure.ok()) << describe(secure.error());
}

// As an editor or `echo` leaves them while they write.
TEST(RabbitmqFailure, AFileThatIsBrokenForAMomentIsAnOutage) {
    const auto restart = [] {
        server().kill();
        server().start();
    };
    const BreakableFile password("s3cret");
    RabbitmqSink sink(config_of("amqp://relay@127.0.0.1:" + std::to_string(server().port()) +
                                "/?exchange=events&password_file=" + password.path()));
    expect_an_outage_while_broken(sink, new_queue(), password, restart);
    const BreakableFile ca(read_file(broker_certificates().file("ca.crt")));
    RabbitmqSink secure(
        config_of("amqps://relay:s3cret@localhost:" + std::to_string(server().tls_port()) +
                  "/?exchange=events&ca_file=" + ca.path()));
    expect_an_outage_while_broken(secure, new_queue(), ca, restart);
}

}  // namespace
}  // namespace outbox::test
