#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace outbox::mailbox {

/// True for valid UTF-8 (RFC 3629) without NUL: what a text value of any database can hold.
[[nodiscard]] inline bool is_utf8_text(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        if (lead == 0) return false;
        if (lead < 0x80) {
            ++i;
            continue;
        }
        const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        if (lead < 0xC2 || lead > 0xF4 || i + size > text.size()) return false;
        std::uint32_t code = lead & (0x7FU >> size);
        for (std::size_t k = 1; k < size; ++k) {
            const auto next = static_cast<unsigned char>(text[i + k]);
            if ((next & 0xC0) != 0x80) return false;
            code = (code << 6) | (next & 0x3FU);
        }
        const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
        if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
        i += size;
    }
    return true;
}

}  // namespace outbox::mailbox
