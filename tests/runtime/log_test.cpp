#include "runtime/log.h"

#include <gtest/gtest.h>

namespace outbox::runtime {
namespace {

std::string line(std::string_view format, const LogFields& fields) {
    return format_log_line(format, "T", LogLevel::kWarn, "circuit_opened", fields);
}

TEST(Log, WritesPlainValuesBareAndOthersQuoted) {
    EXPECT_EQ(
        line("logfmt", {{"route", "a"}, {"error", "no \"luck\"\nhere"}, {"empty", ""}}),
        R"(time=T level=warn event=circuit_opened route=a error="no \"luck\"\nhere" empty="")");
}

TEST(Log, WritesJsonOnRequest) {
    EXPECT_EQ(line("json", {{"route", "a\tb"}}),
              R"({"time":"T","level":"warn","event":"circuit_opened","route":"a\tb"})");
}

TEST(Log, ReplacesInvalidUtf8) {
    EXPECT_EQ(line("json", {{"x", "a\xff"}}),
              "{\"time\":\"T\",\"level\":\"warn\",\"event\":\"circuit_opened\",\"x\":\"a\uFFFD\"}");
}

TEST(Log, HidesSecretsInEveryField) {
    for (const char* format : {"logfmt", "json"}) {
        const std::string text =
            line(format, {{"url", "postgresql://a:s3cret@db/x"}, {"error", "password=s3cret bad"}});
        EXPECT_EQ(text.find("s3cret"), std::string::npos) << text;
    }
}

TEST(Log, TellsEachChangeOnce) {
    OncePerChange changes;
    EXPECT_TRUE(changes.changed("route", "open"));
    EXPECT_FALSE(changes.changed("route", "open"));
    EXPECT_TRUE(changes.changed("other", "open"));
    EXPECT_TRUE(changes.changed("route", "closed"));
    EXPECT_TRUE(changes.changed("route", "open"));
}

}  // namespace
}  // namespace outbox::runtime
