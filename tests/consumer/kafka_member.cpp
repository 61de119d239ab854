// A member of a consumer group, as a process that a test can kill.
// usage: kafka_member BROKERS GROUP TOPIC DATABASE_URL NAME PAUSE_US

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <unistd.h>

#include <outbox/adapters/libpq_kafka.h>

namespace {

outbox::KafkaConsumer* running = nullptr;

void insert_effect(PGconn* transaction, const outbox::Message& message, const std::string& member) {
    const std::string id(message.id);
    const std::string key(message.key);
    const std::string payload(message.payload);
    const char* values[] = {id.c_str(), key.c_str(), payload.c_str(), member.c_str()};
    PGresult* result = PQexecParams(transaction,
                                    "INSERT INTO effects (id, key, payload, member) "
                                    "VALUES ($1, $2, $3, $4)",
                                    4, nullptr, values, nullptr, nullptr, 0);
    const bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    if (!ok) throw std::runtime_error(PQerrorMessage(transaction));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 7) return 2;
    const std::string member = argv[5];
    const auto pause_us = static_cast<useconds_t>(std::atoi(argv[6]));
    outbox::KafkaConsumerOptions options;
    options.brokers = argv[1];
    options.group = argv[2];
    options.topics = {argv[3]};
    options.transaction_size = 20;
    options.kafka = {{"session.timeout.ms", "6000"}, {"heartbeat.interval.ms", "500"}};
    options.on_report = [](const outbox::ConsumerReport& report) {
        if (report.error.message.empty()) return;
        std::cerr << outbox::describe(report.error) << std::endl;
    };
    try {
        auto consumer = outbox::libpq_kafka_consumer(
            argv[4],
            [&](PGconn* transaction, const outbox::Message& message) {
                insert_effect(transaction, message, member);
                if (pause_us > 0) ::usleep(pause_us);
            },
            options);
        running = &consumer;
        std::signal(SIGTERM, [](int) { running->stop(); });
        consumer.run();
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
    return 0;
}
