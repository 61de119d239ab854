// Signatures, against what others' implementations of Standard Webhooks publish and verify.
#include "webhook/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base64.h"

namespace outbox::webhook {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Of the reference libraries' own tests.
constexpr std::string_view kSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
// RFC 8032, 7.1, test 1: seed and public key.
constexpr std::string_view kSeed =
    "\x9d\x61\xb1\x9d\xef\xfd\x5a\x60\xba\x84\x4a\xf4\x92\xec\x2c\xc4"
    "\x44\x49\xc5\x69\x7b\x32\x69\x19\x70\x3b\xac\x03\x1c\xae\x7f\x60";
constexpr std::string_view kPublic =
    "\xd7\x5a\x98\x01\x82\xb1\x0a\xb7\xd5\x4b\xfe\xd3\xc9\x64\x07\x3a"
    "\x0e\xe1\x72\xf3\xda\xa6\x23\x25\xaf\x02\x1a\x68\xf7\x07\x51\x1a";

std::string why_not(const std::string& secret) {
    const auto signer = Signer::make(secret);
    return signer.ok() ? "" : signer.error().message;
}

TEST(WebhookSignature, IsTheOneThatTheReferenceLibrariesMake) {
    const auto signer = Signer::make(kSecret);
    ASSERT_TRUE(signer.ok());
    EXPECT_EQ(signer->type(), SecretType::kV1);
    EXPECT_EQ(signer->public_key(), "");
    EXPECT_EQ(signer->sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, R"({"test": 2432232314})"),
              "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(WebhookSignature, OfAnEd25519KeyIsOnesOwnWhetherItsPublicHalfIsGivenOrNot) {
    const auto seed = Signer::make("whsk_" + base64_encode(kSeed));
    const auto both =
        Signer::make("whsk_" + base64_encode(std::string(kSeed) + std::string(kPublic)));
    ASSERT_TRUE(seed.ok() && both.ok());
    EXPECT_EQ(seed->type(), SecretType::kV1a);
    EXPECT_EQ(seed->public_key(), "whpk_" + base64_encode(kPublic));
    EXPECT_EQ(both->public_key(), seed->public_key());
    const std::string signature = seed->sign("a", 1, "b");
    EXPECT_THAT(signature, StartsWith("v1a,"));
    EXPECT_EQ(base64_decode(signature.substr(4))->size(), 64U);
    EXPECT_EQ(both->sign("a", 1, "b"), signature);
    EXPECT_NE(both->sign("a", 2, "b"), signature);
}

TEST(WebhookSignature, OfSeveralSecretsStandBesideEachOther) {
    const auto one = Signer::make(kSecret);
    const auto other = Signer::make("whsk_" + base64_encode(kSeed));
    ASSERT_TRUE(one.ok() && other.ok());
    const Signer* both[] = {&*one, &*other};
    EXPECT_EQ(signatures(both, "a", 1, "b"),
              one->sign("a", 1, "b") + " " + other->sign("a", 1, "b"));
    EXPECT_EQ(signatures({}, "a", 1, "b"), "");
}

TEST(WebhookSignature, NewSecretsAreNeverTheSameAndSign) {
    for (const SecretType type : {SecretType::kV1, SecretType::kV1a}) {
        const auto secret = make_secret(type);
        const auto other = make_secret(type);
        ASSERT_TRUE(secret.ok() && other.ok());
        EXPECT_NE(*secret, *other);
        const auto signer = Signer::make(*secret);
        ASSERT_TRUE(signer.ok());
        EXPECT_EQ(signer->type(), type);
        EXPECT_EQ(secret_type(name_of(type)), type);
    }
    EXPECT_EQ(secret_type("v2"), std::nullopt);
}

TEST(WebhookSignature, WhatIsNoSecretIsRefusedAndNothingOfItShown) {
    const std::string short_one = "whsec_" + base64_encode("only 23 bytes in there.");
    EXPECT_THAT(why_not(short_one), HasSubstr("has 23 bytes"));
    EXPECT_THAT(why_not("whsec_" + base64_encode(std::string(65, 'k'))), HasSubstr("has 65 bytes"));
    EXPECT_THAT(why_not("whsec_s3cret!"), HasSubstr("not in base64"));
    EXPECT_THAT(why_not("s3cret"), HasSubstr("begins with neither"));
    EXPECT_THAT(why_not(""), HasSubstr("begins with neither"));
    EXPECT_THAT(why_not("whpk_" + base64_encode(kPublic)), HasSubstr("is a public key"));
    EXPECT_THAT(why_not("whsk_" + base64_encode(std::string(33, 'k'))), HasSubstr("has 33 bytes"));
    const std::string torn = "whsk_" + base64_encode(std::string(kSeed) + std::string(32, 'p'));
    EXPECT_THAT(why_not(torn), HasSubstr("do not belong together"));
    for (const std::string& secret : {short_one, torn, std::string("whsec_s3cret!")}) {
        EXPECT_THAT(why_not(secret), Not(HasSubstr(secret.substr(6))));
    }
}

TEST(Base64, ComesBackTheSameAndNothingElseIsTaken) {
    for (const auto& [bytes, text] : std::initializer_list<std::pair<std::string, std::string>>{
             {"", ""},
             {"f", "Zg=="},
             {"fo", "Zm8="},
             {"foo", "Zm9v"},
             {"foob", "Zm9vYg=="},
             {std::string("\0\xff\x10", 3), "AP8Q"}}) {
        EXPECT_EQ(base64_encode(bytes), text);
        EXPECT_EQ(base64_decode(text), bytes);
    }
    for (const char* text : {"Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "Z===", "====", "Zm9v\n", "Zm-_",
                             "Zg==Zg==", " Zm9v", "Zm 9"}) {
        EXPECT_EQ(base64_decode(text), std::nullopt) << text;
    }
}

}  // namespace
}  // namespace outbox::webhook
