#include "runtime/route_names.h"

#include <algorithm>
#include <set>

#include "backend/backends.h"
#include "core/ascii.h"
#include "core/redact.h"
#include "core/url.h"
#include "runtime/options.h"

namespace outbox::runtime {
namespace {

constexpr std::size_t kMaxFormerBytes = 60;

// What is no letter, digit or one of `others` becomes "-", several of them one.
std::string words_of(std::string_view text, std::string_view others, std::size_t max_bytes) {
    std::string out;
    for (const char c : text) {
        if (is_letter_or_digit(c) || others.find(c) != std::string_view::npos) {
            out += c;
        } else if (!out.empty() && out.back() != '-') {
            out += '-';
        }
    }
    while (!out.empty() && out.back() == '-') out.pop_back();
    return out.substr(0, max_bytes);
}

std::string former_route_name(std::string_view text) {
    const auto url = parse_url(redact(text));
    if (!url.ok()) return "default";
    std::string name = url->scheme;
    if (!url->authority.empty()) name += "-" + url->authority;
    const auto slash = url->path.rfind('/');
    if (slash != std::string::npos) name += "-" + url->path.substr(slash + 1);
    const auto mailbox = url->query_value("mailbox");
    if (!mailbox.empty()) name += "-" + std::string(mailbox);
    return words_of(name, "_", kMaxFormerBytes);
}

}  // namespace

Destination split_destination(std::string_view text) {
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || text.find(':') < equals) {
        return {false, {}, std::string(text)};
    }
    return {true, std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

Status check_route_name(const std::string& name, std::string_view where) {
    const bool valid = !name.empty() && name.size() <= kMaxRouteNameBytes &&
                       std::all_of(name.begin(), name.end(), [](char c) {
                           return is_letter_or_digit(c) || c == '_' || c == '-' || c == '.';
                       });
    if (valid) return {};
    return config_error(where, "'" + name + "' is not a route name: use 1 to " +
                                   std::to_string(kMaxRouteNameBytes) +
                                   " letters, digits, and - _ .");
}

std::string derived_route_name(std::string_view text) {
    const auto url = parse_url(redact(text));
    if (!url.ok()) return "route";
    // With and without TLS it is the same route.
    const auto broker = find_broker(std::string(text));
    const std::string_view scheme = broker.ok() ? (*broker)->schemes.front() : url->scheme;
    std::string name(scheme.substr(0, scheme.find('+')));
    const auto mailbox = url->query_value("mailbox");
    if (!mailbox.empty() && mailbox != "default") name += "-" + std::string(mailbox);
    return words_of(name, "_.-", kMaxRouteNameBytes);
}

std::vector<std::string> former_route_names(const std::vector<std::string>& urls) {
    if (urls.size() == 1) return {"default"};
    std::vector<std::string> out;
    std::set<std::string> names;
    for (const std::string& url : urls) {
        const std::string base = former_route_name(url);
        std::string name = base;
        for (int n = 2; !names.insert(name).second; ++n) name = base + "-" + std::to_string(n);
        out.push_back(std::move(name));
    }
    return out;
}

}  // namespace outbox::runtime
