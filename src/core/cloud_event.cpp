#include "core/cloud_event.h"

#include <algorithm>

#include "core/ascii.h"
#include "core/url.h"
#include "core/utf8.h"

namespace outbox::cloud_event {
namespace {

// Of a well-formed sequence.
std::uint32_t code_point(std::string_view sequence) {
    const auto lead = static_cast<unsigned char>(sequence[0]);
    std::uint32_t code = sequence.size() == 2   ? lead & 0x1FU
                         : sequence.size() == 3 ? lead & 0x0FU
                                                : lead & 0x07U;
    for (const char c : sequence.substr(1)) {
        code = code << 6U | (static_cast<unsigned char>(c) & 0x3FU);
    }
    return code;
}

bool is_allowed(std::uint32_t code) {
    const bool control = code < 0x20 || (code >= 0x7F && code <= 0x9F);
    const bool noncharacter = (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFEU) == 0xFFFE;
    return !control && !noncharacter;
}

bool same_text(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

bool is_attribute_name(std::string_view name) {
    return !name.empty() && name != "data" && std::all_of(name.begin(), name.end(), [](char c) {
        return is_digit(c) || (c >= 'a' && c <= 'z');
    });
}

bool is_other_attribute_text(std::string_view text) {
    if (!is_utf8(text)) return false;
    while (!text.empty()) {
        const auto lead = static_cast<unsigned char>(text[0]);
        const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        const std::uint32_t code = length == 1 ? lead : code_point(text.substr(0, length));
        if (!is_allowed(code)) return false;
        text.remove_prefix(length);
    }
    return true;
}

bool is_json_type(std::string_view media_type) {
    media_type = media_type.substr(0, media_type.find(';'));
    while (media_type.ends_with(' ') || media_type.ends_with('\t')) media_type.remove_suffix(1);
    const std::size_t slash = media_type.find('/');
    if (slash == std::string_view::npos) return false;
    const std::string_view subtype = media_type.substr(slash + 1);
    constexpr std::string_view kSuffix = "+json";
    return same_text(subtype, "json") ||
           (subtype.size() > kSuffix.size() &&
            same_text(subtype.substr(subtype.size() - kSuffix.size()), kSuffix));
}

bool is_event_type(std::string_view media_type) {
    return same_text(media_type.substr(0, kEventType.size()), kEventType);
}

bool is_plain_value(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return c > 0x20 && c <= 0x7E && c != '"' && c != '%';
    });
}

void append_percent_encoded(std::string_view text, std::string& out) {
    for (const char c : text) {
        if (is_plain_value({&c, 1})) {
            out += c;
        } else {
            append_percent(c, out);
        }
    }
}

bool is_uri_reference(std::string_view text) {
    constexpr std::string_view kOthers = "-._~:/?#[]@!$&'()*+,;=";
    if (text.empty()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '%') {
            if (i + 2 >= text.size() || !is_hex_digit(text[i + 1]) || !is_hex_digit(text[i + 2]))
                return false;
        } else if (!is_letter_or_digit(c) && kOthers.find(c) == std::string_view::npos) {
            return false;
        }
    }
    return true;
}

bool is_absolute_uri(std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) return false;
    const std::string_view scheme = text.substr(0, colon);
    return is_letter(scheme[0]) && is_uri_reference(text) &&
           std::all_of(scheme.begin(), scheme.end(), [](char c) {
               return is_letter_or_digit(c) || c == '+' || c == '-' || c == '.';
           });
}

}  // namespace outbox::cloud_event
