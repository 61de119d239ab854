#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include <outbox/consumer/claims.h>
#include <outbox/consumer/message.h>
#include <outbox/result.h>

#include "claim/claim.h"
#include "claim/object_store.h"
#include "core/clock.h"

namespace outbox::consumer {

/// Gets payloads that are kept outside of their messages. One thread's.
class Claims {
  public:
    /// Gets none where `store` is none. `clock` outlives this.
    Claims(const ClaimStore& store, const core::Clock& clock)
        : clock_(clock), store_(store.open ? store.open() : nullptr), max_bytes_(store.max_bytes) {}

    /// The message's claim; none: its payload is there, or nobody said where claims are kept.
    /// Errors: kInvalidEvent/dead_letter.
    [[nodiscard]] Result<std::optional<claim::Claim>> of(const Message& message) const;
    /// Its payload, whole and the one that was written. Blocks as the store does, and not at all
    /// for a while after the store was away: twice as long as it took to see that, so that a store
    /// that hangs leaves most of the time to messages that need none. Then the error is that one.
    Result<std::string> get(const claim::Claim& claim, const std::stop_token& stop);

  private:
    Result<std::string> ask(const claim::Claim& claim, const std::stop_token& stop);

    const core::Clock& clock_;
    std::unique_ptr<claim::ObjectStore> store_;
    std::size_t max_bytes_ = 0;
    std::optional<ErrorInfo> away_;
    std::int64_t away_until_us_ = 0;
};

}  // namespace outbox::consumer
