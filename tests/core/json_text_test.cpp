#include "core/json_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/utf8.h"

namespace outbox {
namespace {

std::string json_string(std::string_view text) {
    std::string out;
    append_json_string(text, out);
    return out;
}

TEST(JsonText, EscapesWhatJsonForbidsInAStringAndNothingElse) {
    EXPECT_EQ(json_string(""), R"("")");
    EXPECT_EQ(json_string("plain \xC3\xA9 / \x7f"), "\"plain \xC3\xA9 / \x7f\"");
    EXPECT_EQ(json_string("\"\\\b\f\n\r\t"), R"("\"\\\b\f\n\r\t")");
    EXPECT_EQ(json_string(std::string("\0\x1f", 2)), R"("\u0000\u001f")");
}

TEST(JsonText, IsReadBackAsItWasForEveryByteOfAscii) {
    std::string all;
    for (int byte = 0; byte < 0x80; ++byte) all += static_cast<char>(byte);
    EXPECT_EQ(nlohmann::json::parse(json_string(all)), all);
}

TEST(JsonText, MakesArraysOfStrings) {
    EXPECT_EQ(json_array({}), "[]");
    const std::vector<std::string> texts{"a", "\"", ""};
    EXPECT_EQ(json_array(texts), R"(["a","\"",""])");
}

TEST(Utf8, ReplacesEachByteThatIsNotUtf8AndKeepsTheRest) {
    EXPECT_EQ(to_utf8("a\xC3\xA9\xF0\x9F\x98\x80"), "a\xC3\xA9\xF0\x9F\x98\x80");
    EXPECT_EQ(to_utf8("a\xC3"), "a\uFFFD");
    EXPECT_EQ(to_utf8("\xED\xA0\x80z"), "\uFFFD\uFFFD\uFFFDz");  // a surrogate
}

TEST(Utf8, CutsStorableTextBetweenSequences) {
    EXPECT_EQ(to_storable_text("ab\xC3\xA9", 4), "ab\xC3\xA9");
    EXPECT_EQ(to_storable_text("ab\xC3\xA9", 3), "ab");
    EXPECT_EQ(to_storable_text(std::string_view("a\0b\xFF", 4), 10), "a?b?");
}

TEST(Utf8, LeavesNothingToATerminalToObey) {
    EXPECT_EQ(to_printable("a\x1b[31m\xC2\x9B\x7f\n\tb"), "a?[31m????b");
    EXPECT_EQ(to_printable("a\n\tb\r", true), "a\n\tb?");
}

// With U+202E "gpj.exe" is read as "exe.jpg".
TEST(Utf8, NothingTurnsTheDirectionOfWriting) {
    for (const std::uint32_t code :
         {0x061cU, 0x200eU, 0x200fU, 0x2028U, 0x2029U, 0x202aU, 0x202bU, 0x202cU, 0x202dU, 0x202eU,
          0x2066U, 0x2067U, 0x2068U, 0x2069U}) {
        std::string text = "a";
        append_utf8(code, text);
        EXPECT_EQ(to_printable(text + "b", true), "a?b") << code;
        constexpr const char* kDigits = "0123456789abcdef";
        std::string escape = "\\u";
        for (int shift = 12; shift >= 0; shift -= 4) escape += kDigits[code >> shift & 15U];
        EXPECT_EQ(printable_json("\"" + text + "b\""), "\"a" + escape + "b\"") << code;
    }
    // Their neighbours, and a joiner that scripts need.
    const std::string others = "\u061b\u061d\u200d\u2010\u2027\u202f\u2065\u206a\u05d0";
    EXPECT_EQ(to_printable(others), others);
    EXPECT_EQ(printable_json("\"" + others + "\x7f\""), "\"" + others + "\\u007f\"");
}

}  // namespace
}  // namespace outbox
