#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::redis {

inline constexpr std::size_t kMaxWindow = 1'000'000;
/// Of a replay's run, which may be gone on with for a while.
inline constexpr std::chrono::seconds kRunMemory = std::chrono::days{7};
inline constexpr auto kOptions = all_options(
    std::array{
        BackendOption{.name = "dedup_window",
                      .type = OptionType::kInteger,
                      .fallback = "10000",
                      .unit = "ids",
                      .max = kMaxWindow,
                      .help = "ids of a route that the server remembers, to drop repeats; by "
                              "itself at least `max_unrecorded`. 0: none, and repeats come "
                              "through, for an adopted table whose ids come again"},
        BackendOption{.name = "max_len",
                      .type = OptionType::kInteger,
                      .unit = "entries",
                      .min = 1,
                      .max = std::numeric_limits<std::int64_t>::max(),
                      .help = "cuts a stream to about so many with `XADD ... MAXLEN ~`; without it "
                              "somebody else has to (`XTRIM`)"},
        BackendOption{.name = "producer",
                      .help = "the name under which ids are remembered; made of the database, the "
                              "table, the tenants and the time when the route began"},
    },
    net::kAccessOptions);
inline constexpr auto kGroupOptions = all_options(
    std::array{
        BackendOption{.name = "stream", .help = "where entries come from"},
        BackendOption{.name = "group", .help = "of that stream"},
    },
    net::kAccessOptions);

/// "Redis at host:6379".
[[nodiscard]] std::string name_of_host(const net::Host& host);

/// The hosts are a primary and its replicas: the one that takes writes is used.
struct RedisConfig : net::ServerAccess {
    int database = 0;
    std::chrono::seconds connect_timeout{kConnectTimeoutS};

    /// Who publishes; repeats are dropped and others kept out under this name.
    std::string producer;
    /// Ids that the server remembers of this producer; 0: it drops no repeats.
    std::size_t dedup_window = 0;
    /// The server forgets the producer so long after its last batch; 0: never.
    std::chrono::seconds keep_memory{0};
    std::int64_t max_len = 0;  ///< Entries that a stream keeps at least when it is cut; 0: all.
    std::string stream;        ///< Consumers: where entries come from.
    std::string group;

    std::size_t max_records = 10'000;               ///< Under way at once.
    std::size_t max_bytes = std::size_t{32} << 20;  ///< Values and headers under way.
    std::chrono::milliseconds stuck_after{15'000};  ///< A server that says nothing for so long.
};

/// From `redis(s)://user:password@host:port,host:port/DATABASE` and options named `redis.<name>` or
/// just the name; options may stand in the URL's query, too. `max_repeats`: what the window must
/// hold. Errors: kConfigInvalid/stop, kGuaranteeRefused/stop.
Result<RedisConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options,
                                std::size_t max_repeats);

/// The same for a consumer, from `redis(s)://.../DATABASE?stream=NAME&group=NAME`.
Result<RedisConfig> make_group_config(std::string_view url);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const RedisConfig& config);

/// What our keys begin with; no stream may.
inline constexpr std::string_view kOwnKeys = "outbox:";

/// What Redis asks of a topic's name, which is a stream's. Errors: kTopicInvalid/dead_letter.
Status check_stream_name(std::string_view topic);

}  // namespace outbox::redis
