#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/error.h>

/// Fence tokens: whoever wrote events gives the token to who reads elsewhere, and that one asks
/// whether a consumer has applied them (`look_for`, `outbox_wait`, `outbox wait`).
namespace outbox {

inline constexpr std::size_t kMaxFencedEvents = 100;  ///< Of one token.

/// The token of events by their ids, which `emit` gives; an id that is given twice counts once.
/// "obf1." and base64url without padding (RFC 4648, section 5) of the Adler-32 checksum (RFC 1950)
/// of all that follows it, and of 16 bytes for each id: 32 characters for one event, 224 for ten,
/// 2,144 for a hundred. A token of no events is one, too, and is always applied. Not a secret.
///
/// Thread safety: any. Does not block. Throws `Error` `kInvalidEvent`/stop: more than
/// `kMaxFencedEvents`, or an id that is no UUID in lower case.
[[nodiscard]] std::string fence_token(std::span<const std::string> event_ids);

/// The ids of a token, in its order. Throws `Error` `kInvalidEvent`/dead_letter for what is not
/// exactly what `fence_token` makes. Otherwise as that.
[[nodiscard]] std::vector<std::string> fence_ids(std::string_view token);

}  // namespace outbox
