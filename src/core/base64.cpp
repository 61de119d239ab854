#include "core/base64.h"

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
    constexpr std::uint32_t kSign = (1U << kBits) - 1;
    const auto at = [&](std::size_t i) {
        return i < bytes.size() ? std::uint32_t{static_cast<unsigned char>(bytes[i])} : 0U;
    };
    for (std::size_t i = 0; i < bytes.size(); i += kGroup) {
        const std::uint32_t group = at(i) << 2 * kByte | at(i + 1) << kByte | at(i + 2);
        out += kAlphabet[group >> 3 * kBits];
        out += kAlphabet[group >> 2 * kBits & kSign];
        out += i + 1 < bytes.size() ? kAlphabet[group >> kBits & kSign] : '=';
        out += i + 2 < bytes.size() ? kAlphabet[group & kSign] : '=';
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
