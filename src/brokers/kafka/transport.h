#pragma once

#include <string>

#include "brokers/kafka/config.h"
#include "core/tls_use.h"

namespace outbox::kafka {

/// What is wrong with the way to the brokers, with the remedy; empty for this machine and for TLS
/// that proves who they are.
std::string transport_weakness(const KafkaConfig& config);

/// Whose certificates the way to the brokers depends on; nothing in clear.
TlsUse tls_use(const KafkaConfig& config);

}  // namespace outbox::kafka
