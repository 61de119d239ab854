// What the S3 store decides without a server.

#include <gtest/gtest.h>
#include <tuple>

#include "claim/s3_answers.h"
#include "claim/s3_config.h"
#include "claim/s3_errors.h"
#include "claim/s3_store.h"

namespace outbox::claim {
namespace {

TEST(S3Config, FindsTheBucketAtAmazonByItsHost) {
    const S3Config config =
        make_s3_config("s3://payloads/shop/orders?region=eu-central-1").value_or_throw();
    EXPECT_EQ(config.base, "https://payloads.s3.eu-central-1.amazonaws.com/");
    EXPECT_EQ(config.prefix, "shop/orders/");
    EXPECT_EQ(config.region, "eu-central-1");
    EXPECT_TRUE(config.tls);
}

TEST(S3Config, FindsABucketWhoseNameIsNoHostByItsPath) {
    EXPECT_EQ(make_s3_config("s3://a.b?region=eu-west-1").value_or_throw().base,
              "https://s3.eu-west-1.amazonaws.com/a.b/");
    const S3Config local =
        make_s3_config("s3://id:secret@payloads?endpoint=http://127.0.0.1:9000").value_or_throw();
    EXPECT_EQ(local.base, "http://127.0.0.1:9000/payloads/");
    EXPECT_EQ(local.prefix, "");
    EXPECT_EQ(local.user, "id");
    EXPECT_EQ(local.password, "secret");
    EXPECT_FALSE(local.tls);
}

TEST(S3Config, RefusesWhatItCannotMeanAndSaysWhatToWrite) {
    for (const char* url :
         {"s3://", "s3:///prefix?region=r", "s3://b/p", "s3://b/p q?region=r",
          "s3://b/../x?region=r", "s3://b?region=r&color=red", "s3://b?region=r&endpoint=ftp://x",
          "s3://b?region=r&endpoint=http://x/path", "s3://id@b?region=r",
          "s3://id:s3cret@b?region=r&profile=p", "s3://b?region=r&endpoint=http://x&verify=false",
          "s3://id:s3cret@b?region=r&password_file=/x", "s3://b?region=a/b"}) {
        const auto config = make_s3_config(url);
        ASSERT_FALSE(config.ok()) << url;
        EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
        EXPECT_EQ(config.error().advice, Advice::kStop);
        EXPECT_EQ(config.error().message.find("s3cret"), std::string::npos) << url;
    }
}

TEST(S3Config, SaysOfARemoteStoreThatItIsReachedInClear) {
    EXPECT_NE(s3_weakness("s3://b?endpoint=http://192.0.2.1:9000"), "");
    EXPECT_NE(s3_weakness("s3://b?endpoint=https://192.0.2.1&verify=false"), "");
    EXPECT_EQ(s3_weakness("s3://b?endpoint=http://127.0.0.1:9000"), "");
    EXPECT_EQ(s3_weakness("s3://b?region=eu-central-1"), "");
}

S3Fault fault(int status, const std::string& code) {
    return read_s3_fault(status, "<?xml version=\"1.0\"?>\n<Error><Code>" + code +
                                     "</Code><Message>why\nso</Message></Error>");
}

TEST(S3Errors, TellTheStoresFaultsFromAnObjects) {
    for (const char* code : {"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SlowDown",
                             "SignatureDoesNotMatch", "RequestTimeTooSkewed", "InternalError"}) {
        EXPECT_EQ(to_error(fault(403, code), "s").advice, Advice::kRetryDestination) << code;
    }
    // What happened to the request itself is no fault of its object.
    for (const auto kind : {net::HttpFault::Kind::kConnect, net::HttpFault::Kind::kLocal,
                            net::HttpFault::Kind::kNoConnection, net::HttpFault::Kind::kTimeout}) {
        EXPECT_EQ(to_error(fault_of_http({kind, "no"}), "s").advice, Advice::kRetryDestination);
    }
    EXPECT_EQ(to_error(fault(404, "NoSuchKey"), "s").code, ErrorCode::kObjectGone);
    EXPECT_EQ(to_error(fault(400, "EntityTooLarge"), "s").advice, Advice::kDeadLetter);
    for (const char* code : {"SomethingNew", "KMS.DisabledException"}) {
        EXPECT_EQ(to_error(fault(400, code), "s").advice, Advice::kRetryDestination) << code;
    }
    EXPECT_EQ(to_error(fault(503, "SomethingNew"), "s").advice, Advice::kRetryDestination);
}

TEST(S3Errors, TakeWhatIsNoS3ForAnOutage) {
    for (const int status : {200 + 2, 301, 400, 403, 404, 502}) {
        const S3Fault seen = read_s3_fault(status, "<html><body>404 not found</body></html>");
        EXPECT_EQ(to_error(seen, "s").advice, Advice::kRetryDestination) << status;
    }
    const ErrorInfo too_large = to_error(read_s3_fault(413, "<html>413 Too Large</html>"), "s");
    EXPECT_EQ(too_large.advice, Advice::kRetryDestination);
    EXPECT_NE(too_large.message.find("client_max_body_size"), std::string::npos);
    EXPECT_EQ(to_error(read_s3_fault(413, "<Error></Error>"), "s").code,
              ErrorCode::kPayloadTooLarge);
}

// A portal, or another service at that address: the record would refer to nothing.
TEST(S3Answers, OnlyTheWordOfAnObjectMeansThatItIsStored) {
    EXPECT_FALSE(read_s3_stored(200, "\"d41d\"", ""));
    for (const auto& [status, etag, body] :
         {std::tuple(200, "", ""), std::tuple(200, "", "<html>"),
          std::tuple(200, "\"x\"", "<html>"), std::tuple(204, "\"x\"", ""),
          std::tuple(202, "\"x\"", "")}) {
        const auto seen = read_s3_stored(status, etag, body);
        ASSERT_TRUE(seen) << status << etag << body;
        EXPECT_EQ(to_error(*seen, "s").advice, Advice::kRetryDestination);
        EXPECT_EQ(seen->name, "NO S3");
    }
}

// Some services say so of a bucket that is away.
TEST(S3Answers, AnObjectThatIsMissingBeforeItIsStoredIsTheStoresFault) {
    for (const char* body : {"<Error><Code>NoSuchKey</Code></Error>", "<Error></Error>"}) {
        EXPECT_EQ(to_error(read_s3_fault(404, body), "s").advice, Advice::kDeadLetter);
        const auto seen = read_s3_stored(404, "", body);
        ASSERT_TRUE(seen);
        EXPECT_EQ(to_error(*seen, "s").advice, Advice::kRetryDestination);
    }
}

// Consumers would take every payload for altered, and give all messages up.
TEST(S3Answers, APageIsNoObject) {
    EXPECT_FALSE(read_s3_object(200, {"\"d41d\"", "application/octet-stream", true}, "x"));
    EXPECT_FALSE(read_s3_object(200, {"\"d41d\"", "binary/octet-stream", true}, "x"));
    EXPECT_FALSE(read_s3_object(200, {"\"d41d\"", "", true}, ""));
    for (const auto& [status, etag, type] :
         {std::tuple(200, "", "application/octet-stream"), std::tuple(200, "", "text/html"),
          std::tuple(200, "W/\"x\"", "application/octet-stream"),
          std::tuple(200, "\"x\"", "application/json"), std::tuple(200, "\"x\"", "text/plain"),
          std::tuple(200, "\"x\"", "Text/HTML; charset=utf-8"), std::tuple(204, "\"x\"", ""),
          std::tuple(302, "", "text/html")}) {
        const auto seen = read_s3_object(status, {etag, type, true}, "<html>");
        ASSERT_TRUE(seen) << status << etag << type;
        EXPECT_EQ(to_error(*seen, "s").advice, Advice::kRetryDestination);
        EXPECT_EQ(seen->name, "NO S3");
    }
}

// A connection that ends is then the end of the object, or not.
TEST(S3Answers, WhatDoesNotTellItsEndIsNoObject) {
    const auto seen = read_s3_object(200, {"\"x\"", "application/octet-stream", false}, "half");
    ASSERT_TRUE(seen);
    EXPECT_EQ(to_error(*seen, "s").advice, Advice::kRetryDestination);
}

TEST(S3Answers, ReadWhatIsCutOrNonsense) {
    for (const char* body : {"", "<Error>", "<Error><Code>", "<Error><Code></Code>",
                             "<Error><Code>x", "\xff\xfe<Error><Code>\x01</Code>"}) {
        const S3Fault seen = read_s3_fault(500, body);
        EXPECT_FALSE(seen.name.empty()) << body;
        EXPECT_FALSE(seen.text.empty()) << body;
    }
}

}  // namespace
}  // namespace outbox::claim
