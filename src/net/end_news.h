#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <outbox/error.h>
#include <outbox/spi/sink.h>

#include "core/mutex.h"

namespace outbox::net {

/// Tells of connections whose end no event and no outage is blamed for (yet), as what was under way
/// goes again: at once of the first, then once a minute how many there were. Thread-safe.
class EndNews {
  public:
    using Time = std::chrono::steady_clock::time_point;

    void ended(const ErrorInfo& error);
    void report(spi::SinkReport& out, Time now = std::chrono::steady_clock::now());

  private:
    core::Mutex mutex_;
    std::uint64_t ends_ OUTBOX_GUARDED_BY(mutex_) = 0;  // not told
    std::string error_ OUTBOX_GUARDED_BY(mutex_);       // of the last
    std::optional<Time> told_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::net
