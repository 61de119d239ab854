#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::nats {

inline constexpr std::array kCommonOptions{
    BackendOption{.name = "creds_file",
                  .type = OptionType::kPath,
                  .help = "instead of user and password: JWT and seed, as `nsc generate creds` "
                          "writes them, or the seed of an NKey; read at each connection"},
    BackendOption{.name = "inbox_prefix",
                  .fallback = "_INBOX",
                  .help = "what the subjects of answers begin with"},
};
inline constexpr auto kOptions = all_options(
    std::array{
        BackendOption{.name = "stream",
                      .help = "the stream that has to take the events; one that another takes "
                              "waits. Without it whichever has the subject"},
        BackendOption{.name = "dedup",
                      .type = OptionType::kFlag,
                      .fallback = "true",
                      .help = "`false`: the stream is given no ids and drops no repeats, for an "
                              "adopted table whose ids come again"},
        BackendOption{.name = "producer",
                      .help = "the name by which ids of this route are told from others'; made of "
                              "the database, the table, the tenants and the time when the route "
                              "began"},
    },
    kCommonOptions, net::kAccessOptions);
inline constexpr auto kConsumerOptions = all_options(
    std::array{
        BackendOption{.name = "stream", .help = "where messages come from"},
        BackendOption{.name = "consumer", .help = "of that stream: durable, and pull"},
    },
    kCommonOptions, net::kAccessOptions);

/// "NATS at host:4222".
[[nodiscard]] std::string name_of_host(const net::Host& host);

/// The hosts are servers of one cluster. A user without a password is a token.
struct NatsConfig : net::ServerAccess {
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    /// JWT and seed, as `nsc` writes them, or the seed of an NKey alone; read for each connection.
    std::string creds_file;
    std::string inbox_prefix;  ///< What answers come to begins with it.

    /// Who publishes: ids are told apart by it, as one stream may take events of several routes and
    /// outboxes, whose ids may be the same.
    std::string producer;
    bool dedup = false;  ///< The stream is given ids by which it drops repeats.

    /// The stream that takes what is published; empty: whichever has the subject. Consumers: where
    /// messages come from.
    std::string stream;
    std::string consumer;  ///< Of that stream.

    std::size_t max_records = 4'000;                ///< Without an answer at once.
    std::size_t max_bytes = std::size_t{32} << 20;  ///< Values and headers under way.
    std::chrono::milliseconds stuck_after{15'000};  ///< A message that is not answered for so long.
};

/// From `nats://user:password@host:port,host:port` (`tls://` with TLS) and options named
/// `nats.<name>` or just the name; options may stand in the URL's query, too. Errors:
/// kConfigInvalid/stop.
Result<NatsConfig> make_config(std::string_view url,
                               const std::map<std::string, std::string>& options);

/// The same for a consumer, from `nats://...?stream=NAME&consumer=NAME`.
Result<NatsConfig> make_consumer_config(std::string_view url);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const NatsConfig& config);

}  // namespace outbox::nats
