#pragma once

#include <cstdint>

namespace outbox {

/// How a consumer reads messages; the formats are those of the relay's routes (docs/formats.md).
/// Handlers see the same in each: the event's id, its payload, and the headers `type`,
/// `occurred_at`, `aggregate_type`, `tenant_id`, `schema_id`, `schema_version` where it has them.
enum class MessageFormat : std::uint8_t {
    /// As the message itself says, and where it could be two things as `kRaw`: a header `id` makes
    /// it that, whatever else it has. Else it is a CloudEvent where the media type says so
    /// (structured mode), or where it has all attributes that one must have (binary mode), with the
    /// id that the broker knows it by if there is one.
    kAuto,
    kRaw,
    /// The id is in the header `id`, the payload in the value, both without the schemas that the
    /// JSON converter writes beside them. `kAuto` does that too, by a header `id` with a schema.
    kDebezium,
    kCloudEvents  ///< Anything else goes to the dead letters.
};

}  // namespace outbox
