#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::postgres {

/// A primary that a session has met: promoting a standby begins a later timeline.
struct Primary {
    std::string address;  ///< What the URL names: copies that go their own ways have others.
    std::string system_id;
    std::int64_t timeline = 0;  ///< 0: none was met.
};

/// The timeline in the name of a file of the log.
[[nodiscard]] std::int64_t timeline_of(std::string_view log_file);

/// To be told of each one. `kConnectFailed` where this process has met a later timeline of the same
/// system at the same address: a standby was promoted in its place, and nobody fenced it. A process
/// that has not cannot know. Thread-safe.
Status meet(const Primary& primary);
/// A later one was met since. Thread-safe.
[[nodiscard]] bool is_replaced(const Primary& primary);

}  // namespace outbox::postgres
