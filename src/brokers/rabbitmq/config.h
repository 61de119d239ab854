#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::rabbitmq {

inline constexpr std::array kHeartbeatOption{
    BackendOption{.name = "heartbeat_s",
                  .type = OptionType::kInteger,
                  .fallback = "5",
                  .unit = "s",
                  .min = 1,
                  .max = 3'600,
                  .help = "a server that says nothing for twice as long is gone"},
};
inline constexpr auto kOptions = all_options(
    std::array{
        BackendOption{.name = "exchange",
                      .help = "where messages go; empty: the default exchange, where the routing "
                              "key names a queue"},
        BackendOption{.name = "declare",
                      .type = OptionType::kFlag,
                      .fallback = "false",
                      .help = "`true`: makes a missing exchange, durable"},
        BackendOption{.name = "exchange_type",
                      .fallback = "topic",
                      .help = "of an exchange that is made: `topic`, `direct`, `fanout`, `headers` "
                              "or a plugin's `x-...`"},
    },
    kHeartbeatOption, net::kAccessOptions);
inline constexpr auto kQueueOptions =
    all_options(std::array{BackendOption{.name = "queue", .help = "where messages come from"}},
                kHeartbeatOption, net::kAccessOptions);

/// "RabbitMQ at host:5672".
[[nodiscard]] std::string name_of_host(const net::Host& host);

/// The hosts are nodes of one cluster.
struct RabbitmqConfig : net::ServerAccess {
    std::string vhost = "/";
    std::string exchange;  ///< Empty: the default exchange, where the routing key names a queue.
    std::string queue;     ///< Consumers: where messages come from.
    bool declare = false;  ///< Makes a missing exchange, durable, of `exchange_type`.
    std::string exchange_type;
    std::chrono::seconds heartbeat{};
    std::chrono::seconds connect_timeout{kConnectTimeoutS};

    std::size_t max_records = 10'000;               ///< Under way at once.
    std::size_t max_bytes = std::size_t{32} << 20;  ///< Values and headers under way.
    /// A record without an outcome for so long: its queue hangs, or the broker does.
    std::chrono::milliseconds stuck_after{15'000};
    /// What was sent before the broker said that it takes nothing more may still be confirmed.
    std::chrono::milliseconds blocked_grace{1'000};
};

/// From `amqp(s)://user:password@host:port,host:port/vhost?exchange=NAME` and options named
/// `rabbitmq.<name>` or just the name; options may stand in the URL's query, too. No vhost: "/".
/// Errors: kConfigInvalid/stop.
Result<RabbitmqConfig> make_config(std::string_view url,
                                   const std::map<std::string, std::string>& options);

/// The same for a consumer, from `amqp(s)://user:password@host:port/vhost?queue=NAME`.
Result<RabbitmqConfig> make_queue_config(std::string_view url);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const RabbitmqConfig& config);

/// "exchange 'orders' of vhost '/'", as messages name it.
std::string name_of_exchange(const RabbitmqConfig& config);

}  // namespace outbox::rabbitmq
