#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/event.h>

namespace outbox {

/// A message as a handler gets it. The views are valid until the handler returns; one whose
/// `data()` is null stands for "none" (no key; a payload that is a tombstone).
struct Message {
    std::string_view id;  ///< The event's id: the same on every repeat. Pass it on as idempotency
                          ///< key to what the transaction cannot undo (mail, payment).
    std::string_view topic;
    std::string_view key;
    std::string_view payload;
    std::string_view headers_json;  ///< A JSON object of strings, as stored.
    std::int64_t position = 0;      ///< The place in the mailbox; 0 for a retried dead letter.
    std::uint32_t attempt = 1;      ///< 1 at first; counted by this process, anew after a restart.

    /// The headers, parsed now. Throws `Error` `kInvalidEvent`/dead_letter when they are no JSON
    /// object.
    [[nodiscard]] Headers headers() const;

    /// One header's value; none when it is absent. Parses all headers: to read several, take
    /// `headers()` once. Throws as `headers()`.
    [[nodiscard]] std::optional<std::string> header(std::string_view name) const;
};

}  // namespace outbox
