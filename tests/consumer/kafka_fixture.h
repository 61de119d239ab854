#pragma once

#include <atomic>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <outbox/adapters/libpq_kafka.h>
#include <outbox/adapters/sqlite_kafka.h>
#include <outbox/producer/migrate.h>

#include "tests/consumer/database.h"
#include "tests/support/kafka_client.h"

namespace outbox::test {

// Writes records as the relay does.
class KafkaWriter {
  public:
    /// `transactions`: the name of its transactions; empty: it has none.
    explicit KafkaWriter(const std::string& transactions = "",
                         const std::string& bootstrap = shared_kafka().bootstrap()) {
        rd_kafka_conf_t* conf = rd_kafka_conf_new();
        char error[512] = "";
        rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap.c_str(), error, sizeof error);
        rd_kafka_conf_set(conf, "enable.idempotence", "true", error, sizeof error);
        rd_kafka_conf_set(conf, "partitioner", "murmur2_random", error, sizeof error);
        if (!transactions.empty()) {
            rd_kafka_conf_set(conf, "transactional.id", transactions.c_str(), error, sizeof error);
        }
        handle_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
        if (!transactions.empty()) succeed(rd_kafka_init_transactions(handle_, kDeadlineMs));
    }
    ~KafkaWriter() {
        flush();
        rd_kafka_destroy(handle_);
    }
    // An empty id: no header.
    void write(const std::string& topic, const std::string& id, const std::string& key,
               const std::string& payload = "{}") {
        rd_kafka_headers_t* headers = rd_kafka_headers_new(2);
        if (!id.empty()) {
            rd_kafka_header_add(headers, "id", -1, id.data(), static_cast<ssize_t>(id.size()));
        }
        rd_kafka_header_add(headers, "type", -1, "OrderCreated", -1);
        const auto code = rd_kafka_producev(
            handle_, RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_KEY(key.data(), key.size()),
            RD_KAFKA_V_VALUE(const_cast<char*>(payload.data()), payload.size()),
            RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
        ASSERT_EQ(code, RD_KAFKA_RESP_ERR_NO_ERROR);
    }
    void flush() { rd_kafka_flush(handle_, kDeadlineMs); }
    void begin() { succeed(rd_kafka_begin_transaction(handle_)); }
    void end(bool commit) {
        flush();
        succeed(commit ? rd_kafka_commit_transaction(handle_, kDeadlineMs)
                       : rd_kafka_abort_transaction(handle_, kDeadlineMs));
    }

  private:
    static constexpr int kDeadlineMs = 90'000;
    static void succeed(rd_kafka_error_t* error) {
        EXPECT_EQ(error, nullptr) << rd_kafka_error_string(error);
        if (error != nullptr) rd_kafka_error_destroy(error);
    }

    rd_kafka_t* handle_;
};

class KafkaConsumerTest : public testing::TestWithParam<Backend> {
  protected:
    // What a handler gets, whatever the database: a way to run SQL in the open transaction.
    using Transaction = std::function<void(const std::string& sql)>;
    using Handler = std::function<void(const Transaction& transaction, const Message& message)>;

    KafkaConsumerTest() : database_(make_database(GetParam())) {
        static std::atomic<int> topics = 0;
        topic_ = "t-" + std::to_string(::getpid()) + "-" + std::to_string(++topics);
        create_topic(shared_kafka().bootstrap(), topic_, 4);
        prepare(*database_);
        db_ = database_->connect();
    }
    static void prepare(const Database& database) {
        MigrateOptions side;
        side.side = MigrationSide::kConsumer;
        migrate(database.url(), side);
        const bool postgres = database.url().starts_with("postgres");
        database.connect()->exec(
            std::string("CREATE TABLE effects (seq ") +
            (postgres ? "bigint GENERATED ALWAYS AS IDENTITY" : "INTEGER PRIMARY KEY") +
            ", id text, key text, payload text, member text, n bigint)");
    }
    KafkaConsumerOptions options() {
        KafkaConsumerOptions made;
        made.brokers = shared_kafka().bootstrap();
        made.group = "stock";
        made.topics = {topic_};
        made.retry_base_ms = 1;
        made.retry_max_ms = 5;
        made.commit_interval_ms = 50;
        made.connect_timeout_s = 60;
        made.on_report = [this](const ConsumerReport& report) {
            const std::lock_guard lock(mutex_);
            reports_.emplace_back(report.what, describe(report.error));
        };
        return made;
    }
    static KafkaConsumer consumer(const Database& database, const Handler& handler,
                                  const KafkaConsumerOptions& options) {
        if (database.url().starts_with("postgres")) {
            return libpq_kafka_consumer(
                database.url(),
                [handler](PGconn* connection, const Message& message) {
                    handler([&](const std::string& sql) { Pg::query(connection, sql); }, message);
                },
                options);
        }
        return sqlite_kafka_consumer(
            database.url(),
            [handler](sqlite3* connection, const Message& message) {
                handler([&](const std::string& sql) { Sqlite::query(connection, sql); }, message);
            },
            options);
    }
    KafkaConsumer consumer(const Handler& handler, const KafkaConsumerOptions& options) {
        return consumer(*database_, handler, options);
    }
    static void apply(const Transaction& transaction, const Message& message) {
        transaction("INSERT INTO effects (id, key, payload) VALUES ('" + std::string(message.id) +
                    "', '" + std::string(message.key) + "', '" + std::string(message.payload) +
                    "')");
    }
    long long effects() { return db_->number("SELECT count(*) FROM effects"); }
    long long distinct_effects() { return db_->number("SELECT count(DISTINCT id) FROM effects"); }
    // Effects made after a later one of their key; payloads are numbers that rise in each key.
    long long out_of_order() {
        return db_->number(
            "SELECT count(*) FROM (SELECT CAST(payload AS integer) n, lag(CAST(payload AS "
            "integer)) OVER (PARTITION BY key ORDER BY seq) before FROM effects) o "
            "WHERE before > n");
    }
    std::vector<std::string> ids_of(const std::string& key) {
        std::vector<std::string> out;
        for (const auto& row :
             db_->query("SELECT id FROM effects WHERE key = '" + key + "' ORDER BY seq")) {
            out.push_back(row[0].value_or(""));
        }
        return out;
    }
    int reported(ConsumerReport::What what) {
        const std::lock_guard lock(mutex_);
        int count = 0;
        for (const auto& [seen, text] : reports_) count += seen == what ? 1 : 0;
        return count;
    }

    // Ends with the test.
    class Running {
      public:
        explicit Running(KafkaConsumer consumer)
            : consumer_(std::move(consumer)), thread_([this] {
                  try {
                      consumer_.run();
                  } catch (const Error& error) {
                      error_ = error.info();
                  }
                  ended_ = true;
              }) {}
        ~Running() { stop(); }
        void stop() {
            consumer_.stop();
            if (thread_.joinable()) thread_.join();
        }
        KafkaConsumer& operator*() { return consumer_; }
        KafkaConsumer* operator->() { return &consumer_; }
        // After `ended`.
        const std::optional<ErrorInfo>& error() const { return error_; }
        bool ended() const { return ended_; }

      private:
        KafkaConsumer consumer_;
        std::optional<ErrorInfo> error_;
        std::atomic<bool> ended_ = false;
        std::thread thread_;
    };

    std::unique_ptr<Database> database_;
    std::unique_ptr<Database::Connection> db_;
    std::string topic_;
    KafkaWriter writer_;
    std::mutex mutex_;
    std::vector<std::pair<ConsumerReport::What, std::string>> reports_;
};

}  // namespace outbox::test
