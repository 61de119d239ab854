#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace outbox::runtime {

/// Writes lines where somebody may have ceased to read (a pager, a collector that hangs): it waits
/// for them once, and from then on leaves out what does not fit, until they read again. Not
/// thread-safe.
class LineWriter {
  public:
    /// A line that says how many were left out.
    using LeftOut = std::string (*)(std::uint64_t lines);

    /// `descriptor` stays the caller's. `patience`: the longest wait.
    LineWriter(int descriptor, std::chrono::milliseconds patience, LeftOut left_out)
        : descriptor_(descriptor), patience_(patience), left_out_(left_out) {}

    /// `line` has its end.
    void write(std::string_view line);

  private:
    bool put(std::string_view text);
    bool put_some(std::string_view& text, int wait_ms);

    const int descriptor_;
    const std::chrono::milliseconds patience_;
    const LeftOut left_out_;
    bool stalled_ = false;
    bool begun_ = false;  // a line that could not be ended
    std::uint64_t lines_left_out_ = 0;
};

}  // namespace outbox::runtime
