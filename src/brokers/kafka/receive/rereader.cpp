#include "brokers/kafka/receive/rereader.h"

#include <algorithm>
#include <chrono>
#include <librdkafka/rdkafka.h>
#include <utility>
#include <vector>

#include "brokers/kafka/quiet.h"
#include "brokers/kafka/receive/delivery.h"

namespace outbox::consumer::kafka {
namespace {

constexpr int kLateMs = 5;
constexpr int kHurryMs = 500;
constexpr std::chrono::milliseconds kLookForLeaders{500};

// None: it cannot be made. The settings are those of the consumer, which took them.
rd_kafka_t* make_handle(const std::map<std::string, std::string>& settings) {
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    for (const auto& [name, value] : settings) {
        rd_kafka_conf_set(conf, name.c_str(), value.c_str(), nullptr, 0);
    }
    outbox::kafka::be_quiet(conf);
    rd_kafka_t* const handle = rd_kafka_new(RD_KAFKA_CONSUMER, conf, nullptr, 0);
    if (handle == nullptr) rd_kafka_conf_destroy(conf);
    return handle;
}

// Partitions that are read into one queue, until destroyed.
class Reading {
  public:
    explicit Reading(rd_kafka_t* handle)
        : handle_(handle),
          queue_(rd_kafka_queue_new(handle)),
          places_(rd_kafka_topic_partition_list_new(1)) {}
    ~Reading() {
        for (const auto& [topic, partition] : started_) rd_kafka_consume_stop(topic, partition);
        rd_kafka_queue_destroy(queue_);
        rd_kafka_topic_partition_list_destroy(places_);
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

    void start(rd_kafka_topic_t* topic, const TopicPartition& where, std::int64_t offset) {
        if (rd_kafka_consume_start_queue(topic, where.partition, offset, queue_) != 0) return;
        started_.emplace_back(topic, where.partition);
        rd_kafka_topic_partition_list_add(places_, where.topic.c_str(), where.partition);
    }
    // The library's threads look up to a second later whether there is something to fetch, unless
    // a broker answers something.
    void hurry(int timeout_ms) {
        for (int i = 0; i < places_->cnt; ++i) places_->elems[i].offset = 0;
        rd_kafka_offsets_for_times(handle_, places_, timeout_ms);
    }
    rd_kafka_message_t* next(int timeout_ms) { return rd_kafka_consume_queue(queue_, timeout_ms); }

  private:
    rd_kafka_t* handle_;
    rd_kafka_queue_t* queue_;
    rd_kafka_topic_partition_list_t* places_;
    std::vector<std::pair<rd_kafka_topic_t*, std::int32_t>> started_;
};

}  // namespace

void Rereader::Destroy::operator()(rd_kafka_s* handle) const {
    rd_kafka_destroy(handle);
}

Rereader::Rereader(std::map<std::string, std::string> settings) : settings_(std::move(settings)) {
    for (const char* group : {"group.id", "group.instance.id", "partition.assignment.strategy"}) {
        settings_.erase(group);
    }
    // The batch that holds the record and no more of it, once; and an answer where there is none.
    settings_["auto.offset.reset"] = "error";
    settings_["fetch.message.max.bytes"] = "1";
    settings_["queued.min.messages"] = "1";
    settings_["fetch.wait.max.ms"] = "5";
    settings_["enable.partition.eof"] = "true";
    settings_["socket.nagle.disable"] = "true";
    // A longer one overflows in librdkafka 2.0: it would ask for the leader each time.
    settings_["topic.metadata.refresh.interval.ms"] = "300000";
    settings_["metadata.max.age.ms"] = "900000";
}

Rereader::~Rereader() {
    close();
}

Rereader::Answers Rereader::read(const std::map<TopicPartition, std::int64_t>& places,
                                 const std::function<bool()>& enough) {
    Answers out;
    if (!handle_) handle_.reset(make_handle(settings_));
    if (!handle_) return out;
    bool failed = false;
    bool looked = false;
    const auto began = std::chrono::steady_clock::now();
    const auto all = [&] { return out.found.size() + out.leaderless.size() >= places.size(); };
    {
        Reading reading(handle_.get());
        for (const auto& [where, offset] : places) reading.start(topic(where.topic), where, offset);
        for (bool late = true; !failed && !all();) {
            if (enough()) break;
            if (!looked && std::chrono::steady_clock::now() - began > kLookForLeaders) {
                looked = true;
                look_for_leaders(places, out);
                continue;
            }
            if (late) reading.hurry(kHurryMs);
            rd_kafka_message_t* const message = reading.next(kLateMs);
            late = message == nullptr;
            if (late) continue;
            const Record record(message);  // or an error, which has no more than its place
            if (message->rkt == nullptr) continue;
            const TopicPartition where{std::string(record.topic()), record.partition()};
            if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
                out.found.try_emplace(where, Found{record.offset(), names_of(record)});
            } else if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF ||
                       message->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET) {
                out.found.try_emplace(where, std::nullopt);
            } else {
                failed = true;
            }
        }
    }
    if (!all()) close();
    return out;
}

// Of those that have not answered.
void Rereader::look_for_leaders(const std::map<TopicPartition, std::int64_t>& places,
                                Answers& out) {
    std::set<std::string> names;
    for (const auto& [where, offset] : places) {
        if (!out.found.contains(where)) names.insert(where.topic);
    }
    for (const std::string& name : names) {
        const rd_kafka_metadata_t* known = nullptr;
        if (rd_kafka_metadata(handle_.get(), 0, topic(name), &known, kHurryMs) !=
            RD_KAFKA_RESP_ERR_NO_ERROR) {
            return;
        }
        for (int i = 0; known->topic_cnt > 0 && i < known->topics[0].partition_cnt; ++i) {
            const rd_kafka_metadata_partition_t& one = known->topics[0].partitions[i];
            const TopicPartition where{name, one.id};
            if (one.leader < 0 && places.contains(where) && !out.found.contains(where)) {
                out.leaderless.insert(where);
            }
        }
        rd_kafka_metadata_destroy(known);
    }
}

rd_kafka_topic_s* Rereader::topic(const std::string& name) {
    auto& known = topics_[name];
    if (known == nullptr) known = rd_kafka_topic_new(handle_.get(), name.c_str(), nullptr);
    return known;
}

void Rereader::close() {
    for (const auto& [name, topic] : topics_) {
        if (topic != nullptr) rd_kafka_topic_destroy(topic);
    }
    topics_.clear();
    handle_.reset();
}

}  // namespace outbox::consumer::kafka
