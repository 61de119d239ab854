#pragma once

#include <cstddef>
#include <cstdint>
#include <endian.h>
#include <optional>
#include <string>
#include <string_view>

namespace outbox::postgres {

/// Appends `value` as the wire has it.
inline void append_int(std::string& out, std::uint32_t value) {
    value = htobe32(value);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A one-dimensional array in PostgreSQL's binary format (array_recv), of what `get(i)` gives; null
/// `data()` is NULL. Replaces `out`.
template <typename Get>
void encode_array(std::string& out, unsigned element, std::size_t size, const Get& get) {
    out.clear();
    append_int(out, 1);  // dimensions
    append_int(out, 1);  // there may be NULLs
    append_int(out, element);
    append_int(out, static_cast<std::uint32_t>(size));
    append_int(out, 1);  // lower bound
    for (std::size_t i = 0; i < size; ++i) {
        const std::string_view value = get(i);
        if (value.data() == nullptr) {
            append_int(out, UINT32_MAX);
        } else {
            append_int(out, static_cast<std::uint32_t>(value.size()));
            out.append(value);
        }
    }
}

inline void append_element(std::string& out, std::string_view value) {
    out += '"';
    for (const char c : value) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    out += '"';
}
inline void append_element(std::string& out, std::int64_t value) {
    out += std::to_string(value);
}
inline void append_element(std::string& out, std::optional<std::int64_t> value) {
    out += value ? std::to_string(*value) : "NULL";
}

/// A one-dimensional array of texts or numbers in text form: {"a","b"}. In SQL it has to be quoted.
template <typename Values>
[[nodiscard]] std::string array_literal(const Values& values) {
    std::string out = "{";
    for (const auto& value : values) {
        if (out.size() > 1) out += ',';
        append_element(out, value);
    }
    return out + "}";
}

}  // namespace outbox::postgres
