#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "core/routing.h"
#include "core/tls_use.h"

namespace outbox {

/// What a route says of where its events go.
struct Destination {
    std::string url;
    /// Of the table in the route that bears the broker's name: "kafka.linger.ms" -> "5".
    std::map<std::string, std::string> options;
    std::chrono::seconds connect_timeout{5};
    /// Who publishes: the same for all relays of one outbox and for this route alone, until it
    /// begins anew. See `spi::RouteBeginning`.
    std::string producer = {};
    std::size_t max_repeats = 0;  ///< Events that may come again after a relay was killed.
};

/// What a folder of brokers/ exports, as `const Broker& NAME_broker()`: all that the command line,
/// the configuration file, the help and the reference pages know of it. The build collects them.
struct Broker {
    std::string_view name;  ///< The folder's.
    /// Of its URLs; the first, up to a '+', names routes that were given no name.
    std::span<const std::string_view> schemes;
    std::string_view urls;  ///< As the help shows them: "kafka://host:port".
    const spi::SinkCapabilities* capabilities = nullptr;  ///< What its sinks say of themselves.
    /// Which repeats the destination drops by itself, and for how long; empty: none.
    std::string_view drops_repeats = {};
    std::string_view limits = {};  ///< Of one record, by the destination; empty: none of its own.
    /// What may stand in the table [route.NAME], with an example in backticks; empty: there is
    /// none.
    std::string_view options = {};
    std::string_view example_option = {};            ///< A line of that table.
    std::span<const std::string_view> secrets = {};  ///< Parts of names of options to be hidden.

    /// What it asks of topics' names beyond what is asked everywhere; null: nothing.
    core::TopicSyntax check_topic = nullptr;
    /// How it writes a field's value inside a topic that a template makes; null: as it is.
    core::TopicToken topic_token = nullptr;
    /// Why no record can have a header of that name there, with the remedy; else nothing. Null: any
    /// name will do.
    std::optional<std::string> (*why_not_header)(std::string_view name) = nullptr;

    /// Does not contact the destination. Errors: kConfigInvalid, kGuaranteeRefused.
    Result<std::unique_ptr<spi::Sink>> (*make)(const Destination& destination) = nullptr;
    /// Whether files with secrets and certificates can be used
    /// now; null: there are none. For a start: what `make` made reads them at each connection, when
    /// the same is an outage. Reads files alone. Errors: kAuthFailed/stop, kConfigInvalid/stop.
    Status (*check_settings)(const Destination& destination) = nullptr;
    /// Where the sink's own `check` may change the destination: the same without a change. Blocks
    /// up to the connect timeout.
    Status (*look)(const Destination& destination) = nullptr;
    /// What an operator should know of the destination as it is now, in a sentence for `--check`;
    /// null: nothing. Blocks up to the connect timeout. Errors: those of the sink's `check`.
    Result<std::string> (*describe)(const Destination& destination) = nullptr;
    /// What of the way there is in clear or unverified, with the remedy; or "".
    std::string (*weakness)(const Destination& destination) = nullptr;
    /// Whose certificates the way there depends on. Contacts nobody. Null: nobody's.
    TlsUse (*tls)(const Destination& destination) = nullptr;
};

}  // namespace outbox
