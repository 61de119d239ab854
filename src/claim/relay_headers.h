#pragma once

#include <array>
#include <string_view>

#include "claim/claim.h"
#include "core/ascii.h"

namespace outbox::claim {

/// The header of records that a replay sends; its value is the run.
inline constexpr std::string_view kReplayHeader = "outbox-replay";

/// The headers that the relay adds to a record as they are, beside those of its format: no event
/// can set them, and who reads a format passes over them. Whatever its case: receivers of webhooks
/// look at none.
[[nodiscard]] inline bool is_relay_header(std::string_view name) {
    constexpr std::array kNames = {kReferenceHeader, kSizeHeader, kHashHeader, kReplayHeader};
    for (const std::string_view own : kNames) {
        if (name.size() == own.size() && begins_with_word(name, own)) return true;
    }
    return false;
}

}  // namespace outbox::claim
