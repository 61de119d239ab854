// The vectors are those that AWS publishes with aws-c-auth ("aws-signing-test-suite/v4"); those
// whose URLs are not encoded, which cannot be sent so, and those that are normalised first are left
// out.
#include "net/sigv4.h"

#include <gtest/gtest.h>

namespace outbox::net {
namespace {

using namespace std::chrono_literals;

// 2015-08-30T12:36:00Z
constexpr std::chrono::system_clock::time_point kThen{1'440'938'160s};

SigV4 example() {
    return {.region = "us-east-1",
            .service = "service",
            .access_key = "AKIDEXAMPLE",
            .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
}

std::string value_of(const HttpHeaders& headers, std::string_view name) {
    for (const auto& [one, value] : headers) {
        if (one == name) return value;
    }
    return {};
}

std::string signature_of(const HttpHeaders& signed_headers) {
    const std::string all = value_of(signed_headers, "Authorization");
    const std::size_t at = all.find("Signature=");
    return at == std::string::npos ? "none" : all.substr(at + 10);
}

std::string signature(const std::string& method, const std::string& target,
                      const HttpHeaders& headers = {}, const SigV4& who = example()) {
    return signature_of(
        sign(who, method, "https://example.amazonaws.com" + target, headers, "", kThen));
}

TEST(SigV4, GivesThePublishedSignatures) {
    constexpr std::string_view kUnreserved =
        "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const std::string all(kUnreserved);
    EXPECT_EQ(signature("GET", "/"),
              "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    EXPECT_EQ(signature("GET", ""),
              "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    EXPECT_EQ(signature("POST", "/"),
              "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    EXPECT_EQ(signature("GET", "/" + all),
              "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f");
    EXPECT_EQ(signature("GET", "/?Param1=value1"),
              "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb");
    EXPECT_EQ(signature("GET", "?Param2=value2&Param1=value1"),
              "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
    EXPECT_EQ(signature("GET", "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1"),
              "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac");
    EXPECT_EQ(signature("GET", "/?%E1%88%B4=bar"),
              "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04");
    EXPECT_EQ(signature("GET", "/?" + all + "=" + all),
              "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197");
    EXPECT_EQ(signature("POST", "/?Param1=value1"),
              "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11");
}

TEST(SigV4, GivesThePublishedSignaturesOfHeaders) {
    EXPECT_EQ(
        signature("GET", "/",
                  {{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}}),
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea");
    EXPECT_EQ(signature("GET", "/", {{"My-Header1", "value1\n  value2\n     value3"}}),
              "cfd34249e4b1c8d6b91ef74165d41a32e5fab3306300901bb65a51a73575eefd");
    EXPECT_EQ(signature("GET", "/", {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}}),
              "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
    EXPECT_EQ(signature("POST", "/", {{"My-Header1", "VALUE1"}}),
              "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d");
    EXPECT_EQ(signature("POST", "/", {{"My-Header1", "value1"}, {"Host", "example.amazonaws.com"}}),
              "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c");
    SigV4 temporary = example();
    temporary.session_token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
    EXPECT_EQ(signature("GET", "/", {}, temporary),
              "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8");
}

TEST(SigV4, GivesThePublishedSignatureOfABody) {
    const std::string body = "Param1=value1";
    const HttpHeaders headers{{"Content-Type", "application/x-www-form-urlencoded"},
                              {"Content-Length", "13"},
                              {"x-amz-content-sha256",
                               "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e"}};
    EXPECT_EQ(signature_of(
                  sign(example(), "POST", "https://example.amazonaws.com/", headers, body, kThen)),
              "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b");
}

TEST(SigV4, SignsThePortUnlessItIsTheSchemesOwn) {
    const auto of = [](const std::string& url) {
        return signature_of(sign(example(), "GET", url, {}, "", kThen));
    };
    EXPECT_EQ(of("https://example.amazonaws.com:443/"), of("https://example.amazonaws.com"));
    EXPECT_EQ(of("http://example.amazonaws.com:80/"), of("https://example.amazonaws.com"));
    EXPECT_NE(of("https://example.amazonaws.com:444/"), of("https://example.amazonaws.com"));
}

TEST(SigV4, KeepsToTheServersClock) {
    SigV4 who = example();
    who.clock_skew = -3'600s;
    EXPECT_EQ(value_of(sign(who, "GET", "https://h/", {}, "", kThen), "X-Amz-Date"),
              "20150830T113600Z");
}

TEST(SigV4, NamesTheBodyForS3Alone) {
    SigV4 who = example();
    EXPECT_EQ(value_of(sign(who, "GET", "https://h/", {}, "", kThen), "X-Amz-Content-Sha256"), "");
    who.service = "s3";
    EXPECT_EQ(value_of(sign(who, "GET", "https://h/", {}, "", kThen), "X-Amz-Content-Sha256"),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(SigV4, AUrlWithoutAHostIsNotSigned) {
    EXPECT_TRUE(sign(example(), "GET", "example.amazonaws.com/", {}, "", kThen).empty());
}

}  // namespace
}  // namespace outbox::net
