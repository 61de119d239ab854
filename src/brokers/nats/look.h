#pragma once

#include <string>

#include <outbox/result.h>

#include "brokers/nats/config.h"

namespace outbox::nats {

/// Whether messages could be published, as far as looking tells: that JetStream is there, and the
/// stream where the configuration names one. What we may not look at is taken for right. Blocks up
/// to the connect timeout of each host. Errors: those of the table.
Status look_at_server(const NatsConfig& config);

/// Which repeats the streams drop: "stream ORDERS (orders.>) drops repeats for 2 min". Blocks and
/// fails as above.
Result<std::string> describe_windows(const NatsConfig& config);

}  // namespace outbox::nats
