#include "databases/postgres/source/decode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <endian.h>
#include <limits>

#include "databases/postgres/source/table.h"

namespace outbox::postgres {
namespace {

constexpr std::array<char, 513> hex_pairs() {
    constexpr const char* kDigits = "0123456789abcdef";
    std::array<char, 513> table{};
    for (std::size_t i = 0; i < 256; ++i) {
        table[2 * i] = kDigits[i >> 4U];
        table[2 * i + 1] = kDigits[i & 15U];
    }
    return table;
}

constexpr auto kHexPairs = hex_pairs();

// Some 285,000 years from now; what is behind it does not survive sums of microseconds.
constexpr std::int64_t kFarthestUs = 9'000'000'000'000'000'000;

std::int64_t decode_time_us(const Field& field) {
    return field.data == nullptr ? 0 : unix_time_us(decode_integer(field));
}

ErrorInfo row_error(const char* what, std::int64_t position) {
    return {ErrorCode::kQueryFailed,
            Advice::kStop,
            {},
            std::string("row at position ") + std::to_string(position) + ": " + what};
}

// jsonb travels as a version byte and the text.
bool strip_version(Field& field) {
    if (field.data == nullptr) return true;
    if (field.size < 1 || field.data[0] != 1) return false;
    ++field.data;
    --field.size;
    return true;
}

class Writer {
  public:
    Writer(spi::EventBatch& batch, std::size_t size) : at_(batch.allocate(size)) {}

    std::string_view copy(const Field& field) {
        if (field.data == nullptr) return {};
        std::memcpy(at_, field.data, field.size);
        return take(field.size);
    }

    std::string_view uuid(const Field& field) {
        write_uuid({field.data, field.size}, at_);
        return take(kUuidText);
    }

    std::string_view text(std::string_view prefix, std::string_view text) {
        if (!prefix.empty()) std::memcpy(at_, prefix.data(), prefix.size());
        std::memcpy(at_ + prefix.size(), text.data(), text.size());
        return take(prefix.size() + text.size());
    }

  private:
    std::string_view take(std::size_t size) {
        const std::string_view view(at_, size);
        at_ += size;
        return view;
    }

    char* at_;
};

}  // namespace

std::int64_t unix_time_us(std::int64_t postgres_us) {
    std::int64_t unix_us = 0;
    if (postgres_us == std::numeric_limits<std::int64_t>::min() ||
        __builtin_add_overflow(postgres_us, kPostgresEpochUs, &unix_us) || unix_us > kFarthestUs) {
        return 0;
    }
    return unix_us;
}

void write_uuid(std::string_view bytes, char* out) {
    for (std::size_t i = 0; i < kUuidBytes; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
        std::memcpy(
            out,
            kHexPairs.data() + 2 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])),
            2);
        out += 2;
    }
}

std::int64_t decode_integer(const Field& field) {
    if (field.data == nullptr || field.size != sizeof(std::uint64_t)) return 0;
    std::uint64_t wire = 0;
    std::memcpy(&wire, field.data, sizeof wire);
    return static_cast<std::int64_t>(be64toh(wire));
}

bool decode_integers(const Field& array, std::vector<std::int64_t>& out) {
    if (array.data == nullptr) return true;
    constexpr std::size_t kNoDimension = 12;   // their number, whether it has NULLs, the type
    constexpr std::size_t kOneDimension = 20;  // and its size, and where it begins
    const auto word = [&](std::size_t at) {
        std::uint32_t wire = 0;
        std::memcpy(&wire, array.data + at, sizeof wire);
        return be32toh(wire);
    };
    if (array.size < kNoDimension) return false;
    if (word(0) == 0) return array.size == kNoDimension;
    constexpr std::size_t kElement = sizeof(std::uint32_t) + sizeof(std::uint64_t);
    if (word(0) != 1 || array.size < kOneDimension) return false;
    const std::size_t count = word(kNoDimension);
    if (array.size - kOneDimension != count * kElement) return false;
    out.reserve(out.size() + count);
    for (std::size_t at = kOneDimension; at < array.size; at += kElement) {
        if (word(at) != sizeof(std::uint64_t)) return false;
        out.push_back(
            decode_integer({array.data + at + sizeof(std::uint32_t), sizeof(std::uint64_t)}));
    }
    return true;
}

std::string decode_raw_id(const Field& field, bool uuid) {
    if (field.data == nullptr) return {};
    if (!uuid) return {field.data, field.size};
    std::string text(kUuidText, '\0');
    if (field.size == kUuidBytes) write_uuid({field.data, field.size}, text.data());
    return text;
}

Status decode_row(std::span<const Field> fields, const RowLayout& layout, std::int64_t position,
                  spi::EventBatch& out) {
    const bool extras = fields.size() == kAllColumns;
    if (fields.size() != kBaseColumns && !extras) return row_error("column count", position);
    const Field& id = fields[kId];
    if (layout.uuid_id && id.data != nullptr && id.size != kUuidBytes) {
        return row_error("malformed uuid", position);
    }
    std::string_view defect;
    std::string made_id;
    if (id.data == nullptr) {
        defect = "its id is NULL; an event needs an id of its own";
        made_id = layout.id_prefix + "position:" + std::to_string(position);
    } else if (!layout.uuid_id && layout.id_prefix.size() + id.size > kMaxIdBytes) {
        defect = "its id has more than 255 bytes, the table's name before it included";
        made_id = event_id(layout.id_prefix, {id.data, id.size});
    }
    Field payload = fields[kPayload];
    Field headers = fields[kHeaders];
    if ((layout.jsonb_payload && !strip_version(payload)) ||
        (layout.jsonb_headers && !strip_version(headers))) {
        return row_error("unknown jsonb version", position);
    }
    std::size_t size = !made_id.empty() ? made_id.size()
                       : layout.uuid_id ? kUuidText
                                        : layout.id_prefix.size() + id.size;
    for (const std::size_t column : {kAggregateType, kAggregateId, kEventType, kTenantId, kSchemaId,
                                     kSchemaVersion, kTopic, kKey, kRoutingKey}) {
        size += fields[column].size;
    }
    size += payload.size + headers.size + (extras ? fields[kMetadata].size : 0);

    Writer writer(out, size);
    spi::EventView event;
    event.position = position;
    event.defect = defect;
    if (!made_id.empty()) {
        event.id = writer.text({}, {made_id.data(), made_id.size()});
    } else if (layout.uuid_id) {
        event.id = writer.uuid(id);
    } else if (looks_like_uuid({id.data, id.size})) {
        event.id = writer.copy(id);
    } else {
        event.id = writer.text(layout.id_prefix, {id.data, id.size});
    }
    event.aggregate_type = writer.copy(fields[kAggregateType]);
    event.aggregate_id = writer.copy(fields[kAggregateId]);
    event.event_type = writer.copy(fields[kEventType]);
    event.payload = writer.copy(payload);
    event.payload_is_json = layout.jsonb_payload && event.payload.data() != nullptr;
    event.headers = writer.copy(headers);
    event.tenant_id = writer.copy(fields[kTenantId]);
    event.schema_id = writer.copy(fields[kSchemaId]);
    event.schema_version = writer.copy(fields[kSchemaVersion]);
    event.topic = writer.copy(fields[kTopic]);
    event.key = writer.copy(fields[kKey]);
    event.routing_key = writer.copy(fields[kRoutingKey]);
    event.occurred_at_us = decode_time_us(fields[kOccurredAt]);
    event.available_at_us = decode_time_us(fields[kAvailableAt]);
    if (extras) {
        event.metadata = writer.copy(fields[kMetadata]);
        const std::int64_t attempts = decode_integer(fields[kAttempts]);
        event.attempts = static_cast<std::uint32_t>(
            std::clamp<std::int64_t>(attempts, 0, std::numeric_limits<std::int32_t>::max()));
        event.next_attempt_us = decode_time_us(fields[kNextAttempt]);
    }
    out.add(event);
    return {};
}

}  // namespace outbox::postgres
