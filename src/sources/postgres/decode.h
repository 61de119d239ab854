#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "sources/postgres/client.h"

namespace outbox::postgres {

/// How the columns of `select_list` are written on the wire.
struct RowLayout {
    bool uuid_id = false;
    bool jsonb_payload = false;
    bool jsonb_headers = false;
    std::string id_prefix;  ///< Put before ids that are not UUIDs.
};

/// The position column; 0 where it is NULL or malformed.
[[nodiscard]] std::int64_t decode_integer(const Field& field);

/// Appends the row to the batch with one copy of its bytes. `position` is taken as given.
Status decode_row(std::span<const Field> fields, const RowLayout& layout, std::int64_t position,
                  spi::EventBatch& out);

/// The id as the table has it, as text.
[[nodiscard]] std::string decode_raw_id(const Field& field, bool uuid);

/// True for 8-4-4-4-12 hexadecimal digits.
[[nodiscard]] bool looks_like_uuid(std::string_view text);

}  // namespace outbox::postgres
