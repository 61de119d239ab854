#include "core/url.h"

#include <algorithm>
#include <cctype>

namespace outbox {
namespace {

constexpr std::string_view kMask = "***";

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

std::string percent_decode(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
            hex_value(text[i + 2]) >= 0) {
            out += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

bool is_scheme(std::string_view text) {
    return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) {
               return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
           });
}

void parse_authority(std::string_view text, Url& url) {
    const auto at = text.rfind('@');
    if (at != std::string_view::npos) {
        const std::string_view user_info = text.substr(0, at);
        const auto colon = user_info.find(':');
        url.user = percent_decode(user_info.substr(0, colon));
        if (colon != std::string_view::npos) {
            url.password = percent_decode(user_info.substr(colon + 1));
        }
        text.remove_prefix(at + 1);
    }
    url.authority = std::string(text);
}

void parse_query(std::string_view text, Url& url) {
    while (!text.empty()) {
        const auto end = text.find('&');
        const std::string_view item = text.substr(0, end);
        const auto equals = item.find('=');
        if (!item.empty()) {
            url.query.emplace_back(percent_decode(item.substr(0, equals)),
                                   equals == std::string_view::npos
                                       ? std::string()
                                       : percent_decode(item.substr(equals + 1)));
        }
        if (end == std::string_view::npos) break;
        text.remove_prefix(end + 1);
    }
}

bool ends_token(char c) {
    return c == '"' || c == '\'' || std::isspace(static_cast<unsigned char>(c)) != 0;
}

// Masks "user:secret@" of a URL whose "://" ends at `pos`. An unescaped "/" or "@" in a password
// must not show its tail: the last "@" of the token ends the secret.
std::size_t mask_user_info(std::string_view text, std::size_t pos, std::string& out) {
    std::size_t end = pos;
    while (end < text.size() && !ends_token(text[end])) ++end;
    const std::string_view token = text.substr(pos, end - pos);
    const auto at = token.rfind('@');
    const auto colon = token.find(':');
    if (at == std::string_view::npos || colon == std::string_view::npos || colon > at) return pos;
    out.append(token.substr(0, colon + 1)).append(kMask);
    return pos + at;
}

// Masks the value behind "password=" (also sslpassword=, sasl.password=) that starts at `pos`.
std::size_t mask_value(std::string_view text, std::size_t pos, std::string& out) {
    std::size_t end = pos;
    if (end < text.size() && text[end] == '\'') {
        ++end;
        while (end < text.size() && text[end] != '\'') end += text[end] == '\\' ? 2 : 1;
        end = std::min(end + 1, text.size());
    } else {
        while (end < text.size() && !ends_token(text[end]) && text[end] != '&') ++end;
    }
    if (end > pos) out.append(kMask);
    return end;
}

}  // namespace

std::string_view Url::query_value(std::string_view name, std::string_view fallback) const {
    for (auto item = query.rbegin(); item != query.rend(); ++item) {
        if (item->first == name) return item->second;
    }
    return fallback;
}

Result<Url> parse_url(std::string_view text) {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos || !is_scheme(text.substr(0, colon))) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                         "'" + redact(text) +
                             "' is not a URL: write scheme://host:port/path, for example "
                             "postgresql://user@localhost/shop or kafka://localhost:9092"};
    }
    Url url;
    url.scheme = std::string(text.substr(0, colon));
    std::string_view rest = text.substr(colon + 1);
    const auto question = rest.find('?');
    if (question != std::string_view::npos) {
        parse_query(rest.substr(question + 1), url);
        rest = rest.substr(0, question);
    }
    if (rest.starts_with("//")) {
        rest.remove_prefix(2);
        const auto slash = rest.find('/');
        parse_authority(rest.substr(0, slash), url);
        rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
    }
    url.path = percent_decode(rest);
    return url;
}

std::string redact(std::string_view text) {
    constexpr std::string_view kSecretNames[] = {"password=", "secret="};
    std::string out;
    out.reserve(text.size());
    std::size_t pos = 0;
    while (pos < text.size()) {
        if (text.substr(pos).starts_with("://")) {
            out.append("://");
            pos = mask_user_info(text, pos + 3, out);
            continue;
        }
        const std::string_view* name = std::find_if(
            std::begin(kSecretNames), std::end(kSecretNames),
            [&](std::string_view candidate) { return text.substr(pos).starts_with(candidate); });
        if (name != std::end(kSecretNames)) {
            out.append(*name);
            pos = mask_value(text, pos + name->size(), out);
        } else {
            out += text[pos++];
        }
    }
    return out;
}

std::string redacted_line(std::string_view text) {
    constexpr std::string_view kBlanks = " \n\r\t";
    std::string line;
    for (const char c : redact(text)) {
        const bool blank = kBlanks.find(c) != std::string_view::npos;
        if (!blank) {
            line += c;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
    }
    if (line.ends_with(' ')) line.pop_back();
    return line;
}

bool holds_secret(std::string_view text) {
    return redact(text) != text;
}

}  // namespace outbox
