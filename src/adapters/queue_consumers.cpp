#include <utility>

#include <outbox/adapters/libpq_queue.h>
#include <outbox/adapters/sqlite_queue.h>

#include "adapters/appliers.h"
#include "consumer/one_by_one.h"
#include "consumer/queue/consumer.h"
#include "databases/postgres/receive/broker_store.h"
#include "databases/sqlite/receive/broker_store.h"

namespace outbox {
namespace {

consumer::BrokerStoreOptions store_options(const QueueConsumerOptions& options) {
    return {.consumer = options.consumer,
            .connect_timeout_s = options.connect_timeout_s,
            .prunes = options.inbox_retention_s > 0,
            .counts_begun = options.max_deliveries > 0};
}

}  // namespace

QueueConsumer libpq_queue_consumer(const std::string& url, const Queue& queue,
                                   LibpqBatchHandler handler, QueueConsumerOptions options) {
    return consumer::make_queue_consumer(
        queue, std::move(options),
        [&](const QueueConsumerOptions& checked) {
            consumer::check_postgres_url(url);
            return consumer::appliers<consumer::LibpqBrokerStore>(url, store_options(checked),
                                                                  std::move(handler));
        },
        consumer::real_env());
}

QueueConsumer libpq_queue_consumer(const std::string& url, const Queue& queue, LibpqHandler handler,
                                   QueueConsumerOptions options) {
    return libpq_queue_consumer(url, queue,
                                LibpqBatchHandler(consumer::one_by_one<PGconn>(std::move(handler))),
                                std::move(options));
}

QueueConsumer sqlite_queue_consumer(const std::string& url, const Queue& queue,
                                    SqliteBatchHandler handler, QueueConsumerOptions options) {
    options.workers = 1;  // SQLite has one writer
    return consumer::make_queue_consumer(
        queue, std::move(options),
        [&](const QueueConsumerOptions& checked) {
            return consumer::appliers<consumer::SqliteBrokerStore>(
                consumer::sqlite_path(url), store_options(checked), std::move(handler));
        },
        consumer::real_env());
}

QueueConsumer sqlite_queue_consumer(const std::string& url, const Queue& queue,
                                    SqliteHandler handler, QueueConsumerOptions options) {
    return sqlite_queue_consumer(
        url, queue, SqliteBatchHandler(consumer::one_by_one<sqlite3>(std::move(handler))),
        std::move(options));
}

}  // namespace outbox
