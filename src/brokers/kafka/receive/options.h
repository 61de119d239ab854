#pragma once

#include <map>
#include <string>

#include <outbox/consumer/kafka.h>

#include "brokers/kafka/receive/client.h"
#include "consumer/workers/hub.h"

namespace outbox::consumer::kafka {

/// The options with their defaults filled in. Throws `Error` kConfigInvalid or kGuaranteeRefused.
[[nodiscard]] KafkaConsumerOptions checked(KafkaConsumerOptions options);

/// What the workers go by.
[[nodiscard]] WorkerOptions worker_options(const KafkaConsumerOptions& options);

/// Where to begin in a partition of which nothing was read yet. Throws `Error` kConfigInvalid.
[[nodiscard]] Start first_start(const KafkaConsumerOptions& options);

/// What librdkafka is given. Throws `Error` kGuaranteeRefused for what may not be set.
[[nodiscard]] std::map<std::string, std::string> settings_of(const KafkaConsumerOptions& options);

}  // namespace outbox::consumer::kafka
