// Sinks by themselves, and what their client libraries do at most:
//   bench_sinks drain URL TOPIC COUNT BYTES KEYS   COUNT records of KEYS keys, as the relay would
//   bench_sinks pace URL TOPIC RATE SECONDS        RATE records a second: from publish to outcome
//   bench_sinks rabbitmq HOST PORT USER PASSWORD QUEUE COUNT BYTES
//                                                  librabbitmq alone: persistent, mandatory,
//                                                  confirms, 10,000 unconfirmed
// Each prints one JSON object.

#include <algorithm>
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/time.h>
#include <thread>
#include <vector>

#include "backend/backends.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using outbox::spi::Completions;
using outbox::spi::Record;
using outbox::spi::Sink;

constexpr std::size_t kWindow = 10'000;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

std::unique_ptr<Sink> open(const std::string& url) {
    return (*outbox::find_broker(url).value_or_throw()->make)({.url = url, .options = {}})
        .value_or_throw();
}

// A record's bytes, and its key's turn.
struct Batch {
    Batch(std::size_t count, std::size_t bytes, std::size_t key_count) : value(bytes, 'x') {
        for (std::size_t i = 0; i < key_count; ++i) keys.push_back("key-" + std::to_string(i));
        for (std::size_t i = 0; i < count; ++i) ids.push_back("id-" + std::to_string(i));
    }
    [[nodiscard]] Record record(std::size_t i, std::string_view topic) const {
        Record made;
        made.token = i;
        made.topic = topic;
        made.key = keys[i % keys.size()];
        made.value = value;
        made.id = ids[i];
        return made;
    }
    std::string value;
    std::vector<std::string> keys;
    std::vector<std::string> ids;
};

void must_not_fail(const Completions& out) {
    if (!out.failed.empty()) throw std::runtime_error(describe(out.failed.front().error));
}

// Without fail-stop order one record of a key is under way: of keys in turn, that is a window of as
// many records as there are keys, in which the oldest must be done first.
int drain(const std::string& url, const std::string& topic, std::size_t count, std::size_t bytes,
          std::size_t keys) {
    const auto sink = open(url);
    const Batch batch(count, bytes, keys);
    const std::size_t window = sink->capabilities().fail_stop_order ? count : keys;
    std::vector<bool> done(count);
    std::size_t oldest = 0;
    std::size_t next = 0;
    const auto start = Clock::now();
    while (oldest < count) {
        while (next < count && next - oldest < window && sink->publish(batch.record(next, topic))) {
            ++next;
        }
        Completions out;
        sink->poll(100ms, out);
        must_not_fail(out);
        for (const std::uint64_t token : out.acknowledged) done[token] = true;
        while (oldest < count && done[oldest]) ++oldest;
    }
    std::printf("{\"per_s\": %.0f}\n", static_cast<double>(count) / seconds_since(start));
    return 0;
}

int pace(const std::string& url, const std::string& topic, std::size_t rate, std::size_t seconds) {
    const auto sink = open(url);
    const std::size_t count = rate * seconds;
    const Batch batch(count, 200, count);
    std::vector<Clock::time_point> due(count);
    std::vector<double> latencies_ms;
    const auto start = Clock::now() + 1s;  // connects meanwhile
    std::size_t next = 0;
    while (latencies_ms.size() < count) {
        const auto now = Clock::now();
        for (; next < count; ++next) {
            due[next] = start + std::chrono::microseconds(next * 1'000'000 / rate);
            if (due[next] > now || !sink->publish(batch.record(next, topic))) break;
        }
        Completions out;
        sink->poll(1ms, out);
        must_not_fail(out);
        for (const std::uint64_t token : out.acknowledged) {
            latencies_ms.push_back(seconds_since(due[token]) * 1'000);
        }
    }
    std::sort(latencies_ms.begin(), latencies_ms.end());
    std::printf("{\"p50_ms\": %.2f, \"p99_ms\": %.2f}\n", latencies_ms[count / 2],
                latencies_ms[count * 99 / 100]);
    return 0;
}

void must(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
}

int rabbitmq(char** words) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t* socket = amqp_tcp_socket_new(connection);
    must(amqp_socket_open(socket, words[0], std::atoi(words[1])) == AMQP_STATUS_OK, "connect");
    must(amqp_login(connection, "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0, AMQP_SASL_METHOD_PLAIN,
                    words[2], words[3])
                 .reply_type == AMQP_RESPONSE_NORMAL,
         "login");
    amqp_channel_open(connection, 1);
    amqp_confirm_select(connection, 1);
    const std::size_t count = std::strtoul(words[5], nullptr, 10);
    const Batch batch(count, std::strtoul(words[6], nullptr, 10), 1);
    const auto bytes_of = [](const std::string& text) {
        return amqp_bytes_t{text.size(), const_cast<char*>(text.data())};
    };
    const std::string queue = words[4];
    std::size_t sent = 0;
    std::size_t confirmed = 0;
    const auto start = Clock::now();
    while (confirmed < count) {
        for (; sent < count && sent - confirmed < kWindow; ++sent) {
            amqp_basic_properties_t properties{};
            properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG;
            properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
            properties.message_id = bytes_of(batch.ids[sent]);
            must(amqp_basic_publish(connection, 1, amqp_empty_bytes, bytes_of(queue), 1, 0,
                                    &properties, bytes_of(batch.value)) == AMQP_STATUS_OK,
                 "publish");
        }
        amqp_maybe_release_buffers(connection);
        amqp_frame_t frame;
        must(amqp_simple_wait_frame(connection, &frame) == AMQP_STATUS_OK, "wait");
        must(frame.frame_type == AMQP_FRAME_METHOD &&
                 frame.payload.method.id == AMQP_BASIC_ACK_METHOD,
             "confirm");
        const auto& ack = *static_cast<amqp_basic_ack_t*>(frame.payload.method.decoded);
        confirmed =
            ack.multiple != 0 ? std::max<std::size_t>(confirmed, ack.delivery_tag) : confirmed + 1;
    }
    std::printf("{\"per_s\": %.0f}\n", static_cast<double>(count) / seconds_since(start));
    amqp_destroy_connection(connection);
    return 0;
}

}  // namespace

int main(int count, char** words) try {
    const std::string command = count > 1 ? words[1] : "";
    const auto number = [&](int i) { return std::strtoul(words[i], nullptr, 10); };
    if (command == "drain" && count == 7) {
        return drain(words[2], words[3], number(4), number(5), number(6));
    }
    if (command == "pace" && count == 6) return pace(words[2], words[3], number(4), number(5));
    if (command == "rabbitmq" && count == 9) return rabbitmq(words + 2);
    std::fprintf(stderr, "see the first lines of bench_sinks.cpp\n");
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_sinks: %s\n", error.what());
    return 1;
}
