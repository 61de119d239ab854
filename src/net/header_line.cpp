#include "net/header_line.h"

#include <algorithm>

#include "core/url.h"
#include "core/utf8.h"

namespace outbox::net {
namespace {

constexpr unsigned char kDelete = 0x7F;
constexpr std::string_view kExtended = "UTF-8''";
constexpr std::string_view kUnescaped =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$&+-.^_`|~";

bool is_control(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < ' ' || byte == kDelete;
}

bool is_plain(std::string_view value) {
    if (value.empty()) return true;
    return value.front() != ' ' && value.back() != ' ' &&
           std::none_of(value.begin(), value.end(), is_control) && is_utf8(value);
}

bool is_as_it_is(std::string_view name, std::string_view value) {
    return !name.ends_with('*') && is_plain(value);
}

void append_extended(std::string_view value, std::string& out) {
    out += kExtended;
    for (const char c : value) {
        if (kUnescaped.find(c) != std::string_view::npos) {
            out += c;
        } else {
            append_percent(c, out);
        }
    }
}

}  // namespace

std::optional<std::string> why_not_header_name(std::string_view name) {
    if (name.empty()) return "it has a header without a name";
    const bool fits = std::none_of(name.begin(), name.end(), [](unsigned char c) {
        return c <= ' ' || c >= kDelete || c == ':';
    });
    if (fits) return std::nullopt;
    return "the name of the header '" + to_printable(name.substr(0, 100)) +
           "' has a colon, a blank or something that is not ASCII; use another name";
}

void append_header_line(std::string_view name, std::string_view value, std::string& out) {
    out += name;
    if (is_as_it_is(name, value)) {
        out += ": ";
        out += value;
    } else {
        out += "*: ";
        append_extended(value, out);
    }
    out += "\r\n";
}

bool encode_header(std::string_view name, std::string_view value,
                   std::pair<std::string, std::string>& as) {
    if (is_as_it_is(name, value)) return false;
    extend_header(name, value, as);
    return true;
}

void extend_header(std::string_view name, std::string_view value,
                   std::pair<std::string, std::string>& as) {
    as.first = name;
    as.first += '*';
    as.second.clear();
    append_extended(value, as.second);
}

std::pair<std::string, std::string> decode_header(std::string_view name, std::string_view value) {
    if (!name.ends_with('*') || !value.starts_with(kExtended)) {
        return {std::string(name), std::string(value)};
    }
    return {std::string(name.substr(0, name.size() - 1)),
            percent_decode(value.substr(kExtended.size()))};
}

}  // namespace outbox::net
