// What the sink decides without a broker.

#include <array>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/errors.h"
#include "brokers/rabbitmq/line.h"
#include "brokers/rabbitmq/message.h"
#include "brokers/rabbitmq/row.h"
#include "brokers/rabbitmq/suspicion.h"
#include "brokers/rabbitmq/ways.h"

namespace outbox::rabbitmq {
namespace {

using Options = std::map<std::string, std::string>;

RabbitmqConfig config_of(const std::string& url, const Options& options = {}) {
    return make_config(url, options).value_or_throw();
}

std::string refusal_of(const std::string& url, const Options& options = {}) {
    const auto config = make_config(url, options);
    if (config.ok()) return "";
    EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
    return config.error().message;
}

TEST(RabbitmqConfig, ReadsItsUrl) {
    const auto config = config_of("amqp://us%40er:p%2Fw@one:1000,two/my%2Fhost?exchange=orders");
    ASSERT_EQ(config.hosts.size(), 2U);
    EXPECT_EQ(config.hosts[0].name, "one");
    EXPECT_EQ(config.hosts[0].port, 1000);
    EXPECT_EQ(config.hosts[1].name, "two");
    EXPECT_EQ(config.hosts[1].port, 5672);
    EXPECT_EQ(config.user, "us@er");
    EXPECT_EQ(config.password, "p/w");
    EXPECT_EQ(config.vhost, "my/host");
    EXPECT_EQ(config.exchange, "orders");
    EXPECT_FALSE(config.tls);
}

TEST(RabbitmqConfig, HasTheBrokersDefaults) {
    const auto config = config_of("amqps://[::1]/");
    EXPECT_EQ(config.hosts[0].name, "::1");
    EXPECT_EQ(config.hosts[0].port, 5671);
    EXPECT_EQ(config.vhost, "/");
    EXPECT_EQ(config.user, "guest");
    EXPECT_EQ(config.exchange, "");
    EXPECT_TRUE(config.verify);
}

TEST(RabbitmqConfig, TakesOptionsWithAndWithoutThePrefix) {
    const auto config = config_of("amqp://h/", {{"rabbitmq.exchange", "e"},
                                                {"declare", "true"},
                                                {"rabbitmq.exchange_type", "x-consistent-hash"},
                                                {"rabbitmq.heartbeat_s", "30"}});
    EXPECT_EQ(config.exchange, "e");
    EXPECT_TRUE(config.declare);
    EXPECT_EQ(config.exchange_type, "x-consistent-hash");
    EXPECT_EQ(config.heartbeat.count(), 30);
}

TEST(RabbitmqConfig, RefusesWhatItCannotMean) {
    EXPECT_NE(refusal_of("amqp:///").find("names no host"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h:0/").find("from 1 to 65535"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h:99999/").find("from 1 to 65535"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h/?exchnge=x").find("no option 'exchnge'"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h/?declare=yes").find("true or false"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h/?declare=true").find("exchange=NAME"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h/?heartbeat_s=0").find("1 to 3600"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h/?exchange_type=topik").find("topic, direct"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://h/?ca_file=/x").find("amqps://"), std::string::npos);
    EXPECT_NE(refusal_of("amqps://h/?cert_file=/x").find("need each other"), std::string::npos);
    EXPECT_NE(refusal_of("amqp://u:p@h/?password_file=/x").find("leave one of them out"),
              std::string::npos);
}

TEST(RabbitmqConfig, OfAQueueTakesItsNameAndWhatIsAboutTheConnection) {
    const auto config = make_queue_config("amqps://u@h/v?queue=orders&verify=false");
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->queue, "orders");
    EXPECT_EQ(config->vhost, "v");
    const auto refusal = [](const char* url) { return make_queue_config(url).error().message; };
    EXPECT_NE(refusal("amqp://h/").find("names no queue"), std::string::npos);
    EXPECT_NE(refusal("amqp://h/?queue=q&exchange=e").find("no option 'exchange'"),
              std::string::npos);
    EXPECT_NE(refusal_of("amqp://h/?queue=q").find("no option 'queue'"), std::string::npos);
}

TEST(RabbitmqConfig, SaysHowOpenTheWayIs) {
    EXPECT_EQ(transport_weakness(config_of("amqp://127.0.0.1,localhost/")), "");
    EXPECT_NE(transport_weakness(config_of("amqp://localhost,broker.example/")).find("in clear"),
              std::string::npos);
    EXPECT_EQ(transport_weakness(config_of("amqps://broker.example/")), "");
    EXPECT_NE(
        transport_weakness(config_of("amqps://broker.example/?verify=false")).find("without proof"),
        std::string::npos);
}

TEST(RabbitmqErrors, TellALoginFromAMissingRight) {
    EXPECT_EQ(to_error({"403", "ACCESS_REFUSED", Doing::kLogin}, "x").code, ErrorCode::kAuthFailed);
    EXPECT_EQ(to_error({"403", "ACCESS_REFUSED", Doing::kPublish}, "x").code, ErrorCode::kNoRights);
    EXPECT_EQ(to_error({"whatever", "?", Doing::kPublish}, "x").code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(to_error({"whatever", "?", Doing::kPublish}, "x").advice, Advice::kRetryDestination);
}

TEST(RabbitmqErrors, FindTheGuiltyMessage) {
    const std::string before = "ACCESS_REFUSED - access to topic '";
    const auto refuses = [&](const std::string& told, const std::string& key) {
        return refuses_routing_key({"403", before + told}, key);
    };
    const std::string whole =
        "a' in exchange 'b' in exchange 'e' in vhost '/' refused for user 'u'";
    EXPECT_TRUE(refuses(whole, "a' in exchange 'b"));
    EXPECT_FALSE(refuses(whole, "a"));
    EXPECT_FALSE(refuses_routing_key({"403", "ACCESS_REFUSED - access to exchange 'e'"}, "e"));
    // As the broker cuts a reply.
    const auto cut = [&](const std::string& key) {
        return (key + "' in exchange 'e' in vhost '/'").substr(0, 252 - before.size()) + "...";
    };
    for (const std::size_t size : {150U, 205U, 218U, 255U}) {
        const std::string key(size, 'k');
        EXPECT_TRUE(refuses(cut(key), key)) << size;
        EXPECT_FALSE(refuses(cut(key), "k")) << size;
    }
    EXPECT_FALSE(refuses(cut(std::string(205, 'k')), std::string(206, 'k')));
    EXPECT_EQ(refused_size({"406",
                            "PRECONDITION_FAILED - message size 2000 is larger than configured max "
                            "size 1000"}),
              2000U);
    EXPECT_EQ(refused_size({"406", "PRECONDITION_FAILED - message size"}), 0U);
    EXPECT_EQ(refused_size({"406", "PRECONDITION_FAILED - invalid 'expiration'"}), 0U);
}

class RabbitmqMessage : public testing::Test {
  protected:
    RabbitmqMessage() {
        record_.topic = "orders";
        record_.id = "id-1";
    }
    [[nodiscard]] std::string why(std::size_t max_frame_bytes = 131'072) const {
        return why_not_carried(record_, max_frame_bytes).value_or("");
    }
    spi::Record record_;
};

TEST_F(RabbitmqMessage, GoesByTheEventsOwnRoutingKeyOrTheTopic) {
    EXPECT_EQ(routing_key_of(record_), "orders");
    record_.routing_key = "own";
    EXPECT_EQ(routing_key_of(record_), "own");
}

TEST_F(RabbitmqMessage, HasTheContentTypeOfFormatHeaderOrJson) {
    for (const char* other : {"{\"a\":", "plain", ""}) {
        record_.value = other;
        EXPECT_EQ(content_type_of(record_).data(), nullptr) << other;
    }
    record_.value = {};
    EXPECT_EQ(content_type_of(record_).data(), nullptr);
    record_.value = R"({"a": 1})";
    EXPECT_EQ(content_type_of(record_), "application/json");
    const spi::HeaderView header{"content-type", "text/plain"};
    record_.headers = {&header, 1};
    EXPECT_EQ(content_type_of(record_), "text/plain");
    record_.content_type = "application/cloudevents+json";
    EXPECT_EQ(content_type_of(record_), "application/cloudevents+json");
}

TEST_F(RabbitmqMessage, SaysWhatAmqpCannotCarry) {
    EXPECT_EQ(why(), "");
    const std::string longest(255, 'x');
    const std::string longer(256, 'x');
    record_.routing_key = longest;
    EXPECT_EQ(why(), "");
    record_.routing_key = longer;
    EXPECT_NE(why().find("routing key has 256 bytes"), std::string::npos);
    record_.routing_key = {};
    record_.event_type = longer;
    EXPECT_NE(why().find("event type has 256 bytes"), std::string::npos);
    record_.event_type = {};
    const spi::HeaderView type{"content-type", longer};
    record_.headers = {&type, 1};
    EXPECT_NE(why().find("content-type' has 256 bytes"), std::string::npos) << why();
    for (const char* name : {"CC", "BCC", "outbox-key", "outbox-null", ""}) {
        const spi::HeaderView header{name, "v"};
        record_.headers = {&header, 1};
        EXPECT_NE(why(), "") << name;
    }
    const spi::HeaderView header{longest, "v"};
    record_.headers = {&header, 1};
    EXPECT_EQ(why(), "");
    const spi::HeaderView too_long{longer, "v"};
    record_.headers = {&too_long, 1};
    EXPECT_NE(why().find("has 256 bytes"), std::string::npos);
}

TEST_F(RabbitmqMessage, FitsItsHeadersIntoOneFrame) {
    const std::string value(10'000, 'v');
    const spi::HeaderView header{"name", value};
    record_.headers = {&header, 1};
    EXPECT_EQ(why(20'000), "");
    EXPECT_NE(why(10'000).find("frame_max"), std::string::npos);
}

spi::Record to(std::string_view topic, std::string_view value = {}) {
    spi::Record record;
    record.topic = topic;
    record.value = value;
    return record;
}

// A queue that gives no confirms must not take the places of others.
TEST(RabbitmqLine, WhatIsSilentForAMomentIsJudged) {
    const Line::Time begin(std::chrono::hours(1));
    Line line;
    for (int i = 0; i < 4; ++i)
        line.push({}, Suspicion::Kind::kUnproven, begin + std::chrono::seconds(i), 1);
    std::size_t judged = 0;
    const auto count = [&](const Line::Sent&) { ++judged; };
    line.judge_before(begin, count);
    EXPECT_EQ(line.unjudged(), 4U);
    line.judge_before(begin + std::chrono::seconds(2), count);
    line.judge_before(begin + std::chrono::seconds(2), count);
    EXPECT_EQ(judged, 2U) << "each once";
    EXPECT_EQ(line.open(), 4U);
    EXPECT_EQ(line.unjudged(), 2U);
    Word word;
    word.tag = 1;
    line.settle(word, [](const Line::Sent&) {});
    word.tag = 3;
    line.settle(word, [](const Line::Sent&) {});
    EXPECT_EQ(line.open(), 2U);
    EXPECT_EQ(line.unjudged(), 1U);
    line.judge_before(begin + std::chrono::seconds(9), count);
    EXPECT_EQ(line.unjudged(), 0U);
    EXPECT_EQ(judged, 3U);
    line.clear();
    EXPECT_EQ(line.unjudged(), 0U);
}

TEST(RabbitmqErrors, KnowWhenAUserMayHaveNoMoreChannels) {
    EXPECT_TRUE(refuses_channel({"530",
                                 "NOT_ALLOWED - number of channels opened for user 'u' has "
                                 "reached the maximum allowed user limit of (1)"}));
    EXPECT_FALSE(refuses_channel({"530", "NOT_ALLOWED - vhost x not found"}));
    for (const Doing doing : {Doing::kLogin, Doing::kPublish}) {
        const auto error = to_error({"530", "NOT_ALLOWED - number of channels opened", doing}, "x");
        EXPECT_EQ(error.code, ErrorCode::kNoRights);
        EXPECT_NE(error.message.find("max-channels"), std::string::npos) << error.message;
    }
    EXPECT_FALSE(refuses_channel({"403", "number of channels"}));
}

TEST(RabbitmqSuspicion, TellsRefusedKeysFromProvenOnesAndDoubtsTheRestForAWhile) {
    using Kind = Suspicion::Kind;
    const Suspicion::Time begin(std::chrono::hours(1));
    const spi::Record good = to("good");
    const spi::Record bad = to("bad");
    Suspicion suspicion;
    suspicion.passed(good);
    EXPECT_EQ(suspicion.kind_of(good, begin), Kind::kProven);
    EXPECT_EQ(suspicion.kind_of(bad, begin), Kind::kProven);
    suspicion.refused_key("bad", true, begin);
    EXPECT_EQ(suspicion.kind_of(bad, begin), Kind::kRefused);
    EXPECT_EQ(suspicion.kind_of(good, begin), Kind::kUnproven) << "it passed before that";
    suspicion.passed(good);
    EXPECT_EQ(suspicion.kind_of(good, begin), Kind::kProven);
    suspicion.refused_key("worse", false, begin);
    EXPECT_EQ(suspicion.kind_of(good, begin), Kind::kProven);
    suspicion.refused_key("worse", true, begin);
    EXPECT_EQ(suspicion.kind_of(good, begin), Kind::kUnproven) << "nothing is proven any more";
    suspicion.passed(bad);
    EXPECT_EQ(suspicion.kind_of(bad, begin), Kind::kProven);
    const auto later = begin + Suspicion::kCareful;
    EXPECT_EQ(suspicion.kind_of(good, later), Kind::kProven);
    EXPECT_EQ(suspicion.kind_of(to("worse"), later), Kind::kRefused);
}

TEST(RabbitmqSuspicion, KnowsWhatPassedAtAnyTimeAndWasNotRefusedSince) {
    const Suspicion::Time begin(std::chrono::hours(1));
    Suspicion suspicion;
    suspicion.passed(to("good"));
    suspicion.passed(to("lost"));
    EXPECT_TRUE(suspicion.is_known(to("good"))) << "nothing was refused yet";
    EXPECT_FALSE(suspicion.is_known(to("new")));
    suspicion.refused_key("bad", true, begin);
    suspicion.refused_key("lost", true, begin);
    EXPECT_EQ(suspicion.kind_of(to("good"), begin), Suspicion::Kind::kUnproven);
    EXPECT_TRUE(suspicion.is_known(to("good")));
    EXPECT_FALSE(suspicion.is_known(to("bad")));
    EXPECT_FALSE(suspicion.is_known(to("lost")));
    suspicion.passed(to("lost"));
    EXPECT_TRUE(suspicion.is_known(to("lost")));
    const std::string value(1'000, 'x');
    suspicion.refused_size(1'000);
    EXPECT_FALSE(suspicion.is_known(to("good", value))) << "it may be refused for its size";
}

TEST(RabbitmqSuspicion, RemembersThousandsOfKnownKeys) {
    constexpr std::size_t kKeys = 1'000;
    Suspicion suspicion;
    for (std::size_t i = 0; i < kKeys; ++i) suspicion.passed(to(std::to_string(i)));
    suspicion.refused_key("bad", true, Suspicion::Time(std::chrono::hours(1)));
    std::size_t known = 0;
    for (std::size_t i = 0; i < kKeys; ++i) {
        if (suspicion.is_known(to(std::to_string(i)))) ++known;
    }
    EXPECT_GT(known, kKeys * 9 / 10);
}

// Any number of routing keys may be refused, one channel for each.
TEST(RabbitmqRow, WhatIsKnownGoesBeforeStrangersEachInItsOrder) {
    Row row;
    EXPECT_TRUE(row.empty());
    const std::vector<bool> is_known = {false, true, false, true};
    for (std::size_t i = 0; i < is_known.size(); ++i) {
        net::Item item;
        item.record.token = i;
        row.push(item, is_known[i]);
    }
    std::vector<std::uint64_t> order;
    while (!row.empty()) order.push_back(row.pop().record.token);
    EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 3, 0, 2}));
}

// Where more routing keys are in use than are remembered, those that are known never end.
TEST(RabbitmqRow, StrangersHaveATurnNowAndThen) {
    Row row;
    constexpr std::size_t kMany = 100;
    net::Item stranger;
    stranger.record.token = kMany;
    row.push(stranger, false);
    for (std::size_t i = 0; i < kMany; ++i) row.push({}, true);
    std::size_t before = 0;
    while (row.pop().record.token != kMany) ++before;
    EXPECT_GT(before, 0U);
    EXPECT_LT(before, kMany / 2);
}

// Confirms come in another order than messages go: by queue.
TEST(RabbitmqLine, WhatWasSentBeforeAMessageThatIsConfirmedIsJudged) {
    Line line;
    for (int i = 0; i < 5; ++i) line.push({}, Suspicion::Kind::kUnproven, {}, 1);
    std::size_t judged = 0;
    const auto count = [&](const Line::Sent&) { ++judged; };
    Word word;
    for (const std::uint64_t tag : {3, 3, 2}) {
        word.tag = tag;
        line.settle(word, [](const Line::Sent&) {});
        line.judge_before(word.tag, count);
        EXPECT_EQ(judged, 2U);
    }
    EXPECT_EQ(line.open(), 3U);
    EXPECT_EQ(line.unjudged(), 2U) << "the fourth and the fifth";
    word.tag = 5;
    line.settle(word, [](const Line::Sent&) {});
    line.judge_before(word.tag, count);
    EXPECT_EQ(judged, 3U);
    EXPECT_EQ(line.unjudged(), 0U);
    EXPECT_EQ(line.open(), 2U);
}

// What goes over so many channels, each message judged once no more may be sent: so many of each
// kind wait, and a refused one closes its channel.
struct Sending {
    std::string kinds;                 // in the order of sending: p, u, r
    std::size_t beside_others = 0;     // refused ones, while another kind was under way there
    std::map<char, std::size_t> last;  // how many were sent before the last of a kind
};

Sending send_all(std::size_t channels, std::size_t proven, std::size_t unproven,
                 std::size_t refused) {
    using Kind = Suspicion::Kind;
    Ways ways;
    ways.begin(channels);
    const std::array<std::size_t, Ways::kMost> counts = {proven, unproven, refused};
    for (const Kind kind : Ways::kKinds) {
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(kind)]; ++i) {
            ways.wait({}, kind, /*known=*/false);
        }
    }
    Sending sending;
    const Line::Time now(std::chrono::hours(1));
    for (std::uint64_t serial = 1; ways.any_waits();) {
        if (!ways.any_may_go() && ways.open() == 0) return {"nobody may go", 0, {}};
        for (const Kind kind : Ways::kKinds) {
            while (ways.waits(kind) && ways.has_room(kind)) {
                ways.channel(ways.number_of(kind)).line.for_each_open([&](const Line::Sent& sent) {
                    if (sent.kind != kind) ++sending.beside_others;
                    return true;
                });
                ways.push(ways.pop(kind), kind, now, serial++);
                sending.kinds += "pur"[static_cast<std::size_t>(kind)];
                sending.last[sending.kinds.back()] = sending.kinds.size();
            }
        }
        for (Ways::Channel& channel : ways.channels()) {
            bool closes = false;
            channel.line.for_each_open([&](Line::Sent& sent) {
                closes = closes || sent.kind == Kind::kRefused;
                ways.judged(sent.kind);
                channel.line.give_up(sent);
                return true;
            });
            if (closes) ways.closed(channel, Kind::kRefused);
        }
    }
    return sending;
}

TEST(RabbitmqWays, KindsThatShareAChannelTakeTurnsAndAreNeverBesideEachOther) {
    for (const std::size_t channels : {1, 2, 3}) {
        const Sending sent = send_all(channels, 500, 100, 50);
        EXPECT_EQ(sent.kinds.size(), 650U) << channels << sent.kinds;
        EXPECT_EQ(sent.beside_others, 0U) << channels;
        EXPECT_LT(sent.last.at('p'), 560U) << "it waited for many: " << sent.kinds;
    }
    EXPECT_EQ(send_all(1, 500, 100, 50).kinds.substr(0, 155),
              std::string(128, 'p') + std::string(16, 'u') + "r" + std::string(10, 'p'));
}

TEST(RabbitmqWays, AKindWithAChannelToItselfGoesWhateverTheOthersDo) {
    Ways ways;
    ways.begin(2);
    using Kind = Suspicion::Kind;
    ways.push({}, Kind::kRefused, {}, 1);
    EXPECT_FALSE(ways.has_room(Kind::kRefused));
    EXPECT_FALSE(ways.has_room(Kind::kUnproven));
    EXPECT_TRUE(ways.has_room(Kind::kProven));
    ways.set_count(3);
    EXPECT_TRUE(ways.has_room(Kind::kRefused));
    EXPECT_FALSE(ways.has_room(Kind::kUnproven)) << "the refused one is under way there";
}

TEST(RabbitmqSuspicion, RemembersSoManyRefusedKeys) {
    Suspicion suspicion;
    const Suspicion::Time begin(std::chrono::hours(1));
    for (std::size_t i = 0; i <= Suspicion::kMostRefused; ++i) {
        suspicion.refused_key(std::to_string(i), false, begin);
    }
    EXPECT_EQ(suspicion.kind_of(to("0"), begin), Suspicion::Kind::kUnproven);
    EXPECT_EQ(suspicion.kind_of(to("1"), begin), Suspicion::Kind::kRefused);
}

TEST(RabbitmqSuspicion, AMessageAsLargeAsARefusedOneGoesApartUntilOnePasses) {
    using Kind = Suspicion::Kind;
    const Suspicion::Time begin(std::chrono::hours(1));
    const std::string value(1'000, 'x');
    const spi::Record large = to("t", value);
    const spi::Record small = to("t", std::string_view(value).substr(1));
    Suspicion suspicion;
    suspicion.refused_size(1'000);
    suspicion.refused_size(2'000);
    EXPECT_EQ(suspicion.kind_of(large, begin), Kind::kRefused);
    EXPECT_EQ(suspicion.kind_of(small, begin), Kind::kProven);
    suspicion.passed(large);
    EXPECT_EQ(suspicion.kind_of(large, begin), Kind::kProven);
}

}  // namespace
}  // namespace outbox::rabbitmq
