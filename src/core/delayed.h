#pragma once

#include <cstdint>
#include <string>

#include <outbox/spi/source.h>

namespace outbox::core {

/// Delayed events that were due longer ago than this are looked for, up to so many.
inline constexpr std::int64_t kOverdueS = 600;
inline constexpr std::int64_t kMaxOverdue = 1'000;

/// What `count` of them, of which `id` is one, say in a preflight. Pure.
[[nodiscard]] spi::Finding judge_delayed(std::int64_t count, const std::string& id);

}  // namespace outbox::core
