#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mutex.h"

namespace outbox::runtime {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError };

/// Name and value of one field, besides time, level and event.
using LogFields = std::vector<std::pair<std::string, std::string>>;

/// `level` and `format` as the options log-level and log-format have them. Call before threads
/// start.
void configure_logs(std::string_view level, std::string_view format);

/// Writes one line to stderr: time, level, event, the fields in order. `event` is a stable name
/// (docs/reference/logs.md). Secrets are replaced by "***". Thread-safe.
void log(LogLevel level, std::string_view event, const LogFields& fields = {});

/// The line that `log` writes, without its end; for tests and for `log` itself.
[[nodiscard]] std::string format_log_line(std::string_view format, std::string_view time,
                                          LogLevel level, std::string_view event,
                                          const LogFields& fields);

/// Tells whether something changed, so that a state is logged once and not at every look.
/// Thread-safe. Holds as many names as there are things watched (routes).
class OncePerChange {
  public:
    /// True at the first call for `name` and whenever `value` differs from the call before.
    [[nodiscard]] bool changed(const std::string& name, const std::string& value);

  private:
    core::Mutex mutex_;
    std::map<std::string, std::string> values_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::runtime
