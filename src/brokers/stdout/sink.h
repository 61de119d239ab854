#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include <outbox/spi/sink.h>

namespace outbox::stdout_ {

class Turn;

inline const spi::SinkCapabilities kCapabilities{"stdout", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/true, /*durable=*/false};

/// Writes records as JSON lines to a file descriptor, standard output unless told otherwise.
/// Several sinks of one process may write to one descriptor: each line comes whole. One sink is
/// not thread-safe.
class StdoutSink final : public spi::Sink {
  public:
    static constexpr int kStandardOutput = 1;

    /// `fd` must stay open as long as the sink; the sink does not close it.
    explicit StdoutSink(int fd = kStandardOutput);
    ~StdoutSink() override;

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

    enum class Wrote : std::uint8_t { kSome, kNothing };
    [[nodiscard]] bool is_writable(int wait_ms) const;
    [[nodiscard]] Result<Wrote> write_some(std::chrono::milliseconds wait);
    [[nodiscard]] std::size_t next_chunk() const;
    void acknowledge(spi::Completions& out);
    void fail_all(const ErrorInfo& error, spi::Completions& out);

    int fd_;
    bool may_block_;      // a pipe, terminal or socket: write little at a time
    std::string buffer_;  // bytes not yet dropped; the first `offset_` are written
    std::size_t offset_ = 0;
    std::uint64_t written_ = 0;
    std::uint64_t end_ = 0;  // of all lines so far
    std::deque<Line> lines_;
    std::shared_ptr<Turn> turn_;  // shared by the sinks of one descriptor
};

}  // namespace outbox::stdout_
