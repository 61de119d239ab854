#include "webhook/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outbox::webhook {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(WebhookRequest, AnIdHasNoDotThatCouldMoveABoundary) {
    EXPECT_EQ(webhook_id("01939d3e-7c00-7aaa-8000-000000000001"),
              "01939d3e-7c00-7aaa-8000-000000000001");
    EXPECT_EQ(webhook_id("shop.outbox:17"), "shop%2Eoutbox:17");
    EXPECT_EQ(webhook_id("a%2Eb"), "a%252Eb");
    EXPECT_EQ(webhook_id("a b\r\n\xC3\xA9\x7F"), "a%20b%0D%0A%C3%A9%7F");
}

TEST(WebhookRequest, TheHeadersOfAnEventGoWithIt) {
    EXPECT_THAT(event_headers(R"({"Trace-Parent": "00-1", "type": "order.created"})"),
                ElementsAre(Pair("trace-parent", "00-1"), Pair("type", "order.created")));
    EXPECT_THAT(event_headers(""), IsEmpty());
    EXPECT_THAT(event_headers("{}"), IsEmpty());
}

TEST(WebhookRequest, AHeaderIsThereOnceHoweverItsNameIsWritten) {
    Headers headers = event_headers(
        R"({"Content-Type": "text/csv", "CONTENT-TYPE": "text/plain", "A": "1", "a": null})");
    add_content_type("{}", headers);
    EXPECT_THAT(headers, ElementsAre(Pair("content-type", "text/csv"), Pair("a", "1")));
}

// What formats write is lower-case: a trace must not go on under what an event calls TraceParent.
TEST(WebhookRequest, OfNamesThatDifferInCaseTheLowerCaseOneGoesFirst) {
    EXPECT_THAT(event_headers(R"({"TraceParent": "q", "traceparent": "00-1", "Traceparent": "r"})"),
                ElementsAre(Pair("traceparent", "00-1")));
}

TEST(WebhookRequest, NoHeaderOfAnEventSaysWhatIsOursOrHowTheRequestIsSent) {
    for (const char* name :
         {"webhook-id", "Webhook-Signature", "WEBHOOK-TIMESTAMP", "webhook-anything", "host",
          "Content-Length", "transfer-encoding", "Connection", "te", "upgrade", "expect", "trailer",
          "proxy-authorization", "keep-alive", "content-encoding", "user-agent",
          "http2-settings"}) {
        EXPECT_THAT(event_headers(std::string("{\"") + name + "\": \"x\"}"), IsEmpty()) << name;
    }
}

TEST(WebhookRequest, SaysWhichNameOfAHeaderNoRequestCarries) {
    for (const char* name : {"x-note", "Note*", "a.b_c~", "42", "host", "webhook-id"}) {
        EXPECT_EQ(why_not_carried(std::string("{\"") + name + "\": \"x\"}"), std::nullopt) << name;
    }
    for (const char* name : {"a b", "a:", "caf\\u00e9", "n\\n", "(a)", "a/b", ""}) {
        const auto why = why_not_carried(std::string(R"({"good": "x", ")") + name + R"(": "x"})");
        ASSERT_NE(why, std::nullopt) << name;
    }
    EXPECT_THAT(why_not_carried(R"({"a\nb": "x"})").value_or(""), testing::HasSubstr("'a?b'"));
    EXPECT_EQ(why_not_carried(""), std::nullopt);
    EXPECT_EQ(why_not_carried("{}"), std::nullopt);
    // What an option places in a header would be in none.
    for (const char* name : {"a b", "Host", "webhook-id", ""}) {
        EXPECT_NE(why_not_header(name), std::nullopt) << name;
    }
    EXPECT_EQ(why_not_header("X-Note"), std::nullopt);
}

TEST(WebhookRequest, WhatNoLineCanHoldIsWrittenOtherwiseOrLeftOut) {
    EXPECT_THAT(event_headers(R"({"note": "a\r\nwebhook-id: b"})"),
                ElementsAre(Pair("note*", "UTF-8''a%0D%0Awebhook-id%3A%20b")));
    EXPECT_THAT(event_headers(R"({"a b": "1", "a:": "1", "": "1", "caf\u00e9": "1", "n\n": "1"})"),
                IsEmpty());
    EXPECT_THAT(event_headers(R"({"n": 1, "o": {"a": "b"}, "l": ["a"], "z": null})"), IsEmpty());
    for (const char* json : {"[1]", "\"text\"", "{", "null", "{\"a\": \"b\"} x"}) {
        EXPECT_THAT(event_headers(json), IsEmpty()) << json;
    }
}

TEST(WebhookRequest, TheContentTypeIsTheEventsOwnOrWhatThePayloadIs) {
    Headers own{{"content-type", "application/cloudevents+json"}};
    add_content_type("{}", own);
    EXPECT_THAT(own, ElementsAre(Pair("content-type", "application/cloudevents+json")));
    Headers json;
    add_content_type(R"({"a": 1})", json);
    EXPECT_THAT(json, ElementsAre(Pair("content-type", "application/json")));
    Headers bytes;
    add_content_type("\xFF{", bytes);
    EXPECT_THAT(bytes, ElementsAre(Pair("content-type", "application/octet-stream")));
    Headers none;
    add_content_type("", none);
    EXPECT_THAT(none, IsEmpty());
}

}  // namespace
}  // namespace outbox::webhook
