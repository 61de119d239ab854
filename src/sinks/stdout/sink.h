#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include <outbox/spi/sink.h>

namespace outbox::sinks::stdout_ {

/// Writes records as JSON lines to a file descriptor, standard output unless told otherwise.
/// Not thread-safe.
class StdoutSink final : public spi::Sink {
  public:
    static constexpr int kStandardOutput = 1;

    /// `fd` must stay open as long as the sink; the sink does not close it.
    explicit StdoutSink(int fd = kStandardOutput);

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override { return std::string("stdout"); }
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;

  private:
    struct Line {
        std::uint64_t token;
        std::uint64_t end;  // where the line ends, counted from the sink's first byte
    };

    [[nodiscard]] bool wait_writable(int wait_ms) const;
    [[nodiscard]] Status write_some();
    void acknowledge(spi::Completions& out);
    void fail_all(const ErrorInfo& error, spi::Completions& out);

    int fd_;
    bool may_block_;      // a pipe, terminal or socket: write little at a time
    std::string buffer_;  // bytes not yet dropped; the first `offset_` are written
    std::size_t offset_ = 0;
    std::uint64_t written_ = 0;
    std::uint64_t end_ = 0;  // of all lines so far
    std::deque<Line> lines_;
    // Not a line feed after a failed write cut a line: the next line then starts with one, so that
    // only the cut line is unreadable.
    char last_written_ = '\n';
};

}  // namespace outbox::sinks::stdout_
