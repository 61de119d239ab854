#include "tracing/trace_context.h"

#include <gtest/gtest.h>
#include <string>

namespace outbox::test {
namespace {

using tracing::find_trace_context;
using tracing::read_traceparent;

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kSpan = "00f067aa0ba902b7";
const std::string kSampled = "00-" + kTrace + "-" + kSpan + "-01";

TEST(TraceContext, SaysWhoseWorkItIs) {
    const auto context = read_traceparent(kSampled);
    ASSERT_TRUE(context);
    EXPECT_EQ(context->trace_id, kTrace);
    EXPECT_EQ(context->span_id, kSpan);
    EXPECT_TRUE(context->sampled);
}

TEST(TraceContext, TheLastBitOfTheFlagsAlone) {
    for (const auto& [flags, sampled] :
         {std::pair{"00", false}, {"02", false}, {"03", true}, {"ff", true}, {"fe", false}}) {
        const auto context = read_traceparent("00-" + kTrace + "-" + kSpan + "-" + flags);
        ASSERT_TRUE(context) << flags;
        EXPECT_EQ(context->sampled, sampled) << flags;
    }
}

TEST(TraceContext, WhatALaterVersionAddsIsPassedOver) {
    EXPECT_TRUE(read_traceparent("cc-" + kTrace + "-" + kSpan + "-01-more"));
    EXPECT_TRUE(read_traceparent("cc-" + kTrace + "-" + kSpan + "-01"));
    EXPECT_FALSE(read_traceparent("cc-" + kTrace + "-" + kSpan + "-01more"));
    EXPECT_FALSE(read_traceparent(kSampled + "-more"));
}

TEST(TraceContext, OfWhatIsMalformedThereIsNone) {
    std::string upper = kSampled;
    upper[3] = 'A';
    for (const std::string& text :
         {std::string(), std::string("00"), kSampled.substr(1), kSampled + "0", upper,
          "ff-" + kTrace + "-" + kSpan + "-01", "00-" + std::string(32, '0') + "-" + kSpan + "-01",
          "00-" + kTrace + "-" + std::string(16, '0') + "-01", "00_" + kTrace + "-" + kSpan + "-01",
          "00-" + kTrace + "_" + kSpan + "-01", "00-" + kTrace + "-" + kSpan + "_01",
          "00-" + kTrace + "-" + kSpan + "-0g", "zz-" + kTrace + "-" + kSpan + "-01"}) {
        EXPECT_FALSE(read_traceparent(text)) << text;
    }
    for (std::size_t length = 0; length < kSampled.size(); ++length) {
        EXPECT_FALSE(read_traceparent(kSampled.substr(0, length))) << length;
    }
}

TEST(TraceContext, IsFoundAmongHeaders) {
    const std::string headers = R"({"a": "\"traceparent\"", "traceparent": ")" + kSampled + "\"}";
    const auto context = find_trace_context(headers);
    ASSERT_TRUE(context);
    EXPECT_EQ(context->trace_id, kTrace);
    for (const std::string& none :
         {std::string(), std::string("{}"), std::string("null"), std::string("[\"traceparent\"]"),
          std::string(R"({"a": "traceparent"})"), R"({"Traceparent": ")" + kSampled + "\"}",
          std::string(R"({"traceparent": null})"), std::string(R"({"traceparent": 7})"),
          std::string(R"({"traceparent": {"traceparent": "x"}})"),
          R"({"x": {"traceparent": ")" + kSampled + "\"}}",
          R"({"traceparent": ")" + kSampled + "\""}) {
        EXPECT_FALSE(find_trace_context(none)) << none;
    }
    EXPECT_FALSE(find_trace_context(std::string_view()));
}

}  // namespace
}  // namespace outbox::test
