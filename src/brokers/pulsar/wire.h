#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Protocol Buffers' wire format (protobuf.dev/programming-guides/encoding), as far as Pulsar's
// commands need it: numbers and bytes.
namespace outbox::pulsar {

void append_varint(std::uint64_t value, std::string& out);
/// A field of an integer type, an enum or a bool.
void append_number(unsigned field, std::uint64_t value, std::string& out);
/// A field of strings, bytes or a message.
void append_bytes(unsigned field, std::string_view value, std::string& out);
/// Big-endian, as what stands around the messages is.
void append_u32(std::uint32_t value, std::string& out);
[[nodiscard]] std::uint32_t u32_at(std::string_view bytes, std::size_t at);

struct Field {
    std::uint64_t number = 0;  ///< Of the field.
    std::uint64_t value = 0;   ///< Of a number.
    std::string_view bytes;    ///< Of strings, bytes and messages; views what is read.
};

/// Takes a message apart, field by field, in the order in which they stand.
class Fields {
  public:
    explicit Fields(std::string_view message) : rest_(message) {}
    /// Nothing: it is at its end, or `broken`.
    std::optional<Field> next();
    [[nodiscard]] bool broken() const { return broken_; }

  private:
    bool take_varint(std::uint64_t& out);
    bool take(std::uint64_t count, std::string_view& out);

    std::string_view rest_;
    bool broken_ = false;
};

}  // namespace outbox::pulsar
