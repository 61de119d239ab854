#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "brokers/kafka/receive/client.h"

struct rd_kafka_topic_s;  // NOLINT(readability-identifier-naming)

namespace outbox::consumer::kafka {

/// Reads single records once more, by a client of its own that is in no group. Used by one thread.
class Rereader {
  public:
    explicit Rereader(std::map<std::string, std::string> settings);
    ~Rereader();
    Rereader(const Rereader&) = delete;
    Rereader& operator=(const Rereader&) = delete;

    struct Found {
        std::int64_t offset = 0;
        std::vector<std::string> names;  ///< As of `names_of`.
    };
    struct Answers {
        /// The first record at or behind each offset; none where the log has no such offset (any
        /// more, or yet).
        std::map<TopicPartition, std::optional<Found>> found;
        std::set<TopicPartition> leaderless;  ///< Nobody can answer for these now.
    };
    /// What is missing in the answers did not come in time: the client is made anew then. Blocks
    /// until all have come or `enough`, which is asked every few milliseconds.
    Answers read(const std::map<TopicPartition, std::int64_t>& places,
                 const std::function<bool()>& enough);

  private:
    rd_kafka_topic_s* topic(const std::string& name);
    void look_for_leaders(const std::map<TopicPartition, std::int64_t>& places, Answers& out);
    void close();

    struct Destroy {
        void operator()(rd_kafka_s* handle) const;
    };

    std::map<std::string, std::string> settings_;
    std::unique_ptr<rd_kafka_s, Destroy> handle_;
    std::map<std::string, rd_kafka_topic_s*> topics_;
};

}  // namespace outbox::consumer::kafka
