#include "core/routing.h"

#include <algorithm>
#include <cctype>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <string>

namespace outbox::core {
namespace {

spi::EventView order_created() {
    spi::EventView event;
    event.aggregate_type = "Order";
    event.event_type = "OrderCreated";
    event.tenant_id = "acme";
    return event;
}

std::string topic_of(std::string_view topic_template, const spi::EventView& event,
                     std::vector<std::string> allowed = {}) {
    auto rule = TopicRule::make(topic_template, std::move(allowed), "fallback");
    if (!rule.ok()) return "make: " + rule.error().message;
    spi::EventBatch batch;
    std::string topic;
    // Twice: the second answer comes from what the first one left.
    for (int i = 0; i < 2; ++i) {
        const auto made = rule->topic(event, batch);
        topic = made.ok() ? std::string(*made) : "error: " + made.error().message;
    }
    return topic;
}

TEST(Predicate, TakesEventsWithoutATenantWhereItNamesTheirs) {
    Predicate acme;
    acme.tenants = {"acme"};
    Predicate its = acme;
    its.set_default_tenant("acme");
    Predicate others = acme;
    others.set_default_tenant("default");
    const spi::EventView none;
    EXPECT_TRUE(its.matches(none));
    EXPECT_FALSE(others.matches(none));
    // What was passed over under another meaning is looked at again.
    EXPECT_NE(its.fingerprint(), others.fingerprint());
    EXPECT_EQ(others.fingerprint(), acme.fingerprint());
    its.set_default_tenant("default");
    EXPECT_EQ(its.fingerprint(), others.fingerprint());
    Predicate all;
    all.set_default_tenant("acme");
    EXPECT_TRUE(all.tenants.empty());
}

TEST(TopicRule, FillsTheTemplate) {
    const spi::EventView event = order_created();
    EXPECT_EQ(topic_of("{aggregate_type|lower}-events", event), "order-events");
    EXPECT_EQ(topic_of("{aggregate_type}.{event_type}", event), "Order.OrderCreated");
    EXPECT_EQ(topic_of("{aggregate_type}_events", event), "Order_events");
    EXPECT_EQ(topic_of("{tenant_id}.x", event), "acme.x");
    EXPECT_EQ(topic_of("plain", event), "plain");
}

TEST(TopicRule, FieldsWhoseValuesReadTheSameTogetherMakeTopicsOfTheirOwn) {
    auto rule = TopicRule::make("{aggregate_type}.{event_type}", {}, "fallback").value_or_throw();
    spi::EventBatch batch;
    spi::EventView event;
    for (const auto& [aggregate, type] : {std::pair{"ab", "c"}, {"a", "bc"}, {"ab", "c"}}) {
        event.aggregate_type = aggregate;
        event.event_type = type;
        EXPECT_EQ(rule.topic(event, batch).value_or_throw(), std::string(aggregate) + "." + type);
    }
}

TEST(TopicRule, AKeyMakesATopicForEachOfItsValues) {
    spi::EventView event = order_created();
    event.key = "k-1";
    EXPECT_EQ(topic_of("orders.{key}", event), "orders.k-1");
    event.key = {};
    event.aggregate_id = "a-1";
    EXPECT_EQ(topic_of("orders.{key}", event), "orders.a-1");
    auto rule = TopicRule::make("{key}", {}, "fallback").value_or_throw();
    spi::EventBatch batch;
    for (const char* key : {"a", "b", "a"}) {
        event.key = key;
        EXPECT_EQ(rule.topic(event, batch).value_or_throw(), key);
    }
}

TEST(TopicRule, TheEventsOwnTopicWins) {
    spi::EventView event = order_created();
    event.topic = "mine";
    EXPECT_EQ(topic_of("{aggregate_type|lower}-events", event), "mine");
}

TEST(TopicRule, KeepsFewBytesWhateverTheEventsHold) {
    auto rule = TopicRule::make("{aggregate_type|lower}-events", {}, "fallback").value_or_throw();
    spi::EventBatch batch;
    spi::EventView event = order_created();
    for (int i = 0; i < 300; ++i) {
        // Not in the template, so that it makes no difference to the topic.
        const std::string type = std::to_string(i) + std::string(100'000, 'x');
        event.event_type = type;
        EXPECT_EQ(rule.topic(event, batch).value_or_throw(), "order-events");
    }
    EXPECT_LT(rule.kept_bytes(), 100U);
    for (int i = 0; i < 10'000; ++i) {
        const std::string type = "t" + std::to_string(i) + std::string(150, 'x');
        event.aggregate_type = type;
        EXPECT_EQ(rule.topic(event, batch).value_or_throw(), type + "-events");
    }
    EXPECT_LT(rule.kept_bytes(), 300'000U);
}

TEST(TopicRule, AMissingFieldMeansTheFallback) {
    spi::EventView event = order_created();
    event.aggregate_type = {};
    EXPECT_EQ(topic_of("{aggregate_type|lower}-events", event), "fallback");
    EXPECT_EQ(topic_of("{routing_key}", event), "fallback");
}

TEST(TopicRule, KeepsTheAllowList) {
    spi::EventView event = order_created();
    EXPECT_EQ(topic_of("{aggregate_type|lower}-events", event, {"order-*"}), "order-events");
    EXPECT_NE(topic_of("{event_type}", event, {"order-*", "x"}).find("allowed"), std::string::npos);
    event.topic = "order-";
    EXPECT_EQ(topic_of("", event, {"order-*"}), "order-");
    event.topic = "orders";
    EXPECT_NE(topic_of("", event, {"order-*"}), "orders");
}

TEST(TopicRule, RefusesAMalformedTemplate) {
    for (const char* bad : {"{", "}", "a}b", "{aggregate_type", "{nothing}", "{event_type|upper}",
                            "{}", "{{aggregate_type}}"}) {
        const auto rule = TopicRule::make(bad, {}, "fallback");
        ASSERT_FALSE(rule.ok()) << bad;
        EXPECT_EQ(rule.error().code, ErrorCode::kConfigInvalid);
        EXPECT_NE(rule.error().message.find(bad), std::string::npos);
    }
}

TEST(TopicRule, RefusesATemplateWhoseOwnTextNoTopicCanHave) {
    const auto no_star = [](std::string_view topic) -> Status {
        if (topic.find('*') == std::string_view::npos) return {};
        return {ErrorCode::kTopicInvalid, Advice::kDeadLetter, "a star"};
    };
    const std::string too_long(kMaxTopicBytes, 'a');
    for (const std::string& bad : {std::string("orders.*"), std::string("{key}.*"),
                                   std::string("all orders"), too_long + "{key}"}) {
        const auto rule = TopicRule::make(bad, {}, "fallback", no_star);
        ASSERT_FALSE(rule.ok()) << bad;
        EXPECT_EQ(rule.error().code, ErrorCode::kConfigInvalid);
        EXPECT_EQ(rule.error().advice, Advice::kStop);
    }
    EXPECT_NE(TopicRule::make("{key}.*", {}, "", no_star).error().message.find("'x.*': a star"),
              std::string::npos);
    // What the list allows is asked of each event.
    EXPECT_TRUE(TopicRule::make("orders.{key}", {"orders.eu"}, "fallback", no_star).ok());
}

TEST(TopicRule, ATopicThatCannotBeIsADeadLetter) {
    spi::EventView event = order_created();
    event.aggregate_type = "Bestellung ü";
    auto rule = *TopicRule::make("{aggregate_type|lower}-events", {}, "fallback");
    spi::EventBatch batch;
    const auto topic = rule.topic(event, batch);
    ASSERT_FALSE(topic.ok());
    EXPECT_EQ(topic.error().advice, Advice::kDeadLetter);
}

TEST(TopicRule, TheDestinationsSyntaxCounts) {
    const auto no_slash = [](std::string_view topic) -> Status {
        if (topic.find('/') == std::string_view::npos) return {};
        return {ErrorCode::kTopicInvalid, Advice::kDeadLetter, "a slash"};
    };
    spi::EventView event = order_created();
    event.topic = "a/b";
    spi::EventBatch batch;
    EXPECT_EQ(TopicRule::make("", {}, "fallback")->topic(event, batch).value_or_throw(), "a/b");
    const auto refused = TopicRule::make("", {}, "fallback", no_slash)->topic(event, batch);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "a slash");
}

TEST(TopicRule, WhereATopicNamesNoPlaceTheListAloneCounts) {
    const auto rule = [](std::string_view text, std::vector<std::string> allowed = {}) {
        return TopicRule::make(text, std::move(allowed), "fallback", nullptr, nullptr, true);
    };
    spi::EventView event = order_created();
    spi::EventBatch batch;
    const std::string long_type(kMaxTopicBytes + 1, 'x');
    for (const std::string& type : {std::string("order placed"), long_type}) {
        event.event_type = type;
        EXPECT_EQ(rule("{event_type}")->topic(event, batch).value_or_throw(), type);
    }
    EXPECT_TRUE(rule("a topic of {event_type}").ok());
    event.event_type = "another one";
    const auto refused = rule("{event_type}", {"order*"})->topic(event, batch);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kTopicInvalid);
    event.event_type = "order placed";
    EXPECT_TRUE(rule("{event_type}", {"order*"})->topic(event, batch).ok());
}

TEST(TopicRule, TheDestinationWritesFieldsNotTheTemplatesText) {
    const auto token = [](std::string_view value) {
        std::string out(value);
        std::replace(out.begin(), out.end(), '.', '_');
        return out;
    };
    spi::EventView event;
    event.aggregate_type = "A.B";
    event.event_type = "c.d";
    spi::EventBatch batch;
    auto rule =
        *TopicRule::make("x.{aggregate_type|lower}.{event_type}", {}, "fallback", nullptr, token);
    EXPECT_EQ(rule.topic(event, batch).value_or_throw(), "x.a_b.c_d");
    event.topic = "own.topic";
    EXPECT_EQ(rule.topic(event, batch).value_or_throw(), "own.topic");
}

RC_GTEST_PROP(TopicName, IsValidExactlyWhenEveryByteAndTheLengthAre, ()) {
    const auto text = *rc::gen::container<std::string>(rc::gen::oneOf(
        rc::gen::elementOf(std::string("abzAZ09._-/#:")), rc::gen::arbitrary<char>()));
    bool valid = !text.empty() && text.size() <= kMaxTopicBytes;
    for (const unsigned char c : text) valid = valid && c > 0x20 && c != 0x7f;
    RC_ASSERT(check_topic_name(text).ok() == valid);
}

TEST(TopicName, HasItsLimitAt249) {
    EXPECT_TRUE(check_topic_name(std::string(249, 'a')).ok());
    EXPECT_FALSE(check_topic_name(std::string(250, 'a')).ok());
}

TEST(Predicate, TakesAnEventThatEveryListHolds) {
    const spi::EventView event = order_created();
    EXPECT_TRUE(Predicate{}.matches(event));
    EXPECT_TRUE((Predicate{{"Order", "User"}, {"OrderCreated"}, {}, {"acme"}}).matches(event));
    EXPECT_FALSE((Predicate{{"Order"}, {"OrderPaid"}, {}, {}}).matches(event));
    EXPECT_FALSE((Predicate{{}, {}, {"some-topic"}, {}}).matches(event));
    EXPECT_FALSE((Predicate{{}, {}, {}, {"other"}}).matches(event));
}

}  // namespace
}  // namespace outbox::core
