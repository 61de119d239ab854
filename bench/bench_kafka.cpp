// Kafka as the benchmarks need it:
//   bench_kafka create BOOTSTRAP TOPIC PARTITIONS
//   bench_kafka delete BOOTSTRAP TOPIC
//   bench_kafka produce BOOTSTRAP TOPIC COUNT BYTES   how fast librdkafka alone can be
//   bench_kafka pace BOOTSTRAP TOPIC RATE SECONDS     RATE records a second, each when it is due
//   bench_kafka receive BOOTSTRAP TOPIC COUNT IDLE_MS WARM_UP_MS
//                                                     counts records until COUNT are there or none
//                                                     came for IDLE_MS; latency = receipt - the
//                                                     number in the payload's "at_us"
// Each prints one JSON object.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <librdkafka/rdkafka.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace {

struct Destroy {
    void operator()(rd_kafka_t* kafka) const { rd_kafka_destroy(kafka); }
};
using Kafka = std::unique_ptr<rd_kafka_t, Destroy>;

Kafka open(rd_kafka_type_t type, const char* bootstrap,
           const std::vector<std::pair<const char*, const char*>>& settings) {
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    char error[256] = {};
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error);
    for (const auto& [name, value] : settings) {
        if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) {
            throw std::runtime_error(error);
        }
    }
    rd_kafka_t* kafka = rd_kafka_new(type, conf, error, sizeof error);
    if (kafka == nullptr) throw std::runtime_error(error);
    return Kafka(kafka);
}

std::int64_t wall_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

double cpu_s() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int create(const char* bootstrap, const char* topic, int partitions) {
    const Kafka kafka = open(RD_KAFKA_PRODUCER, bootstrap, {});
    char error[256] = {};
    rd_kafka_NewTopic_t* wanted = rd_kafka_NewTopic_new(topic, partitions, 1, error, sizeof error);
    rd_kafka_queue_t* queue = rd_kafka_queue_new(kafka.get());
    rd_kafka_CreateTopics(kafka.get(), &wanted, 1, nullptr, queue);
    rd_kafka_event_t* event = rd_kafka_queue_poll(queue, 20'000);
    const bool ok = event != nullptr && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (event != nullptr) rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(wanted);
    std::printf("{\"created\": %s}\n", ok ? "true" : "false");
    return ok ? 0 : 1;
}

int remove(const char* bootstrap, const char* topic) {
    const Kafka kafka = open(RD_KAFKA_PRODUCER, bootstrap, {});
    rd_kafka_DeleteTopic_t* unwanted = rd_kafka_DeleteTopic_new(topic);
    rd_kafka_queue_t* queue = rd_kafka_queue_new(kafka.get());
    rd_kafka_DeleteTopics(kafka.get(), &unwanted, 1, nullptr, queue);
    rd_kafka_event_t* event = rd_kafka_queue_poll(queue, 20'000);
    const bool ok = event != nullptr && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (event != nullptr) rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_DeleteTopic_destroy(unwanted);
    return ok ? 0 : 1;
}

int produce(const char* bootstrap, const char* topic, std::int64_t count, std::size_t bytes) {
    const Kafka kafka = open(RD_KAFKA_PRODUCER, bootstrap,
                             {{"enable.idempotence", "true"},
                              {"acks", "all"},
                              {"linger.ms", "5"},
                              {"queue.buffering.max.messages", "500000"}});
    const std::string payload(bytes, 'x');
    const std::int64_t start_us = wall_us();
    for (std::int64_t i = 0; i < count; ++i) {
        const std::string key = std::to_string(i % 10'000);
        while (rd_kafka_producev(kafka.get(), RD_KAFKA_V_TOPIC(topic),
                                 RD_KAFKA_V_KEY(key.data(), key.size()),
                                 RD_KAFKA_V_VALUE(const_cast<char*>(payload.data()), bytes),
                                 RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            rd_kafka_poll(kafka.get(), 1);
        }
        if (i % 1000 == 0) rd_kafka_poll(kafka.get(), 0);
    }
    const bool ok = rd_kafka_flush(kafka.get(), 60'000) == RD_KAFKA_RESP_ERR_NO_ERROR;
    const double seconds = static_cast<double>(wall_us() - start_us) / 1e6;
    std::printf("{\"ok\": %s, \"records\": %lld, \"per_s\": %.0f, \"cpu_s_per_million\": %.2f}\n",
                ok ? "true" : "false", static_cast<long long>(count),
                static_cast<double>(count) / seconds, cpu_s() * 1e6 / static_cast<double>(count));
    return ok ? 0 : 1;
}

// RATE records a second for SECONDS, one by one, each saying when it was made: what the broker and
// the receiver alone cost in latency.
int pace(const char* bootstrap, const char* topic, std::int64_t rate, std::int64_t seconds) {
    const Kafka kafka = open(RD_KAFKA_PRODUCER, bootstrap,
                             {{"enable.idempotence", "true"}, {"acks", "all"}, {"linger.ms", "0"}});
    const std::int64_t start_us = wall_us();
    const std::int64_t count = rate * seconds;
    for (std::int64_t i = 0; i < count;) {
        const std::int64_t due = std::min(count, (wall_us() - start_us) * rate / 1'000'000);
        for (; i < due; ++i) {
            const std::string key = std::to_string(i * 7919 % 10'000);
            const std::string payload = "{\"at_us\": " + std::to_string(wall_us()) +
                                        ", \"fill\": \"" + std::string(160, 'x') + "\"}";
            rd_kafka_producev(kafka.get(), RD_KAFKA_V_TOPIC(topic),
                              RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                              RD_KAFKA_V_KEY(key.data(), key.size()),
                              RD_KAFKA_V_VALUE(const_cast<char*>(payload.data()), payload.size()),
                              RD_KAFKA_V_END);
        }
        rd_kafka_poll(kafka.get(), 0);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    const bool ok = rd_kafka_flush(kafka.get(), 60'000) == RD_KAFKA_RESP_ERR_NO_ERROR;
    std::printf("{\"ok\": %s, \"records\": %lld}\n", ok ? "true" : "false",
                static_cast<long long>(count));
    return ok ? 0 : 1;
}

// The number after "at_us": in the payload, or 0.
std::int64_t sent_at_us(std::string_view payload) {
    constexpr std::string_view kField = "\"at_us\":";
    std::size_t at = payload.find(kField);
    if (at == std::string_view::npos) return 0;
    at += kField.size();
    while (at < payload.size() && payload[at] == ' ') ++at;
    std::int64_t value = 0;
    for (; at < payload.size() && payload[at] >= '0' && payload[at] <= '9'; ++at) {
        value = value * 10 + (payload[at] - '0');
    }
    return value;
}

double quantile_ms(const std::vector<std::int64_t>& sorted, double q) {
    if (sorted.empty()) return 0;
    const auto rank = static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1));
    return static_cast<double>(sorted[rank]) / 1000.0;
}

// `warm_up_ms`: latencies of the records that arrive so soon after the first do not count.
int receive(const char* bootstrap, const char* topic, std::int64_t count, std::int64_t idle_ms,
            std::int64_t warm_up_ms) {
    const std::string group = "bench-" + std::to_string(wall_us());
    const Kafka kafka = open(RD_KAFKA_CONSUMER, bootstrap,
                             {{"group.id", group.c_str()},
                              {"auto.offset.reset", "earliest"},
                              {"enable.auto.commit", "false"},
                              {"fetch.wait.max.ms", "10"},
                              {"fetch.min.bytes", "1"},
                              {"queued.min.messages", "100000"}});
    rd_kafka_poll_set_consumer(kafka.get());
    rd_kafka_topic_partition_list_t* topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_subscribe(kafka.get(), topics);
    rd_kafka_topic_partition_list_destroy(topics);

    std::vector<std::int64_t> latencies_us;
    std::vector<std::int64_t> arrivals_us;
    std::int64_t seen = 0;
    std::int64_t last_us = wall_us();
    while (seen < count && wall_us() - last_us < idle_ms * 1000) {
        rd_kafka_message_t* message = rd_kafka_consumer_poll(kafka.get(), 50);
        if (message == nullptr) continue;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            last_us = wall_us();
            ++seen;
            arrivals_us.push_back(last_us);
            const auto* data = static_cast<const char*>(message->payload);
            const bool warm = last_us - arrivals_us.front() >= warm_up_ms * 1000;
            if (const std::int64_t sent = sent_at_us({data, message->len}); warm && sent != 0) {
                latencies_us.push_back(last_us - sent);
            }
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(kafka.get());
    // The rate between 10 % and 90 % of the records, so that start and end do not count.
    double rate = 0;
    if (arrivals_us.size() > 100) {
        const std::size_t from = arrivals_us.size() / 10;
        const std::size_t to = arrivals_us.size() * 9 / 10;
        const double seconds = static_cast<double>(arrivals_us[to] - arrivals_us[from]) / 1e6;
        rate = seconds > 0 ? static_cast<double>(to - from) / seconds : 0;
    }
    std::sort(latencies_us.begin(), latencies_us.end());
    std::printf(
        "{\"records\": %lld, \"per_s\": %.0f, \"p50_ms\": %.2f, \"p99_ms\": %.2f, "
        "\"max_ms\": %.2f}\n",
        static_cast<long long>(seen), rate, quantile_ms(latencies_us, 0.5),
        quantile_ms(latencies_us, 0.99), quantile_ms(latencies_us, 1.0));
    return seen >= count ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string_view what = argc > 1 ? argv[1] : "";
    if (what == "create" && argc == 5) return create(argv[2], argv[3], std::atoi(argv[4]));
    if (what == "delete" && argc == 4) return remove(argv[2], argv[3]);
    if (what == "produce" && argc == 6) {
        return produce(argv[2], argv[3], std::atoll(argv[4]),
                       static_cast<std::size_t>(std::atoll(argv[5])));
    }
    if (what == "pace" && argc == 6) {
        return pace(argv[2], argv[3], std::atoll(argv[4]), std::atoll(argv[5]));
    }
    if (what == "receive" && argc == 7) {
        return receive(argv[2], argv[3], std::atoll(argv[4]), std::atoll(argv[5]),
                       std::atoll(argv[6]));
    }
    std::fprintf(stderr,
                 "usage: bench_kafka {create|delete|produce|pace|receive} BOOTSTRAP TOPIC ...\n");
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_kafka: %s\n", error.what());
    return 1;
}
