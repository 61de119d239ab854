#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::pulsar {

inline constexpr auto kOptions = all_options(
    std::array{
        BackendOption{
            .name = "tenant", .fallback = "public", .help = "of topics whose names have no slash"},
        BackendOption{.name = "namespace",
                      .fallback = "default",
                      .help = "of topics whose names have no slash"},
        BackendOption{
            .name = "mixed_batches",
            .type = OptionType::kFlag,
            .fallback = "false",
            .help = "`true`: events with different keys share batches, which is faster. Only for "
                    "topics that no subscription of the type Key_Shared reads: it hands a whole "
                    "batch to the consumer of its first key"},
        BackendOption{.name = "token_file",
                      .type = OptionType::kPath,
                      .help = "instead of the token in the URL; read at each connection"},
    },
    net::kTlsOptions);

/// "Pulsar at host:6650".
[[nodiscard]] std::string name_of_host(const net::Host& host);

/// The hosts are brokers, or proxies, of one cluster. The password is a token.
struct PulsarConfig : net::ServerAccess {
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    std::string tenant;  ///< Of topics whose names have no slash.
    std::string name_space;
    /// Events with different keys may share a batch: a subscription of the type Key_Shared hands a
    /// batch to one consumer, whatever keys are in it.
    bool mixed_batches = false;

    std::string producer;  ///< Who publishes, for operators to see; see backend/broker.h.

    std::size_t max_records = 8'000;                ///< Without an answer at once.
    std::size_t max_bytes = std::size_t{32} << 20;  ///< Keys, values and headers under way.
    std::chrono::milliseconds stuck_after{15'000};  ///< A broker that says nothing for so long.
    /// How old what is known of a topic's partitions may be.
    std::chrono::milliseconds partitions_for{60'000};

    [[nodiscard]] std::string home() const { return tenant + "/" + name_space; }
};

/// From `pulsar://:TOKEN@host:port,host:port` (`pulsar+ssl://` with TLS) and options named
/// `pulsar.<name>` or just the name; options may stand in the URL's query, too. Errors:
/// kConfigInvalid/stop.
Result<PulsarConfig> make_config(std::string_view url,
                                 const std::map<std::string, std::string>& options);

/// Where a broker is that another one names: "pulsar://host:6650".
struct BrokerAddress {
    net::Host host;
    bool tls = false;
};
[[nodiscard]] std::optional<BrokerAddress> read_broker_url(std::string_view url);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const PulsarConfig& config);

}  // namespace outbox::pulsar
