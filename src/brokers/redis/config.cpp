#include "brokers/redis/config.h"

#include <algorithm>

#include "core/url.h"

namespace outbox::redis {
namespace {

constexpr net::Product kProduct{"Redis", "redis.", "redis", "rediss", "redis://host:6379/0",
                                6379,    6379};
constexpr int kMaxDatabase = 65'535;
constexpr std::size_t kMaxNameBytes = 512;

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status take_options(const BackendValues& values, RedisConfig& config) {
    net::take_access(values, config);
    if (values.given("max_len")) config.max_len = values.integer("max_len");
    config.dedup_window = values.size("dedup_window");
    config.producer = values.text("producer");
    const bool is_name = !config.producer.empty() && config.producer.size() <= kMaxNameBytes;
    if (!values.given("producer") || is_name) return {};
    return invalid("redis.producer is a name of 1 to 512 bytes");
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
    Status read = net::add_url(kProduct, *parsed, config);
    if (read.ok()) read = add_database(*parsed, config);
    if (!read.ok()) return read.error();
    const auto values =
        read_backend_options(net::scope_of(kProduct, kOptions), parsed->query, options);
    if (!values.ok()) return values.error();
    read = take_options(*values, config);
    if (read.ok()) read = net::check_access(kProduct, *parsed, config);
    if (!read.ok()) return read.error();
    if (!values->given("dedup_window")) {
        config.dedup_window = std::min(std::max(config.dedup_window, max_repeats), kMaxWindow);
    }
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
    if (!read.ok()) return read.error();
    const auto values = read_backend_options(
        {"a consumer of Redis", kProduct.prefix, kGroupOptions}, parsed->query, {});
    if (!values.ok()) return values.error();
    net::take_access(*values, config);
    config.stream = values->text("stream");
    config.group = values->text("group");
    read = net::check_access(kProduct, *parsed, config);
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
