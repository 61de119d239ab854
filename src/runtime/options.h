#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "runtime/option_table.h"

namespace outbox::runtime {

enum class Origin : std::uint8_t { kDefault, kFile, kEnvironment, kArgument };

/// An option's value as it was written, and where.
struct OptionValue {
    std::vector<std::string> texts;
    Origin origin = Origin::kDefault;
    std::string where;  ///< "--batch-size", "OUTBOX_BATCH_SIZE", "outbox.toml:3:14 (batch_size)".
};

/// The options of one command, checked against the table. Asking for an option that the table
/// does not have, or as another type, is a defect and aborts.
class OptionValues {
  public:
    /// Takes the value if its origin outranks the one there is. Errors: kConfigInvalid, naming
    /// where the value stands and what would be right.
    Status set(const OptionSpec& spec, OptionValue value);

    /// True when the user gave it, by any means.
    [[nodiscard]] bool given(std::string_view name) const;
    [[nodiscard]] Origin origin(std::string_view name) const;
    [[nodiscard]] std::string where(std::string_view name) const;

    [[nodiscard]] bool flag(std::string_view name) const;
    [[nodiscard]] std::int64_t integer(std::string_view name) const;
    [[nodiscard]] std::string text(std::string_view name) const;
    [[nodiscard]] std::vector<std::string> list(std::string_view name) const;
    [[nodiscard]] std::chrono::seconds duration(std::string_view name) const;

  private:
    std::map<std::string, OptionValue, std::less<>> values_;
};

/// "batch-size" -> "OUTBOX_BATCH_SIZE".
[[nodiscard]] std::string environment_name(std::string_view option);

/// "--batch-size: ..." as a kConfigInvalid error.
[[nodiscard]] ErrorInfo config_error(std::string_view where, std::string_view what);

/// "7d" -> seconds. Errors: kConfigInvalid.
Result<std::chrono::seconds> parse_duration(std::string_view text);

/// A time as people write it, in microseconds since the Unix epoch: "2026-01-31T08:15:00Z", with a
/// fraction or an offset ("+02:00") where there is one, "2026-01-31" (UTC), or "2h": so long before
/// `now_us`. Errors: kConfigInvalid.
Result<std::int64_t> parse_time(std::string_view text, std::int64_t now_us);

}  // namespace outbox::runtime
