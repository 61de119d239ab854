#include "runtime/properties_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "core/utf8.h"

namespace outbox::runtime {
namespace {

constexpr std::string_view kBlanks = " \t\f";

bool continues(std::string_view line) {
    std::size_t backslashes = 0;
    while (backslashes < line.size() && line[line.size() - 1 - backslashes] == '\\') ++backslashes;
    return backslashes % 2 == 1;
}

std::string_view without_blanks(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

std::optional<std::uint32_t> four_digits(std::string_view text) {
    std::uint32_t code = 0;
    if (text.size() < 4) return std::nullopt;
    const char* const first = text.data();
    const auto [end, error] = std::from_chars(first, first + 4, code, 16);
    if (error != std::errc() || end != first + 4) return std::nullopt;
    return code;
}

// A unit of UTF-16, with the other half of its pair, if that follows.
void append_unit(std::uint32_t code, std::string_view& rest, std::string& out) {
    constexpr std::uint32_t kHigh = 0xD800;
    constexpr std::uint32_t kLow = 0xDC00;
    constexpr std::uint32_t kEnd = 0xE000;
    constexpr std::uint32_t kReplacement = 0xFFFD;
    if (code < kHigh || code >= kEnd) return append_utf8(code, out);
    const auto low = code < kLow && rest.starts_with("\\u") ? four_digits(rest.substr(2))
                                                            : std::optional<std::uint32_t>();
    if (!low || *low < kLow || *low >= kEnd) return append_utf8(kReplacement, out);
    rest.remove_prefix(6);
    append_utf8(0x10000 + ((code - kHigh) << 10U) + (*low - kLow), out);
}

// Behind a backslash; takes what belongs to it.
void append_escape(std::string_view& rest, std::string& out) {
    const char c = rest.front();
    rest.remove_prefix(1);
    if (c == 't') {
        out += '\t';
    } else if (c == 'n') {
        out += '\n';
    } else if (c == 'r') {
        out += '\r';
    } else if (c == 'f') {
        out += '\f';
    } else if (auto code = c == 'u' ? four_digits(rest) : std::nullopt) {
        rest.remove_prefix(4);
        append_unit(*code, rest, out);
    } else {
        out += c;
    }
}

std::string unescaped(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const char c = text.front();
        text.remove_prefix(1);
        if (c == '\\' && !text.empty()) {
            append_escape(text, out);
        } else if (c != '\\') {
            out += c;
        }
    }
    return out;
}

Property split(std::string_view line, std::size_t number) {
    std::size_t end = 0;
    while (end < line.size() && line[end] != '=' && line[end] != ':' &&
           kBlanks.find(line[end]) == std::string_view::npos) {
        end += line[end] == '\\' ? 2 : 1;
    }
    end = std::min(end, line.size());
    std::string_view value = without_blanks(line.substr(end));
    if (!value.empty() && (value.front() == '=' || value.front() == ':')) {
        value = without_blanks(value.substr(1));
    }
    return {unescaped(line.substr(0, end)), unescaped(value), number};
}

}  // namespace

std::vector<Property> read_properties(std::string_view text) {
    std::vector<Property> out;
    std::string line;
    std::size_t number = 0;
    std::size_t began = 0;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view part = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (part.ends_with('\r')) part.remove_suffix(1);
        ++number;
        part = without_blanks(part);
        if (line.empty()) {
            if (part.empty() || part.front() == '#' || part.front() == '!') continue;
            began = number;
        }
        line += part;
        if (continues(part) && !text.empty()) {
            line.pop_back();
            if (!line.empty()) continue;
        }
        out.push_back(split(line, began));
        line.clear();
    }
    if (!line.empty()) out.push_back(split(line, began));
    return out;
}

}  // namespace outbox::runtime
