#include "core/url.h"

#include <algorithm>
#include <cctype>

namespace outbox {
namespace {

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
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

// "host", "host:5432", "[::1]:5432", and lists of them.
bool is_authority(std::string_view text) {
    while (true) {
        const auto end = text.find(',');
        std::string_view host = text.substr(0, end);
        if (host.starts_with('[')) {
            const auto close = host.find(']');
            if (close == std::string_view::npos) return false;
            host.remove_prefix(close + 1);
            if (!host.empty() && host.front() != ':') return false;
        }
        const auto colon = host.find(':');
        const std::string_view port =
            colon == std::string_view::npos ? std::string_view() : host.substr(colon + 1);
        if (port.find_first_not_of("0123456789") != std::string_view::npos) return false;
        if (end == std::string_view::npos) return true;
        text.remove_prefix(end + 1);
    }
}

// What was cut from a password at "/", "?" or "@" must not go on as something that may be shown,
// and who is given the URL as it stands may cut it elsewhere: one "@" at most stands as it is, the
// end of user and password.
bool is_whole(const Url& url, std::string_view authority, std::string_view behind) {
    const auto at = authority.find('@');
    return is_authority(url.authority) && at == authority.rfind('@') &&
           (authority.empty() || behind.find('@') == std::string_view::npos);
}

}  // namespace

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
                         "'" + redacted_url(text) +
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
        const std::string_view behind = text.substr(colon + 3);
        rest.remove_prefix(2);
        const auto slash = rest.find('/');
        const std::string_view authority = rest.substr(0, slash);
        parse_authority(authority, url);
        rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
        if (!is_whole(url, authority, behind.substr(authority.size()))) {
            return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                             "'" + redacted_url(text) +
                                 "' is not a URL: percent-encode the characters / ? # @ : and % of "
                                 "user and password, and every other @ as %40, give the port as a "
                                 "number, and an IPv6 address as [::1]"};
        }
    }
    url.path = percent_decode(rest);
    return url;
}

void append_percent(char byte, std::string& out) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto number = static_cast<unsigned char>(byte);
    out += '%';
    out += kDigits[number >> 4U];
    out += kDigits[number & 15U];
}

std::string percent_encode(std::string_view text, std::string_view also) {
    constexpr unsigned char kDelete = 0x7F;
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte <= ' ' || byte == kDelete || also.find(c) != std::string_view::npos) {
            append_percent(c, out);
        } else {
            out += c;
        }
    }
    return out;
}

std::string path_part(std::string_view text) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    std::string out;
    for (const char c : text) {
        if (kPlain.find(c) != std::string_view::npos) {
            out += c;
        } else {
            append_percent(c, out);
        }
    }
    return out;
}

std::string with_parameter(std::string url, std::string_view name, std::string_view value) {
    url += url.find('?') == std::string::npos ? "?" : "&";
    url.append(name).append("=").append(path_part(value));
    return url;
}

}  // namespace outbox
