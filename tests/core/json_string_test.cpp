#include "core/json_string.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <rapidcheck/gtest.h>
#include <string>
#include <vector>

#include "core/json_scan.h"

namespace outbox {
namespace {

std::optional<std::string> said(const std::string& json) {
    std::string storage = "of the last one";
    const auto text = json_string(json, storage);
    return text ? std::optional(std::string(*text)) : std::nullopt;
}

TEST(JsonString, IsWhatStandsBetweenTheQuotes) {
    EXPECT_EQ(said(R"("")"), "");
    EXPECT_EQ(said(R"("a b")"), "a b");
    EXPECT_EQ(said(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
    EXPECT_EQ(said(R"("a\u00e9\u20AC\ud83d\ude00z")"), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z");
    EXPECT_EQ(said(R"("\u0000")"), std::string(1, '\0'));
}

TEST(JsonString, HalfASurrogatePairSaysNothing) {
    for (const char* half : {R"("\ud83d")", R"("\ude00")", R"("\ud83dx")", R"("\ud83d\n")",
                             R"("\ud83d\u0041")", R"("\ud83d\ud83d")"}) {
        EXPECT_EQ(said(half), std::nullopt) << half;
    }
}

TEST(JsonString, WhatIsNoStringSaysNothing) {
    for (const char* other : {"1", "null", "{}", "[\"a\"]", "true", ""}) {
        EXPECT_EQ(said(other), std::nullopt) << other;
    }
}

// Another reader of JSON as the judge.
RC_GTEST_PROP(JsonString, SaysWhatAnotherReaderReads, ()) {
    const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        "a", "\xC3\xA9", "\\n", "\\\"", "\\\\", "\\/", "\\u0000", "\\u00E9", "\\ud83d", "\\ude00",
        "\\uDBFF", "\\uDFFF", "\\ue000", "u", "\\t"));
    std::string json = "\"";
    for (const std::string& piece : pieces) json += piece;
    json += '"';
    RC_ASSERT(is_json(json));
    const auto judge = nlohmann::json::parse(json, nullptr, false);
    RC_ASSERT(said(json) ==
              (judge.is_string() ? std::optional(judge.get<std::string>()) : std::nullopt));
}

}  // namespace
}  // namespace outbox
