#include "runtime/properties_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/utf16_escape.h"
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

// Behind a backslash; takes what belongs to it.
void append_escape(std::string_view& rest, std::string& out) {
    constexpr std::uint32_t kReplacement = 0xFFFD;  // for half a surrogate pair
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
    } else if (const auto code = c == 'u' ? take_utf16_escape(rest) : std::nullopt) {
        append_utf8(is_surrogate(*code) ? kReplacement : *code, out);
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
