#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::nats {

/// "NATS at host:4222".
[[nodiscard]] std::string name_of_host(const net::Host& host);

/// The hosts are servers of one cluster. A user without a password is a token.
struct NatsConfig : net::ServerAccess {
    std::chrono::seconds connect_timeout{5};
    /// JWT and seed, as `nsc` writes them, or the seed of an NKey alone; read for each connection.
    std::string creds_file;
    std::string inbox_prefix = "_INBOX";  ///< What answers come to begins with it.

    /// Who publishes: ids are told apart by it, as one stream may take events of several routes and
    /// outboxes, whose ids may be the same.
    std::string producer;
    bool dedup = true;  ///< The stream is given ids by which it drops repeats.

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
