#include "webhook/endpoint_url.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/ascii.h"
#include "core/redact.h"
#include "core/utf8.h"

namespace outbox::webhook {
namespace {

constexpr std::size_t kMostBytes = 2'048;
constexpr std::size_t kMostHostBytes = 253;
constexpr std::size_t kMostLabelBytes = 63;
constexpr std::size_t kMostShown = 100;
constexpr unsigned char kDelete = 0x7F;
constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

ErrorInfo invalid(std::string_view text, const std::string& why) {
    // A user's password, and a token in path or query, are nobody's to see.
    const std::string_view shown = text.substr(0, std::min(text.find_first_of("?#"), kMostShown));
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "the webhook URL '" + to_printable(redacted_url(shown)) + "' " + why};
}

bool is_lower_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f');
}

// As the URL standard of browsers has it: a host whose last label is a number is an address, in one
// of the many forms that inet_aton takes.
bool ends_in_number(std::string_view host) {
    const std::string_view last = host.substr(host.rfind('.') + 1);  // npos + 1 == 0
    if (last.empty()) return false;
    if (std::all_of(last.begin(), last.end(), is_digit)) return true;
    return last.starts_with("0x") && std::all_of(last.begin() + 2, last.end(), is_lower_hex);
}

std::optional<std::string> why_not_label(std::string_view label) {
    if (label.empty()) return "has a dot too many";
    if (label.size() > kMostLabelBytes) return "has a part of more than 63 characters";
    if (label.front() == '-' || label.back() == '-') return "has a hyphen beside a dot";
    const bool plain = std::all_of(label.begin(), label.end(), [](char c) {
        return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
    });
    if (!plain) return "has characters that no host's name has";
    return std::nullopt;
}

std::optional<std::string> take_host(std::string_view authority, EndpointUrl& url,
                                     std::string_view& port) {
    if (authority.starts_with('[')) {
        const auto end = authority.find(']');
        if (end == std::string_view::npos) return "has no ']' behind its address";
        url.host = lower_case(authority.substr(1, end - 1));
        url.address = parse_address(url.host);
        if (!url.address || !url.address->v6) {
            return "has no plain IPv6 address in its brackets, for example [2001:db8::1]";
        }
        port = authority.substr(end + 1);
        if (!port.empty() && port.front() != ':') return "has something behind its address";
        return std::nullopt;
    }
    const auto colon = authority.find(':');
    port = colon == std::string_view::npos ? std::string_view() : authority.substr(colon);
    url.host = lower_case(authority.substr(0, colon));
    if (ends_in_number(url.host)) {
        url.address = parse_address(url.host);
        if (url.address) return std::nullopt;
        return "has an address that is not four decimal numbers, as 192.0.2.1 is";
    }
    return why_not_host_name(url.host);
}

// `text` is "" or ":443".
std::optional<std::string> take_port(std::string_view text, EndpointUrl& url) {
    url.port = url.tls ? kHttpsPort : kHttpPort;
    if (text.empty()) return std::nullopt;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + 1, end, url.port);
    if (read.ec == std::errc() && read.ptr == end && url.port != 0) return std::nullopt;
    return "has a port that is no number from 1 to 65535";
}

std::optional<std::string> why_not_characters(std::string_view text) {
    if (text.size() > kMostBytes) return "is longer than 2,048 bytes";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte > kDelete) {
            return "has characters that are not ASCII; write the host in its `xn--` form and "
                   "percent-encode the rest";
        }
        if (byte <= ' ' || byte == kDelete) return "has a blank or a control character";
        if (c == '\\') return "has a backslash; percent-encode it";
    }
    return std::nullopt;
}

std::optional<std::string> take_scheme(std::string_view text, const EndpointRules& rules,
                                       EndpointUrl& url, std::string_view& rest) {
    const auto colon = text.find("://");
    if (colon == std::string_view::npos) return "does not begin with https://";
    const std::string scheme = lower_case(text.substr(0, colon));
    url.tls = scheme == "https";
    if (!url.tls && scheme != "http") return "does not begin with https://";
    if (!url.tls && !rules.allow_http) {
        return "is in clear: write https://, or allow http for endpoints of your own";
    }
    rest = text.substr(colon + 3);
    url.text = scheme + "://";
    return std::nullopt;
}

}  // namespace

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

std::optional<std::string> why_not_host_name(std::string_view host) {
    if (host.empty()) return "has no host";
    if (host.size() > kMostHostBytes) return "has a host of more than 253 characters";
    if (ends_in_number(host)) return "has a host that ends in a number";
    for (std::size_t at = 0; at <= host.size();) {
        const std::size_t end = std::min(host.find('.', at), host.size());
        if (auto why = why_not_label(host.substr(at, end - at))) return "has a host that " + *why;
        at = end + 1;
    }
    return std::nullopt;
}

Result<EndpointUrl> parse_endpoint_url(std::string_view text, const EndpointRules& rules) {
    EndpointUrl url;
    std::string_view rest;
    std::string_view port;
    auto why = why_not_characters(text);
    if (!why) why = take_scheme(text, rules, url, rest);
    if (why) return invalid(text, *why);
    if (rest.find('#') != std::string_view::npos) {
        return invalid(text, "has a fragment (#), which no server sees");
    }
    const std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
    const std::string_view authority = rest.substr(0, end);
    if (authority.find('@') != std::string_view::npos) {
        return invalid(text,
                       "has a user; the signature proves who sends, and a token can stand in the "
                       "path or the query");
    }
    why = take_host(authority, url, port);
    if (!why) why = take_port(port, url);
    if (why) return invalid(text, *why);
    const bool v6 = url.address && url.address->v6;
    if (v6) url.host = to_text(*url.address);
    url.text += v6 ? "[" + url.host + "]" : url.host;
    url.text.append(port).append(rest.substr(end));
    return url;
}

}  // namespace outbox::webhook
