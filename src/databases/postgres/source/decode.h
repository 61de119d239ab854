#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "databases/postgres/connection.h"

namespace outbox::postgres {

/// The columns of `select_list`, in its order; the last three only where there are extras.
enum RowColumn : std::size_t {
    kPosition,
    kId,
    kAggregateType,
    kAggregateId,
    kEventType,
    kPayload,
    kHeaders,
    kTenantId,
    kSchemaId,
    kSchemaVersion,
    kOccurredAt,
    kTopic,
    kKey,
    kRoutingKey,
    kAvailableAt,
    kMetadata,
    kAttempts,
    kNextAttempt,
};

inline constexpr std::int64_t kPostgresEpochUs = 946'684'800'000'000;  ///< 2000-01-01, Unix time
inline constexpr std::size_t kUuidBytes = 16;
inline constexpr std::size_t kUuidText = 36;

/// How the columns of `select_list` are written on the wire.
struct RowLayout {
    bool uuid_id = false;
    bool jsonb_payload = false;
    bool jsonb_headers = false;
    std::string id_prefix;  ///< Put before ids that are not UUIDs.
};

/// The position column; 0 where it is NULL or malformed.
[[nodiscard]] std::int64_t decode_integer(const Field& field);

/// Appends the elements of an array of bigint without NULLs in binary format (`array_recv` in
/// PostgreSQL's arrayfuncs.c); a NULL field has none. False where it is malformed.
[[nodiscard]] bool decode_integers(const Field& array, std::vector<std::int64_t>& out);

/// A timestamp of the wire as microseconds since the Unix epoch; infinite times, and those that do
/// not fit, count as unknown: 0.
[[nodiscard]] std::int64_t unix_time_us(std::int64_t postgres_us);

/// 16 bytes as 36 characters.
void write_uuid(std::string_view bytes, char* out);

/// Appends the row to the batch with one copy of its bytes. `position` is taken as given.
Status decode_row(std::span<const Field> fields, const RowLayout& layout, std::int64_t position,
                  spi::EventBatch& out);

/// The id as the table has it, as text.
[[nodiscard]] std::string decode_raw_id(const Field& field, bool uuid);

}  // namespace outbox::postgres
