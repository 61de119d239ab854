#include <utility>

#include <outbox/adapters/libpq_kafka.h>
#include <outbox/adapters/sqlite_kafka.h>

#include "brokers/kafka/receive/consumer.h"
#include "consumer/one_by_one.h"
#include "databases/postgres/receive/log.h"
#include "databases/sqlite/receive/log.h"

namespace outbox {
namespace {

using consumer::kafka::Applier;
using consumer::kafka::MakeApplier;

// `Store` gives the handler the connection whose transaction is open.
template <typename Store, typename Handler>
MakeApplier appliers(const std::string& where, const KafkaConsumerOptions& options,
                     Handler handler) {
    return [where, options, handler = std::move(handler)] {
        auto store = std::make_unique<Store>(where, options);
        Store& session = *store;
        return Applier{std::move(store), [&session, handler](std::span<const Message> messages) {
                           handler(session.connection(), messages);
                       }};
    };
}

}  // namespace

KafkaConsumer libpq_kafka_consumer(const std::string& url, LibpqBatchHandler handler,
                                   KafkaConsumerOptions options) {
    return consumer::kafka::make_consumer(
        std::move(options), [&](const KafkaConsumerOptions& checked) {
            consumer::check_postgres_url(url);
            return appliers<consumer::LibpqLog>(url, checked, std::move(handler));
        });
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
        std::move(options), [&](const KafkaConsumerOptions& checked) {
            return appliers<consumer::SqliteLog>(consumer::sqlite_path(url), checked,
                                                 std::move(handler));
        });
}

KafkaConsumer sqlite_kafka_consumer(const std::string& url, SqliteHandler handler,
                                    KafkaConsumerOptions options) {
    return sqlite_kafka_consumer(
        url, SqliteBatchHandler(consumer::one_by_one<sqlite3>(std::move(handler))),
        std::move(options));
}

}  // namespace outbox
