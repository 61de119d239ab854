// What receivers' answers mean.
#include "webhook/retry_after.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "webhook/verdict.h"

namespace outbox::webhook {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using Kind = Verdict::Kind;

constexpr std::int64_t kNow = 784'111'777;  // Sun, 06 Nov 1994 08:49:37 GMT

TEST(WebhookRetryAfter, IsANumberOfSecondsOrADate) {
    EXPECT_EQ(parse_retry_after("120", kNow), 120s);
    EXPECT_EQ(parse_retry_after(" 0 ", kNow), 0s);
    EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:50:37 GMT", kNow), 60s);
    EXPECT_EQ(parse_retry_after("Sunday, 06-Nov-94 08:50:37 GMT", kNow), 60s);
    EXPECT_EQ(parse_retry_after("Sun Nov  6 08:50:37 1994", kNow), 60s);
    EXPECT_EQ(parse_retry_after("Sun Nov 13 08:50:37 1994", kNow), kMostRetryAfter);
}

TEST(WebhookRetryAfter, IsBounded) {
    EXPECT_EQ(parse_retry_after("86401", kNow), 24h);
    EXPECT_EQ(parse_retry_after(std::string(400, '9'), kNow), 24h);
    EXPECT_EQ(parse_retry_after("Sun, 06 Nov 2094 08:50:37 GMT", kNow), 24h);
    // Neither fits into nanoseconds since 1970.
    EXPECT_EQ(parse_retry_after("Fri, 31 Dec 9999 23:59:60 GMT", kNow), 24h);
    EXPECT_EQ(parse_retry_after("Tue, 15 Nov 0000 08:12:21 GMT", kNow), 0s);
    EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:36 GMT", kNow), 0s);
    EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT", kNow), 0s);
    // A year of two digits that would lie more than 50 ahead is past.
    EXPECT_EQ(parse_retry_after("Sunday, 06-Nov-46 08:50:37 GMT", kNow), 0s);
}

TEST(WebhookRetryAfter, WhatIsNeitherSaysNothing) {
    for (const char* value :
         {"", "  ", "-1", "+1", "1.5", "soon", "12 s", "0x10", "Sun, 06 Nov 1994 08:49:37",
          "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 31 Feb 1994 08:49:37 GMT",
          "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT",
          "Sun, 00 Nov 1994 08:49:37 GMT", "Xyz, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov",
          "Sun, 06 Nov 1994 08:49:37 GMT x", "Sun Nov 06 08:50:37 1994 GMT"}) {
        EXPECT_EQ(parse_retry_after(value, kNow), std::nullopt) << value;
    }
}

TEST(WebhookVerdict, Only2xxIsDoneAndOnly410TheEnd) {
    for (int status = 100; status < 600; ++status) {
        const Verdict verdict = judge_answer(status, "", kNow);
        EXPECT_EQ(verdict.kind == Kind::kDone, status >= 200 && status < 300) << status;
        EXPECT_EQ(verdict.kind == Kind::kGone, status == 410) << status;
        EXPECT_EQ(verdict.text.empty(), verdict.kind == Kind::kDone) << status;
    }
    EXPECT_THAT(judge_answer(302, "", kNow).text, HasSubstr("redirects are not followed"));
    EXPECT_EQ(judge_answer(404, "", kNow).kind, Kind::kRefused);
    EXPECT_EQ(judge_answer(502, "", kNow).kind, Kind::kDown);
}

TEST(WebhookVerdict, ABusyReceiverSaysHowLong) {
    for (const int status : {429, 503}) {
        const Verdict verdict = judge_answer(status, "30", kNow);
        EXPECT_EQ(verdict.kind, Kind::kBusy);
        EXPECT_EQ(verdict.wait, 30s);
        EXPECT_THAT(verdict.text, AllOf(HasSubstr(std::to_string(status)), HasSubstr("30 s")));
        EXPECT_EQ(judge_answer(status, "soon", kNow).wait, std::nullopt);
    }
    EXPECT_EQ(judge_answer(500, "30", kNow).wait, std::nullopt);
}

TEST(WebhookVerdict, WhatAReceiverSaysIsShownClean) {
    const Verdict verdict = judge_fault("PROTOCOL", "a\x1b[2Jb" + std::string(1'000, 'x'));
    EXPECT_EQ(verdict.kind, Kind::kDown);
    EXPECT_EQ(verdict.text.find('\x1b'), std::string::npos);
    EXPECT_LT(verdict.text.size(), 600U);
}

}  // namespace
}  // namespace outbox::webhook
