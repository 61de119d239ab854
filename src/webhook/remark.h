#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace outbox::webhook {

/// Something worth a log line; `what` as in docs/reference/logs.md.
struct Remark {
    enum class Level : std::uint8_t { kInfo, kWarning, kError };
    Level level = Level::kInfo;
    std::string what;
    std::vector<std::pair<std::string, std::string>> fields;
};

/// How long an endpoint has no further line of a kind: those are counted.
inline constexpr std::int64_t kQuietUs = 60'000'000;

}  // namespace outbox::webhook
