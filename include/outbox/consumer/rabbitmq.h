#pragma once

#include <string_view>

#include <outbox/consumer/queue.h>

namespace outbox {

/// A queue of RabbitMQ: `amqp(s)://user:password@host:port/vhost?queue=NAME`, with the options of
/// the sink that are about the connection (docs/brokers/rabbitmq.md). The queue must be there, and
/// be a classic or a quorum queue: of a stream nobody keeps the place, and it is refused
/// (`kConfigInvalid`) once its first message comes.
///
/// The message's `message_id` is `Message::id`, its routing key `Message::topic`, the header
/// `outbox-key` `Message::key`; the other headers become `Message::headers_json`. A queue that is
/// declared with `x-single-active-consumer` keeps the order of keys among members. Only a quorum
/// queue counts deliveries: `max_deliveries` has no meaning for others.
///
/// Throws `Error` `kConfigInvalid` for a URL or a file of certificates that it cannot use,
/// `kAuthFailed` for a file with a secret. Later such a file is an outage, reported and waited for.
Queue rabbitmq_queue(std::string_view url);

}  // namespace outbox
