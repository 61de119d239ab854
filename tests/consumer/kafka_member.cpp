// A member of a consumer group, as a process that a test can kill.
// usage: kafka_member BROKERS GROUP TOPIC DATABASE_URL NAME PAUSE_US [OPTION=VALUE...]

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <unistd.h>
#include <vector>

#include <outbox/adapters/libpq_kafka.h>
#include <outbox/adapters/sqlite_kafka.h>

namespace {

outbox::KafkaConsumer* running = nullptr;

constexpr const char* kInsert =
    "INSERT INTO effects (id, key, payload, member, n) VALUES ($1, $2, $3, $4, CAST($5 AS bigint))";

std::vector<std::string> values_of(const outbox::Message& message, const std::string& member) {
    return {std::string(message.id), std::string(message.key), std::string(message.payload), member,
            message.header("n").value_or("0")};
}

void insert_effect(PGconn* transaction, const std::vector<std::string>& values) {
    std::vector<const char*> texts;
    for (const std::string& value : values) texts.push_back(value.c_str());
    PGresult* result = PQexecParams(transaction, kInsert, static_cast<int>(texts.size()), nullptr,
                                    texts.data(), nullptr, nullptr, 0);
    const bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    if (!ok) throw std::runtime_error(PQerrorMessage(transaction));
}

void insert_effect(sqlite3* transaction, const std::vector<std::string>& values) {
    sqlite3_stmt* insert = nullptr;
    sqlite3_prepare_v2(transaction, kInsert, -1, &insert, nullptr);
    for (std::size_t i = 0; i < values.size(); ++i) {
        sqlite3_bind_text(insert, static_cast<int>(i) + 1, values[i].data(),
                          static_cast<int>(values[i].size()), SQLITE_STATIC);
    }
    const int code = sqlite3_step(insert);
    sqlite3_finalize(insert);
    if (code != SQLITE_DONE) throw std::runtime_error(sqlite3_errmsg(transaction));
}

outbox::KafkaConsumer consumer(const std::string& url, const std::string& member,
                               useconds_t pause_us, const outbox::KafkaConsumerOptions& options) {
    const auto apply = [member, pause_us](auto* transaction, const outbox::Message& message) {
        insert_effect(transaction, values_of(message, member));
        if (pause_us > 0) ::usleep(pause_us);
    };
    if (url.starts_with("sqlite:")) {
        return outbox::sqlite_kafka_consumer(url, outbox::SqliteHandler(apply), options);
    }
    return outbox::libpq_kafka_consumer(url, outbox::LibpqHandler(apply), options);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7) return 2;
    const std::string member = argv[5];
    const auto pause_us = static_cast<useconds_t>(std::atoi(argv[6]));
    outbox::KafkaConsumerOptions options;
    options.brokers = argv[1];
    options.group = argv[2];
    options.topics = {argv[3]};
    options.transaction_size = 20;
    options.connect_timeout_s = 60;
    options.kafka = {{"session.timeout.ms", "6000"}, {"heartbeat.interval.ms", "500"}};
    for (int i = 7; i < argc; ++i) {
        const std::string option = argv[i];
        const auto equals = option.find('=');
        options.kafka[option.substr(0, equals)] = option.substr(equals + 1);
    }
    options.on_report = [](const outbox::ConsumerReport& report) {
        if (report.error.message.empty()) return;
        std::cerr << outbox::describe(report.error) << std::endl;
    };
    try {
        auto made = consumer(argv[4], member, pause_us, options);
        running = &made;
        std::signal(SIGTERM, [](int) { running->stop(); });
        made.run();
        std::signal(SIGTERM, SIG_IGN);  // the next one would find it gone
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
    return 0;
}
