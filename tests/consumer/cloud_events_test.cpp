#include "consumer/cloud_events.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "consumer/message_time.h"
#include "consumer/queue/link.h"

namespace outbox::consumer {
namespace {

using nlohmann::json;

HeaderList attributes(const std::string& prefix) {
    return {{prefix + "specversion", "1.0"},
            {prefix + "id", "e-1"},
            {prefix + "source", "/outbox/events"},
            {prefix + "type", "Placed"},
            {prefix + "time", "2026-01-31T23:59:59.123456Z"},
            {prefix + "aggregatetype", "Order"},
            {prefix + "tenantid", "t-1"},
            {prefix + "schemaid", "orders-value"},
            {prefix + "schemaversion", "3"},
            {prefix + "region", "eu"}};
}

const HeaderList kStructured{{"content-type", "application/cloudevents+json; charset=UTF-8"}};

std::string envelope(const std::string& members) {
    return R"({"specversion":"1.0","id":"e-1","source":"/s","type":"Placed")" + members + "}";
}

MessageReading automatic(const HeaderList& headers, std::string_view payload = "{}",
                         std::string_view known_id = {}) {
    return read_message(MessageFormat::kAuto, known_id, headers, payload);
}

TEST(ReadMessage, BinaryModeOfEachBindingGivesIdAndHeadersAsFormatRawHasThem) {
    for (const char* prefix : {"ce_", "ce-", "cloudEvents_", "cloudEvents:", "Ce-"}) {
        HeaderList headers = attributes(prefix);
        headers.emplace_back("x-request-id", "r-1");
        headers.emplace_back("content-type", "application/json");
        const MessageReading read = automatic(headers);
        ASSERT_TRUE(read.event) << prefix;
        EXPECT_EQ(read.event->id, "e-1");
        EXPECT_FALSE(read.event->in_value);
        EXPECT_EQ(json::parse(read.event->headers),
                  (json{{"type", "Placed"},
                        {"occurred_at", "2026-01-31T23:59:59.123456Z"},
                        {"aggregate_type", "Order"},
                        {"tenant_id", "t-1"},
                        {"schema_id", "orders-value"},
                        {"schema_version", "3"},
                        {"region", "eu"},
                        {"source", "/outbox/events"},
                        {"specversion", "1.0"},
                        {"x-request-id", "r-1"},
                        {"content-type", "application/json"}}));
    }
}

TEST(ReadMessage, StructuredModeGivesThePayloadByteForByte) {
    const auto payload = [](const std::string& members) {
        const MessageReading read = automatic(kStructured, envelope(members));
        EXPECT_TRUE(read.event) << read.fault;
        EXPECT_TRUE(read.event->in_value);
        return read.event->payload;
    };
    EXPECT_EQ(payload(R"(,"data":{"total": 99.990,"big":12345678901234567890})"),
              R"({"total": 99.990,"big":12345678901234567890})");
    EXPECT_EQ(payload(R"(,"datacontenttype":"application/vnd.x+JSON","data":"a")"), R"("a")");
    EXPECT_EQ(payload(R"(,"datacontenttype":"text/plain; charset=utf-8","data":"a\n\"b\"")"),
              "a\n\"b\"");
    EXPECT_EQ(payload(R"(,"datacontenttype":"application/octet-stream","data_base64":"//79")"),
              "\xff\xfe\xfd");
    EXPECT_EQ(payload(R"(,"data":null)"), "null");
    EXPECT_EQ(payload(""), std::nullopt);
    EXPECT_EQ(payload(R"(,"datacontenttype":null,"data":1)"), "1");
}

TEST(ReadMessage, StructuredModeGivesTheSameHeadersAsBinaryMode) {
    const MessageReading read = automatic(
        {{"Content-Type", "Application/CloudEvents+JSON"}, {"x-request-id", "r-1"}},
        envelope(R"(,"time":"2026-01-31T23:59:59.123456Z","tenantid":"t-1","count":5,"flag":true,)"
                 R"("datacontenttype":"application/json","data":{},"traceparent":"00-ab-cd-01")"));
    ASSERT_TRUE(read.event) << read.fault;
    EXPECT_EQ(read.event->id, "e-1");
    const json headers = json::parse(read.event->headers);
    EXPECT_EQ(headers.at("occurred_at"), "2026-01-31T23:59:59.123456Z");
    EXPECT_EQ(headers.at("tenant_id"), "t-1");
    EXPECT_EQ(headers.at("content-type"), "application/json");
    EXPECT_EQ(headers.at("count"), "5");
    EXPECT_EQ(headers.at("flag"), "true");
    EXPECT_EQ(headers.at("traceparent"), "00-ab-cd-01");
    EXPECT_EQ(headers.at("x-request-id"), "r-1");
    EXPECT_FALSE(headers.contains("Content-Type"));
}

// A record of format raw may carry a CloudEvent of somebody else, or what looks like one.
TEST(ReadMessage, AMemberWhoseNameIsNoAttributesIsNotThere) {
    const auto read = automatic(
        kStructured,
        envelope(R"(,"region":"eu","claim-check":"file:///x/a","Upper":"u","a_b":{},"data":1)"));
    ASSERT_TRUE(read.event) << read.fault;
    const json headers = json::parse(read.event->headers);
    EXPECT_EQ(headers.at("region"), "eu");
    EXPECT_FALSE(headers.contains("claim-check") || headers.contains("Upper")) << headers;
}

TEST(ReadMessage, AHeaderIdMakesItRawWhateverElseItHas) {
    HeaderList headers = attributes("ce_");
    headers.emplace_back("id", "the-row");
    EXPECT_FALSE(automatic(headers).event);
    HeaderList structured = kStructured;
    structured.emplace_back("id", "the-row");
    EXPECT_FALSE(automatic(structured, envelope("")).event);
    EXPECT_TRUE(automatic(structured, envelope("")).fault.empty());
    // Who knows better says so.
    const MessageReading told = read_message(MessageFormat::kCloudEvents, {}, headers, "{}");
    ASSERT_TRUE(told.event);
    EXPECT_EQ(told.event->id, "e-1");
    EXPECT_FALSE(read_message(MessageFormat::kRaw, {}, attributes("ce_"), "{}").event);
    EXPECT_FALSE(read_message(MessageFormat::kDebezium, {}, attributes("ce_"), "{}").event);
}

// Else who may write a header could have another event taken for a repeat.
TEST(ReadMessage, TheIdThatTheBrokerKnowsItByIsNotForAHeaderToChange) {
    EXPECT_TRUE(automatic(attributes("ce_"), "{}", "e-1").event);
    EXPECT_FALSE(automatic(attributes("ce_"), "{}", "another").event);
    EXPECT_FALSE(automatic(kStructured, envelope(""), "another").event);
    EXPECT_TRUE(automatic(kStructured, "not json", "another").fault.empty());
    const auto told = read_message(MessageFormat::kCloudEvents, "another", attributes("ce_"), "{}");
    ASSERT_TRUE(told.event);
    EXPECT_EQ(told.event->id, "e-1");
}

TEST(ReadMessage, WithoutAllThatACloudEventMustHaveItIsAsItIs) {
    for (const char* name : {"ce_specversion", "ce_id", "ce_source", "ce_type"}) {
        HeaderList headers = attributes("ce_");
        std::erase_if(headers, [&](const auto& header) { return header.first == name; });
        EXPECT_FALSE(automatic(headers).event) << name;
        EXPECT_TRUE(automatic(headers).fault.empty());
        headers.emplace_back(name, "");
        EXPECT_FALSE(automatic(headers).event) << name;
    }
    HeaderList old = attributes("ce_");
    old[0].second = "0.3";
    EXPECT_FALSE(automatic(old).event);
    HeaderList mixed = attributes("ce_");
    mixed[1].first = "cloudEvents_id";
    EXPECT_FALSE(automatic(mixed).event);
    EXPECT_FALSE(automatic({}).event);
    EXPECT_FALSE(automatic({{"content-type", "application/cloudevents-batch+json"}}, "[]").event);
    const auto told = read_message(MessageFormat::kCloudEvents, {}, HeaderList(), "{}");
    EXPECT_FALSE(told.event);
    EXPECT_NE(told.fault.find("kAuto"), std::string::npos);
}

TEST(ReadMessage, RefusesAnEnvelopeThatCouldBeReadInTwoWaysOrInNone) {
    const auto fault = [](const std::string& value) {
        const MessageReading read = automatic(kStructured, value);
        EXPECT_FALSE(read.event) << value;
        return read.fault;
    };
    EXPECT_NE(fault("not json").find("no JSON object"), std::string::npos);
    EXPECT_NE(fault("[]").find("no JSON object"), std::string::npos);
    EXPECT_NE(fault(envelope(R"(,"id":"e-2")")).find("twice"), std::string::npos);
    EXPECT_NE(fault(envelope(R"(,"\u0069d":"e-2")")).find("twice"), std::string::npos);
    EXPECT_NE(fault(envelope(R"(,"data":1,"data_base64":"AA==")")).find("both"), std::string::npos);
    EXPECT_NE(fault(envelope(R"(,"data_base64":"?")")).find("Base64"), std::string::npos);
    EXPECT_NE(fault(envelope(R"(,"data_base64":{})")).find("Base64"), std::string::npos);
    EXPECT_NE(fault(envelope(R"(,"datacontenttype":"text/plain","data":{})")).find("no text"),
              std::string::npos);
    EXPECT_NE(fault(envelope(R"(,"region":["eu"])")).find("attribute"), std::string::npos);
    EXPECT_NE(fault(R"({"specversion":"1.0","source":"/s","type":"t"})").find("attribute id"),
              std::string::npos);
    EXPECT_NE(fault(R"({"specversion":"0.3","id":"i","source":"/s","type":"t"})").find("0.3"),
              std::string::npos);
}

TEST(ReadMessage, UndoesThePercentEncodingAndTheQuotesOfHttpAndNats) {
    HeaderList headers = attributes("ce-");
    headers.emplace_back("ce-subject", "Euro%20%E2%82%AC%20%f0%9f%98%80");
    headers.emplace_back("ce-note", R"("a \"b\" %25")");
    const MessageReading read = automatic(headers);
    ASSERT_TRUE(read.event);
    const json out = json::parse(read.event->headers);
    EXPECT_EQ(out.at("subject"), "Euro \xE2\x82\xAC \xF0\x9F\x98\x80");
    EXPECT_EQ(out.at("note"), "a \"b\" %");
    headers.emplace_back("ce-bad", "%C0%A0");
    EXPECT_FALSE(automatic(headers).event);
    HeaderList kafka = attributes("ce_");
    kafka.emplace_back("ce_subject", "50%25");
    EXPECT_EQ(json::parse(automatic(kafka).event->headers).at("subject"), "50%25");
}

TEST(ReadMessage, AnAttributeGoesBeforeAHeaderOfItsName) {
    HeaderList headers = attributes("ce_");
    headers.emplace_back("type", "forged");
    headers.emplace_back("occurred_at", "1999-01-01T00:00:00Z");
    headers.emplace_back("cloudEvents_tenantid", "forged");
    const json out = json::parse(automatic(headers).event->headers);
    EXPECT_EQ(out.at("type"), "Placed");
    EXPECT_EQ(out.at("occurred_at"), "2026-01-31T23:59:59.123456Z");
    EXPECT_EQ(out.at("tenant_id"), "t-1");
}

Arrival arrival(const HeaderList& headers, std::string id) {
    json object = json::object();
    for (const auto& [name, value] : headers) object[name] = value;
    Arrival out;
    out.id = std::move(id);
    out.where = "message 1";
    out.payload = "{}";
    out.headers = object.dump();
    return out;
}

TEST(QueueDelivery, HasTheIdAndTheTimeOfTheEventInEachFormat) {
    const QueueDelivery binary(arrival(attributes("cloudEvents_"), "e-1"), MessageFormat::kAuto,
                               {});
    EXPECT_EQ(binary.event().id, "e-1");
    EXPECT_EQ(message_time_us(binary.event()), utc_text_us("2026-01-31T23:59:59.123456Z"));
    EXPECT_FALSE(binary.fault());
    Arrival came = arrival(kStructured, "");
    came.payload = envelope(R"(,"time":"2026-01-31T23:59:59.123456Z","data":[1])");
    came.other_id = "e-1@producer";
    const QueueDelivery structured(came, MessageFormat::kAuto, {});
    EXPECT_EQ(structured.event().id, "e-1");
    EXPECT_EQ(structured.event().payload, "[1]");
    EXPECT_EQ(message_time_us(structured.event()), utc_text_us("2026-01-31T23:59:59.123456Z"));
}

// Else ids of other producers would be kept for ever, and no floor would hold them back.
TEST(ReadMessage, ATimeOfAnyZoneIsInTheFormOfRaw) {
    const std::string utc = "2026-01-31T23:59:59.123456Z";
    for (const auto& [text, wanted] :
         {std::pair{"2026-01-31T23:59:59.123456Z", utc},
          std::pair{"2026-01-31t23:59:59.123456z", utc},
          std::pair{"2026-01-31T23:59:59.123456+00:00", utc},
          std::pair{"2026-02-01T02:29:59.1234567+02:30", utc},
          std::pair{"2026-01-31T15:59:59.123456789-08:00", utc},
          std::pair{"2026-02-01T00:00:00+00:01", std::string("2026-01-31T23:59:00.000000Z")},
          std::pair{"1969-12-31T23:59:59.5Z", std::string("1969-12-31T23:59:59.5Z")},
          std::pair{"0000-01-01T00:00:00+00:01", std::string("0000-01-01T00:00:00+00:01")},
          std::pair{"9999-12-31T23:59:59-00:01", std::string("9999-12-31T23:59:59-00:01")},
          std::pair{"2026-01-31T23:59:59", std::string("2026-01-31T23:59:59")},
          std::pair{"2026-01-31T23:59:59.Z", std::string("2026-01-31T23:59:59.Z")},
          std::pair{"2026-02-31T23:59:59+01:00", std::string("2026-02-31T23:59:59+01:00")},
          std::pair{"2026-01-31T23:59:59+24:00", std::string("2026-01-31T23:59:59+24:00")},
          std::pair{"2026-01-31T23:59:59+1:00", std::string("2026-01-31T23:59:59+1:00")},
          std::pair{"", std::string()}, std::pair{"yesterday", std::string("yesterday")}}) {
        EXPECT_EQ(in_utc_text(text), wanted) << text;
    }
    HeaderList headers = attributes("ce_");
    for (auto& [name, value] : headers) {
        if (name == "ce_time") value = "2026-02-01T00:59:59.1234567+01:00";
    }
    const auto read = read_message(MessageFormat::kAuto, {}, headers, "{}");
    ASSERT_TRUE(read.event);
    EXPECT_EQ(json::parse(read.event->headers).at("occurred_at"), utc);
}

// One hash in 16 has the version's digit, and no time: it was quarantined for the year 6758.
TEST(MessageTime, IsNotReadOutOfAnIdThatIsNoUuidOfVersion7) {
    EXPECT_EQ(uuidv7_time_us("0190163D-8694-739b-Aea5-966c26f8ad91"), 1'718'360'049'300'000);
    for (const char* id :
         {"896bd711-1348-7e2a-513c-0190163d8694", "0190163d-8694-739b-cea5-966c26f8ad91",
          "0190163d-8694-439b-aea5-966c26f8ad91", "0190163d-8694x739b-aea5-966c26f8ad91",
          "0190163d-8694-739b-aea5-966c26f8ad9g", "0190163d-8694-739b-aea5_966c26f8ad91",
          "0190163d-8694-739b-aea5-966c26f8ad9", ""}) {
        EXPECT_FALSE(uuidv7_time_us(id)) << id;
    }
}

TEST(MessageTime, HasNoSignInItsNumbers) {
    EXPECT_TRUE(utc_text_us("2026-01-31T23:59:09.5Z"));
    for (const char* text :
         {"2026-01-31T-0:59:59Z", "2026-01-31T23:59:-0Z", "2026-01-31T23:59:59.-0Z",
          "-000-01-31T23:59:59Z", "2026-01-31T+1:59:59Z", "2026-01-31T 1:59:59Z"}) {
        EXPECT_FALSE(utc_text_us(text)) << text;
    }
}

TEST(QueueDelivery, AMessageThatIsNotOfTheConsumersFormatIsGivenUpWithTheCause) {
    const QueueDelivery other(arrival({{"type", "Placed"}}, "e-1"), MessageFormat::kCloudEvents,
                              false);
    ASSERT_TRUE(other.fault());
    EXPECT_EQ(other.fault()->advice, Advice::kDeadLetter);
    EXPECT_NE(other.fault()->message.find("message 1 has no attributes"), std::string::npos);
    Arrival nameless = arrival({}, "");
    nameless.other_id = "e-1@producer";
    EXPECT_EQ(QueueDelivery(nameless, MessageFormat::kAuto, false).event().id, "e-1@producer");
}

constexpr const char* kUuidSchema =
    R"({"schema":{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1},)";

std::string with_schema(const std::string& type, const std::string& payload) {
    return R"({"schema":{"type":")" + type + R"(","optional":true},"payload":)" + payload + "}";
}

HeaderList debezium_headers() {
    return {{"id", kUuidSchema + std::string(R"("payload":"e-1"})")},
            {"eventType", with_schema("string", R"("Placed")")},
            {"count", with_schema("int32", "7")},
            {"none", with_schema("string", "null")},
            {"claim-check-size", "12"}};
}

TEST(ReadMessage, OfDebeziumIdHeadersAndPayloadAreWithoutTheirSchemas) {
    const json headers{{"eventType", "Placed"}, {"count", "7"}, {"claim-check-size", "12"}};
    for (const MessageFormat format : {MessageFormat::kAuto, MessageFormat::kDebezium}) {
        const MessageReading read = read_message(format, {}, debezium_headers(),
                                                 with_schema("string", R"("{\"a\": 1.50}")"));
        ASSERT_TRUE(read.event);
        EXPECT_EQ(read.event->id, "e-1");
        EXPECT_EQ(json::parse(read.event->headers), headers);
        EXPECT_TRUE(read.event->in_value);
        EXPECT_EQ(read.event->payload, R"({"a": 1.50})");
        // The headers as a mailbox keeps them.
        json stored;
        for (const auto& [name, value] : debezium_headers()) stored[name] = value;
        const MessageReading kept = read_message(format, {}, stored.dump(), "plain");
        ASSERT_TRUE(kept.event);
        EXPECT_EQ(kept.event->id, "e-1");
        EXPECT_FALSE(kept.event->in_value);
    }
}

// `outbox replay` marks them, and large payloads are elsewhere.
TEST(ReadMessage, OfDebeziumHeadersOfTheRelayHaveNoSchemas) {
    for (const bool schemas : {true, false}) {
        for (const MessageFormat format : {MessageFormat::kAuto, MessageFormat::kDebezium}) {
            if (!schemas && format == MessageFormat::kAuto) continue;  // it cannot tell
            HeaderList headers =
                schemas ? debezium_headers() : HeaderList{{"id", "1"}, {"eventType", "\"Placed\""}};
            headers.emplace_back("outbox-replay", "6f9619ff-8b86-4011-b42d-00c04fc964ff");
            headers.emplace_back("claim-check-sha256", "ab");
            const MessageReading read = read_message(format, {}, headers, "{}");
            ASSERT_TRUE(read.event);
            const json stored = json::parse(read.event->headers);
            EXPECT_EQ(stored["eventType"], "Placed") << stored;
            EXPECT_EQ(stored["outbox-replay"], "6f9619ff-8b86-4011-b42d-00c04fc964ff");
        }
    }
    // A broker may keep the id alone.
    const MessageReading read = automatic({{"eventType", with_schema("string", R"("Placed")")},
                                           {"outbox-replay", "6f9619ff-8b86-4011-b42d-00c0"}},
                                          "{}", "e-1");
    ASSERT_TRUE(read.event);
    EXPECT_EQ(json::parse(read.event->headers)["eventType"], "Placed");
}

TEST(ReadMessage, OfDebeziumAValueIsWhatItsSchemaSays) {
    const auto payload = [](const std::string& value) {
        const MessageReading read = automatic(debezium_headers(), value);
        return read.event && read.event->in_value ? read.event->payload
                                                  : std::optional<std::string>("as it is");
    };
    EXPECT_EQ(payload(with_schema("bytes", R"("AP8=")")), std::string("\0\xff", 2));
    EXPECT_EQ(payload(with_schema("struct", R"({"n": 9007199254740993})")),
              R"({"n": 9007199254740993})");
    EXPECT_EQ(payload(R"({"schema":null,"payload":[]})"), "[]");
    EXPECT_EQ(payload(with_schema("string", "null")), std::nullopt);
    for (const char* plain :
         {R"({"schema":{"type":"string"},"payload":1})", R"({"schema":"s","payload":1})",
          R"({"schema":null,"payload":1,"more":2})", R"({"schema":null})",
          R"({"schema":{"type":"string","optional":true},"payload":1} x)", ""}) {
        EXPECT_EQ(payload(plain), "as it is") << plain;
    }
}

TEST(ReadMessage, OfDebeziumNothingIsTakenAwayThatIsTheEvents) {
    const std::string value = with_schema("string", R"("a")");
    // A payload that looks so, of an event in another format.
    EXPECT_FALSE(automatic({{"id", "e-1"}}, value).event);
    EXPECT_FALSE(read_message(MessageFormat::kRaw, {}, debezium_headers(), value).event);
    // The id that a broker knows it by stays, as where a table's integers are ids.
    EXPECT_EQ(automatic(debezium_headers(), value, "public.orders:1").event->id, "public.orders:1");
    EXPECT_EQ(automatic(debezium_headers(), value, debezium_headers()[0].second).event->id, "e-1");
    // Without schemas only who says that it is Debezium's knows.
    const HeaderList quoted{{"id", R"("e-1")"}, {"eventType", R"("Placed")"}};
    EXPECT_FALSE(automatic(quoted).event);
    const auto sure = read_message(MessageFormat::kDebezium, {}, quoted, "{}").event;
    ASSERT_TRUE(sure);
    EXPECT_EQ(sure->id, "e-1");
    EXPECT_EQ(json::parse(sure->headers), (json{{"eventType", "Placed"}}));
    EXPECT_FALSE(read_message(MessageFormat::kDebezium, {}, {{"id", "e-1"}}, "{}").event);
}

TEST(ReadMessage, OfDebeziumAHeadersDecimalIsItsDigitsAndBytesStayBase64) {
    const auto decimal = [](const std::string& base64, const std::string& scale) {
        const HeaderList headers{
            debezium_headers()[0],
            {"n", R"({"schema":{"type":"bytes","optional":true,"name":)"
                  R"("org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":)" +
                      scale + R"(,"connect.decimal.precision":"10"}},"payload":")" + base64 +
                      "\"}"}};
        return json::parse(automatic(headers).event->headers)["n"].get<std::string>();
    };
    EXPECT_EQ(decimal("/2o=", R"("2")"), "-1.50");
    EXPECT_EQ(decimal("AQ==", R"("2")"), "0.01");
    EXPECT_EQ(decimal("AA==", R"("2")"), "0.00");
    EXPECT_EQ(decimal("AA==", R"("0")"), "0");
    EXPECT_EQ(decimal("/w==", R"("0")"), "-1");
    EXPECT_EQ(decimal("gA==", R"("0")"), "-128");
    EXPECT_EQ(decimal("nA==", R"("1")"), "-10.0");
    EXPECT_EQ(decimal("DkvC9hqHfRi2Gw==", R"("10")"), "6751068501096.0099882523");
    // What is no such number stays as it came.
    EXPECT_EQ(decimal("", R"("2")"), "");
    EXPECT_EQ(decimal("/2o=", R"("-2")"), "/2o=");
    EXPECT_EQ(decimal("/2o=", R"("99999999999999999999")"), "/2o=");
    EXPECT_EQ(decimal("?", R"("2")"), "?");
    EXPECT_EQ(
        json::parse(automatic({debezium_headers()[0], {"b", with_schema("bytes", R"("/wA=")")}})
                        .event->headers),
        (json{{"b", "/wA="}}));
}

TEST(ReadMessage, OfDebeziumTheIdMayBeWhereTheBrokerKeepsIt) {
    HeaderList headers = debezium_headers();
    headers.erase(headers.begin());
    const std::string value = with_schema("string", R"("a")");
    const json stored{{"eventType", headers[0].second}, {"count", headers[1].second}};
    for (const MessageFormat format : {MessageFormat::kAuto, MessageFormat::kDebezium}) {
        const auto read = read_message(format, "e-1", headers, value).event;
        ASSERT_TRUE(read);
        EXPECT_EQ(read->id, "e-1");
        EXPECT_EQ(json::parse(read->headers),
                  (json{{"eventType", "Placed"}, {"count", "7"}, {"claim-check-size", "12"}}));
        EXPECT_EQ(read->payload, "a");
        EXPECT_EQ(read_message(format, "e-1", stored.dump(), "{}").event->id, "e-1");
    }
    const auto sure = read_message(MessageFormat::kDebezium, "e-1", HeaderList{}, value).event;
    ASSERT_TRUE(sure);
    EXPECT_EQ(sure->payload, "a");
    // Of another format.
    EXPECT_FALSE(automatic({}, value, "e-1").event);
    EXPECT_FALSE(automatic({{"claim-check-size", "12"}}, value, "e-1").event);
    EXPECT_FALSE(automatic({headers[0], {"type", "Placed"}}, value, "e-1").event);
    EXPECT_FALSE(automatic(headers, value).event);
}

TEST(ReadMessage, OfDebeziumHeadersHaveNoQuotesWhateverTheIdIs) {
    const auto read = [](const HeaderList& headers, std::string_view known_id) {
        const auto event = read_message(MessageFormat::kDebezium, known_id, headers, "{}").event;
        return event ? event->id + " " + event->headers : "as it is";
    };
    const std::pair<std::string, std::string> quoted{"eventType", R"("Placed")"};
    const std::pair<std::string, std::string> claim{"claim-check", "file:///a/b"};
    EXPECT_EQ(json::parse(read({{"id", "1"}, quoted, {"n", "null"}, claim}, {}).substr(2)),
              (json{{"eventType", "Placed"}, {"claim-check", "file:///a/b"}}));
    EXPECT_EQ(read({quoted, {"n", "7"}}, "e-1"), R"(e-1 {"eventType":"Placed","n":"7"})");
    // One text that is no JSON: none is.
    EXPECT_EQ(read({{"id", "1"}, quoted, {"plain", "text"}}, {}), "as it is");
    EXPECT_EQ(read({{"id", "e-1"}, quoted}, {}), "as it is");
}

}  // namespace
}  // namespace outbox::consumer
