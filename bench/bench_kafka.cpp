// Kafka as the benchmarks need it:
//   bench_kafka create BOOTSTRAP TOPIC PARTITIONS
//   bench_kafka delete BOOTSTRAP TOPIC
//   bench_kafka produce BOOTSTRAP TOPIC COUNT BYTES [NAME=VALUE...]
//                                                     how fast librdkafka alone can be, with these
//                                                     headers on each record
//   bench_kafka pace BOOTSTRAP TOPIC RATE SECONDS     RATE records a second, each when it is due
//   bench_kafka receive BOOTSTRAP TOPIC COUNT IDLE_MS WARM_UP_MS
//                                                     counts records until COUNT are there or none
//                                                     came for IDLE_MS; latency = receipt - the
//                                                     number in the payload's "at_us"
//   bench_kafka watch BOOTSTRAP TOPIC                 a line each 20 ms until its input ends:
//   seconds
//                                                     of the steady clock, records in the topic
//   bench_kafka audit BOOTSTRAP TOPIC COUNT           reads all that is there: of the numbers 1 to
//                                                     COUNT in the payloads' "n" those that are
//                                                     missing (how many, the first, the last),
//                                                     those that are there again, and those that
//                                                     came first behind a later one of their key
// Each but `watch` prints one JSON object.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <librdkafka/rdkafka.h>
#include <memory>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
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

struct DestroyHeaders {
    void operator()(rd_kafka_headers_t* headers) const { rd_kafka_headers_destroy(headers); }
};
using Headers = std::unique_ptr<rd_kafka_headers_t, DestroyHeaders>;

// Of words NAME=VALUE.
Headers headers_of(const std::vector<std::string>& words) {
    Headers headers(rd_kafka_headers_new(words.size()));
    for (const std::string& word : words) {
        const std::size_t end = word.find('=');
        if (end == std::string::npos) throw std::runtime_error(word + " is not NAME=VALUE");
        rd_kafka_header_add(headers.get(), word.data(), static_cast<ssize_t>(end),
                            word.data() + end + 1, static_cast<ssize_t>(word.size() - end - 1));
    }
    return headers;
}

int produce(const char* bootstrap, const char* topic, std::int64_t count, std::size_t bytes,
            const std::vector<std::string>& headers) {
    const Kafka kafka = open(RD_KAFKA_PRODUCER, bootstrap,
                             {{"enable.idempotence", "true"},
                              {"acks", "all"},
                              {"linger.ms", "5"},
                              {"queue.buffering.max.messages", "500000"}});
    const std::string payload(bytes, 'x');
    const std::int64_t start_us = wall_us();
    for (std::int64_t i = 0; i < count; ++i) {
        const std::string key = std::to_string(i % 10'000);
        // Made anew for each record, as a relay must.
        Headers of_record = headers.empty() ? nullptr : headers_of(headers);
        while (rd_kafka_producev(kafka.get(), RD_KAFKA_V_TOPIC(topic),
                                 RD_KAFKA_V_KEY(key.data(), key.size()),
                                 RD_KAFKA_V_VALUE(const_cast<char*>(payload.data()), bytes),
                                 RD_KAFKA_V_HEADERS(of_record.get()),
                                 RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            rd_kafka_poll(kafka.get(), 1);
        }
        (void)of_record.release();  // librdkafka's now
        if (i % 1000 == 0) rd_kafka_poll(kafka.get(), 0);
    }
    const bool ok = rd_kafka_flush(kafka.get(), 60'000) == RD_KAFKA_RESP_ERR_NO_ERROR;
    const double seconds = static_cast<double>(wall_us() - start_us) / 1e6;
    std::printf(
        "{\"ok\": %s, \"records\": %lld, \"per_s\": %.0f, \"cpu_s_per_million\": %.2f, "
        "\"librdkafka\": \"%s\"}\n",
        ok ? "true" : "false", static_cast<long long>(count), static_cast<double>(count) / seconds,
        cpu_s() * 1e6 / static_cast<double>(count), rd_kafka_version_str());
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

// The number after "NAME": in the payload, or 0; whether the payload is JSON itself or a text in
// another one, with its quotes escaped.
std::int64_t number_of(std::string_view payload, std::string_view name) {
    const std::string opened = "\"" + std::string(name);
    for (std::size_t at = payload.find(opened); at != std::string_view::npos;
         at = payload.find(opened, at + 1)) {
        std::string_view rest = payload.substr(at + opened.size());
        if (rest.substr(0, 1) == "\\") rest.remove_prefix(1);
        if (rest.substr(0, 2) != "\":") continue;
        rest.remove_prefix(2);
        while (rest.substr(0, 1) == " ") rest.remove_prefix(1);
        std::int64_t value = 0;
        for (; !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; rest.remove_prefix(1)) {
            value = value * 10 + (rest[0] - '0');
        }
        return value;
    }
    return 0;
}

double quantile_ms(const std::vector<std::int64_t>& sorted, double q) {
    if (sorted.empty()) return 0;
    const auto rank = static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1));
    return static_cast<double>(sorted[rank]) / 1000.0;
}

// `warm_up_ms`: latencies of the records that arrive so soon after the first with a time do not
// count.
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
    std::int64_t first_us = 0;
    std::int64_t last_us = wall_us();
    while (seen < count && wall_us() - last_us < idle_ms * 1000) {
        rd_kafka_message_t* message = rd_kafka_consumer_poll(kafka.get(), 50);
        if (message == nullptr) continue;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            last_us = wall_us();
            ++seen;
            arrivals_us.push_back(last_us);
            const auto* data = static_cast<const char*>(message->payload);
            if (const std::int64_t sent = number_of({data, message->len}, "at_us"); sent != 0) {
                if (first_us == 0) first_us = last_us;
                if (last_us - first_us >= warm_up_ms * 1000) latencies_us.push_back(last_us - sent);
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

struct DestroyPartitions {
    void operator()(rd_kafka_topic_partition_list_t* list) const {
        rd_kafka_topic_partition_list_destroy(list);
    }
};
using Partitions = std::unique_ptr<rd_kafka_topic_partition_list_t, DestroyPartitions>;

// All of the topic's that are known by now.
Partitions partitions_of(rd_kafka_t* kafka, const char* topic) {
    rd_kafka_topic_t* handle = rd_kafka_topic_new(kafka, topic, nullptr);
    const rd_kafka_metadata_t* metadata = nullptr;
    const rd_kafka_resp_err_t error = rd_kafka_metadata(kafka, 0, handle, &metadata, 20'000);
    Partitions list(rd_kafka_topic_partition_list_new(16));
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        for (int i = 0; i < metadata->topics[0].partition_cnt; ++i) {
            rd_kafka_topic_partition_list_add(list.get(), topic,
                                              metadata->topics[0].partitions[i].id);
        }
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(handle);
    return list;
}

// How many records were ever written to them, as each partition begins with offset 0; -1 while that
// is not known, as for a moment after the topic was made.
std::int64_t records_in(rd_kafka_t* kafka, const Partitions& partitions) {
    for (int i = 0; i < partitions->cnt; ++i) partitions->elems[i].offset = RD_KAFKA_OFFSET_END;
    if (partitions->cnt == 0 ||
        rd_kafka_offsets_for_times(kafka, partitions.get(), 20'000) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return -1;
    }
    std::int64_t count = 0;
    for (int i = 0; i < partitions->cnt; ++i) {
        if (partitions->elems[i].err != RD_KAFKA_RESP_ERR_NO_ERROR) return -1;
        count += std::max<std::int64_t>(partitions->elems[i].offset, 0);
    }
    return count;
}

// Those of a topic that may be new, once it says how much is in it.
Partitions settled_partitions_of(rd_kafka_t* kafka, const char* topic) {
    for (int tries = 0; tries < 200; ++tries) {
        Partitions partitions = partitions_of(kafka, topic);
        if (records_in(kafka, partitions) >= 0) return partitions;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    throw std::runtime_error(std::string("nothing says how much there is in ") + topic);
}

int watch(const char* bootstrap, const char* topic) {
    const Kafka kafka = open(RD_KAFKA_PRODUCER, bootstrap, {});
    const Partitions partitions = settled_partitions_of(kafka.get(), topic);
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (::poll(&input, 1, 20) == 0) {
        const std::int64_t records = records_in(kafka.get(), partitions);
        if (records < 0) continue;
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        std::printf("%.4f %lld\n", std::chrono::duration<double>(now).count(),
                    static_cast<long long>(records));
        std::fflush(stdout);
    }
    return 0;
}

int audit(const char* bootstrap, const char* topic, std::int64_t count) {
    const Kafka kafka = open(RD_KAFKA_CONSUMER, bootstrap,
                             {{"group.id", "audit"},
                              {"enable.auto.commit", "false"},
                              {"enable.auto.offset.store", "false"},
                              {"queued.min.messages", "100000"}});
    rd_kafka_poll_set_consumer(kafka.get());
    const Partitions partitions = settled_partitions_of(kafka.get(), topic);
    const std::int64_t there = records_in(kafka.get(), partitions);
    for (int i = 0; i < partitions->cnt; ++i)
        partitions->elems[i].offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_assign(kafka.get(), partitions.get());

    std::vector<bool> found(static_cast<std::size_t>(count) + 1);
    std::unordered_map<std::string, std::int64_t> last_of_key;
    std::int64_t distinct = 0;
    std::int64_t repeats = 0;
    std::int64_t strange = 0;  // without a number, or with one beyond `count`
    std::int64_t late = 0;
    std::int64_t seen = 0;
    std::int64_t last_us = wall_us();
    while (seen < there && wall_us() - last_us < 30'000'000) {
        rd_kafka_message_t* message = rd_kafka_consumer_poll(kafka.get(), 50);
        if (message == nullptr) continue;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            last_us = wall_us();
            ++seen;
            const std::int64_t number =
                number_of({static_cast<const char*>(message->payload), message->len}, "n");
            const auto place = static_cast<std::size_t>(number);
            if (number <= 0 || number > count) {
                ++strange;
            } else if (found[place]) {
                ++repeats;
            } else {
                found[place] = true;
                ++distinct;
                std::int64_t& last =
                    last_of_key[{static_cast<const char*>(message->key), message->key_len}];
                if (number < last) ++late;
                last = std::max(last, number);
            }
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(kafka.get());
    const auto first = std::find(found.begin() + 1, found.end(), false);
    const auto last = std::find(found.rbegin(), found.rend() - 1, false);
    std::printf(
        "{\"records\": %lld, \"distinct\": %lld, \"missing\": %lld, \"first_missing\": %lld, "
        "\"last_missing\": %lld, \"repeats\": %lld, \"strange\": %lld, \"out_of_order\": %lld}\n",
        static_cast<long long>(seen), static_cast<long long>(distinct),
        static_cast<long long>(count - distinct),
        static_cast<long long>(distinct == count ? 0 : first - found.begin()),
        static_cast<long long>(found.rend() - 1 - last), static_cast<long long>(repeats),
        static_cast<long long>(strange), static_cast<long long>(late));
    return there >= 0 && seen == there ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string_view what = argc > 1 ? argv[1] : "";
    if (what == "create" && argc == 5) return create(argv[2], argv[3], std::atoi(argv[4]));
    if (what == "delete" && argc == 4) return remove(argv[2], argv[3]);
    if (what == "produce" && argc >= 6) {
        return produce(argv[2], argv[3], std::atoll(argv[4]),
                       static_cast<std::size_t>(std::atoll(argv[5])), {argv + 6, argv + argc});
    }
    if (what == "pace" && argc == 6) {
        return pace(argv[2], argv[3], std::atoll(argv[4]), std::atoll(argv[5]));
    }
    if (what == "receive" && argc == 7) {
        return receive(argv[2], argv[3], std::atoll(argv[4]), std::atoll(argv[5]),
                       std::atoll(argv[6]));
    }
    if (what == "watch" && argc == 4) return watch(argv[2], argv[3]);
    if (what == "audit" && argc == 5) return audit(argv[2], argv[3], std::atoll(argv[4]));
    std::fprintf(stderr,
                 "usage: bench_kafka {create|delete|produce|pace|receive|watch|audit} "
                 "BOOTSTRAP TOPIC ...\n");
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_kafka: %s\n", error.what());
    return 1;
}
