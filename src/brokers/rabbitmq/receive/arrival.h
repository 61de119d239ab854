#pragma once

#include <amqp.h>

#include "consumer/queue/inlet.h"

namespace outbox::rabbitmq {

/// Fills in what a message's properties say: id, key, null payload, headers, and for one that came
/// before (`deliveries`) how often. True: it
/// has an offset as streams write it, and is from one now or was before.
[[nodiscard]] bool read_properties(const amqp_basic_properties_t& properties,
                                   consumer::Arrival& out);

}  // namespace outbox::rabbitmq
