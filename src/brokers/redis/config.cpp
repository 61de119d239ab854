#include "brokers/redis/config.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/url.h"

namespace outbox::redis {
namespace {

constexpr net::Product kProduct{"Redis", "redis.", "redis", "rediss", "redis://host:6379/0",
                                6379,    6379};
constexpr int kMaxDatabase = 65'535;
constexpr std::size_t kMaxWindow = 1'000'000;
constexpr std::size_t kMaxNameBytes = 512;

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

struct Options {
    std::optional<std::size_t> dedup_window;
};

Status add_option(std::string_view name, const std::string& value, RedisConfig& config,
                  Options& given) {
    const auto known = net::add_access_option(kProduct, name, value, config);
    if (!known.ok()) return known.error();
    if (*known) return {};
    if (name == "max_len") {
        if (!net::read_number<std::int64_t>(value, 1, std::numeric_limits<std::int64_t>::max(),
                                            config.max_len)) {
            return invalid("redis.max_len is '" + value + "'; it is a number of entries, from 1");
        }
    } else if (name == "dedup_window") {
        std::size_t window = 0;
        if (!net::read_number<std::size_t>(value, 0, kMaxWindow, window)) {
            return invalid("redis.dedup_window is '" + value + "'; it is 0 to 1000000 ids");
        }
        given.dedup_window = window;
    } else if (name == "producer") {
        if (value.empty() || value.size() > kMaxNameBytes) {
            return invalid("redis.producer is a name of 1 to 512 bytes");
        }
        config.producer = value;
    } else {
        return invalid("Redis has no option '" + std::string(name) +
                       "'; there are dedup_window, max_len, producer, ca_file, cert_file, "
                       "key_file, verify and password_file");
    }
    return {};
}

Status add_group_option(std::string_view name, const std::string& value, RedisConfig& config) {
    const auto known = net::add_access_option(kProduct, name, value, config);
    if (!known.ok()) return known.error();
    if (*known) return {};
    if (name == "stream") {
        config.stream = value;
    } else if (name == "group") {
        config.group = value;
    } else {
        return invalid("a consumer of Redis has no option '" + std::string(name) +
                       "'; there are stream, group, ca_file, cert_file, key_file, verify and "
                       "password_file");
    }
    return {};
}

Status add_database(const Url& url, RedisConfig& config) {
    std::string_view database = url.path;
    database.remove_prefix(std::min<std::size_t>(database.size(), 1));
    if (database.empty() || net::read_number(database, 0, kMaxDatabase, config.database)) return {};
    return invalid("the Redis URL has the database '" + std::string(database) +
                   "'; a database is a number, as in redis://host:6379/0");
}

}  // namespace

Result<RedisConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options,
                                std::size_t max_repeats) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    RedisConfig config;
    Options given;
    Status read = net::add_url(kProduct, *parsed, config);
    if (read.ok()) read = add_database(*parsed, config);
    if (read.ok()) {
        read = net::read_options(kProduct, *parsed, options,
                                 [&](std::string_view name, const std::string& value) {
                                     return add_option(name, value, config, given);
                                 });
    }
    if (read.ok()) read = net::check_access(kProduct, *parsed, config);
    if (!read.ok()) return read.error();
    config.dedup_window = given.dedup_window.value_or(
        std::min(std::max(config.dedup_window, max_repeats), kMaxWindow));
    if (config.dedup_window > 0 && config.dedup_window < max_repeats) {
        return ErrorInfo{ErrorCode::kGuaranteeRefused,
                         Advice::kStop,
                         {},
                         "redis.dedup_window is " + std::to_string(config.dedup_window) +
                             ", and max_unrecorded lets " + std::to_string(max_repeats) +
                             " events come again: raise the window, lower max_unrecorded, or set "
                             "the window to 0 for a route that drops no repeats"};
    }
    return config;
}

Result<RedisConfig> make_group_config(std::string_view url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    RedisConfig config;
    Status read = net::add_url(kProduct, *parsed, config);
    if (read.ok()) read = add_database(*parsed, config);
    for (const auto& [name, value] : parsed->query) {
        if (read.ok()) read = add_group_option(name, value, config);
    }
    if (read.ok()) read = net::check_access(kProduct, *parsed, config);
    if (!read.ok()) return read.error();
    if (config.stream.empty() || config.group.empty()) {
        return invalid(
            "the Redis URL names no stream or no group; use "
            "redis://host:6379/0?stream=NAME&group=NAME");
    }
    return config;
}

std::string name_of_host(const net::Host& host) {
    return net::name_of(kProduct.name, host);
}

std::string transport_weakness(const RedisConfig& config) {
    return net::transport_weakness(kProduct, config);
}

Status check_stream_name(std::string_view topic) {
    if (!topic.starts_with(kOwnKeys)) return {};
    return {ErrorCode::kTopicInvalid, Advice::kDeadLetter,
            "topic '" + std::string(topic) +
                "' begins with outbox:, as the relay's own keys in Redis do"};
}

}  // namespace outbox::redis
