// How endpoints' secrets are stored.
#include "webhook/sealed_secrets.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base64.h"
#include "core/redact.h"
#include "tests/support/files.h"

namespace outbox::webhook {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kOneKey = base64_encode(std::string(32, '1'));
const std::string kOtherKey = base64_encode(std::string(32, '2'));
const std::vector<Secret> kSecrets{{"whsec_bmV3", 0}, {"whsec_b2xk", 1'700'000'000}};

KeyRing ring(const std::string& text) {
    auto made = KeyRing::parse(text);
    EXPECT_TRUE(made.ok());
    return std::move(*made);
}

std::string why_not(const KeyRing& keys, const std::string& id, const std::string& sealed) {
    const auto opened = keys.open(id, sealed);
    return opened.ok() ? "" : opened.error().message;
}

TEST(SealedSecrets, AreOpenedAsTheyWere) {
    const KeyRing keys = ring(kOneKey);
    const auto sealed = keys.seal("ep", kSecrets);
    ASSERT_TRUE(sealed.ok());
    EXPECT_THAT(*sealed, AllOf(Not(HasSubstr("bmV3")), HasSubstr(keys.key_id())));
    const auto opened = keys.open("ep", *sealed);
    ASSERT_TRUE(opened.ok());
    ASSERT_EQ(opened->size(), 2U);
    EXPECT_EQ(opened->at(0).text, "whsec_bmV3");
    EXPECT_EQ(opened->at(1).text, "whsec_b2xk");
    EXPECT_EQ(opened->at(1).until_s, 1'700'000'000);
    EXPECT_NE(*keys.seal("ep", kSecrets), *sealed);
}

TEST(SealedSecrets, AreOpenedByAFormerKeyOfTheFile) {
    const auto sealed = ring(kOneKey).seal("ep", kSecrets);
    ASSERT_TRUE(sealed.ok());
    const KeyRing both = ring(kOtherKey + "\r\n" + kOneKey + "\n\n");
    EXPECT_EQ(why_not(both, "ep", *sealed), "");
    EXPECT_EQ(both.key_id(), ring(kOtherKey).key_id());
    EXPECT_THAT(why_not(ring(kOtherKey), "ep", *sealed),
                AllOf(HasSubstr(ring(kOneKey).key_id()), HasSubstr("add the former key")));
}

TEST(SealedSecrets, ThatWereAlteredOrAreAnothersAreNotOpened) {
    const KeyRing keys = ring(kOneKey);
    const std::string sealed = *keys.seal("ep", kSecrets);
    EXPECT_THAT(why_not(keys, "other", sealed), HasSubstr("another endpoint's"));
    const std::size_t body = sealed.rfind('.') + 1;
    for (std::size_t at = body; at < sealed.size(); ++at) {
        std::string altered = sealed;
        altered[at] = altered[at] == 'A' ? 'B' : 'A';
        EXPECT_NE(why_not(keys, "ep", altered), "") << at;
    }
    for (std::size_t size = 0; size < sealed.size(); ++size) {
        EXPECT_NE(why_not(keys, "ep", sealed.substr(0, size)), "") << size;
    }
    EXPECT_NE(why_not(keys, "ep", sealed + "AAAA"), "");
}

TEST(SealedSecrets, NothingSecretIsInAnError) {
    const std::string sealed = *ring(kOneKey).seal("ep", kSecrets);
    for (const std::string& why :
         {why_not(ring(kOtherKey), "ep", sealed), why_not(ring(kOneKey), "ep\x1b", sealed)}) {
        EXPECT_THAT(why, AllOf(Not(HasSubstr("whsec")), Not(HasSubstr(kOneKey)),
                               Not(HasSubstr(kOtherKey)), Not(HasSubstr("\x1b"))));
    }
}

TEST(SealedSecrets, AKeyFileIsItsOwnersAloneAndHasKeys) {
    const test::TemporaryFolder folder;
    const std::string path = (folder / "webhook.key").string();
    const auto why = [&](const std::string& text, std::filesystem::perms mode) {
        std::ofstream(path, std::ios::trunc) << text;
        std::filesystem::permissions(path, mode);
        const auto keys = KeyRing::read(path);
        return keys.ok() ? "" : keys.error().message;
    };
    constexpr auto kOwner =
        std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
    EXPECT_THAT(KeyRing::read(path).error().message, HasSubstr("webhook key file " + path));
    EXPECT_EQ(why(kOneKey + "\n", kOwner), "");
    EXPECT_EQ(redact("key " + kOneKey), "key ***");
    EXPECT_THAT(why(kOneKey, kOwner | std::filesystem::perms::others_read), HasSubstr("chmod"));
    EXPECT_THAT(why("", kOwner), HasSubstr("empty"));
    EXPECT_THAT(why("\n \n", kOwner), HasSubstr("openssl rand"));
    EXPECT_THAT(why(base64_encode("too short"), kOwner),
                AllOf(HasSubstr("line 1"), HasSubstr("openssl rand"), HasSubstr(path)));
    forget_secrets();
}

TEST(SealedSecrets, AFormerOneSignsUntilItsTime) {
    EXPECT_EQ(in_force(kSecrets, 1'699'999'999).size(), 2U);
    ASSERT_EQ(in_force(kSecrets, 1'700'000'000).size(), 1U);
    EXPECT_EQ(in_force(kSecrets, 1'700'000'000)[0].text, "whsec_bmV3");
}

}  // namespace
}  // namespace outbox::webhook
