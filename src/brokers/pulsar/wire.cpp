#include "brokers/pulsar/wire.h"

namespace outbox::pulsar {
namespace {

enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr unsigned kTypeBits = 3;

void append_tag(unsigned field, WireType type, std::string& out) {
    append_varint(field << kTypeBits | type, out);
}

}  // namespace

void append_varint(std::uint64_t value, std::string& out) {
    while (value > 0x7FU) {
        out += static_cast<char>((value & 0x7FU) | 0x80U);
        value >>= 7U;
    }
    out += static_cast<char>(value);
}

void append_number(unsigned field, std::uint64_t value, std::string& out) {
    append_tag(field, kVarint, out);
    append_varint(value, out);
}

void append_bytes(unsigned field, std::string_view value, std::string& out) {
    append_tag(field, kBytes, out);
    append_varint(value.size(), out);
    out += value;
}

void append_u32(std::uint32_t value, std::string& out) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
        out += static_cast<char>(value >> shift & 0xFFU);
    }
}

std::uint32_t u32_at(std::string_view bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (const char c : bytes.substr(at, 4)) value = value << 8U | static_cast<unsigned char>(c);
    return value;
}

std::optional<Field> Fields::next() {
    if (rest_.empty() || broken_) return std::nullopt;
    Field field;
    std::uint64_t tag = 0;
    bool whole = take_varint(tag);
    field.number = tag >> kTypeBits;
    switch (tag & ((1U << kTypeBits) - 1)) {
        case kVarint:
            whole = whole && take_varint(field.value);
            break;
        case kBytes:
            whole = whole && take_varint(field.value) && take(field.value, field.bytes);
            break;
        case kFixed64:
            whole = whole && take(8, field.bytes);
            break;
        case kFixed32:
            whole = whole && take(4, field.bytes);
            break;
        default:
            whole = false;
    }
    if (whole && field.number != 0) return field;
    broken_ = true;
    return std::nullopt;
}

bool Fields::take_varint(std::uint64_t& out) {
    out = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
        const auto digit = static_cast<unsigned char>(rest_.front());
        rest_.remove_prefix(1);
        out |= static_cast<std::uint64_t>(digit & 0x7FU) << shift;
        if ((digit & 0x80U) == 0) return true;
    }
    return false;
}

bool Fields::take(std::uint64_t count, std::string_view& out) {
    if (rest_.size() < count) return false;
    out = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(static_cast<std::size_t>(count));
    return true;
}

}  // namespace outbox::pulsar
