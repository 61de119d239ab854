#include "core/fence.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace outbox {
namespace {

std::vector<std::string> some_ids(std::size_t count) {
    std::vector<std::string> ids;
    for (std::size_t n = 0; n < count; ++n) {
        std::string last = std::to_string(1'000 + n);
        ids.push_back("01939d3e-7c00-7aaa-bcde-00000000" + last);
    }
    return ids;
}

std::string refusal(std::string_view token) {
    const auto ids = parse_fence(token);
    if (ids.ok()) return "";
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidEvent);
    return ids.error().message;
}

TEST(Fence, ATokenHoldsUpToAHundredEventsAndFitsIntoAHeader) {
    EXPECT_EQ(fence_token({}), "obf1.AAAAAQ");
    const std::vector<std::size_t> sizes{1, 10, 100};
    const std::vector<std::size_t> lengths{32, 224, 2'144};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const auto ids = some_ids(sizes[i]);
        const std::string token = fence_token(ids);
        EXPECT_EQ(token.size(), lengths[i]);
        EXPECT_EQ(token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789-_."),
                  std::string::npos);
        EXPECT_EQ(fence_ids(token), ids);
    }
    EXPECT_EQ(fence_ids("obf1.AAAAAQ"), std::vector<std::string>{});
    try {
        static_cast<void>(fence_token(some_ids(101)));
        FAIL() << "a token of 101 events";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidEvent);
        EXPECT_NE(std::string(error.what()).find("these are 101"), std::string::npos);
    }
    auto twice = some_ids(100);
    twice.push_back(twice.front());
    EXPECT_EQ(fence_ids(fence_token(twice)).size(), 100U);
}

TEST(Fence, OnlyUuidsInLowerCaseGoIntoAToken) {
    for (const char* id :
         {"", "o-1", "01939D3E-7C00-7AAA-BCDE-000000001000", "01939d3e-7c00-7aaa-bcde-00000000100",
          "01939d3e+7c00-7aaa-bcde-000000001000", "01939d3e-7c00-7aaa-bcde-00000000100g"}) {
        const std::vector<std::string> ids{id};
        EXPECT_THROW(static_cast<void>(fence_token(ids)), Error) << id;
    }
}

TEST(Fence, TheChecksumIsAdler32OfRfc1950) {
    EXPECT_EQ(adler32("Wikipedia"), 0x11E60398U);
    EXPECT_EQ(adler32(""), 1U);
    EXPECT_EQ(adler32(std::string(2'000, '\xff')), 0xAFADC89AU);
}

TEST(Fence, WhatIsNoTokenIsRefusedWithItsReason) {
    const std::string token = fence_token(some_ids(2));
    EXPECT_NE(refusal("").find("begin with obf1."), std::string::npos);
    EXPECT_NE(refusal("obf2." + token.substr(5)).find("begin with obf1."), std::string::npos);
    EXPECT_NE(refusal(token.substr(0, token.size() - 1)), "");
    EXPECT_NE(refusal(token + "A"), "");
    EXPECT_NE(refusal(token + "="), "");
    EXPECT_NE(refusal(token + "\n"), "");
    EXPECT_NE(refusal(" " + token), "");
    EXPECT_NE(refusal("obf1."), "");
    EXPECT_NE(refusal("obf1." + std::string(100'000, 'A')).find("longer"), std::string::npos);
    // Three ids are 64 signs: that they are gone only the checksum tells.
    const std::string four = fence_token(some_ids(4));
    EXPECT_NE(refusal(four.substr(0, four.size() - 64)).find("checksum"), std::string::npos);
}

RC_GTEST_PROP(Fence, AChangedSignIsSeen, ()) {
    const auto count = *rc::gen::inRange<std::size_t>(1, 101);
    const std::string token = fence_token(some_ids(count));
    const auto at = *rc::gen::inRange<std::size_t>(0, token.size());
    const char other = *rc::gen::distinctFrom(token[at]);
    std::string changed = token;
    changed[at] = other;
    RC_ASSERT(!parse_fence(changed).ok());
}

RC_GTEST_PROP(Fence, GarbageIsRefused, (const std::string& text)) {
    RC_ASSERT(!parse_fence("obf1." + text).ok());
    RC_ASSERT(!parse_fence(text).ok());
}

}  // namespace
}  // namespace outbox
