#include "brokers/kafka/record_size.h"

#include <cstdint>

namespace outbox::kafka {

namespace {

constexpr std::size_t kBatchOverheadBytes = 61;
constexpr std::size_t kAttributesAndDeltasBytes = 3;  // attributes, timestamp delta, offset delta

// A zigzag varint of a length.
std::size_t varint_bytes(std::size_t length) {
    std::uint64_t zigzag = std::uint64_t{length} << 1U;
    std::size_t bytes = 1;
    while (zigzag >= 0x80) {
        zigzag >>= 7U;
        ++bytes;
    }
    return bytes;
}

// A null's length is -1, which takes one byte.
std::size_t field_bytes(std::string_view field) {
    return varint_bytes(field.size()) + field.size();
}

}  // namespace

std::size_t record_batch_bytes(const spi::Record& record) {
    std::size_t body = kAttributesAndDeltasBytes + field_bytes(record.key) +
                       field_bytes(record.value) + varint_bytes(record.headers.size());
    for (const spi::HeaderView& header : record.headers) {
        body += field_bytes(header.name) + field_bytes(header.value);
    }
    return kBatchOverheadBytes + varint_bytes(body) + body;
}

}  // namespace outbox::kafka
