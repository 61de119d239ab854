#include "runtime/log.h"

#include <array>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <unistd.h>

#include "runtime/line_writer.h"

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

class LinesIntoAPipe : public testing::Test {
  protected:
    LinesIntoAPipe() {
        EXPECT_EQ(pipe2(ends_.data(), O_NONBLOCK), 0);
        // What a process is given waits in `write`.
        fcntl(ends_[1], F_SETFL, 0);
        capacity_ = static_cast<std::size_t>(fcntl(ends_[1], F_GETPIPE_SZ));
        writer_.emplace(ends_[1], std::chrono::milliseconds(1), [](std::uint64_t lines) {
            return "left out " + std::to_string(lines) + "\n";
        });
    }
    ~LinesIntoAPipe() override {
        for (const int end : ends_) ::close(end);
    }
    LinesIntoAPipe(const LinesIntoAPipe&) = delete;
    LinesIntoAPipe& operator=(const LinesIntoAPipe&) = delete;

    std::string read_all() const {
        std::string text(2 * capacity_, '\0');
        const ssize_t size = ::read(ends_[0], text.data(), text.size());
        return text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(0, size)));
    }

    std::array<int, 2> ends_{};
    std::size_t capacity_ = 0;
    std::optional<LineWriter> writer_;
};

TEST_F(LinesIntoAPipe, AreLeftOutAndCountedWhileNobodyReads) {
    const std::string line(1'000, 'x');
    for (std::size_t i = 0; i < 2 * capacity_ / line.size(); ++i) writer_->write(line + "\n");
    const std::string first = read_all();
    ASSERT_FALSE(first.empty());
    EXPECT_LE(first.size(), capacity_);
    EXPECT_EQ(first.back(), '\n') << "whole lines";
    writer_->write("again\n");
    const std::size_t left_out = 2 * capacity_ / line.size() - first.size() / (line.size() + 1);
    EXPECT_EQ(read_all(), "left out " + std::to_string(left_out) + "\nagain\n");
    writer_->write("and on\n");
    EXPECT_EQ(read_all(), "and on\n") << "it is said once";
}

TEST_F(LinesIntoAPipe, OfWhichOneIsLargerThanThePipeAreCutAndTheNextBeginsAnew) {
    writer_->write("short\n");
    writer_->write(std::string(2 * capacity_, 'x') + "\n");
    const std::string first = read_all();
    EXPECT_THAT(first, testing::StartsWith("short\nxxx"));
    writer_->write("again\n");
    EXPECT_EQ(read_all(), "\nleft out 1\nagain\n");
}

TEST_F(LinesIntoAPipe, ThatNobodyHasOpenAreNoError) {
    signal(SIGPIPE, SIG_IGN);
    ::close(ends_[0]);
    writer_->write("to nobody\n");
    ends_[0] = ::open("/dev/null", O_RDONLY);
}

}  // namespace
}  // namespace outbox::runtime
