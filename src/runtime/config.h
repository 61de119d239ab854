#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "backend/database.h"
#include "core/routing.h"
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
    std::string on_dead_letter = "continue";
    /// As in `Destination`.
    std::map<std::string, std::string> sink_options;
};

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
    std::string unmatched = "dead_letter";
    std::string log_level = "info";
    std::string log_format = "logfmt";
    bool check = false;
    std::chrono::seconds retention{604'800};
    std::size_t batch_size = 500;
    std::int64_t poll_busy_ms = 1;
    std::int64_t poll_idle_ms = 100;
    std::uint32_t max_attempts = 5;
    std::int64_t retry_base_ms = 200;
    std::int64_t retry_max_ms = 60'000;
    std::size_t max_unrecorded = 10'000;
    std::size_t max_in_flight_bytes = std::size_t{16} << 20;
    std::int64_t lease_ttl_ms = 5'000;
    std::int64_t shutdown_grace_s = 30;
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

/// "127.0.0.1:9464", "[::1]:9464", "auto" or "off".
Result<AdminConfig> parse_admin(std::string_view text, std::string_view where);

}  // namespace outbox::runtime
