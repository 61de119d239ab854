#include "databases/postgres/params.h"

#include <array>
#include <endian.h>

#include "databases/postgres/arrays.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kNullOffset = std::string::npos;
constexpr unsigned kByteaOid = 17;
constexpr unsigned kInt8Oid = 20;
constexpr unsigned kTextOid = 25;
constexpr unsigned kBitOid = 1560;
constexpr unsigned kInt8ArrayOid = 1016;

}  // namespace

void Params::note(unsigned type, int format, std::size_t size, Place place) {
    if (types_.empty()) {
        constexpr std::size_t kUsual = 8;
        types_.reserve(kUsual);
        lengths_.reserve(kUsual);
        formats_.reserve(kUsual);
        places_.reserve(kUsual);
    }
    types_.push_back(type);
    formats_.push_back(format);
    lengths_.push_back(static_cast<int>(size));
    places_.push_back(place);
}

void Params::add(unsigned type, int format, std::string_view value, bool null) {
    constexpr std::size_t kUsualBytes = 256;
    if (bytes_.empty()) bytes_.reserve(kUsualBytes);
    note(type, format, value.size(), {nullptr, null ? kNullOffset : bytes_.size()});
    bytes_.append(value);
    bytes_ += '\0';  // text format ends so
}

const char* const* Params::values() const {
    pointers_.clear();
    pointers_.reserve(places_.size());
    for (const Place& place : places_) {
        const char* const ours =
            place.offset == kNullOffset ? nullptr : bytes_.data() + place.offset;
        pointers_.push_back(place.lent != nullptr ? place.lent : ours);
    }
    return pointers_.data();
}

Params& Params::untyped(std::string_view value) {
    add(0, 0, value);
    return *this;
}

Params& Params::number(std::int64_t value) {
    return untyped(std::to_string(value));
}

Params& Params::null() {
    add(0, 0, {}, true);
    return *this;
}

Params& Params::lend_untyped(const std::string& value) {
    note(0, 0, value.size(), {value.c_str(), 0});
    return *this;
}

Params& Params::lend(unsigned type, std::string_view value) {
    // A null pointer would mean NULL.
    note(type, 1, value.size(), {value.data() == nullptr ? "" : value.data(), 0});
    return *this;
}

Params& Params::lend_bytes(std::string_view value) {
    return lend(kByteaOid, value);
}

Params& Params::text(std::string_view value) {
    add(kTextOid, 1, value);
    return *this;
}

Params& Params::text_or_null(std::string_view value) {
    add(kTextOid, 1, value, value.data() == nullptr);
    return *this;
}

Params& Params::bytes_or_null(std::string_view value) {
    add(kByteaOid, 1, value, value.data() == nullptr);
    return *this;
}

Params& Params::integer(std::int64_t value) {
    const std::uint64_t wire = htobe64(static_cast<std::uint64_t>(value));
    add(kInt8Oid, 1, {reinterpret_cast<const char*>(&wire), sizeof wire});
    return *this;
}

Params& Params::integer_or_null(std::optional<std::int64_t> value) {
    if (value) return integer(*value);
    add(kInt8Oid, 1, {}, true);
    return *this;
}

Params& Params::bits(std::span<const std::uint8_t> bytes) {
    const std::size_t start = bytes_.size();
    const std::uint32_t length = htobe32(static_cast<std::uint32_t>(bytes.size() * 8));
    bytes_.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    note(kBitOid, 1, bytes_.size() - start, {nullptr, start});
    return *this;
}

Params& Params::integers(std::span<const std::int64_t> values) {
    // Array header: dimensions, has-null flag, element type, size, lower bound.
    const std::array<std::uint32_t, 5> header{htobe32(1), 0, htobe32(kInt8Oid),
                                              htobe32(static_cast<std::uint32_t>(values.size())),
                                              htobe32(1)};
    const std::size_t start = bytes_.size();
    bytes_.append(reinterpret_cast<const char*>(header.data()), sizeof header);
    const std::uint32_t length = htobe32(8);
    for (const std::int64_t value : values) {
        const std::uint64_t wire = htobe64(static_cast<std::uint64_t>(value));
        bytes_.append(reinterpret_cast<const char*>(&length), sizeof length);
        bytes_.append(reinterpret_cast<const char*>(&wire), sizeof wire);
    }
    note(kInt8ArrayOid, 1, bytes_.size() - start, {nullptr, start});
    return *this;
}

Params& Params::texts(std::span<const std::string> values) {
    add(0, 0, array_literal(values));
    return *this;
}

void Params::clear() {
    bytes_.clear();
    types_.clear();
    lengths_.clear();
    formats_.clear();
    places_.clear();
}

}  // namespace outbox::postgres
