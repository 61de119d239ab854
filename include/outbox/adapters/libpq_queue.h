#pragma once

#include <string>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/consumer/queue.h>

namespace outbox {

/// A consumer of a broker's queue whose effects are in PostgreSQL. Each worker has a connection of
/// its own. `url`: what libpq takes. The handlers are called on several threads, and with the open
/// transaction of one of them; the rules are those of `libpq_mailbox_consumer`.
/// Throws `Error` `kConfigInvalid` for options out of range.
QueueConsumer libpq_queue_consumer(const std::string& url, const Queue& queue, LibpqHandler handler,
                                   QueueConsumerOptions options);

/// The same with a handler of batches.
QueueConsumer libpq_queue_consumer(const std::string& url, const Queue& queue,
                                   LibpqBatchHandler handler, QueueConsumerOptions options);

}  // namespace outbox
