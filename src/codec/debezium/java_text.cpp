#include "codec/debezium/java_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "core/json_text.h"

namespace outbox::codec::debezium {
namespace {

struct Decimal {
    std::string digits;  // without a point
    int exponent = 0;    // of the first digit
};

// `text` in the scientific form of to_chars: d[.ddd]e[+-]dd.
Decimal split(std::string_view text) {
    Decimal out;
    const std::size_t e = text.find('e');
    for (const char c : text.substr(0, e)) {
        if (c != '.') out.digits += c;
    }
    std::string_view exponent = text.substr(e + 1);
    if (exponent.front() == '+') exponent.remove_prefix(1);
    std::from_chars(exponent.data(), exponent.data() + exponent.size(), out.exponent);
    return out;
}

// Java takes the shortest digits that lead back to the number, but of those of one digit the
// nearest with two: 4.9E-324, not 5.0E-324.
template <typename T>
Decimal shortest(T value) {
    std::array<char, 64> text{};
    char* const end = text.data() + text.size();
    char* const last = std::to_chars(text.data(), end, value, std::chars_format::scientific).ptr;
    Decimal found = split({text.data(), last});
    if (found.digits.size() > 1) return found;
    char* const two = std::to_chars(text.data(), end, value, std::chars_format::scientific, 1).ptr;
    T back = 0;
    const auto read = std::from_chars(text.data(), two, back);
    // Numbers below the normal ones are said to be out of range by some libraries.
    if (read.ec != std::errc()) back = static_cast<T>(std::strtod(text.data(), nullptr));
    return back == value ? split({text.data(), two}) : found;
}

template <typename T>
void append_number(T value, std::string& out) {
    constexpr int kFirstPlain = -3;  // 10^-3 <= |value| < 10^7 is written without an exponent
    constexpr int kLastPlain = 6;
    if (std::isnan(value)) {
        out += "NaN";
        return;
    }
    if (std::signbit(value)) out += '-';
    if (std::isinf(value)) {
        out += "Infinity";
        return;
    }
    if (value == 0) {
        out += "0.0";
        return;
    }
    Decimal number = shortest(std::abs(value));
    std::string& digits = number.digits;
    while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
    if (number.exponent < kFirstPlain || number.exponent > kLastPlain) {
        out.append(1, digits[0]).append(1, '.');
        out += digits.size() > 1 ? digits.substr(1) : "0";
        out.append(1, 'E').append(std::to_string(number.exponent));
        return;
    }
    if (number.exponent < 0) {
        out.append("0.").append(static_cast<std::size_t>(-number.exponent - 1), '0').append(digits);
        return;
    }
    const auto whole = static_cast<std::size_t>(number.exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out.append(digits, 0, whole).append(1, '.');
    out += digits.size() > whole ? digits.substr(whole) : "0";
}

void append_unit(std::uint32_t unit, std::string& out) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    out += "\\u";
    for (int bits = 12; bits >= 0; bits -= 4) out += kDigits[unit >> bits & 15U];
}

// Of a character beyond U+FFFF, or of half a surrogate pair, at the front; 0: it is none.
std::size_t surrogate_bytes(std::string_view text) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (at(0) < 0xED) return 0;
    if (at(0) >= 0xF0) return text.size() >= 4 ? 4 : 0;
    return at(0) == 0xED && text.size() >= 3 && at(1) >= 0xA0 ? 3 : 0;
}

void append_surrogates(std::string_view text, std::string& out) {
    std::uint32_t code = static_cast<unsigned char>(text[0]) & (text.size() == 4 ? 7U : 15U);
    for (const char c : text.substr(1)) code = code << 6U | (static_cast<unsigned char>(c) & 63U);
    if (code < 0x10000) return append_unit(code, out);
    append_unit(0xD800 + ((code - 0x10000) >> 10U), out);
    append_unit(0xDC00 + ((code - 0x10000) & 0x3FFU), out);
}

}  // namespace

void append_java(double value, std::string& out) {
    append_number(value, out);
}

void append_java(float value, std::string& out) {
    append_number(value, out);
}

// Jackson escapes what UTF-16 has surrogates for, each of them.
void append_jackson_string(std::string_view text, std::string& out) {
    out += '"';
    std::size_t copied = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const std::size_t bytes = surrogate_bytes(text.substr(i));
        if (bytes == 0 && byte >= 0x20 && byte != '"' && byte != '\\') continue;
        out.append(text.substr(copied, i - copied));
        if (bytes > 0) {
            append_surrogates(text.substr(i, bytes), out);
            i += bytes - 1;
        } else if (const char escape = json_short_escape(text[i]); escape != 0) {
            out.append(1, '\\').append(1, escape);
        } else {
            append_unit(byte, out);
        }
        copied = i + 1;
    }
    out.append(text.substr(copied));
    out += '"';
}

std::string_view java_trim(std::string_view text) {
    const auto blank = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    return text;
}

}  // namespace outbox::codec::debezium
