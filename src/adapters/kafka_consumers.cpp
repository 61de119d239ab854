#include <utility>

#include <outbox/adapters/libpq_kafka.h>
#include <outbox/adapters/sqlite_kafka.h>

#include "adapters/appliers.h"
#include "brokers/kafka/receive/consumer.h"
#include "consumer/one_by_one.h"
#include "databases/postgres/receive/broker_store.h"
#include "databases/sqlite/receive/broker_store.h"

namespace outbox {
namespace {

consumer::BrokerStoreOptions store_options(const KafkaConsumerOptions& options) {
    return {.consumer = options.consumer,
            .connect_timeout_s = options.connect_timeout_s,
            .offsets = options.mode != KafkaConsumerOptions::Mode::kInbox,
            .prunes = options.inbox_retention_s > 0};
}

}  // namespace

KafkaConsumer libpq_kafka_consumer(const std::string& url, LibpqBatchHandler handler,
                                   KafkaConsumerOptions options) {
    return consumer::kafka::make_consumer(
        std::move(options),
        [&](const KafkaConsumerOptions& checked) {
            consumer::check_postgres_url(url);
            return consumer::appliers<consumer::LibpqBrokerStore>(url, store_options(checked),
                                                                  std::move(handler));
        },
        consumer::real_env());
}

KafkaConsumer libpq_kafka_consumer(const std::string& url, LibpqHandler handler,
                                   KafkaConsumerOptions options) {
    return libpq_kafka_consumer(url,
                                LibpqBatchHandler(consumer::one_by_one<PGconn>(std::move(handler))),
                                std::move(options));
}

KafkaConsumer sqlite_kafka_consumer(const std::string& url, SqliteBatchHandler handler,
                                    KafkaConsumerOptions options) {
    options.workers = 1;  // SQLite has one writer
    return consumer::kafka::make_consumer(
        std::move(options),
        [&](const KafkaConsumerOptions& checked) {
            return consumer::appliers<consumer::SqliteBrokerStore>(
                consumer::sqlite_path(url), store_options(checked), std::move(handler));
        },
        consumer::real_env());
}

KafkaConsumer sqlite_kafka_consumer(const std::string& url, SqliteHandler handler,
                                    KafkaConsumerOptions options) {
    return sqlite_kafka_consumer(
        url, SqliteBatchHandler(consumer::one_by_one<sqlite3>(std::move(handler))),
        std::move(options));
}

}  // namespace outbox
