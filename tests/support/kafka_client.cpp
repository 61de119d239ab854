#include "tests/support/kafka_client.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <thread>

namespace outbox::test {
namespace {

constexpr int kCallDeadlineMs = 120'000;
constexpr size_t kErrorBytes = 512;

using Client = std::unique_ptr<rd_kafka_t, std::function<void(rd_kafka_t*)>>;

[[noreturn]] void fail(const std::string& what, rd_kafka_resp_err_t error) {
    throw std::runtime_error(what + ": " + rd_kafka_err2str(error));
}

Client make_client(rd_kafka_type_t type, const std::string& bootstrap,
                   const std::map<std::string, std::string>& settings = {}) {
    char error[kErrorBytes] = "";
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    auto all = settings;
    all["bootstrap.servers"] = bootstrap;
    for (const auto& [name, value] : all) {
        if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof error) !=
            RD_KAFKA_CONF_OK) {
            rd_kafka_conf_destroy(conf);
            throw std::runtime_error(error);
        }
    }
    rd_kafka_t* client = rd_kafka_new(type, conf, error, sizeof error);
    if (client == nullptr) {
        rd_kafka_conf_destroy(conf);
        throw std::runtime_error(error);
    }
    return {client, [](rd_kafka_t* handle) { rd_kafka_destroy(handle); }};
}

// The topic's partitions once each has a leader; empty before.
std::vector<int> partitions_of(rd_kafka_t* client, const std::string& topic) {
    const std::unique_ptr<rd_kafka_topic_t, decltype(&rd_kafka_topic_destroy)> handle(
        rd_kafka_topic_new(client, topic.c_str(), nullptr), rd_kafka_topic_destroy);
    const rd_kafka_metadata_t* metadata = nullptr;
    const auto error = rd_kafka_metadata(client, 0, handle.get(), &metadata, kCallDeadlineMs);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) fail("metadata of " + topic, error);
    std::vector<int> result;
    const auto& found = metadata->topics[0];
    for (int i = 0; i < found.partition_cnt; ++i) {
        if (found.partitions[i].leader >= 0) result.push_back(found.partitions[i].id);
    }
    if (static_cast<int>(result.size()) != found.partition_cnt) result.clear();
    rd_kafka_metadata_destroy(metadata);
    return result;
}

std::vector<int> wait_for_partitions(rd_kafka_t* client, const std::string& topic) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kCallDeadlineMs);
    while (true) {
        if (auto partitions = partitions_of(client, topic); !partitions.empty()) return partitions;
        if (std::chrono::steady_clock::now() >= end) {
            throw std::runtime_error("topic " + topic + " has no partition with a leader");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

// Until then what is made anew under its name is taken for the former one by whoever asks.
void wait_until_unknown(rd_kafka_t* client, const std::string& topic) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kCallDeadlineMs);
    while (true) {
        // Of all topics: who asks for one makes it.
        const rd_kafka_metadata_t* metadata = nullptr;
        const auto error = rd_kafka_metadata(client, 1, nullptr, &metadata, kCallDeadlineMs);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) fail("metadata of all topics", error);
        const std::span found(metadata->topics, static_cast<std::size_t>(metadata->topic_cnt));
        const bool known = std::any_of(found.begin(), found.end(),
                                       [&](const auto& one) { return one.topic == topic; });
        rd_kafka_metadata_destroy(metadata);
        if (!known) return;
        if (std::chrono::steady_clock::now() >= end) {
            throw std::runtime_error("topic " + topic + " is still known");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

// A broker that has just begun, or just made the topic of offsets, may not serve groups yet.
void call_coordinator(const std::string& what, const std::function<rd_kafka_resp_err_t()>& call) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kCallDeadlineMs);
    while (true) {
        const rd_kafka_resp_err_t error = call();
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
        const bool passes = error == RD_KAFKA_RESP_ERR_NOT_COORDINATOR ||
                            error == RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE ||
                            error == RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS;
        if (!passes || std::chrono::steady_clock::now() >= end) fail(what, error);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

std::string bytes(const void* data, size_t size) {
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

KafkaRecord to_record(const rd_kafka_message_t& message) {
    KafkaRecord record;
    record.topic = rd_kafka_topic_name(message.rkt);
    record.partition = message.partition;
    record.offset = message.offset;
    if (message.key != nullptr) record.key = bytes(message.key, message.key_len);
    if (message.payload != nullptr) record.value = bytes(message.payload, message.len);
    rd_kafka_headers_t* headers = nullptr;
    if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const char* name = nullptr;
        const void* value = nullptr;
        size_t size = 0;
        for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) ==
                           RD_KAFKA_RESP_ERR_NO_ERROR;
             ++i) {
            record.headers.emplace_back(name, bytes(value, size));
        }
    }
    return record;
}

}  // namespace

std::optional<std::string> KafkaRecord::header(const std::string& name) const {
    for (const auto& [header_name, header_value] : headers) {
        if (header_name == name) return header_value;
    }
    return std::nullopt;
}

void create_topic(const std::string& bootstrap, const std::string& topic, int partitions,
                  const std::map<std::string, std::string>& config, int replicas) {
    const auto client = make_client(RD_KAFKA_PRODUCER, bootstrap);
    char error[kErrorBytes] = "";
    const std::unique_ptr<rd_kafka_NewTopic_t, decltype(&rd_kafka_NewTopic_destroy)> wanted(
        rd_kafka_NewTopic_new(topic.c_str(), partitions, replicas, error, sizeof error),
        rd_kafka_NewTopic_destroy);
    if (!wanted) throw std::runtime_error("topic " + topic + ": " + error);
    for (const auto& [name, value] : config) {
        rd_kafka_NewTopic_set_config(wanted.get(), name.c_str(), value.c_str());
    }
    const std::unique_ptr<rd_kafka_queue_t, decltype(&rd_kafka_queue_destroy)> queue(
        rd_kafka_queue_new(client.get()), rd_kafka_queue_destroy);
    rd_kafka_NewTopic_t* list[] = {wanted.get()};
    rd_kafka_CreateTopics(client.get(), list, 1, nullptr, queue.get());
    const std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)> event(
        rd_kafka_queue_poll(queue.get(), kCallDeadlineMs), rd_kafka_event_destroy);
    if (!event) throw std::runtime_error("topic " + topic + ": the broker did not answer");
    if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail("topic " + topic, rd_kafka_event_error(event.get()));
    }
    size_t count = 0;
    const auto* const* results = rd_kafka_CreateTopics_result_topics(
        rd_kafka_event_CreateTopics_result(event.get()), &count);
    if (const auto code = rd_kafka_topic_result_error(results[0]);
        code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail("topic " + topic, code);
    }
    wait_for_partitions(client.get(), topic);
}

void delete_topic(const std::string& bootstrap, const std::string& topic) {
    const auto client = make_client(RD_KAFKA_PRODUCER, bootstrap);
    const std::unique_ptr<rd_kafka_DeleteTopic_t, decltype(&rd_kafka_DeleteTopic_destroy)> unwanted(
        rd_kafka_DeleteTopic_new(topic.c_str()), rd_kafka_DeleteTopic_destroy);
    const std::unique_ptr<rd_kafka_queue_t, decltype(&rd_kafka_queue_destroy)> queue(
        rd_kafka_queue_new(client.get()), rd_kafka_queue_destroy);
    rd_kafka_DeleteTopic_t* list[] = {unwanted.get()};
    rd_kafka_DeleteTopics(client.get(), list, 1, nullptr, queue.get());
    const std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)> event(
        rd_kafka_queue_poll(queue.get(), kCallDeadlineMs), rd_kafka_event_destroy);
    if (!event) throw std::runtime_error("topic " + topic + ": the broker did not answer");
    if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail("topic " + topic, rd_kafka_event_error(event.get()));
    }
    wait_until_unknown(client.get(), topic);
}

void delete_records(const std::string& bootstrap, const std::string& topic, int partition,
                    long long before) {
    const auto client = make_client(RD_KAFKA_PRODUCER, bootstrap);
    const std::unique_ptr<rd_kafka_topic_partition_list_t,
                          decltype(&rd_kafka_topic_partition_list_destroy)>
        list(rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy);
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = before;
    const std::unique_ptr<rd_kafka_DeleteRecords_t, decltype(&rd_kafka_DeleteRecords_destroy)>
        unwanted(rd_kafka_DeleteRecords_new(list.get()), rd_kafka_DeleteRecords_destroy);
    const std::unique_ptr<rd_kafka_queue_t, decltype(&rd_kafka_queue_destroy)> queue(
        rd_kafka_queue_new(client.get()), rd_kafka_queue_destroy);
    rd_kafka_DeleteRecords_t* deletions[] = {unwanted.get()};
    rd_kafka_DeleteRecords(client.get(), deletions, 1, nullptr, queue.get());
    const std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)> event(
        rd_kafka_queue_poll(queue.get(), kCallDeadlineMs), rd_kafka_event_destroy);
    if (!event) throw std::runtime_error("records of " + topic + ": the broker did not answer");
    if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail("records of " + topic, rd_kafka_event_error(event.get()));
    }
}

long long committed_offsets(const std::string& bootstrap, const std::string& group,
                            const std::string& topic, int partitions) {
    const auto client = make_client(RD_KAFKA_CONSUMER, bootstrap, {{"group.id", group}});
    const std::unique_ptr<rd_kafka_topic_partition_list_t,
                          decltype(&rd_kafka_topic_partition_list_destroy)>
        list(rd_kafka_topic_partition_list_new(partitions), rd_kafka_topic_partition_list_destroy);
    for (int i = 0; i < partitions; ++i) {
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), i);
    }
    call_coordinator("offsets of group " + group,
                     [&] { return rd_kafka_committed(client.get(), list.get(), kCallDeadlineMs); });
    long long sum = 0;
    for (int i = 0; i < partitions; ++i) sum += std::max<long long>(0, list->elems[i].offset);
    return sum;
}

void commit_offset(const std::string& bootstrap, const std::string& group, const std::string& topic,
                   int partition, long long offset) {
    const auto client = make_client(RD_KAFKA_CONSUMER, bootstrap, {{"group.id", group}});
    const std::unique_ptr<rd_kafka_topic_partition_list_t,
                          decltype(&rd_kafka_topic_partition_list_destroy)>
        list(rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy);
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = offset;
    call_coordinator("setting the offset of group " + group,
                     [&] { return rd_kafka_commit(client.get(), list.get(), 0); });
}

void produce(const std::string& bootstrap, const std::string& topic,
             const std::optional<std::string>& key, const std::string& value) {
    const auto client = make_client(RD_KAFKA_PRODUCER, bootstrap, {{"linger.ms", "0"}});
    const void* const key_data = key ? key->data() : nullptr;
    const size_t key_size = key ? key->size() : 0;
    const auto error = rd_kafka_producev(
        client.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_KEY(key_data, key_size),
        RD_KAFKA_V_VALUE(const_cast<char*>(value.data()), value.size()),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) fail("produce to " + topic, error);
    if (const auto flushed = rd_kafka_flush(client.get(), kCallDeadlineMs);
        flushed != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail("produce to " + topic, flushed);
    }
}

KafkaReader::KafkaReader(const std::string& bootstrap, const std::string& topic)
    : consumer_(make_client(RD_KAFKA_CONSUMER, bootstrap,
                            {{"group.id", "outbox-test-reader"},
                             {"enable.auto.commit", "false"},
                             {"auto.offset.reset", "earliest"},
                             {"fetch.wait.max.ms", "10"}})),
      topic_(topic) {
    rd_kafka_poll_set_consumer(consumer_.get());
    partitions_ = wait_for_partitions(consumer_.get(), topic);
    const std::unique_ptr<rd_kafka_topic_partition_list_t,
                          decltype(&rd_kafka_topic_partition_list_destroy)>
        list(rd_kafka_topic_partition_list_new(static_cast<int>(partitions_.size())),
             rd_kafka_topic_partition_list_destroy);
    for (const int partition : partitions_) {
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset =
            RD_KAFKA_OFFSET_BEGINNING;
    }
    if (const auto error = rd_kafka_assign(consumer_.get(), list.get());
        error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail("read " + topic, error);
    }
}

const std::vector<KafkaRecord>& KafkaReader::read(size_t count,
                                                  std::chrono::milliseconds deadline) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (records_.size() < count && std::chrono::steady_clock::now() < end) take();
    return records_;
}

const std::vector<KafkaRecord>& KafkaReader::read_to_end() {
    std::map<int, std::int64_t> ends;  // of the partitions that hold something
    for (const int partition : partitions_) {
        std::int64_t first = 0;
        std::int64_t behind_last = 0;
        const auto error = rd_kafka_query_watermark_offsets(
            consumer_.get(), topic_.c_str(), partition, &first, &behind_last, kCallDeadlineMs);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) fail("end of " + topic_, error);
        if (first < behind_last) ends[partition] = behind_last;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kCallDeadlineMs);
    for (std::size_t seen = 0; !ends.empty();) {
        if (seen == records_.size()) {
            if (std::chrono::steady_clock::now() >= end) {
                throw std::runtime_error("the end of topic " + topic_ + " does not come");
            }
            take();
            continue;
        }
        const KafkaRecord& record = records_[seen++];
        const auto found = ends.find(record.partition);
        if (found != ends.end() && record.offset + 1 >= found->second) ends.erase(found);
    }
    return records_;
}

void KafkaReader::take() {
    const std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)> message(
        rd_kafka_consumer_poll(consumer_.get(), 20), rd_kafka_message_destroy);
    if (message && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        records_.push_back(to_record(*message));
    }
}

}  // namespace outbox::test
