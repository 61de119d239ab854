#include "core/utf8.h"

#include <cstdint>
#include <cstring>

namespace outbox {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080U;

bool is_continuation(unsigned char byte) {
    return (byte & 0xc0U) == 0x80U;
}

// The length of the well-formed sequence at `at`, or 0. Ranges are those of RFC 3629, section 4.
std::size_t sequence_length(const unsigned char* at, std::size_t left) {
    const unsigned char lead = at[0];
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (left < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if (!is_continuation(at[i])) return 0;
    }
    if (lead == 0xe0 && at[1] < 0xa0) return 0;
    if (lead == 0xed && at[1] > 0x9f) return 0;
    if (lead == 0xf0 && at[1] < 0x90) return 0;
    if (lead == 0xf4 && at[1] > 0x8f) return 0;
    return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
    const auto* at = reinterpret_cast<const unsigned char*>(text.data());
    std::size_t left = text.size();
    while (left > 0) {
        std::uint64_t word = 0;
        if (left >= sizeof word && (std::memcpy(&word, at, sizeof word), (word & kHighBits) == 0)) {
            at += sizeof word;
            left -= sizeof word;
            continue;
        }
        const std::size_t length = sequence_length(at, left);
        if (length == 0) return false;
        at += length;
        left -= length;
    }
    return true;
}

std::string to_storable_text(std::string_view text, std::size_t max_bytes) {
    std::string out;
    while (!text.empty()) {
        const auto lead = static_cast<unsigned char>(text[0]);
        std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
        const bool sound = lead != 0 && size <= text.size() && is_utf8(text.substr(0, size));
        if (!sound) size = 1;
        if (out.size() + size > max_bytes) break;
        out.append(sound ? text.substr(0, size) : std::string_view("?"));
        text.remove_prefix(size);
    }
    return out;
}

}  // namespace outbox
