#pragma once

#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "relay/options.h"
#include "runtime/config.h"

namespace outbox::app {

/// The routes of a relay with this configuration. Contacts no destination. Errors: kConfigInvalid.
Result<std::vector<relay::RouteSpec>> routes_of(const runtime::RelayConfig& config,
                                                const spi::Source& source);

/// What the next start would say of routes and ledgers. Changes nothing. Blocks on the database.
Result<spi::Beginning> preview(spi::Source& source, const runtime::RelayConfig& config);

/// What a relay with this configuration would meet: the source, the ledgers, each destination.
/// Changes nothing. Blocks on the database, and up to the connect timeout on each destination.
Result<std::vector<spi::Finding>> look_around(spi::Source& source,
                                              const runtime::RelayConfig& config);

/// A way of a configuration that is in clear or unverified.
struct OpenWay {
    std::string where;     ///< "the destination of orders"
    std::string weakness;  ///< What it lacks, with the remedy.
};
[[nodiscard]] std::vector<OpenWay> open_ways(const runtime::RelayConfig& config);

/// Prints them, one on a line, and gives the exit code: kExitFailed where the relay cannot run.
int print_findings(const std::vector<spi::Finding>& findings);

}  // namespace outbox::app
