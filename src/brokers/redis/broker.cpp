#include "backend/broker.h"

#include <array>

#include "backend/configured.h"
#include "brokers/redis/batch.h"
#include "brokers/redis/config.h"
#include "brokers/redis/session.h"
#include "brokers/redis/sink.h"
#include "net/certificate_dates.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"redis", "rediss"};
constexpr std::array kLimits{
    RecordLimit{.what = "value", .setting = "proto-max-bulk-len of the server"},
    RecordLimit{.what = "headers", .most = 3'500, .unit = "headers"},
};

Result<redis::RedisConfig> config_of(const Destination& destination) {
    auto config = redis::make_config(destination.url, destination.options, destination.max_repeats);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    if (config->producer.empty()) config->producer = destination.producer;
    if (destination.producer_ends) config->keep_memory = redis::kRunMemory;
    return config;
}

}  // namespace

const Broker& redis_broker() {
    static const Broker broker{
        .name = "redis",
        .schemes = kSchemes,
        .urls = "redis(s)://user:password@host:port/database",
        .capabilities = &redis::kCapabilities,
        .drops_repeats =
            {.kind = RepeatsDropped::Kind::kOfLast,
             .amount = 10'000,
             .option = "dedup_window",
             .note = "as long as the server keeps its data: a failover may lose some of it"},
        .limits = kLimits,
        .options = redis::kOptions,
        .example_option = "max_len = 1000000",
        .check_topic = redis::check_stream_name,
        .why_not_header = redis::why_not_header,
        .make = configured::make<config_of, redis::RedisSink>,
        .check_settings = configured::check<config_of, net::check_files>,
        .describe = configured::describe<config_of, redis::describe_server>,
        .weakness = configured::weakness<config_of, redis::transport_weakness>,
        .tls = configured::tls<config_of, net::tls_use_of>,
    };
    return broker;
}

}  // namespace outbox
