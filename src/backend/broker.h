#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/limits.h>
#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "core/backend_options.h"
#include "core/routing.h"
#include "core/tls_use.h"

namespace outbox {

/// What a route says of where its events go.
struct Destination {
    std::string url;
    /// Of the table in the route that bears the broker's name: "kafka.linger.ms" -> "5".
    std::map<std::string, std::string> options;
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    /// Who publishes: the same for all relays of one outbox and for this route alone, until it
    /// begins anew. See `spi::RouteBeginning`.
    std::string producer = {};
    bool producer_ends = false;   ///< With a run: nobody is there who would remove what it leaves.
    std::size_t max_repeats = 0;  ///< Events that may come again after a relay was killed.
};

/// Which repeats a destination drops by itself.
struct RepeatsDropped {
    enum class Kind : std::uint8_t {
        kNone,
        kForTime,   ///< Of what came in the last `amount` seconds.
        kOfLast,    ///< Of the last `amount` ids of a route.
        kWhileKept  ///< Of what it still has.
    };
    Kind kind = Kind::kNone;
    std::int64_t amount = 0;       ///< Where nobody set another one.
    std::string_view option = {};  ///< Ours that sets it: one of `Broker::options`.
    std::string_view setting =
        {};  ///< The destination's that sets it: "duplicate_window of the stream".
    std::string_view note = {};  ///< What else there is to say.
};

/// How much of something a destination takes: in one record, where `what` names nothing else.
struct RecordLimit {
    std::string_view what;  ///< "record", "name of a header".
    std::int64_t most = 0;  ///< Of `unit`; 0: what `setting` says.
    std::string_view unit = "bytes";
    std::string_view setting = {};  ///< That lowers or sets it: "max_payload of the server".
};

/// A topic at a destination as it is now.
struct TopicReport {
    std::string name;
    std::string trouble = {};  ///< What stands in events' way, with the remedy; else empty.
    std::size_t partitions = 0;
    std::optional<std::chrono::milliseconds> kept = {};  ///< A record, at most; none: for ever.
};

/// What a folder of brokers/ exports, as `const Broker& NAME_broker()`: all that the command line,
/// the configuration file, the help and the reference pages know of it. The build collects them.
struct Broker {
    std::string_view name;  ///< The folder's.
    /// Of its URLs; the first, up to a '+', names routes that were given no name.
    std::span<const std::string_view> schemes;
    std::string_view urls;  ///< As the help shows them: "kafka://host:port".
    const spi::SinkCapabilities* capabilities = nullptr;  ///< What its sinks say of themselves.
    /// What users are told in its place: of a destination behind what the sink writes to. Null: the
    /// same.
    const spi::SinkCapabilities* told = nullptr;
    RepeatsDropped drops_repeats = {};
    /// Which of its destinations keep no order and drop no repeats, whatever the capabilities say:
    /// "standard queues"; empty: none.
    std::string_view unordered = {};
    std::span<const RecordLimit> limits = {};  ///< The destination's own.

    /// What may stand in its URL's query and in the table [route.NAME].
    std::span<const BackendOption> options = {};
    /// What else may, which its library knows and checks; empty: nothing.
    std::string_view other_options = {};
    std::string_view example_option = {};            ///< A line of that table.
    std::span<const std::string_view> secrets = {};  ///< Parts of names of `other_options`.

    /// A topic names no place there, so that an event's may be any text.
    bool any_topic = false;
    /// What it asks of topics' names beyond what is asked everywhere; null: nothing.
    core::TopicSyntax check_topic = nullptr;
    /// How it writes a field's value inside a topic that a template makes; null: as it is.
    core::TopicToken topic_token = nullptr;
    /// Why no record can have a header of that name there, with the remedy; else nothing. Null: any
    /// name will do.
    std::optional<std::string> (*why_not_header)(std::string_view name) = nullptr;

    [[nodiscard]] bool has_options() const { return !options.empty() || !other_options.empty(); }

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
    /// What keeps events from some of those who are to get them there while the route itself is
    /// sound, each with the remedy; null: nothing. Blocks up to the connect timeout, and once more
    /// as long for names of hosts. Errors: those of the sink's `check`.
    Result<std::vector<std::string>> (*warnings)(const Destination& destination) = nullptr;
    /// What is known there of topics of these names, each; null: nothing. Makes none. Blocks up to
    /// the connect timeout, and as long for each topic. Errors: those of the sink's `check`.
    Result<std::vector<TopicReport>> (*topics)(const Destination& destination,
                                               std::span<const std::string> names) = nullptr;
    /// What of the way there is in clear or unverified, with the remedy; or "".
    std::string (*weakness)(const Destination& destination) = nullptr;
    /// Whose certificates the way there depends on. Contacts nobody. Null: nobody's.
    TlsUse (*tls)(const Destination& destination) = nullptr;
};

}  // namespace outbox
