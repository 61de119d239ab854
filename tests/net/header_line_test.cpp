#include "net/header_line.h"

#include <gtest/gtest.h>

namespace outbox::net {
namespace {

using namespace std::string_literals;

TEST(HeaderLine, AnyValueComesBackTheSame) {
    for (const std::string& name : {"note"s, "note*"s, "note**"s}) {
        for (const std::string& value :
             {""s, "plain: text, \"quoted\""s, " blank"s, "blank "s, "a\r\nb: c"s, "a\0b"s,
              "caf\xC3\xA9 \xE2\x82\xAC"s, "\xFF\x80"s, "UTF-8''a%20b"s, "%41"s, "\t"s}) {
            std::string line;
            append_header_line(name, value, line);
            ASSERT_TRUE(line.ends_with("\r\n"));
            line.resize(line.size() - 2);
            EXPECT_EQ(line.find_first_of("\r\n"), std::string::npos);
            const std::size_t colon = line.find(": ");
            const auto back = decode_header(line.substr(0, colon), line.substr(colon + 2));
            EXPECT_EQ(back, std::pair(name, value)) << line;
            std::pair<std::string, std::string> as{name, value};
            encode_header(name, value, as);
            EXPECT_EQ(as.first + ": " + as.second, line);
        }
    }
}

TEST(HeaderLine, WhatIsPlainStaysAsItIs) {
    std::string line;
    append_header_line("type", "OrderCreated", line);
    EXPECT_EQ(line, "type: OrderCreated\r\n");
    // Another's, with a star and without the form.
    EXPECT_EQ(decode_header("a*", "b"), std::pair("a*"s, "b"s));
}

TEST(HeaderLine, NamesAreVisibleAscii) {
    EXPECT_EQ(why_not_header_name("x-note!"), std::nullopt);
    for (const std::string& name : {""s, "a:b"s, "a b"s, "a\n"s, "caf\xC3\xA9"s, "\x7F"s, "\0"s}) {
        EXPECT_NE(why_not_header_name(name), std::nullopt) << name;
    }
}

}  // namespace
}  // namespace outbox::net
