#include "tracing/otlp_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tracing/otlp_config.h"

namespace outbox::test {
namespace {

using tracing::make_otlp_endpoint;
using tracing::otlp_weakness;
using tracing::read_partial_success;
using tracing::Span;
using tracing::write_otlp;

Span some_span() {
    Span span;
    span.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    span.parent_id = "00f067aa0ba902b7";
    span.id = 0xab;
    span.name = "outbox.publish";
    span.start_us = 1'700'000'000'000'001;
    span.end_us = 1'700'000'000'000'005;
    span.attributes = {{"outbox.route", "a \"b\"\n\xff"}};
    return span;
}

nlohmann::json span_in(const std::string& text) {
    return nlohmann::json::parse(text)["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
}

TEST(OtlpJson, IsWhatTheProtocolAsksFor) {
    const Span span = some_span();
    const auto written = span_in(write_otlp({"outbox", "host:7", "1"}, {&span, 1}));
    EXPECT_EQ(written["traceId"], span.trace_id);
    EXPECT_EQ(written["parentSpanId"], span.parent_id);
    EXPECT_EQ(written["spanId"], "00000000000000ab");
    EXPECT_EQ(written["kind"], 4);
    EXPECT_EQ(written["startTimeUnixNano"], "1700000000000001000");
    EXPECT_EQ(written["endTimeUnixNano"], "1700000000000005000");
    EXPECT_EQ(written["attributes"][0]["value"]["stringValue"], "a \"b\"\n\xef\xbf\xbd");
    EXPECT_FALSE(written.contains("status"));
}

TEST(OtlpJson, TellsAnErrorCutToItsLimit) {
    Span span = some_span();
    span.error = std::string(5'000, 'x') + "\xff";
    const auto status = span_in(write_otlp({}, {&span, 1}))["status"];
    EXPECT_EQ(status["code"], 2);
    EXPECT_EQ(status["message"].get<std::string>().size(), 1'000U);
}

TEST(OtlpJson, AClockSetBackMakesNoSpanThatEndsBeforeItBegins) {
    Span span = some_span();
    span.end_us = span.start_us - 10;
    const auto written = span_in(write_otlp({}, {&span, 1}));
    EXPECT_EQ(written["startTimeUnixNano"], written["endTimeUnixNano"]);
}

TEST(OtlpJson, ReadsHowManyWereRefused) {
    EXPECT_EQ(read_partial_success(R"({"partialSuccess":{"rejectedSpans":"3"}})").refused, 3U);
    const auto told = read_partial_success(
        R"({"partialSuccess":{"rejectedSpans":2,"errorMessage":"old\u001b"}})");
    EXPECT_EQ(told.refused, 2U);
    EXPECT_EQ(told.why, "old?");
    for (const std::string_view none :
         {"", "{}", "[]", "<html>", R"({"partialSuccess":7})", R"({"partialSuccess":{}})",
          R"({"partialSuccess":{"rejectedSpans":{}}})",
          R"({"partialSuccess":{"rejectedSpans":"x"}})",
          R"({"partialSuccess":{"rejectedSpans":-1}})"}) {
        EXPECT_EQ(read_partial_success(none).refused, 0U) << none;
    }
}

TEST(OtlpEndpoint, ReadsUrls) {
    const auto plain = make_otlp_endpoint("http://collector:4318/");
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain->base, "http://collector:4318");
    for (const std::string_view url : {"", "collector:4318", "grpc://collector", "http://a,b",
                                       "http://collector?color=red", "http://user@collector"}) {
        ASSERT_FALSE(make_otlp_endpoint(url).ok()) << url;
        EXPECT_EQ(make_otlp_endpoint(url).error().code, ErrorCode::kConfigInvalid) << url;
    }
    EXPECT_NE(otlp_weakness("http://collector.example.com:4318"), "");
    EXPECT_EQ(otlp_weakness("http://127.0.0.1:4318"), "");
}

}  // namespace
}  // namespace outbox::test
