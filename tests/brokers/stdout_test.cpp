#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "brokers/stdout/line.h"
#include "brokers/stdout/sink.h"
#include "tests/conformance/courier.h"
#include "tests/support/files.h"

namespace outbox::stdout_ {
namespace {

using test::Letter;

nlohmann::json line_of(const Letter& letter) {
    std::string line;
    append_line(letter.record(4), line);
    EXPECT_EQ(line.back(), '\n');
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
    return nlohmann::json::parse(line);
}

Letter letter_with(std::optional<std::string> value) {
    return {"id-1", "orders", "k", std::move(value), {{"id", "id-1"}}};
}

TEST(StdoutLine, PrintsPayloadAsJsonWhereItIsJson) {
    const auto line = line_of(letter_with("{\"a\":\n [1, 2.50],\r\n\"b\":null}"));
    EXPECT_EQ(line["payload"], nlohmann::json::parse(R"({"a":[1,2.5],"b":null})"));
    EXPECT_EQ(line["position"], 5);
    EXPECT_EQ(line["id"], "id-1");
    EXPECT_EQ(line["topic"], "orders");
    EXPECT_EQ(line["key"], "k");
    EXPECT_EQ(line["headers"], (nlohmann::json{{"id", "id-1"}}));
    std::string exact;
    append_line(letter_with("99.90").record(0), exact);
    EXPECT_NE(exact.find("\"payload\":99.90}"), std::string::npos) << "digits are kept";
}

TEST(StdoutLine, PrintsOtherPayloadsAsStringNullOrBase64) {
    EXPECT_EQ(line_of(letter_with("two\nlines \"quoted\""))["payload"], "two\nlines \"quoted\"");
    EXPECT_EQ(line_of(letter_with(""))["payload"], "");
    EXPECT_TRUE(line_of(letter_with(std::nullopt))["payload"].is_null());
    EXPECT_EQ(line_of(letter_with("\xEF\xBB\xBF{}"))["payload"], "\xEF\xBB\xBF{}");
    const auto binary = line_of(letter_with(std::string("\xff\x00\x01\xfe", 4)));
    EXPECT_EQ(binary["payload_base64"], "/wAB/g==");
    EXPECT_FALSE(binary.contains("payload"));
}

TEST(StdoutLine, ReplacesWhatIsNotUtf8InTheKey) {
    Letter letter = letter_with("1");
    letter.key = "k\xff";
    EXPECT_EQ(line_of(letter)["key"], "k\xEF\xBF\xBD");
    letter.key = std::nullopt;
    EXPECT_TRUE(line_of(letter)["key"].is_null());
}

struct Pipe {
    Pipe() {
        int ends[2];
        if (pipe(ends) == 0) {
            read_end = ends[0];
            write_end = ends[1];
        }
    }
    ~Pipe() {
        close_read();
        close(write_end);
    }
    void close_read() {
        if (read_end >= 0) close(read_end);
        read_end = -1;
    }
    std::size_t drain() const {
        std::string room(1 << 20, '\0');
        const ssize_t count = read(read_end, room.data(), room.size());
        return count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    int read_end = -1;
    int write_end = -1;
};

TEST(StdoutSink, StopsWhenTheReaderClosesThePipe) {
    Pipe pipe;
    StdoutSink sink(pipe.write_end);
    const Letter first = letter_with("1");
    const Letter second = letter_with("2");
    EXPECT_TRUE(sink.check().ok());
    pipe.close_read();
    ASSERT_TRUE(sink.publish(first.record(1)));
    ASSERT_TRUE(sink.publish(second.record(2)));
    spi::Completions completions;
    sink.poll(std::chrono::milliseconds(10), completions);
    EXPECT_TRUE(completions.acknowledged.empty());
    ASSERT_EQ(completions.failed.size(), 2U);
    EXPECT_EQ(completions.failed[0].error.code, ErrorCode::kSinkClosed);
    EXPECT_EQ(completions.failed[0].error.advice, Advice::kStop);
    EXPECT_FALSE(sink.check().ok());
}

TEST(StdoutSink, WaitsForASlowReaderAndAcknowledgesOnlyWholeLines) {
    Pipe pipe;
    StdoutSink sink(pipe.write_end);
    const Letter big = letter_with(std::string(200'000, 'x'));  // more than a pipe holds
    ASSERT_TRUE(sink.publish(big.record(1)));
    spi::Completions completions;
    sink.poll(std::chrono::milliseconds(1), completions);
    EXPECT_TRUE(completions.empty());
    std::size_t read = 0;
    while (completions.empty() && read < 300'000) {
        read += pipe.drain();
        sink.poll(std::chrono::milliseconds(1), completions);
    }
    EXPECT_EQ(completions.acknowledged, std::vector<std::uint64_t>{1});
}

// Two routes of one relay, with lines below and above what a pipe takes at once.
TEST(StdoutSink, LinesOfTwoSinksOnOnePipeComeWhole) {
    const Pipe pipe;
    constexpr std::size_t kLines = 3'000;
    const auto deliver = [&](char fill) {
        StdoutSink sink(pipe.write_end);
        std::vector<Letter> sent;
        for (std::size_t i = 0; i < kLines; ++i) {
            sent.push_back(letter_with(std::string(i % 50 == 0 ? 9'000 : 150, fill)));
        }
        EXPECT_EQ(test::Courier(sink).deliver(sent), "");
    };
    std::thread first(deliver, 'a');
    std::thread second(deliver, 'b');
    std::string text;
    std::size_t lines = 0;
    while (lines < 2 * kLines) {
        std::string room(1 << 16, '\0');
        const ssize_t count = read(pipe.read_end, room.data(), room.size());
        ASSERT_GT(count, 0);
        room.resize(static_cast<std::size_t>(count));
        lines += static_cast<std::size_t>(std::count(room.begin(), room.end(), '\n'));
        text += room;
    }
    first.join();
    second.join();
    std::size_t readable = 0;
    for (std::size_t start = 0; start < text.size();) {
        const std::size_t end = text.find('\n', start);
        readable += nlohmann::json::accept(text.substr(start, end - start)) ? 1 : 0;
        start = end + 1;
    }
    EXPECT_EQ(readable, 2 * kLines);
}

TEST(StdoutSink, IsFullWhenTheReaderDoesNotRead) {
    Pipe pipe;
    StdoutSink sink(pipe.write_end);
    const Letter big = letter_with(std::string(100'000, 'x'));
    std::uint64_t taken = 0;
    spi::Completions completions;
    while (taken < 100 && sink.publish(big.record(taken))) {
        ++taken;
        sink.poll(std::chrono::milliseconds(0), completions);
    }
    EXPECT_LT(taken, 20U) << "memory is bounded";
    EXPECT_TRUE(completions.failed.empty());
}

TEST(StdoutSink, WaitsForRoomOnAFullDiskAndEndsTheLineThatWasCut) {
    const test::TemporaryFolder folder("stdout");
    const std::string path = folder / "lines";
    const int fd = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ASSERT_GE(fd, 0);
    StdoutSink sink(fd);
    const Letter letter = letter_with(std::string(1'000, 'x'));
    spi::Completions completions;
    {
        // A file size limit stands for a full disk: the write stops in mid-line.
        signal(SIGXFSZ, SIG_IGN);
        rlimit before{};
        getrlimit(RLIMIT_FSIZE, &before);
        rlimit small = before;
        small.rlim_cur = 500;
        setrlimit(RLIMIT_FSIZE, &small);
        ASSERT_TRUE(sink.publish(letter.record(1)));
        sink.poll(std::chrono::milliseconds(0), completions);
        setrlimit(RLIMIT_FSIZE, &before);
    }
    ASSERT_EQ(completions.failed.size(), 1U);
    EXPECT_EQ(completions.failed[0].error.code, ErrorCode::kDiskFull);
    EXPECT_EQ(completions.failed[0].error.advice, Advice::kRetryDestination);
    completions.clear();
    ASSERT_TRUE(sink.publish(letter.record(2)));
    sink.poll(std::chrono::milliseconds(0), completions);
    EXPECT_EQ(completions.acknowledged, std::vector<std::uint64_t>{2});
    const std::string written = test::read_file(path);
    const std::string last = written.substr(written.find('\n') + 1);
    EXPECT_EQ(nlohmann::json::parse(last)["position"], 3);
    close(fd);
}

}  // namespace
}  // namespace outbox::stdout_
