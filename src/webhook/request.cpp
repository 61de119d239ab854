#include "webhook/request.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "core/ascii.h"
#include "core/json_scan.h"
#include "core/json_string.h"
#include "core/url.h"
#include "core/utf8.h"
#include "net/header_line.h"
#include "webhook/endpoint_url.h"

namespace outbox::webhook {
namespace {

constexpr unsigned char kDelete = 0x7F;
constexpr std::string_view kOurs = "webhook-";
constexpr std::string_view kProxy = "proxy-";
constexpr std::string_view kContentType = "content-type";
// They say how a request is sent, and a second one of them lets two servers on its way read it
// differently.
constexpr std::array<std::string_view, 12> kOfTheRequest{"host",
                                                         "content-length",
                                                         "content-encoding",
                                                         "transfer-encoding",
                                                         "connection",
                                                         "keep-alive",
                                                         "te",
                                                         "trailer",
                                                         "upgrade",
                                                         "expect",
                                                         "user-agent",
                                                         "http2-settings"};

bool is_reserved(std::string_view name) {
    return name.starts_with(kOurs) || name.starts_with(kProxy) ||
           std::find(kOfTheRequest.begin(), kOfTheRequest.end(), name) != kOfTheRequest.end();
}

// As RFC 9110 writes names.
bool is_token(std::string_view name) {
    constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
    return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
        return is_letter_or_digit(c) || kMarks.find(c) != std::string_view::npos;
    });
}

std::optional<std::string> why_not_name(std::string_view name) {
    constexpr std::size_t kMostShown = 100;
    if (is_token(name)) return std::nullopt;
    if (name.empty()) return "it has a header without a name";
    return "HTTP has no header of the name '" + to_printable(name.substr(0, kMostShown)) +
           "' (ASCII letters, digits and marks such as - and _, no blank); use another name";
}

}  // namespace

std::optional<std::string> why_not_header(std::string_view name) {
    if (auto why = why_not_name(name)) return why;
    if (!is_reserved(lower_case(name))) return std::nullopt;
    return "a webhook's request has a meaning of its own for the header '" + std::string(name) +
           "'; use another name";
}

std::optional<std::string> why_not_carried(std::string_view headers_json) {
    std::optional<std::string> why;
    std::string storage;
    static_cast<void>(
        for_each_json_member(headers_json, [&](std::string_view name, std::string_view /*value*/) {
            const auto text = why ? std::nullopt : json_string(name, storage);
            if (text) why = why_not_name(*text);
        }));
    return why;
}

std::string webhook_id(std::string_view event_id) {
    std::string id;
    for (const char c : event_id) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte <= ' ' || byte >= kDelete || c == '.' || c == '%') {
            append_percent(c, id);
        } else {
            id += c;
        }
    }
    return id;
}

Headers event_headers(std::string_view json) {
    std::map<std::string, std::string_view, std::less<>> members;  // by name, the last of each
    std::vector<decltype(members)::const_iterator> in_order;
    std::string storage;
    bool readable = true;
    const bool whole =
        for_each_json_member(json, [&](std::string_view name, std::string_view value) {
            const auto text = json_string(name, storage);
            readable = readable && text;
            if (!text) return;
            const auto [place, fresh] = members.insert_or_assign(std::string(*text), value);
            if (fresh) in_order.push_back(place);
        });
    if (!whole || !readable) return {};
    Headers headers;
    std::set<std::string> seen;
    for (const auto& member : in_order) {
        const auto& [key, value] = *member;
        const std::string name = lower_case(key);
        if (!is_token(name) || is_reserved(name) || !value.starts_with('"')) continue;
        // "Type" and "type" are one. The name that is written as it is sent goes first: formats
        // write those, such as traceparent; which of others a receiver believes nobody knows.
        if (key != name) {
            const auto as_sent = members.find(name);
            if (as_sent != members.end() && as_sent->second.starts_with('"')) continue;
        }
        const auto text = json_string(value, storage);
        if (!text) return {};
        std::pair<std::string, std::string> header(name, *text);
        net::encode_header(name, *text, header);
        if (seen.insert(header.first).second) headers.push_back(std::move(header));
    }
    return headers;
}

void add_content_type(std::string_view payload, Headers& headers) {
    const bool there = std::any_of(headers.begin(), headers.end(),
                                   [](const auto& header) { return header.first == kContentType; });
    if (there || payload.empty()) return;
    const bool json = is_json(payload);
    headers.emplace_back(kContentType, json ? "application/json" : "application/octet-stream");
}

}  // namespace outbox::webhook
