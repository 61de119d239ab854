#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "consumer/kafka/client.h"
#include "consumer/kafka/partition.h"

struct rd_kafka_topic_s;  // NOLINT(readability-identifier-naming)

namespace outbox::consumer::kafka {

/// Reads single records once more, by a client of its own that is in no group. Used by one thread.
class Rereader {
  public:
    explicit Rereader(std::map<std::string, std::string> settings);
    ~Rereader();
    Rereader(const Rereader&) = delete;
    Rereader& operator=(const Rereader&) = delete;

    /// The first record at or behind each offset, by its offset and name; none where the log has
    /// no such offset (any more, or yet). What is missing in the answer did not answer in time:
    /// the client is made anew then. Blocks until all have answered or `enough`, which is asked
    /// every few milliseconds.
    std::map<TopicPartition, std::optional<Witness>> read(
        const std::map<TopicPartition, std::int64_t>& places, const std::function<bool()>& enough);

  private:
    rd_kafka_topic_s* topic(const std::string& name);
    void close();

    struct Destroy {
        void operator()(rd_kafka_s* handle) const;
    };

    std::map<std::string, std::string> settings_;
    std::unique_ptr<rd_kafka_s, Destroy> handle_;
    std::map<std::string, rd_kafka_topic_s*> topics_;
};

}  // namespace outbox::consumer::kafka
