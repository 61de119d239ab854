#pragma once

#include <functional>

#include <outbox/consumer/queue.h>

#include "consumer/workers/hub.h"

namespace outbox::consumer {

/// A consumer of a queue whose effects are in the database of the appliers. Throws as
/// `libpq_queue_consumer`.
QueueConsumer make_queue_consumer(
    const Queue& queue, QueueConsumerOptions options,
    const std::function<MakeApplier(const QueueConsumerOptions&)>& applier_for, const Env& env);

}  // namespace outbox::consumer
