#pragma once

#include <amqp.h>

#include "consumer/queue/inlet.h"

namespace outbox::rabbitmq {

/// Fills in what a message's properties say: id, key, null payload, headers, deliveries. False: it
/// comes from a stream.
[[nodiscard]] bool read_properties(const amqp_basic_properties_t& properties,
                                   consumer::Arrival& out);

}  // namespace outbox::rabbitmq
