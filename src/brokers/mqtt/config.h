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

namespace outbox::mqtt {

inline constexpr auto kOptions = all_options(
    std::array{
        BackendOption{
            .name = "require_subscriber",
            .type = OptionType::kFlag,
            .fallback = "true",
            .help = "`false`: a message that nobody subscribes to is done. Otherwise its topic "
                    "waits until somebody does, where the broker says so (MQTT leaves that to it; "
                    "mosquitto does)"},
        BackendOption{.name = "retain",
                      .type = OptionType::kFlag,
                      .fallback = "false",
                      .help = "`true`: the broker keeps the last message of each topic for those "
                              "who subscribe later"},
    },
    net::kAccessOptions);

/// "MQTT broker at host:1883".
[[nodiscard]] std::string name_of_host(const net::Host& host);

/// The hosts are servers of one broker.
struct MqttConfig : net::ServerAccess {
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    bool retain = false;  ///< The broker keeps the last message of each topic.
    /// A message that nobody subscribes to waits; else it is done, and gone.
    bool require_subscriber = false;

    std::size_t max_records = 4'000;                ///< Without an answer at once.
    std::size_t max_bytes = std::size_t{32} << 20;  ///< Values and headers under way.
    std::chrono::milliseconds stuck_after{15'000};  ///< A broker that says nothing for so long.
};

/// From `mqtt://user:password@host:port,host:port` (`mqtts://` with TLS) and options named
/// `mqtt.<name>` or just the name; options may stand in the URL's query, too. Errors:
/// kConfigInvalid/stop.
Result<MqttConfig> make_config(std::string_view url,
                               const std::map<std::string, std::string>& options);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const MqttConfig& config);

}  // namespace outbox::mqtt
