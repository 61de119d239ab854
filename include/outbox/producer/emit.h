#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <outbox/error.h>
#include <outbox/event.h>

/// `emit(transaction, event)` for each kind of transaction is in outbox/adapters/; here is what
/// they share.
namespace outbox {

inline constexpr std::size_t kMaxPayloadBytes = 1'048'576;  ///< Default; the tables have it too.
inline constexpr std::size_t kMaxTopicBytes = 249;          ///< The tables', too.
inline constexpr std::size_t kMaxTextBytes = 4'096;         ///< Each other text field of an event.
inline constexpr std::size_t kMaxHeadersBytes = 65'536;     ///< All names and values together.

/// How one event is written, and what is refused.
struct EmitOptions {
    /// Take the per-key lock before writing, for writers of a key that nothing else serialises
    /// (no row lock, no version check): later writers of the key wait until this transaction
    /// ends. Several keys in one transaction: call `lock_keys` with all of them first, or two
    /// transactions can deadlock. SQLite has one writer at a time anyway: no effect there.
    bool lock_key = false;
    /// Larger payloads are refused before they are sent. The table has a limit of its own.
    std::size_t max_payload_bytes = kMaxPayloadBytes;
    /// Set it when the table was migrated with `--payload bytea`: the payload is then any bytes.
    bool binary_payload = false;
};

/// A UUIDv7 (RFC 9562, method 3): milliseconds, a fraction, and 62 random bits. Ids made by one
/// process ascend. Thread safety: any. Does not block. Safe across fork.
[[nodiscard]] std::string new_event_id();

/// The INSERT of one event, for PostgreSQL drivers that have no adapter: run it once, with these
/// text parameters, in the open transaction.
struct InsertCommand {
    std::string sql;                                 ///< With $1, $2, ...
    std::vector<std::optional<std::string>> values;  ///< None: NULL.
    std::string id;                                  ///< The event's id.
};

/// Throws `Error`: `kInvalidEvent` (neither topic nor aggregate type, invalid UTF-8, U+0000, a
/// repeated header, a field over its limit), `kTopicInvalid`, `kPayloadTooLarge`.
[[nodiscard]] InsertCommand insert_command(const Event& event, const EmitOptions& options = {});

}  // namespace outbox
