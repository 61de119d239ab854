#pragma once

#include <functional>
#include <string>

#include <outbox/consumer/kafka.h>

#include "consumer/workers/hub.h"

namespace outbox::consumer::kafka {

/// A consumer of Kafka whose effects are in the database of the appliers. `applier_for` gets the
/// options with their defaults filled in. Throws as `libpq_kafka_consumer`.
KafkaConsumer make_consumer(
    KafkaConsumerOptions options,
    const std::function<MakeApplier(const KafkaConsumerOptions&)>& applier_for, const Env& env);

}  // namespace outbox::consumer::kafka
