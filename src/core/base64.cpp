#include "core/base64.h"

#include <algorithm>
#include <cstdint>

namespace outbox {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kGroup = 3;  // bytes
constexpr std::size_t kSigns = 4;  // that they become
constexpr unsigned kBits = 6;      // of a sign
constexpr unsigned kByte = 8;

}  // namespace

void append_base64(std::string_view bytes, std::string& out) {
    for (std::size_t i = 0; i < bytes.size(); i += kGroup) {
        std::uint32_t group = 0;
        for (std::size_t k = 0; k < kGroup; ++k) {
            group <<= kByte;
            if (i + k < bytes.size()) group |= static_cast<unsigned char>(bytes[i + k]);
        }
        const std::size_t signs = std::min(bytes.size() - i, kGroup) + 1;
        for (std::size_t k = 0; k < kSigns; ++k) {
            const auto shift = static_cast<unsigned>(kSigns - 1 - k) * kBits;
            out += k < signs ? kAlphabet[(group >> shift) & 63U] : '=';
        }
    }
}

std::string base64_encode(std::string_view bytes) {
    std::string out;
    append_base64(bytes, out);
    return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
    if (text.size() % kSigns != 0) return std::nullopt;
    std::string_view signs = text;
    for (int pads = 0; pads < 2 && signs.ends_with('='); ++pads) signs.remove_suffix(1);
    std::string out;
    out.reserve(text.size() / kSigns * kGroup);
    std::uint32_t held = 0;
    unsigned bits = 0;
    for (const char sign : signs) {
        const auto value = kAlphabet.find(sign);
        if (value == std::string_view::npos) return std::nullopt;
        held = (held << kBits) | static_cast<std::uint32_t>(value);
        bits += kBits;
        if (bits < kByte) continue;
        bits -= kByte;
        out += static_cast<char>((held >> bits) & 255U);
        held &= (1U << bits) - 1U;
    }
    if (held != 0) return std::nullopt;
    return out;
}

}  // namespace outbox
