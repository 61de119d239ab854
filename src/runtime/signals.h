#pragma once

#include <chrono>
#include <optional>

namespace outbox::runtime {

/// From now on they wait until somebody asks for them, and end nothing. Before any thread starts.
void block_stop_signals();

/// SIGTERM, SIGINT and SIGHUP as something to wait for; SIGPIPE is ignored, so that a closed pipe
/// is an error of a write. Make it before any thread starts: threads inherit the blocked signals.
class StopSignals {
  public:
    StopSignals();
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    /// The number of the signal that came, or none after `max_wait`. Blocks.
    [[nodiscard]] std::optional<int> wait(std::chrono::milliseconds max_wait);

    /// Readable when a signal waits; for poll(2).
    [[nodiscard]] int descriptor() const { return descriptor_; }

  private:
    int descriptor_ = -1;
};

}  // namespace outbox::runtime
