#include "core/json_text.h"

namespace outbox {

char json_short_escape(char c) {
    switch (c) {
        case '"':
        case '\\':
            return c;
        case '\b':
            return 'b';
        case '\f':
            return 'f';
        case '\n':
            return 'n';
        case '\r':
            return 'r';
        case '\t':
            return 't';
        default:
            return 0;
    }
}

void append_json_string(std::string_view text, std::string& out) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += '"';
    std::size_t copied = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
        out.append(text.substr(copied, i - copied));
        copied = i + 1;
        out += '\\';
        if (const char escape = json_short_escape(text[i]); escape != 0) {
            out += escape;
        } else {
            out.append("u00").append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
        }
    }
    out.append(text.substr(copied));
    out += '"';
}

std::string json_array(std::span<const std::string> texts) {
    std::string out = "[";
    for (const std::string& text : texts) {
        if (out.size() > 1) out += ',';
        append_json_string(text, out);
    }
    return out + "]";
}

}  // namespace outbox
