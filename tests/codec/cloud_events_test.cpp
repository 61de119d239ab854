#include "codec/cloud_events.h"

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "codec/formats.h"
#include "tests/codec/debezium_rows.h"

namespace outbox::codec {
namespace {

using Map = std::map<std::string, std::string>;

constexpr spi::AttributeNames kKafka{};
constexpr spi::AttributeNames kAmqp{"cloudEvents_", {}};
constexpr spi::AttributeNames kMqtt{"", {}};
constexpr spi::AttributeNames kNats{"ce-", "Content-Type", true, true};
constexpr spi::AttributeNames kHttp{"ce-", "Content-Type", false, true};

spi::EventView order_created() {
    spi::EventView event;
    event.position = 7;
    event.id = "0190-id";
    event.aggregate_type = "Order";
    event.aggregate_id = "o-1";
    event.event_type = "OrderCreated";
    event.payload = R"({"total": 99.990})";
    event.payload_is_json = true;
    event.tenant_id = "default";
    event.occurred_at_us = 1'700'000'000'000'042;
    return event;
}

// Holds what its records point to.
class Encoding {
  public:
    explicit Encoding(ContentMode mode = ContentMode::kBinary,
                      const spi::AttributeNames& attributes = kKafka,
                      const std::map<std::string, std::string>& options = {})
        : encoder_(make_cloud_events_config({options, "public.outbox_events", attributes}, mode)
                       .value()) {}

    Result<spi::Record> operator()(const spi::EventView& event) {
        return encoder_.encode(event, "orders", arena_);
    }
    Map headers(const spi::EventView& event) {
        const auto record = (*this)(event);
        EXPECT_TRUE(record.ok()) << record.error().message;
        Map out;
        if (!record.ok()) return out;
        for (const auto& [name, value] : record->headers) {
            EXPECT_TRUE(out.emplace(name, value).second) << name << " came twice";
        }
        return out;
    }
    nlohmann::json object(const spi::EventView& event) {
        const auto record = (*this)(event);
        EXPECT_TRUE(record.ok()) << record.error().message;
        return record.ok() ? nlohmann::json::parse(record->value) : nlohmann::json();
    }

  private:
    CloudEventsEncoder encoder_;
    spi::EventBatch arena_;
};

TEST(CloudEvents, BinaryModeLeavesThePayloadAndPutsAttributesIntoKafkasHeaders) {
    Encoding encoding;
    const auto event = order_created();
    const auto record = encoding(event);
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->value.data(), event.payload.data());
    EXPECT_EQ(record->key, "o-1");
    EXPECT_EQ(record->id, "0190-id");
    EXPECT_EQ(record->topic, "orders");
    EXPECT_EQ(record->content_type.data(), nullptr);
    EXPECT_EQ(encoding.headers(event), (Map{{"ce_specversion", "1.0"},
                                            {"ce_id", "0190-id"},
                                            {"ce_source", "/outbox/public.outbox_events"},
                                            {"ce_type", "OrderCreated"},
                                            {"ce_time", "2023-11-14T22:13:20.000042Z"},
                                            {"ce_subject", "o-1"},
                                            {"ce_partitionkey", "o-1"},
                                            {"ce_aggregatetype", "Order"},
                                            {"ce_tenantid", "default"},
                                            {"content-type", "application/json"}}));
}

TEST(CloudEvents, EachBindingNamesAttributesAndMediaTypeInItsWay) {
    const auto event = order_created();
    Encoding amqp(ContentMode::kBinary, kAmqp);
    EXPECT_EQ(amqp.headers(event).at("cloudEvents_id"), "0190-id");
    EXPECT_EQ(amqp.headers(event).count("content-type"), 0U);
    EXPECT_EQ(amqp.headers(event).count("cloudEvents_datacontenttype"), 0U);
    EXPECT_EQ(amqp(event)->content_type, "application/json");
    Encoding mqtt(ContentMode::kBinary, kMqtt);
    EXPECT_EQ(mqtt.headers(event).at("specversion"), "1.0");
    EXPECT_EQ(mqtt.headers(event).at("source"), "/outbox/public.outbox_events");
    EXPECT_EQ(mqtt.headers(event).count("datacontenttype"), 0U);
    EXPECT_EQ(mqtt(event)->content_type, "application/json");
    Encoding nats(ContentMode::kBinary, kNats);
    EXPECT_EQ(nats.headers(event).at("ce-datacontenttype"), "application/json");
    EXPECT_EQ(nats.headers(event).count("Content-Type"), 0U);
    Encoding http(ContentMode::kBinary, kHttp);
    EXPECT_EQ(http.headers(event).at("Content-Type"), "application/json");
    EXPECT_EQ(http.headers(event).count("ce-datacontenttype"), 0U);
    for (const auto& names : {kAmqp, kMqtt}) {
        Encoding structured(ContentMode::kStructured, names);
        EXPECT_TRUE(structured.headers(event).empty());
        EXPECT_EQ(structured(event)->content_type, "application/cloudevents+json; charset=UTF-8");
    }
    Encoding structured(ContentMode::kStructured, kNats);
    EXPECT_EQ(structured.headers(event),
              (Map{{"Content-Type", "application/cloudevents+json; charset=UTF-8"}}));
}

// The example of the HTTP and NATS bindings, section 3.1.3.2.
TEST(CloudEvents, HeadersOfHttpAndNatsArePercentEncoded) {
    auto event = order_created();
    event.aggregate_id = "Euro \xE2\x82\xAC \xF0\x9F\x98\x80";
    event.aggregate_type = "a\"b%c";
    event.headers = R"({"note":"x y"})";
    event.payload = "plain";
    event.payload_is_json = false;
    Encoding nats(ContentMode::kBinary, kNats);
    const Map headers = nats.headers(event);
    EXPECT_EQ(headers.at("ce-subject"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
    EXPECT_EQ(headers.at("ce-aggregatetype"), "a%22b%25c");
    EXPECT_EQ(headers.at("ce-note"), "x%20y");
    EXPECT_EQ(headers.at("ce-datacontenttype"), "text/plain;%20charset=utf-8");
    Encoding http(ContentMode::kBinary, kHttp);
    EXPECT_EQ(http.headers(event).at("Content-Type"), "text/plain; charset=utf-8");
    Encoding kafka;
    EXPECT_EQ(kafka.headers(event).at("ce_subject"), event.aggregate_id);
}

TEST(CloudEvents, StructuredModeIsOneObjectWithThePayloadAsItIsStored) {
    Encoding encoding(ContentMode::kStructured);
    const auto record = encoding(order_created());
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->value,
              R"({"specversion":"1.0","id":"0190-id","source":"/outbox/public.outbox_events",)"
              R"("type":"OrderCreated","time":"2023-11-14T22:13:20.000042Z","subject":"o-1",)"
              R"("partitionkey":"o-1","aggregatetype":"Order","tenantid":"default",)"
              R"("datacontenttype":"application/json","data":{"total": 99.990}})");
    EXPECT_EQ(record->key, "o-1");
    ASSERT_EQ(record->headers.size(), 1U);
    EXPECT_EQ(record->headers[0].name, "content-type");
    EXPECT_EQ(record->headers[0].value, "application/cloudevents+json; charset=UTF-8");
}

TEST(CloudEvents, DataIsJsonOrTextOrBase64ByWhatThePayloadIs) {
    Encoding structured(ContentMode::kStructured);
    Encoding binary;
    auto event = order_created();
    event.payload_is_json = false;
    const auto becomes = [&](std::string_view payload, const char* type, const char* member) {
        event.payload = payload;
        const auto object = structured.object(event);
        EXPECT_EQ(object.at("datacontenttype"), type) << payload;
        EXPECT_EQ(binary.headers(event).at("content-type"), type);
        EXPECT_EQ(object.contains("data") + object.contains("data_base64"), 1);
        return object.at(member);
    };
    EXPECT_EQ(becomes(R"({"a":[1]})", "application/json", "data"),
              nlohmann::json::parse(R"({"a":[1]})"));
    EXPECT_EQ(becomes("12", "application/json", "data"), 12);
    EXPECT_EQ(becomes("null", "application/json", "data"), nullptr);
    EXPECT_EQ(becomes("a \"b\"\n", "text/plain; charset=utf-8", "data"), "a \"b\"\n");
    EXPECT_EQ(becomes("", "text/plain; charset=utf-8", "data"), "");
    EXPECT_EQ(becomes("\xff\xfe\xfd", "application/octet-stream", "data_base64"), "//79");
    event.payload = {};
    EXPECT_FALSE(structured.object(event).contains("data"));
    EXPECT_FALSE(structured.object(event).contains("datacontenttype"));
    EXPECT_EQ(binary.headers(event).count("content-type"), 0U);
    EXPECT_EQ(binary(event)->value.data(), nullptr);
}

TEST(CloudEvents, TheMediaTypeIsTheHeadersElseTheRoutesElseThatOfThePayload) {
    const std::map<std::string, std::string> options{
        {"cloudevents.datacontenttype", "application/vnd.shop+json"}};
    Encoding binary(ContentMode::kBinary, kKafka, options);
    Encoding structured(ContentMode::kStructured, kKafka, options);
    auto event = order_created();
    EXPECT_EQ(binary.headers(event).at("content-type"), "application/vnd.shop+json");
    EXPECT_TRUE(structured.object(event).at("data").is_object());
    event.headers = R"({"Content-Type":"application/xml"})";
    event.payload = "<a/>";
    event.payload_is_json = false;
    EXPECT_EQ(binary.headers(event).at("content-type"), "application/xml");
    EXPECT_EQ(binary.headers(event).count("Content-Type"), 0U);
    EXPECT_EQ(structured.object(event).at("data"), "<a/>");
    // JSON of another media type is text.
    event.payload = "{}";
    event.payload_is_json = true;
    EXPECT_EQ(structured.object(event).at("data"), "{}");
}

TEST(CloudEvents, SchemaIdAndVersionTravelAndNameTheSchemaInTheRegistry) {
    Encoding plain;
    Encoding registry(ContentMode::kBinary, kKafka,
                      {{"cloudevents.dataschema_base", "https://registry.example/"}});
    auto event = order_created();
    event.schema_id = "orders value";
    event.schema_version = "3";
    Map headers = plain.headers(event);
    EXPECT_EQ(headers.at("ce_schemaid"), "orders value");
    EXPECT_EQ(headers.at("ce_schemaversion"), "3");
    EXPECT_EQ(headers.at("ce_dataschema"), "outbox:/subjects/orders%20value/versions/3");
    EXPECT_EQ(registry.headers(event).at("ce_dataschema"),
              "https://registry.example/subjects/orders%20value/versions/3");
    event.schema_version = "4";
    EXPECT_EQ(plain.headers(event).at("ce_dataschema"),
              "outbox:/subjects/orders%20value/versions/4");
    event.schema_version = {};
    EXPECT_EQ(plain.headers(event).at("ce_dataschema"), "outbox:/subjects/orders%20value");
    event.schema_id = "https://schemas.example/order.json";
    EXPECT_EQ(registry.headers(event).at("ce_dataschema"), "https://schemas.example/order.json");
    event.schema_id = {};
    event.schema_version = "4";
    headers = plain.headers(event);
    EXPECT_EQ(headers.count("ce_dataschema"), 0U);
    EXPECT_EQ(headers.at("ce_schemaversion"), "4");
}

TEST(CloudEvents, HeadersBecomeAttributesWhereTheirNamesAllowItAndElseStayHeaders) {
    auto event = order_created();
    event.metadata = R"({"region":"eu","shard":3,"gone":null})";
    event.headers =
        R"({"region":"us","x-request-id":"r 1","retry":true,"none":null,)"
        R"("list":{"b": 1.50,"a":null},"traceparent":"00-ab-cd-01","tracestate":"a=b"})";
    Encoding binary;
    Map headers = binary.headers(event);
    EXPECT_EQ(headers.at("ce_region"), "eu");
    EXPECT_EQ(headers.at("ce_shard"), "3");
    EXPECT_EQ(headers.at("ce_retry"), "true");
    EXPECT_EQ(headers.at("ce_list"), R"({"b": 1.50,"a":null})");
    EXPECT_EQ(headers.at("x-request-id"), "r 1");
    EXPECT_EQ(headers.count("ce_none") + headers.count("ce_gone") + headers.count("region"), 0U);
    EXPECT_EQ(headers.at("ce_traceparent"), "00-ab-cd-01");
    EXPECT_EQ(headers.at("traceparent"), "00-ab-cd-01");
    EXPECT_EQ(headers.at("ce_tracestate"), "a=b");
    EXPECT_EQ(headers.at("tracestate"), "a=b");
    Encoding structured(ContentMode::kStructured);
    const auto object = structured.object(event);
    EXPECT_EQ(object.at("region"), "eu");
    EXPECT_EQ(object.at("traceparent"), "00-ab-cd-01");
    EXPECT_FALSE(object.contains("x-request-id"));
    headers = structured.headers(event);
    EXPECT_EQ(headers.at("x-request-id"), "r 1");
    EXPECT_EQ(headers.at("traceparent"), "00-ab-cd-01");
    Encoding mqtt(ContentMode::kBinary, kMqtt);  // where both would have one name
    EXPECT_EQ(mqtt.headers(event).at("traceparent"), "00-ab-cd-01");
}

// Another route of the table, of the format debezium, places it.
TEST(CloudEvents, AColumnThatIsCalledAsAnAttributeIsNoHeader) {
    auto event = order_created();
    const std::string type(event.event_type);
    const std::string metadata = R"({"region":"eu","type":")" + type + R"("})";
    event.metadata = metadata;
    Encoding encoding;
    const Map headers = encoding.headers(event);
    EXPECT_EQ(headers.at("ce_type"), type);
    EXPECT_EQ(headers.at("ce_region"), "eu");
    EXPECT_EQ(headers.count("type"), 0U);
    for (const char* other : {R"({"type":"other"})", R"({"data":"x"})", R"({"ce_id":"x"})"}) {
        event.metadata = other;
        const Map told = encoding.headers(event);
        EXPECT_EQ(told.at("ce_type"), type) << other;
        EXPECT_EQ(told.at("ce_id"), event.id) << other;
        EXPECT_EQ(told.count("type") + told.count("data"), 0U) << other;
    }
}

TEST(CloudEvents, RefusesHeadersThatWouldStandForAttributes) {
    for (const ContentMode mode : {ContentMode::kBinary, ContentMode::kStructured}) {
        for (const char* name :
             {"id", "source", "type", "specversion", "time", "subject", "dataschema",
              "partitionkey", "data", "ce_id", "CE-Source", "cloudEvents_type", "cloudEvents:id",
              "tenantid", "tenant_id", "schema_id", "occurred_at", "aggregate_type"}) {
            Encoding encoding(mode);
            auto event = order_created();
            const std::string headers = "{\"" + std::string(name) + "\":\"forged\"}";
            event.headers = headers;
            const auto record = encoding(event);
            ASSERT_FALSE(record.ok()) << name;
            EXPECT_EQ(record.error().code, ErrorCode::kInvalidEvent);
            EXPECT_EQ(record.error().advice, Advice::kDeadLetter);
            EXPECT_NE(record.error().message.find(std::string("'") + name + "'"),
                      std::string::npos);
            EXPECT_NE(record.error().message.find("another name"), std::string::npos);
        }
    }
}

TEST(CloudEvents, RefusesWhatACloudEventCannotHoldAndSaysWhatToDo) {
    const auto refused = [](auto change, const char* cause, const char* remedy) {
        for (const ContentMode mode : {ContentMode::kBinary, ContentMode::kStructured}) {
            Encoding encoding(mode);
            auto event = order_created();
            change(event);
            const auto record = encoding(event);
            ASSERT_FALSE(record.ok()) << cause;
            EXPECT_EQ(record.error().code, ErrorCode::kInvalidEvent);
            EXPECT_EQ(record.error().advice, Advice::kDeadLetter);
            EXPECT_NE(record.error().message.find(cause), std::string::npos)
                << record.error().message;
            EXPECT_NE(record.error().message.find(remedy), std::string::npos)
                << record.error().message;
        }
    };
    refused([](auto& e) { e.event_type = {}; }, "the event type of event 0190-id", "set type");
    refused([](auto& e) { e.event_type = ""; }, "is missing", "set type");
    refused([](auto& e) { e.aggregate_id = "a\nb"; }, "the aggregate id", "format raw");
    refused([](auto& e) { e.tenant_id = "\xC2\x85"; }, "the tenant id", "format raw");
    refused([](auto& e) { e.key = "\xEF\xBF\xBF"; }, "the key", "format raw");
    refused([](auto& e) { e.id = ""; }, "the id", "write it");
    refused([](auto& e) { e.headers = R"({"note":"a\u0001"})"; }, "the header 'note'", "raw");
    refused([](auto& e) { e.headers = "[1]"; }, "not a JSON object", "write a JSON object");
    refused([](auto& e) { e.headers = R"({"content-type":"json"})"; }, "no media type", "mend");
    refused([](auto& e) { e.headers = R"({"content-type":"application/cloudevents+json"})"; },
            "no media type of data", "mend");
    refused(
        [](auto& e) {
            e.headers = R"({"content-type":"application/json; charset=utf-8"})";
            e.payload = "{not json";
            e.payload_is_json = false;
        },
        "is not JSON", "right media type");
}

TEST(CloudEvents, TypeAndSourceCanBeSetForTheRoute) {
    Encoding encoding(ContentMode::kBinary, kKafka,
                      {{"cloudevents.source", "https://shop.example/orders"},
                       {"cloudevents.type", "com.example.event"}});
    auto event = order_created();
    EXPECT_EQ(encoding.headers(event).at("ce_type"), "OrderCreated");
    event.event_type = {};
    EXPECT_EQ(encoding.headers(event).at("ce_type"), "com.example.event");
    EXPECT_EQ(encoding.headers(event).at("ce_source"), "https://shop.example/orders");
}

TEST(CloudEvents, TheDefaultSourceIsAUriReferenceWhateverTheTableIsCalled) {
    const auto config =
        make_cloud_events_config({{}, "My Schema.out\xC3\xA9\"", kKafka}, ContentMode::kBinary);
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->source, "/outbox/My%20Schema.out%C3%A9%22");
}

TEST(CloudEvents, WrongOptionsAreNamedWithWhatWouldBeRight) {
    const std::vector<std::pair<std::string, std::string>> wrong{
        {"source", "not a uri"},
        {"type", ""},
        {"datacontenttype", "json"},
        {"datacontenttype", "application/cloudevents+json"},
        {"dataschema_base", "/relative"},
        {"schema_registry", "https://registry.example"},
        {"sorce", "/x"},
        {"extensions", "x"}};
    for (const auto& [name, value] : wrong) {
        const auto config = make_cloud_events_config(
            {{{"cloudevents." + name, value}}, "t", kKafka}, ContentMode::kBinary);
        ASSERT_FALSE(config.ok()) << name;
        EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
        EXPECT_NE(config.error().message.find(name), std::string::npos);
        EXPECT_NE(config.error().message.find("[route.cloudevents]"), std::string::npos);
        if (name != "schema_registry") continue;
        EXPECT_NE(config.error().message.find("dataschema_base"), std::string::npos)
            << "which may be meant";
        EXPECT_NE(config.error().message.find("of the route"), std::string::npos);
    }
}

TEST(CloudEvents, EarlierRecordsStayIntactWhenMoreAreEncoded) {
    CloudEventsEncoder encoder(
        make_cloud_events_config({{}, "t", kNats}, ContentMode::kBinary).value());
    spi::EventBatch arena;
    auto event = order_created();
    event.schema_id = "a b";
    event.headers = R"({"n":"first one"})";
    const auto first = encoder.encode(event, "t", arena);
    ASSERT_TRUE(first.ok());
    event.schema_id = "c d";
    event.headers = R"({"n":"second one"})";
    event.occurred_at_us += 1'000'001;
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(encoder.encode(event, "t", arena).ok());
    Map headers;
    for (const auto& [name, value] : first->headers) headers.emplace(name, value);
    EXPECT_EQ(headers.at("ce-n"), "first%20one");
    EXPECT_EQ(headers.at("ce-dataschema"), "outbox:/subjects/a%2520b");
    EXPECT_EQ(headers.at("ce-time"), "2023-11-14T22:13:20.000042Z");
}

TEST(Formats, AreFoundByTheirNames) {
    const spi::RowShape shape = debezium_rows();
    for (const Format& format : formats()) {
        EXPECT_EQ(find_format(format.name), &format);
        ASSERT_TRUE(format.make({{}, "t", kKafka}).ok()) << format.name;
        EXPECT_NE((*format.make({{}, "t", kKafka, &shape}))(), nullptr);
    }
    EXPECT_EQ(find_format("avro"), nullptr);
}

}  // namespace
}  // namespace outbox::codec
