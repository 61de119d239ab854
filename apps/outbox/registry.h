#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>
#include <outbox/spi/source.h>

#include "backend/broker.h"
#include "claim/object_store.h"
#include "codec/encoder.h"
#include "consumer/operator_sql.h"
#include "core/consumer_operations.h"
#include "core/event_trace.h"
#include "core/operations.h"
#include "core/tls_use.h"
#include "runtime/config.h"

namespace outbox::app {

/// Has the redactor know the secret options of every backend. To be called first.
void tell_secret_options();

/// The source that the URL's scheme names. Connects; blocks up to the connect timeout. Errors:
/// kConfigInvalid for a scheme that there is not, kUnsupported for one that this build left out.
Result<std::unique_ptr<spi::Source>> make_source(const SourceConfig& config);

/// Who runs this, as the audit shows it: a name, or the number of who has none.
std::string os_user();

/// What `outbox status` and `outbox dead` need; `table` is the source's `table_name`.
Result<std::unique_ptr<Operations>> open_operations(const SourceConfig& config,
                                                    const std::string& table);

/// An outbox table as operators look at it.
struct OperatedOutbox {
    std::unique_ptr<spi::Source> source;
    std::unique_ptr<Operations> operations;
};
/// Errors as `make_source`.
Result<OperatedOutbox> open_outbox(const SourceConfig& config);

/// Reads the life of events of the outbox table. Connects.
Result<std::unique_ptr<EventTracer>> open_tracer(const SourceConfig& config);

/// What the outbox table knows of events that are done with. Connects.
Result<std::unique_ptr<replay::History>> open_history(const SourceConfig& config);

/// A connection for operators to a consumer's database, whose tables must belong to the current
/// role, a superuser, the owner of database or schema, or one whom `trust` names. Errors as
/// `open_operations`.
Result<std::unique_ptr<consumer::Sql>> open_consumer_sql(const std::string& url,
                                                         int connect_timeout_s,
                                                         const consumer::Trust& trust);

/// Runs one statement as it stands, by a connection of its own. Errors as `make_source`.
Status run_statement(const std::string& url, std::chrono::seconds connect_timeout,
                     const std::string& sql);

/// What operators do in the consumer's tables of a source's database; `os_user` for the audit.
Result<std::unique_ptr<ConsumerOperations>> open_consumer_operations(
    const SourceConfig& config, const std::string& os_user = {});

/// That the outbox's tables are missing (`error`) because the database has the consumer's side
/// only, and not because one of them is gone. Also where nobody can tell: who then reads that side
/// learns why.
bool is_consumers_side_only(ConsumerOperations& operations, const ErrorInfo& error);

/// What of the way to the database or the destination is in clear or unverified, with the remedy;
/// empty: nothing, or the URL is not one.
std::string weakness_of_database(const std::string& url);
std::string weakness_of(const runtime::RelayConfig& config, const runtime::RouteConfig& route);

/// What of the way to an object store is in clear or unverified; empty URL: none.
std::string weakness_of_store(const std::string& url);

/// What of the way to a schema registry is in clear or unverified; empty URL: none.
std::string weakness_of_registry(const std::string& url);

/// Whose certificates the ways of a configuration depend on, each with what leads there: "the
/// destination of orders". Contacts nobody.
std::vector<std::pair<std::string, TlsUse>> tls_of(const runtime::RelayConfig& config);

/// The object store of a route's claim_check. Does not connect. Errors: kConfigInvalid,
/// kUnsupported.
Result<std::unique_ptr<claim::ObjectStore>> open_store(const std::string& url);

/// Who publishes where a sink is only to be looked at.
inline constexpr std::string_view kNoProducer = "check";
/// How the producers of replays begin, one for each run.
inline constexpr std::string_view kRunProducer = "outbox-replay/";

/// The sink of a route, for the producer of `spi::RouteBeginning`, with what is done for its
/// records before. Does not contact the destination.
Result<std::unique_ptr<spi::Sink>> make_sink(const runtime::RelayConfig& config,
                                             const runtime::RouteConfig& route,
                                             std::string_view producer = kNoProducer);

/// That files with secrets and certificates can be used now by
/// what `make_sink` makes, which reads them at each connection. Errors: kAuthFailed,
/// kConfigInvalid.
Status check_settings(const runtime::RelayConfig& config, const runtime::RouteConfig& route);

/// Where events of `table` go that name no topic, as the route and its destination have it. Errors:
/// kConfigInvalid.
Result<core::TopicRule> make_topics(const runtime::RouteConfig& route, const std::string& table);

/// Makes the encoders of a route's format for events of `table`. `shape` null: looks at the options
/// alone. Errors: kConfigInvalid.
Result<codec::MakeEncoder> make_format(const runtime::RouteConfig& route, const std::string& table,
                                       const spi::RowShape* shape);

/// Whether the destination takes records, as far as looking tells. Changes nothing there. Blocks up
/// to the connect timeout.
Status check_broker(const runtime::RelayConfig& config, const runtime::RouteConfig& route);
/// The same, and of the object store and the schema registry of the route. Writes an object.
Status check_sink(const runtime::RelayConfig& config, const runtime::RouteConfig& route);
/// The topics that the route's configuration names, as they are at its destination now; none where
/// that kind of destination tells nothing of them. Blocks as `Broker::topics`.
Result<std::vector<TopicReport>> look_at_topics(const runtime::RelayConfig& config,
                                                const runtime::RouteConfig& route);
/// What `--check` says of the destination beside that it is right; or "".
Result<std::string> describe_destination(const runtime::RelayConfig& config,
                                         const runtime::RouteConfig& route);
/// What keeps events from some of those who are to get them there. Blocks as `Broker::warnings`.
Result<std::vector<std::string>> warnings_of_destination(const runtime::RelayConfig& config,
                                                         const runtime::RouteConfig& route);

}  // namespace outbox::app
