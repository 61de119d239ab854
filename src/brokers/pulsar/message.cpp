#include "brokers/pulsar/message.h"

#include <utility>

#include "brokers/pulsar/wire.h"
#include "core/base64.h"
#include "core/utf8.h"
#include "net/header_line.h"

namespace outbox::pulsar {
namespace {

// Numbers of the fields that say the same of a message alone and of one in a batch.
struct Numbers {
    unsigned property;
    unsigned key;
    unsigned event_time;
    unsigned key_encoded;
    unsigned null_value;
};
constexpr Numbers kAlone{4, 6, 12, 17, 25};
constexpr Numbers kInBatch{1, 2, 5, 6, 9};

constexpr std::int64_t kUsPerMs = 1'000;

void append_property(unsigned field, std::string_view name, std::string_view value,
                     std::string& pair, std::string& out) {
    pair.clear();
    append_bytes(1, name, pair);
    append_bytes(2, value, pair);
    append_bytes(field, pair, out);
}

void append_record(const Numbers& numbers, const spi::Record& record, std::string& out) {
    std::string pair;
    std::pair<std::string, std::string> as;
    for (const spi::HeaderView& header : record.headers) {
        // Strings are UTF-8. What ends in '*' would be taken for one that is encoded.
        const bool plain = is_utf8(header.value) && !header.name.ends_with('*');
        if (!plain && net::encode_header(header.name, header.value, as)) {
            append_property(numbers.property, as.first, as.second, pair, out);
        } else {
            append_property(numbers.property, header.name, header.value, pair, out);
        }
    }
    std::string storage;
    const KeyText key = key_text(record, storage);
    if (key.text.data() != nullptr) append_bytes(numbers.key, key.text, out);
    if (record.occurred_at_us > 0) {
        append_number(numbers.event_time,
                      static_cast<std::uint64_t>(record.occurred_at_us / kUsPerMs), out);
    }
    if (key.encoded) append_number(numbers.key_encoded, 1, out);
    if (record.value.data() == nullptr) append_number(numbers.null_value, 1, out);
}

void append_origin(const Origin& origin, std::string& out) {
    append_bytes(1, origin.producer, out);
    append_number(2, origin.sequence, out);
    append_number(3, static_cast<std::uint64_t>(origin.now_ms), out);
}

}  // namespace

std::optional<std::string> why_not_carried(const spi::Record& record) {
    for (const spi::HeaderView& header : record.headers) {
        if (header.name.empty()) return "it has a header without a name";
        if (!is_utf8(header.name)) {
            return "the name of the header '" + to_printable(header.name.substr(0, 100)) +
                   "' is not UTF-8; use another name";
        }
    }
    return std::nullopt;
}

KeyText key_text(const spi::Record& record, std::string& storage) {
    if (record.key.data() == nullptr || is_utf8(record.key)) return {record.key, false};
    storage = base64_encode(record.key);
    return {storage, true};
}

void append_metadata(const Origin& origin, const spi::Record& record, std::string& out) {
    append_origin(origin, out);
    append_record(kAlone, record, out);
}

void append_batch_metadata(const Origin& origin, std::uint32_t count, std::size_t payload_bytes,
                           std::string& out) {
    append_origin(origin, out);
    append_number(9, payload_bytes, out);
    append_number(11, count, out);
    append_number(24, origin.sequence + count - 1, out);
}

void append_to_batch(std::uint64_t sequence, const spi::Record& record, std::string& out) {
    std::string single;
    append_record(kInBatch, record, single);
    append_number(3, record.value.size(), single);
    append_number(8, sequence, single);
    append_u32(static_cast<std::uint32_t>(single.size()), out);
    out += single;
    out += record.value;
}

}  // namespace outbox::pulsar
