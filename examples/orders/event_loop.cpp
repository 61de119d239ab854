#include "event_loop.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

#include <outbox/adapters/libpq_consumer.h>
#ifdef ORDERS_WITH_KAFKA
#include <outbox/adapters/libpq_kafka.h>
#include <outbox/adapters/sqlite_kafka.h>
#endif
#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/error.h>

namespace orders {

namespace {

constexpr std::size_t kTransactionSize = 100;
constexpr std::string_view kMailbox = "mailbox:";
constexpr std::string_view kKafka = "kafka://";

[[noreturn]] void refuse(const std::string& why) {
    throw outbox::Error(outbox::ErrorCode::kConfigInvalid, outbox::Advice::kStop, why);
}

}  // namespace

void EventLoopOptions::add_to(CLI::App& app) {
    app.add_option("--events", events,
                   "where the other services' events come from: mailbox: (in the own database) or "
                   "kafka://host:port")
        ->type_name("URL");
    app.add_option("--instance", instance,
                   "Kafka: a name of this process that stays over restarts; it gets its partitions "
                   "back at once")
        ->type_name("NAME");
}

class EventLoop::Impl {
  public:
    Impl(const EventLoopOptions& options, Handler handler, ServiceJournals& journals)
        : options_(options), handler_(std::move(handler)), journals_(journals) {
        if (options.events == kMailbox) {
            make_mailbox_consumer();
        } else if (options.events.starts_with(kKafka)) {
            make_kafka_consumer();
        } else {
            refuse("--events must be mailbox: or kafka://host:port, not \"" + options.events +
                   "\"");
        }
    }

    void run() {
#ifdef ORDERS_WITH_KAFKA
        if (kafka_) return kafka_->run();
#endif
        mailbox_->run();
    }

    void stop() noexcept {
#ifdef ORDERS_WITH_KAFKA
        if (kafka_) return kafka_->stop();
#endif
        mailbox_->stop();
    }

  private:
    void apply(auto* connection, const outbox::Message& message) {
        const OrderEvent event(message);
        Transaction transaction(connection);
        handler_(transaction, event);
        journals_.before_commit(event, transaction.emitted());
    }

    void make_mailbox_consumer() {
        outbox::MailboxOptions options;
        options.consumer = options_.service;
        options.transaction_size = kTransactionSize;
        options.on_report = [this](const outbox::ConsumerReport& said) { report(said); };
        if (is_postgres(options_.database_url)) {
            mailbox_.emplace(outbox::libpq_mailbox_consumer(
                options_.database_url,
                [this](PGconn* transaction, const outbox::Message& message) {
                    apply(transaction, message);
                },
                options));
        } else {
            mailbox_.emplace(outbox::sqlite_mailbox_consumer(
                options_.database_url,
                [this](sqlite3* transaction, const outbox::Message& message) {
                    apply(transaction, message);
                },
                options));
        }
    }

    void make_kafka_consumer() {
#ifdef ORDERS_WITH_KAFKA
        outbox::KafkaConsumerOptions options;
        options.brokers = options_.events.substr(kKafka.size());
        options.group = options_.service;
        options.topics = options_.topics;
        options.workers = options_.workers;
        options.transaction_size = kTransactionSize;
        if (!options_.instance.empty()) options.kafka["group.instance.id"] = options_.instance;
        options.on_report = [this](const outbox::ConsumerReport& said) { report(said); };
        if (is_postgres(options_.database_url)) {
            kafka_.emplace(outbox::libpq_kafka_consumer(
                options_.database_url,
                [this](PGconn* transaction, const outbox::Message& message) {
                    apply(transaction, message);
                },
                options));
        } else {
            kafka_.emplace(outbox::sqlite_kafka_consumer(
                options_.database_url,
                [this](sqlite3* transaction, const outbox::Message& message) {
                    apply(transaction, message);
                },
                options));
        }
#else
        refuse("--events kafka:// needs a build with librdkafka");
#endif
    }

    void report(const outbox::ConsumerReport& said) {
        using What = outbox::ConsumerReport::What;
        journals_.report(said);
        const std::string about =
            said.message != nullptr ? "message " + std::string(said.message->id) + ": " : "";
        switch (said.what) {
            case What::kRetry:
            case What::kDeadLetter:
            case What::kDisconnected:
            case What::kPruneFailed:
            case What::kQuarantined:
            case What::kLogChanged:
                std::cerr << options_.service << ": " << about << describe(said.error) << std::endl;
                return;
            case What::kApplied:
            case What::kRepeat:
            case What::kConnected:
            case What::kStandby:
            case What::kActive:
                return;
        }
    }

    const EventLoopOptions options_;
    const Handler handler_;
    ServiceJournals& journals_;
    std::optional<outbox::MailboxConsumer> mailbox_;
#ifdef ORDERS_WITH_KAFKA
    std::optional<outbox::KafkaConsumer> kafka_;
#endif
};

EventLoop::EventLoop(const EventLoopOptions& options, Handler handler, ServiceJournals& journals)
    : impl_(std::make_unique<Impl>(options, std::move(handler), journals)) {}

EventLoop::~EventLoop() = default;

void EventLoop::run() {
    impl_->run();
}

void EventLoop::stop() noexcept {
    impl_->stop();
}

}  // namespace orders
