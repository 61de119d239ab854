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

}  // namespace outbox
