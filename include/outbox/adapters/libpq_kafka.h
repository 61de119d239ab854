#pragma once

#include <string>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/consumer/kafka.h>

namespace outbox {

/// A consumer of Kafka whose effects are in PostgreSQL. Each worker has a connection of its own.
/// `url`: what libpq takes. The handlers are called on several threads, and with the open
/// transaction of one of them; the rules are those of `libpq_mailbox_consumer`.
/// Throws `Error` `kConfigInvalid` for options out of range and settings that librdkafka does not
/// know, `kGuaranteeRefused` for settings and modes that would break exactly once.
KafkaConsumer libpq_kafka_consumer(const std::string& url, LibpqHandler handler,
                                   KafkaConsumerOptions options);

/// The same with a handler of batches.
KafkaConsumer libpq_kafka_consumer(const std::string& url, LibpqBatchHandler handler,
                                   KafkaConsumerOptions options);

}  // namespace outbox
