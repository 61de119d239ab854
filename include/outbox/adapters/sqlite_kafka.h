#pragma once

#include <string>

#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/consumer/kafka.h>

namespace outbox {

/// A consumer of Kafka whose effects are in an SQLite file. SQLite has one writer, so there is one
/// worker, whatever `KafkaConsumerOptions::workers` says; other processes that write the file are
/// waited for, up to `connect_timeout_s`. `url`: sqlite:///path. The rules for handlers are those
/// of `sqlite_mailbox_consumer`; errors as `libpq_kafka_consumer`.
KafkaConsumer sqlite_kafka_consumer(const std::string& url, SqliteHandler handler,
                                    KafkaConsumerOptions options);

/// The same with a handler of batches.
KafkaConsumer sqlite_kafka_consumer(const std::string& url, SqliteBatchHandler handler,
                                    KafkaConsumerOptions options);

}  // namespace outbox
