#pragma once

#include <string>

#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/consumer/queue.h>

namespace outbox {

/// A consumer of a broker's queue whose effects are in an SQLite file. SQLite has one writer, so
/// there is one worker, whatever `QueueConsumerOptions::workers` says; other processes that write
/// the file are waited for, up to `connect_timeout_s`. `url`: sqlite:///path. The rules for
/// handlers are those of `sqlite_mailbox_consumer`; errors as `libpq_queue_consumer`.
QueueConsumer sqlite_queue_consumer(const std::string& url, const Queue& queue,
                                    SqliteHandler handler, QueueConsumerOptions options);

/// The same with a handler of batches.
QueueConsumer sqlite_queue_consumer(const std::string& url, const Queue& queue,
                                    SqliteBatchHandler handler, QueueConsumerOptions options);

}  // namespace outbox
