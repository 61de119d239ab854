#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "consumer/cloud_events.h"

struct rd_kafka_s;
struct rd_kafka_queue_s;
struct rd_kafka_error_s;                 // NOLINT(readability-identifier-naming)
struct rd_kafka_message_s;               // NOLINT(readability-identifier-naming)
struct rd_kafka_topic_partition_list_s;  // NOLINT(readability-identifier-naming)

namespace outbox::consumer::kafka {

struct TopicPartition {
    std::string topic;
    int partition = 0;
    friend auto operator<=>(const TopicPartition&, const TopicPartition&) = default;
};

struct PlacedOffset {
    TopicPartition where;
    std::int64_t offset = 0;
    std::string mark;  ///< A text beside it, for ourselves.
};

/// One record; owns its bytes.
class Record {
  public:
    explicit Record(rd_kafka_message_s* message, MessageFormat format = MessageFormat::kAuto)
        : message_(message), format_(format) {}

    [[nodiscard]] std::string_view topic() const;
    [[nodiscard]] int partition() const;
    [[nodiscard]] std::int64_t offset() const;
    [[nodiscard]] std::string_view key() const;      ///< Null data: none.
    [[nodiscard]] std::string_view payload() const;  ///< Null data: a tombstone, or no data.
    [[nodiscard]] std::size_t bytes() const;

    /// As Kafka has it, in milliseconds; -1: not known.
    [[nodiscard]] std::int64_t time_ms() const;

    /// The event's id by its format; empty where there is none.
    [[nodiscard]] std::string_view id() const;
    /// The ids by every format, one or more; empty where there is none.
    [[nodiscard]] std::vector<std::string> ids_by_formats() const;
    /// The header `id` as it stands; null data: there is none.
    [[nodiscard]] std::string_view header_id() const;
    /// Headers but for the id, as a JSON object of strings; "{}": there are none.
    [[nodiscard]] std::string headers_json() const;
    /// Why it is not what its format is to be; empty: it is.
    [[nodiscard]] const std::string& fault() const { return reading().fault; }

  private:
    [[nodiscard]] const MessageReading& reading() const;
    [[nodiscard]] HeaderList header_list() const;

    struct Destroy {
        void operator()(rd_kafka_message_s* message) const;
    };
    std::unique_ptr<rd_kafka_message_s, Destroy> message_;
    MessageFormat format_;
    mutable std::optional<MessageReading> reading_;  // made when it is first asked for
};

/// Where reading a partition begins; an offset, or one of these.
inline constexpr std::int64_t kBeginning = -2;
inline constexpr std::int64_t kEnd = -1;
struct Start {
    std::int64_t offset = kBeginning;
    bool hold = false;  ///< Not yet: `restart` says when, and where.
};

/// What the group does with our partitions. Called inside `Client::poll` and `close`.
struct GroupEvents {
    /// Where to start each.
    std::function<std::vector<Start>(const std::vector<TopicPartition>&)> given;
    /// `lost`: they belong to somebody else already.
    std::function<void(const std::vector<TopicPartition>&, bool lost)> taken;
    /// All below the offset was handed over, and there is nothing behind it now.
    std::function<void(const TopicPartition&, std::int64_t offset)> ended;
    /// The log has not got what comes next. Nothing is read of it until `restart`.
    std::function<void(const TopicPartition&)> out_of_range;
    /// Trouble with the brokers or a topic.
    std::function<void(const ErrorInfo&)> trouble;
};

/// A member of a consumer group. Used by one thread.
class Client {
  public:
    /// `format`: of the records. Errors: kConfigInvalid/stop, naming the option.
    static Result<std::unique_ptr<Client>> open(const std::map<std::string, std::string>& settings,
                                                GroupEvents events,
                                                MessageFormat format = MessageFormat::kAuto);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    Status subscribe(const std::vector<std::string>& topics);
    /// Answers the group for up to `timeout_ms`, or until there is something to say in
    /// `GroupEvents`. To be called all the time, also while no record is wanted: a member that does
    /// not is put out. Gives a record where its partition has none of the queue below.
    std::optional<Record> serve(int timeout_ms);
    /// The next record, waiting up to `timeout_ms`.
    std::optional<Record> poll(int timeout_ms);
    /// Commits offsets to the group. `wait`: until the broker has them.
    void commit(const std::vector<PlacedOffset>& offsets, bool wait);
    /// What the group has committed there; without those of which it has nothing. Waits up to 5 s.
    [[nodiscard]] Result<std::vector<PlacedOffset>> committed(
        const std::vector<TopicPartition>& places) const;
    /// Reads a partition of ours anew; what was read of it and not polled is dropped.
    void restart(const TopicPartition& where, const Start& start);
    /// Reads no more of it until `restart` or `resume`.
    void hold(const TopicPartition& where);
    void resume(const TopicPartition& where);
    /// The cluster's own id; empty while no broker has told it.
    [[nodiscard]] std::string cluster_id() const;
    struct Extent {
        std::int64_t begin = 0;
        std::int64_t end = 0;
    };
    /// What the partition has now; asks its broker, for up to 5 s.
    [[nodiscard]] std::optional<Extent> ask_extent_of(const TopicPartition& where) const;
    /// As of the last fetch; the beginning may be unknown, which is below 0.
    [[nodiscard]] std::optional<Extent> extent_of(const TopicPartition& where) const;
    /// Why this member can never go on (the library's fatal error); none: it can.
    [[nodiscard]] std::optional<ErrorInfo> fatal() const;
    /// Leaves the group; `taken` is called for what is held.
    void close();

  private:
    Client(GroupEvents events, MessageFormat format)
        : events_(std::move(events)), format_(format) {}
    std::optional<Record> record_of(rd_kafka_message_s* message);
    void forward(const TopicPartition& where);
    void let_go_of_queues(std::chrono::steady_clock::time_point until);
    void tell(rd_kafka_error_s* failure) const;
    void rebalance(int error, rd_kafka_topic_partition_list_s* list);
    static void on_rebalance(rd_kafka_s* handle, int error, rd_kafka_topic_partition_list_s* list,
                             void* client);
    static void on_error(rd_kafka_s* handle, int error, const char* reason, void* client);

    static int on_certificate(int error, void* client);

    GroupEvents events_;
    const MessageFormat format_;
    // What OpenSSL says of the last certificate that a broker showed (X509_V_ERR_*), or 0. Written
    // by librdkafka's threads.
    std::atomic<int> certificate_error_{0};
    rd_kafka_s* handle_ = nullptr;
    // Records come by a queue of their own, so that they can wait while the group is answered.
    // Pausing the partitions instead costs a second each time.
    rd_kafka_queue_s* records_ = nullptr;
    struct PartitionQueue {
        std::chrono::steady_clock::time_point since;
        rd_kafka_queue_s* queue;
    };
    std::deque<PartitionQueue> queues_;  // forwarded to it
    bool closed_ = false;
};

}  // namespace outbox::consumer::kafka
