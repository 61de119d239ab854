#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/fence.h>
#include <outbox/result.h>

namespace outbox {

/// `fence_ids` without exceptions.
Result<std::vector<std::string>> parse_fence(std::string_view token);

/// RFC 1950, section 8.2.
[[nodiscard]] std::uint32_t adler32(std::string_view bytes);

}  // namespace outbox
