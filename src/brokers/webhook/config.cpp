#include "brokers/webhook/config.h"

#include <array>
#include <charconv>
#include <utility>

#include "core/url.h"
#include "mailbox/config.h"

namespace outbox::webhook {
namespace {

constexpr std::string_view kUrlPrefix = "webhook+";
constexpr std::string_view kOptionPrefix = "webhook.";
constexpr std::array<std::string_view, 9> kOwn{
    "owner=",      "key_file=",           "allow=",           "allow_http=",      "ca_file=",
    "timeout_ms=", "connect_timeout_ms=", "max_connections=", "max_per_endpoint="};
constexpr std::string_view kNames =
    "key_file, allow, allow_http, ca_file, timeout_ms, connect_timeout_ms, max_connections, "
    "max_per_endpoint and owner";

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status read_number(std::string_view name, const std::string& value, std::int64_t least,
                   std::int64_t most, std::int64_t& out) {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (whole && out >= least && out <= most) return {};
    return invalid("webhook." + std::string(name) + " is '" + value + "'; it is a number from " +
                   std::to_string(least) + " to " + std::to_string(most));
}

Status read_size(std::string_view name, const std::string& value, std::int64_t most,
                 std::size_t& out) {
    std::int64_t number = 0;
    if (Status status = read_number(name, value, 1, most, number); !status.ok()) return status;
    out = static_cast<std::size_t>(number);
    return {};
}

Status read_time(std::string_view name, const std::string& value, std::chrono::milliseconds& out) {
    constexpr std::int64_t kMostMs = 60'000;
    std::int64_t number = 0;
    if (Status status = read_number(name, value, 1, kMostMs, number); !status.ok()) return status;
    out = std::chrono::milliseconds(number);
    return {};
}

Status add_option(std::string_view name, const std::string& value, RouteConfig& config) {
    constexpr std::int64_t kMostConnections = 10'000;
    constexpr std::int64_t kMostPerEndpoint = 100;
    while (name.starts_with(kOptionPrefix)) name.remove_prefix(kOptionPrefix.size());
    if (name == "owner") {
        config.store.owners.push_back(value);
    } else if (name == "key_file") {
        config.key_file = value;
    } else if (name == "allow") {
        config.allow += (config.allow.empty() ? "" : ",") + value;
    } else if (name == "ca_file") {
        config.ca_file = value;
    } else if (name == "allow_http") {
        if (value != "true" && value != "false") {
            return invalid("webhook.allow_http is '" + value + "'; write true or false");
        }
        config.allow_http = value == "true";
    } else if (name == "timeout_ms") {
        return read_time(name, value, config.timeout);
    } else if (name == "connect_timeout_ms") {
        return read_time(name, value, config.connect_timeout);
    } else if (name == "max_connections") {
        return read_size(name, value, kMostConnections, config.dispatch.max_connections);
    } else if (name == "max_per_endpoint") {
        return read_size(name, value, kMostPerEndpoint, config.dispatch.max_per_endpoint);
    } else {
        return invalid("webhooks have no option '" + std::string(name) + "'; there are " +
                       std::string(kNames));
    }
    return {};
}

}  // namespace

Result<std::string> database_of(std::string_view url) {
    if (!url.starts_with(kUrlPrefix)) {
        return invalid("'" + redact(url) + "' names no endpoints of webhooks");
    }
    return mailbox::database_url(url, kUrlPrefix, kOwn);
}

Result<RouteConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options,
                                std::chrono::seconds connect_timeout) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    auto target = database_of(url);
    if (!target.ok()) return target.error();
    RouteConfig config;
    config.store.target = *std::move(target);
    config.store.connect_timeout_s = static_cast<int>(connect_timeout.count());
    Status read;
    for (const auto& [name, value] : parsed->query) {
        // The rest is the database's.
        const bool ours = std::ranges::find(kOwn, std::string(name) + "=") != kOwn.end();
        if (read.ok() && ours) read = add_option(name, value, config);
    }
    for (const auto& [name, value] : options) {
        if (read.ok()) read = add_option(name, value, config);
    }
    if (!read.ok()) return read.error();
    if (config.key_file.empty()) {
        return invalid(
            "webhooks need the key that endpoints' secrets are sealed with: "
            "?key_file=/path/of/a/file, made by: openssl rand -base64 32");
    }
    return config;
}

}  // namespace outbox::webhook
