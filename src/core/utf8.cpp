#include "core/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace outbox {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080U;
constexpr unsigned char kDelete = 0x7f;

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

// U+0080 to U+009F: terminals obey them as they do ESC and a letter.
bool is_c1(const unsigned char* at, std::size_t length) {
    return length == 2 && at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f;
}

// U+061C, U+200E and U+200F, U+2028 to U+202E, U+2066 to U+2069: what turns the direction of
// writing, so that a text looks like another, or breaks lines.
bool rearranges(const unsigned char* at, std::size_t length) {
    if (length == 2) return at[0] == 0xd8 && at[1] == 0x9c;
    if (length != 3 || at[0] != 0xe2) return false;
    if (at[1] == 0x80) return at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae);
    return at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9;
}

// Of a sequence that is well-formed: U+FDD0 to U+FDEF, and the last two code points of each plane.
bool is_noncharacter(const unsigned char* at, std::size_t length) {
    if (length == 3 && at[0] == 0xef) {
        if (at[1] == 0xb7) return at[2] >= 0x90 && at[2] <= 0xaf;
        return at[1] == 0xbf && at[2] >= 0xbe;
    }
    return length == 4 && (at[1] & 0x0fU) == 0x0f && at[2] == 0xbf && at[3] >= 0xbe;
}

// Gives the well-formed sequences of `text` one by one, and every byte between them with `sound` =
// false, for as long as `take` wants more.
template <typename Take>
void for_each_sequence(std::string_view text, const Take& take) {
    while (!text.empty()) {
        const std::size_t length =
            sequence_length(reinterpret_cast<const unsigned char*>(text.data()), text.size());
        if (!take(text.substr(0, std::max<std::size_t>(length, 1)), length > 0)) return;
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
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

std::size_t plain_prefix(std::string_view text) {
    std::size_t plain = 0;
    for_each_sequence(text, [&](std::string_view sequence, bool sound) {
        const auto* at = reinterpret_cast<const unsigned char*>(sequence.data());
        const bool control = *at < ' ' || *at == kDelete || is_c1(at, sequence.size());
        if (!sound || control || is_noncharacter(at, sequence.size())) return false;
        plain += sequence.size();
        return true;
    });
    return plain;
}

void append_utf8(std::uint32_t code, std::string& out) {
    const auto add = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
        add(code);
    } else if (code < 0x800) {
        add(0xC0U | code >> 6U);
        add(0x80U | (code & 63U));
    } else if (code < 0x10000) {
        add(0xE0U | code >> 12U);
        add(0x80U | (code >> 6U & 63U));
        add(0x80U | (code & 63U));
    } else {
        add(0xF0U | code >> 18U);
        add(0x80U | (code >> 12U & 63U));
        add(0x80U | (code >> 6U & 63U));
        add(0x80U | (code & 63U));
    }
}

std::string to_utf8(std::string_view text) {
    if (is_utf8(text)) return std::string(text);
    std::string out;
    for_each_sequence(text, [&](std::string_view sequence, bool sound) {
        out += sound ? sequence : "\xEF\xBF\xBD";
        return true;
    });
    return out;
}

std::string to_storable_text(std::string_view text, std::size_t max_bytes) {
    std::string out;
    for_each_sequence(text, [&](std::string_view sequence, bool sound) {
        if (out.size() + sequence.size() > max_bytes) return false;
        out += sound && sequence[0] != '\0' ? sequence : "?";
        return true;
    });
    return out;
}

std::string to_printable(std::string_view text, bool keep_lines) {
    std::string out;
    out.reserve(text.size());
    for_each_sequence(text, [&](std::string_view sequence, bool sound) {
        const auto* at = reinterpret_cast<const unsigned char*>(sequence.data());
        const bool c0 = *at < ' ' || *at == kDelete;
        const bool line = keep_lines && (*at == '\n' || *at == '\t');
        const bool obeyed =
            (c0 && !line) || is_c1(at, sequence.size()) || rearranges(at, sequence.size());
        out += sound && !obeyed ? sequence : "?";
        return true;
    });
    return out;
}

std::string printable_json(std::string_view json) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string out;
    out.reserve(json.size());
    for_each_sequence(json, [&](std::string_view sequence, bool) {
        const auto* at = reinterpret_cast<const unsigned char*>(sequence.data());
        if (*at != kDelete && !is_c1(at, sequence.size()) && !rearranges(at, sequence.size())) {
            out += sequence;
            return true;
        }
        std::uint32_t code = sequence.size() == 1   ? *at
                             : sequence.size() == 2 ? *at & 0x1fU
                                                    : *at & 0x0fU;
        for (std::size_t i = 1; i < sequence.size(); ++i) code = code << 6U | (at[i] & 0x3fU);
        out += "\\u";
        for (unsigned shift = 16; shift > 0; shift -= 4) out += kDigits[code >> (shift - 4) & 15U];
        return true;
    });
    return out;
}

}  // namespace outbox
