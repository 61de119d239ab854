#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "claim/claim.h"
#include "core/ascii.h"

namespace outbox::claim {

/// The header of records that a replay sends; its value is the run.
inline constexpr std::string_view kReplayHeader = "outbox-replay";

/// The headers that the relay adds to a record as they are, beside those of its format.
inline constexpr std::array kRelayHeaders = {kReferenceHeader, kSizeHeader, kHashHeader,
                                             kReplayHeader};
inline constexpr std::uint64_t kLengthsOfRelayHeaders = [] {
    std::uint64_t lengths = 0;
    for (const std::string_view own : kRelayHeaders) lengths |= std::uint64_t{1} << own.size();
    return lengths;
}();

/// One of them: no event can set it, and who reads a format passes over it. Whatever its case:
/// receivers of webhooks look at none.
[[nodiscard]] inline bool is_relay_header(std::string_view name) {
    // Asked for every header of every event, and few have such a length.
    if (name.size() >= 64 || (kLengthsOfRelayHeaders >> name.size() & 1) == 0) return false;
    for (const std::string_view own : kRelayHeaders) {
        if (name.size() == own.size() && begins_with_word(name, own)) return true;
    }
    return false;
}

}  // namespace outbox::claim
