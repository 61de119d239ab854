#pragma once

#include <chrono>
#include <functional>
#include <librdkafka/rdkafka.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace outbox::test {

// A plain Kafka client for arranging and looking at topics. Every error throws std::runtime_error.

struct KafkaRecord {
    std::string topic;
    int partition = 0;
    long long offset = 0;
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<std::pair<std::string, std::string>> headers;

    // The header's value; nullopt if it is absent.
    std::optional<std::string> header(const std::string& name) const;
};

// Creates a topic and returns when its partitions have a leader.
void create_topic(const std::string& bootstrap, const std::string& topic, int partitions = 1,
                  const std::map<std::string, std::string>& config = {}, int replicas = 1);

// Removes it and returns when the broker does not know it any more.
void delete_topic(const std::string& bootstrap, const std::string& topic);

// Removes a partition's records below the offset, as retention does.
void delete_records(const std::string& bootstrap, const std::string& topic, int partition,
                    long long before);

// The sum of the offsets that a group has committed for a topic.
long long committed_offsets(const std::string& bootstrap, const std::string& group,
                            const std::string& topic, int partitions);

// Sets a group's offset, as a person does. No member may run.
void commit_offset(const std::string& bootstrap, const std::string& group, const std::string& topic,
                   int partition, long long offset);

// Produces one record and waits for its acknowledgement.
void produce(const std::string& bootstrap, const std::string& topic,
             const std::optional<std::string>& key, const std::string& value);

// Reads a topic's partitions from their beginning, without a consumer group.
class KafkaReader {
  public:
    KafkaReader(const std::string& bootstrap, const std::string& topic);

    // Returns all records read so far once there are `count`, or what came until the deadline.
    const std::vector<KafkaRecord>& read(size_t count, std::chrono::milliseconds deadline);
    // Returns all that the topic held when this was called. Takes as long as that takes, up to two
    // minutes.
    const std::vector<KafkaRecord>& read_to_end();
    const std::vector<KafkaRecord>& records() const { return records_; }

  private:
    void take();

    std::unique_ptr<rd_kafka_t, std::function<void(rd_kafka_t*)>> consumer_;
    std::string topic_;
    std::vector<int> partitions_;
    std::vector<KafkaRecord> records_;
};

}  // namespace outbox::test
