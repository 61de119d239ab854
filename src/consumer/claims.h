#pragma once

#include <memory>
#include <optional>
#include <string>

#include <outbox/consumer/claims.h>
#include <outbox/consumer/message.h>
#include <outbox/result.h>

#include "claim/claim.h"
#include "claim/object_store.h"

namespace outbox::consumer {

/// Gets payloads that are kept outside of their messages. One thread's.
class Claims {
  public:
    Claims() = default;  ///< Gets none.
    explicit Claims(const ClaimStore& store)
        : store_(store.open ? store.open() : nullptr), max_bytes_(store.max_bytes) {}

    /// The message's claim; none: its payload is there, or nobody said where claims are kept.
    /// Errors: kInvalidEvent/dead_letter.
    [[nodiscard]] Result<std::optional<claim::Claim>> of(const Message& message) const;
    /// Its payload, whole and the one that was written. Blocks as the store does.
    Result<std::string> get(const claim::Claim& claim);

  private:
    std::unique_ptr<claim::ObjectStore> store_;
    std::size_t max_bytes_ = 0;
};

}  // namespace outbox::consumer
