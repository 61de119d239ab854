#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "backend/database.h"
#include "core/routing.h"
#include "relay/options.h"
#include "runtime/options.h"
#include "runtime/toml_file.h"

namespace outbox::runtime {

/// One route: what it takes, where it goes.
struct RouteConfig {
    std::string name;
    std::vector<std::string> former_names;  ///< That earlier versions gave a route to this URL.
    std::string to;                         ///< URL of the sink.
    core::Predicate predicate;
    std::string topic_template;
    std::vector<std::string> allowed_topics;
    std::string format = "raw";
    std::string claim_check;  ///< URL of an object store; empty: records have their payloads.
    std::size_t claim_check_above = 0;  ///< Bytes.
    std::string schema_registry;        ///< URL; empty: no payload is checked.
    std::string schema_framing = "none";
    std::string on_dead_letter = "continue";
    /// As in `Destination`.
    std::map<std::string, std::string> sink_options;
    /// As in `codec::FormatSettings`.
    std::map<std::string, std::string> format_options;
};

/// Whether and where the admin server listens.
struct AdminConfig {
    enum class Mode : std::uint8_t { kAuto, kRequired, kOff };
    Mode mode = Mode::kAuto;
    std::string host = "127.0.0.1";
    std::uint16_t port = 9464;
};

/// Everything `outbox relay` needs, as plain values.
struct RelayConfig {
    SourceConfig source;
    std::vector<RouteConfig> routes;
    AdminConfig admin;
    std::string otlp_endpoint;  ///< URL; empty: no spans.
    std::string log_level;
    std::string log_format;
    bool check = false;
    relay::RelayOptions relay;  ///< Without owner and seed, which are no configuration.

    /// For a destination, whose route waits for several connections and answers in one step: the
    /// step is to end long before the relay takes its thread for one that hangs.
    static constexpr std::chrono::seconds kMaxSinkConnect{15};
    [[nodiscard]] std::chrono::seconds sink_connect_timeout() const {
        return check ? source.connect_timeout : std::min(source.connect_timeout, kMaxSinkConnect);
    }
};

/// What `outbox replay` needs.
struct ReplayConfig {
    RelayConfig relay;   ///< With one route; of all tenants.
    bool other = false;  ///< It leads elsewhere than the relay's route of that name.
};

/// A command with its options from arguments, environment, file and defaults, in this order.
struct Invocation {
    Command command = kVersion;
    OptionValues options;
    std::vector<std::string> positionals;
    FileContent file;
    std::vector<std::string> warnings;  ///< To be shown before the command runs.
};

/// The variables whose names begin with OUTBOX_.
using Environment = std::map<std::string, std::string>;
[[nodiscard]] Environment read_environment();

struct CommandLine;

/// Errors: kConfigInvalid, naming the argument, the variable, or file, line and column.
Result<Invocation> resolve(const CommandLine& line, const Environment& environment);

/// Errors: kConfigInvalid when an option is missing or two contradict each other.
Result<SourceConfig> make_source_config(const Invocation& invocation);
Result<RelayConfig> make_relay_config(const Invocation& invocation);
/// `name`: the route's; empty: there is one. A --to with another name leads it elsewhere.
Result<ReplayConfig> make_replay_config(const Invocation& invocation, const std::string& name);

/// "127.0.0.1:9464", "[::1]:9464", "auto" or "off".
Result<AdminConfig> parse_admin(std::string_view text, std::string_view where);

}  // namespace outbox::runtime
