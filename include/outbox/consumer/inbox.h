#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outbox {

/// The event's own time, the same on every repeat.
using MessageTime = std::optional<std::chrono::system_clock::time_point>;

/// A message to be accepted; the views must outlive the call.
struct InboxEntry {
    std::string_view id;
    MessageTime time;
};

/// An inbox table of the application's own, with a unique constraint on the id (and the consumer,
/// where it has such a column): for example `processed_events(event_id uuid, processed_at)` or
/// `inbox(message_id, ...)`. It is used as it is; other columns must be nullable or have defaults.
struct InboxTable {
    std::string table = "processed_events";  ///< May be `schema.table`.
    std::string id_column = "event_id";
    std::string consumer_column;               ///< Empty: the table is one consumer's.
    std::string time_column = "processed_at";  ///< Set to now; empty: none, or it has a default.
};

/// What became of a numbered message.
struct SequenceResult {
    enum class What : std::uint8_t {
        kNew,     ///< It is the next one: apply it.
        kRepeat,  ///< This number, or a later one, was applied.
        kGap      ///< Numbers before it are missing: `expected` is the first.
    };
    What what = What::kNew;
    std::int64_t expected = 0;  ///< The number that was, or is, the next.
};

/// The time inside a UUIDv7, else the header `occurred_at` as the relay writes it
/// ("2026-01-31T23:59:59.123456Z"); none where there is neither. Never a broker's timestamp, which
/// differs between repeats.
[[nodiscard]] MessageTime message_time(std::string_view message_id, std::string_view occurred_at);

}  // namespace outbox
