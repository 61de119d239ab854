#include "databases/postgres/params.h"

#include <array>
#include <endian.h>

namespace outbox::postgres {
namespace {

constexpr std::size_t kNullOffset = std::string::npos;
constexpr unsigned kByteaOid = 17;
constexpr unsigned kInt8Oid = 20;
constexpr unsigned kTextOid = 25;
constexpr unsigned kBitOid = 1560;
constexpr unsigned kInt8ArrayOid = 1016;

}  // namespace

void Params::note(unsigned type, int format, std::size_t offset, bool null) {
    types_.push_back(type);
    formats_.push_back(format);
    lengths_.push_back(static_cast<int>(bytes_.size() - offset));
    offsets_.push_back(null ? kNullOffset : offset);
}

void Params::add(unsigned type, int format, std::string_view value, bool null) {
    const std::size_t offset = bytes_.size();
    bytes_.append(value);
    note(type, format, offset, null);
    bytes_ += '\0';  // text format ends so
}

const char* const* Params::pointers() const {
    pointers_.clear();
    for (const std::size_t offset : offsets_) {
        pointers_.push_back(offset == kNullOffset ? nullptr : bytes_.data() + offset);
    }
    return pointers_.data();
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
    note(kBitOid, 1, start, false);
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
    note(kInt8ArrayOid, 1, start, false);
    return *this;
}

Params& Params::texts(std::span<const std::string> values) {
    std::string array = "{";
    for (const std::string& value : values) {
        if (array.size() > 1) array += ',';
        array += '"';
        for (const char c : value) {
            if (c == '"' || c == '\\') array += '\\';
            array += c;
        }
        array += '"';
    }
    array += '}';
    add(0, 0, array);
    return *this;
}

void Params::clear() {
    bytes_.clear();
    types_.clear();
    lengths_.clear();
    formats_.clear();
    offsets_.clear();
}

}  // namespace outbox::postgres
