#include "core/json_scan.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "core/base64.h"

namespace outbox {
namespace {

TEST(JsonScan, TakesWhatTheGrammarTakesAndNothingElse) {
    for (const char* good : {"0", "-0", "-1.5e+10", "1E5", "\"\"", R"("\u00e9\n\"\\\/")", "true",
                             " null ", "[]", "{}", "[1,[2,{}],\"a\"]", "{\"a\":{\"b\":[]},\"\":0}",
                             "\t{\r\n\"a\" : 1 }\n", "\"\xC3\xA9\""}) {
        EXPECT_TRUE(is_json(good)) << good;
    }
    for (const char* bad :
         {"",     " ",         "01",      "1.",       ".5",          "+1",
          "1e",   "-",         "tru",     "nul",      "True",        "NaN",
          "'a'",  "\"a",       "\"\t\"",  R"("\x")",  R"("\u12g4")", "[1,]",
          "[,1]", "[1 2]",     "{\"a\"}", "{\"a\":}", "{a:1}",       "{\"a\":1,}",
          "[1}",  "{\"a\":1]", "]",       "1 2",      "\"\xff\"",    "\xEF\xBB\xBF{}",
          "[",    "{\"a\":1"}) {
        EXPECT_FALSE(is_json(bad)) << bad;
    }
    EXPECT_FALSE(is_json(std::string_view("1\0", 2)));
}

TEST(JsonScan, SeesWhatIsSpecialInAStringWhereverItStands) {
    for (std::size_t at = 0; at < 20; ++at) {
        for (const char c : std::string_view("\"\\\n\x1f\x00 !#[]\x7f", 11)) {
            std::string text(20, 'x');
            text[at] = c;
            text = '"' + text + '"';
            EXPECT_EQ(is_json(text), nlohmann::json::accept(text)) << at << ' ' << int{c};
        }
    }
}

TEST(JsonScan, FollowsNestingOfAnyDepth) {
    for (const std::size_t depth : {63U, 64U, 65U, 100'000U}) {
        const std::string open(depth, '[');
        EXPECT_TRUE(is_json(open + std::string(depth, ']')));
        EXPECT_FALSE(is_json(open + std::string(depth - 1, ']')));
        EXPECT_FALSE(is_json(open + std::string(depth - 1, ']') + "}"));
        std::string objects;
        for (std::size_t i = 0; i < depth; ++i) objects += "{\"a\":";
        EXPECT_TRUE(is_json(objects + "1" + std::string(depth, '}')));
        EXPECT_FALSE(is_json(objects + "1" + std::string(depth - 1, '}') + "]"));
    }
}

// Another reader of JSON as the judge, on texts that are nearly JSON.
RC_GTEST_PROP(JsonScan, AgreesWithAnotherReader, ()) {
    const auto pieces = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("{", "}", "[", "]", ",", ":", "\"a\"", "\"\\n\"", "1", "-2.5",
                                      "0", "true", "null", " ", "e"));
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    RC_ASSERT(is_json(text) == nlohmann::json::accept(text));
    const auto parsed = nlohmann::json::parse(text, nullptr, false);
    RC_ASSERT(for_each_json_member(text, [](auto, auto) {}) == parsed.is_object());
}

TEST(JsonScan, GivesTheMembersOfAnObjectAsTheyAreWritten) {
    std::vector<std::pair<std::string, std::string>> members;
    const auto take = [&](std::string_view name, std::string_view value) {
        members.emplace_back(name, value);
    };
    ASSERT_TRUE(for_each_json_member(R"( { "a" : 1.50 , "b\n":{"c": [ 2 ]}, "a":"x" } )", take));
    using Members = std::vector<std::pair<std::string, std::string>>;
    EXPECT_EQ(members,
              (Members{{R"("a")", "1.50"}, {R"("b\n")", R"({"c": [ 2 ]})"}, {R"("a")", R"("x")"}}));
    for (const char* bad : {"[]", "1", "", "{", "{\"a\":1", "{\"a\" 1}", "{\"a\":1,}", "{} {}"}) {
        EXPECT_FALSE(for_each_json_member(bad, take)) << bad;
    }
    EXPECT_TRUE(for_each_json_member("{ }", take));
}

TEST(Base64, ReadsWhatItWritesAndRefusesTheRest) {
    for (const auto& [bytes, text] : std::vector<std::pair<std::string, std::string>>{
             {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"\xff\xfe\xfd", "//79"}}) {
        std::string written;
        append_base64(bytes, written);
        EXPECT_EQ(written, text);
        EXPECT_EQ(base64_decode(text), bytes);
    }
    for (const char* bad : {"Zg", "Zg=", "Z===", "Zh==", "Zm9=", "Z g=", "-_79", "Zg==Zg=="}) {
        EXPECT_EQ(base64_decode(bad), std::nullopt) << bad;
    }
}

}  // namespace
}  // namespace outbox
