#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/fence.h>

namespace outbox {

/// What a consumer's database says of an event, the better first.
enum class Fenced : std::uint8_t {
    kApplied,  ///< Its effect is committed, and seen by whoever sees this answer.
    kWaiting,  ///< It is here and not applied yet.
    kUnknown,  ///< Nothing here speaks of it.
    kDead,     ///< Given up on.
};

/// "applied", "waiting", "unknown", "dead".
[[nodiscard]] std::string_view fenced_name(Fenced state);

/// One event of a token.
struct FencedEvent {
    std::string id;
    Fenced state = Fenced::kUnknown;
    /// Empty where it is applied. Waiting: "in_mailbox", "retry_requested". Dead: "dead_letter",
    /// "discarded". Unknown: "not_seen" (on its way, or its transaction was rolled back),
    /// "forgotten" (from before the inbox's floor: it was applied, or will be quarantined), and
    /// "perhaps_forgotten" where the id does not say when it was made.
    std::string why;
};

/// What one look found.
struct FenceLook {
    Fenced state = Fenced::kApplied;  ///< The worst of its events'; of none: applied.
    std::vector<FencedEvent> events;  ///< In the order of the token.
};

}  // namespace outbox
