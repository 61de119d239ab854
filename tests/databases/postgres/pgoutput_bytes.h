#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::test {

// Writes messages of the replication protocol, by hand and independent of what parses them.
class Bytes {
  public:
    template <typename T>
    Bytes& number(T value) {
        for (int shift = static_cast<int>(sizeof(T)) * 8 - 8; shift >= 0; shift -= 8) {
            bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 0xFFU);
        }
        return *this;
    }
    Bytes& byte(int value) { return number(static_cast<std::uint8_t>(value)); }
    Bytes& int16(std::int64_t value) { return number(static_cast<std::uint16_t>(value)); }
    Bytes& int32(std::int64_t value) { return number(static_cast<std::uint32_t>(value)); }
    Bytes& int64(std::int64_t value) { return number(static_cast<std::uint64_t>(value)); }
    Bytes& raw(std::string_view text) {
        bytes_ += text;
        return *this;
    }
    Bytes& text(std::string_view text) { return raw(text).byte(0); }

    // A column of a row.
    Bytes& null() { return byte('n'); }
    Bytes& unchanged() { return byte('u'); }
    Bytes& binary(std::string_view value) {
        return byte('b').int32(static_cast<std::int64_t>(value.size())).raw(value);
    }
    Bytes& as_text(std::string_view value) {
        return byte('t').int32(static_cast<std::int64_t>(value.size())).raw(value);
    }

    // A column of a Relation.
    Bytes& column(std::string_view name, std::int64_t type_oid) {
        return byte(0).text(name).int32(type_oid).int32(-1);
    }

    [[nodiscard]] const std::string& str() const { return bytes_; }
    operator std::string_view() const { return bytes_; }  // NOLINT(google-explicit-constructor)

  private:
    std::string bytes_;
};

inline std::string big_endian(std::int64_t value) {
    return Bytes().int64(value).str();
}

}  // namespace outbox::test
