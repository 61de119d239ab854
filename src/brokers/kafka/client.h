#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/kafka/errors.h"

struct rd_kafka_s;
struct rd_kafka_queue_s;
struct rd_kafka_topic_s;
struct rd_kafka_op_s;

namespace outbox::kafka {

/// What a `Client` has to tell.
struct Events {
    struct Refusal {
        std::uint32_t slot;
        Fault fault;
    };
    struct TopicAnswer {
        std::string topic;
        Fault fault;  ///< Empty name: the topic exists.
        std::optional<std::size_t> max_message_bytes;
        std::optional<std::chrono::milliseconds> kept;  ///< A record, at most; none: for ever.
        std::size_t min_in_sync = 0;                    ///< Replicas; 0: not known.
    };
    std::vector<std::uint32_t> acknowledged;  ///< Slots.
    std::vector<Refusal> refused;             ///< In the order in which librdkafka gave them up.
    std::vector<TopicAnswer> topics;
    std::optional<Fault> connection;  ///< The last trouble with a connection.
    std::optional<Fault> fatal;       ///< The producer can do nothing any more.
    bool all_brokers_down = false;
    void clear();
};

/// One librdkafka producer. Not thread-safe; callbacks do not exist: everything comes by `poll`.
class Client {
  public:
    using Topic = rd_kafka_topic_s*;  ///< Owned by the client.
    enum class Produced : std::uint8_t { kTaken, kFull, kRefused };

    /// Errors: kConfigInvalid/stop, naming the option without its value where that is a secret.
    static Result<std::unique_ptr<Client>> open(const std::map<std::string, std::string>& settings);
    /// Waits for librdkafka's threads; records under way have an unknown outcome.
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    /// Makes librdkafka know the topic, which also lets a broker create it that does so on demand.
    Result<Topic> open_topic(const std::string& name);
    void close_topic(Topic topic);

    struct Partitions {
        Fault fault;                ///< Not empty: none are known.
        std::vector<bool> leaders;  ///< By partition: whether it has one.
        struct Copies {
            std::size_t replicas = 0;
            std::size_t in_sync = 0;
        };
        std::vector<Copies> copies;  ///< By partition.
    };
    /// Asks any broker for the topic's partitions, which librdkafka then knows, too. Blocks up to
    /// `timeout`.
    Partitions partitions(Topic topic, std::chrono::milliseconds timeout);
    /// The partition that every Kafka client chooses for this key.
    static std::int32_t partition_of(std::string_view key, std::int32_t partitions);

    /// Key, value stay the caller's and must live until the outcome; headers are copied.
    /// kRefused: `refusal` says why.
    Produced produce(Topic topic, std::int32_t partition, const spi::Record& record,
                     std::uint32_t slot, Fault& refusal);

    /// Asks for the topic's settings; the answer comes by `poll`.
    void describe(const std::string& topic, std::chrono::milliseconds timeout);

    /// Adds what has happened. Waits for the first event up to `wait`.
    void poll(std::chrono::milliseconds wait, Events& events);

    /// Gives up on what has not been sent yet; the outcomes come by `poll`.
    void purge_unsent();

    /// Asks any broker for its metadata. Blocks up to `timeout`.
    std::optional<Fault> reach(std::chrono::milliseconds timeout);

    /// The cluster's id; empty where no broker answered within `timeout`. Blocks.
    std::string cluster_id(std::chrono::milliseconds timeout);

  private:
    // What OpenSSL says of the last certificate that a broker showed (X509_V_ERR_*), or 0. Written
    // by librdkafka's threads, which live as long as the handle.
    using CertificateError = std::unique_ptr<std::atomic<int>>;
    Client(rd_kafka_s* handle, CertificateError certificate_error);
    void take_event(rd_kafka_op_s* event, Events& events);
    void take_outcomes(rd_kafka_op_s* event, Events& events);
    void take_error(rd_kafka_op_s* event, Events& events);
    void take_description(rd_kafka_op_s* event, Events& events);

    CertificateError certificate_error_;
    rd_kafka_s* handle_;
    rd_kafka_queue_s* queue_;
    std::vector<Topic> topics_;
    std::map<std::uintptr_t, std::string> questions_;  // topics asked for, by number
    std::uintptr_t next_question_ = 1;
};

}  // namespace outbox::kafka
