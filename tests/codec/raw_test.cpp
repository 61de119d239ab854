#include "codec/raw.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace outbox::codec {
namespace {

spi::EventView order_created() {
    spi::EventView event;
    event.position = 7;
    event.id = "0190-id";
    event.aggregate_type = "Order";
    event.aggregate_id = "o-1";
    event.event_type = "OrderCreated";
    event.payload = R"({"total": 99.99})";
    event.tenant_id = "default";
    event.occurred_at_us = 1'700'000'000'000'042;
    return event;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs headers_of(const spi::Record& record) {
    Pairs pairs;
    for (const auto& [name, value] : record.headers) pairs.emplace_back(name, value);
    return pairs;
}

TEST(RawEncoder, PutsPayloadAndKeyAsTheyAreAndTheRestIntoHeaders) {
    RawEncoder encoder;
    spi::EventBatch arena;
    const auto event = order_created();
    const auto record = encoder.encode(event, "order-events", arena);
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->topic, "order-events");
    EXPECT_EQ(record->key, "o-1");
    EXPECT_EQ(record->value.data(), event.payload.data());
    EXPECT_EQ(record->position, 7);
    EXPECT_EQ(record->id, "0190-id");
    EXPECT_EQ(headers_of(*record), (Pairs{{"id", "0190-id"},
                                          {"type", "OrderCreated"},
                                          {"aggregate_type", "Order"},
                                          {"occurred_at", "2023-11-14T22:13:20.000042Z"},
                                          {"tenant_id", "default"}}));
}

TEST(RawEncoder, KeepsWhatTheEventSaysOfItselfForDestinationsWithAPlaceForIt) {
    RawEncoder encoder;
    spi::EventBatch arena;
    auto event = order_created();
    event.routing_key = "eu.orders";
    const auto record = encoder.encode(event, "t", arena);
    EXPECT_EQ(record->event_type, "OrderCreated");
    EXPECT_EQ(record->aggregate_type, "Order");
    EXPECT_EQ(record->aggregate_id, "o-1");
    EXPECT_EQ(record->tenant_id, "default");
    EXPECT_EQ(record->routing_key, "eu.orders");
    EXPECT_EQ(record->occurred_at_us, 1'700'000'000'000'042);
    event.routing_key = {};
    EXPECT_EQ(encoder.encode(event, "t", arena)->routing_key.data(), nullptr);
}

TEST(RawEncoder, PrefersTheExplicitKeyAndKeepsNullsNull) {
    RawEncoder encoder;
    spi::EventBatch arena;
    auto event = order_created();
    event.key = "customer-9";
    event.payload = {};
    EXPECT_EQ(encoder.encode(event, "t", arena)->key, "customer-9");
    EXPECT_EQ(encoder.encode(event, "t", arena)->value.data(), nullptr);
    event.key = {};
    event.aggregate_id = {};
    EXPECT_EQ(encoder.encode(event, "t", arena)->key.data(), nullptr);
}

// The relay keeps no order for it, so no destination may take it for a key.
TEST(RawEncoder, AnEmptyKeyIsNone) {
    RawEncoder encoder;
    spi::EventBatch arena;
    auto event = order_created();
    event.key = "";
    EXPECT_EQ(encoder.encode(event, "t", arena)->key, "o-1");
    event.aggregate_id = "";
    EXPECT_EQ(encoder.encode(event, "t", arena)->key.data(), nullptr);
}

TEST(RawEncoder, FormatsTimesBeforeTheEpochAndAcrossSeconds) {
    RawEncoder encoder;
    spi::EventBatch arena;
    auto event = order_created();
    const std::map<std::int64_t, std::string> expected = {
        {-62'167'219'200'000'000, "0000-01-01T00:00:00.000000Z"},
        {253'402'300'799'999'999, "9999-12-31T23:59:59.999999Z"},
        {-1, "1969-12-31T23:59:59.999999Z"},
        {1, "1970-01-01T00:00:00.000001Z"},
        {1'709'164'799'999'999, "2024-02-28T23:59:59.999999Z"},
        {1'709'164'800'000'000, "2024-02-29T00:00:00.000000Z"}};
    for (const auto& [time_us, text] : expected) {
        event.occurred_at_us = time_us;
        EXPECT_EQ(headers_of(*encoder.encode(event, "t", arena))[3].second, text);
    }
}

// A consumer would take 1970 for an event from before its memory.
TEST(RawEncoder, GivesAnEventWithoutATimeThatCanBeSaidNone) {
    RawEncoder encoder;
    spi::EventBatch arena;
    auto event = order_created();
    event.headers = R"({"occurred_at": "forged"})";
    const std::int64_t year_200000 = 6'249'223'180'800'000'000;
    for (const std::int64_t time_us : {std::int64_t{0}, year_200000, -year_200000}) {
        event.occurred_at_us = time_us;
        for (const auto& [name, value] : headers_of(*encoder.encode(event, "t", arena))) {
            EXPECT_NE(name, "occurred_at") << value;
        }
    }
}

TEST(RawEncoder, AddsMetadataThenHeadersAndLetsNeitherOverrideWhatCameBefore) {
    RawEncoder encoder;
    spi::EventBatch arena;
    auto event = order_created();
    event.metadata = R"({"region":"eu","id":"forged","shard":3})";
    event.headers = R"({"traceparent":"00-ab-cd-01","region":"us","type":"forged",
                        "schema_id":"forged","retry":true,"list":[1,2],"text":"a\"b\u00e9"})";
    const auto record = encoder.encode(event, "t", arena);
    ASSERT_TRUE(record.ok());
    const auto pairs = headers_of(*record);
    const std::map<std::string, std::string> found(pairs.begin(), pairs.end());
    EXPECT_EQ(found.size(), pairs.size()) << "a name came twice";
    EXPECT_EQ(found.at("id"), "0190-id");
    EXPECT_EQ(found.at("type"), "OrderCreated");
    EXPECT_FALSE(found.contains("schema_id"));
    EXPECT_EQ(found.at("region"), "eu");
    EXPECT_EQ(found.at("shard"), "3");
    EXPECT_EQ(found.at("traceparent"), "00-ab-cd-01");
    EXPECT_EQ(found.at("retry"), "true");
    EXPECT_EQ(found.at("list"), "[1,2]");
    EXPECT_EQ(found.at("text"), "a\"b\xC3\xA9");
}

TEST(RawEncoder, KeepsEarlierRecordsIntactWhenMoreAreEncodedAndTheArenaMoves) {
    RawEncoder encoder;
    spi::EventBatch arena;
    auto event = order_created();
    event.headers = R"({"n":"first"})";
    const auto first = encoder.encode(event, "t", arena);
    const auto before = headers_of(*first);
    event.headers = R"({"n":"second"})";
    event.occurred_at_us += 1;
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(encoder.encode(event, "t", arena).ok());
    const spi::EventBatch moved = std::move(arena);
    EXPECT_EQ(headers_of(*first), before);
}

TEST(RawEncoder, NumbersAmongHeadersAreAsTheyAreWritten) {
    spi::EventView event = order_created();
    RawEncoder encoder;
    for (const auto& [json, text] :
         {std::pair{R"({"n": 123456789012345678901234567890, "s": "\u00e9"})",
                    "123456789012345678901234567890"},
          std::pair{R"({"n": 1, "s": "\u00e9", "n": 1e400})", "1e400"},
          std::pair{R"({"s": "\u00e9", "n": -0})", "-0"},
          std::pair{R"({"s": "\u00e9", "n": 1.50})", "1.50"},
          std::pair{R"({"s": "\u00e9", "n": 18446744073709551615})", "18446744073709551615"}}) {
        spi::EventBatch arena;
        event.headers = json;
        const auto record = encoder.encode(event, "t", arena);
        ASSERT_TRUE(record.ok()) << record.error().message;
        const auto headers = record->headers.last(2);
        EXPECT_EQ(headers[0].name, "n");
        EXPECT_EQ(headers[0].value, text);
        EXPECT_EQ(headers[1].value, "\u00e9");
    }
    spi::EventBatch arena;
    event.headers = R"({"n": 1e400, "s": "\ud800"})";
    EXPECT_FALSE(encoder.encode(event, "t", arena).ok());
}

TEST(RawEncoder, ObjectsAndListsAmongHeadersAreAsTheyAreWritten) {
    spi::EventView event = order_created();
    RawEncoder encoder;
    const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
    for (const std::string& value :
         {std::string(R"({"z": 1.50, "a": null, "a": 2})"), std::string("[ 1e400,null ]"),
          std::string(R"({"n": 123456789012345678901234567890})"), std::string("{}"),
          std::string(R"(["\u00e9"])"), deep}) {
        spi::EventBatch arena;
        const std::string headers = R"({"n": )" + value + "}";
        event.headers = headers;
        const auto record = encoder.encode(event, "t", arena);
        ASSERT_TRUE(record.ok()) << record.error().message;
        EXPECT_EQ(record->headers.back().name, "n");
        EXPECT_EQ(record->headers.back().value, value);
    }
}

// As it is a CloudEvent's, whose attributes have no null, and a column's.
TEST(RawEncoder, AHeaderThatIsNullIsNotThere) {
    spi::EventView event = order_created();
    RawEncoder encoder;
    spi::EventBatch arena;
    const std::size_t count = encoder.encode(event, "t", arena)->headers.size();
    event.metadata = R"({"gone": null})";
    event.headers = R"({"none": 1, "none": null, "text": "null"})";
    const auto record = encoder.encode(event, "t", arena);
    ASSERT_TRUE(record.ok());
    ASSERT_EQ(record->headers.size(), count + 1);
    EXPECT_EQ(record->headers.back().name, "text");
    EXPECT_EQ(record->headers.back().value, "null");
}

TEST(RawEncoder, RefusesHeadersThatAreNotAJsonObject) {
    RawEncoder encoder;
    spi::EventBatch arena;
    for (const std::string& bad :
         {std::string(), std::string("{"), std::string("[1]"), std::string("\"x\""),
          std::string("{\"a\":\"\xff\"}"), std::string(R"({"a":"\ud800"})"),
          std::string(R"({"\ud800":"a"})"), "{\"a\":\"" + std::string(1 << 20, 'x') + "\"}"}) {
        auto event = order_created();
        event.headers = bad;
        const auto record = encoder.encode(event, "t", arena);
        ASSERT_FALSE(record.ok()) << bad.substr(0, 20);
        EXPECT_EQ(record.error().code, ErrorCode::kInvalidEvent);
        EXPECT_EQ(record.error().advice, Advice::kDeadLetter);
        EXPECT_NE(record.error().message.find("0190-id"), std::string::npos);
    }
}

}  // namespace
}  // namespace outbox::codec
