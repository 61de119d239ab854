// Sinks by themselves:
//   bench_sinks drain URL TOPIC COUNT BYTES KEYS   COUNT records of KEYS keys, as the relay would
//   bench_sinks pace URL TOPIC RATE SECONDS        RATE records a second: from publish to outcome
// Each prints one JSON object. What client libraries do at most: bench_NAME.cpp.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "backend/backends.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using outbox::spi::Completions;
using outbox::spi::Record;
using outbox::spi::Sink;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

std::unique_ptr<Sink> open(const std::string& url) {
    return (*outbox::find_broker(url).value_or_throw()->make)(
               {.url = url, .options = {}, .producer = "bench", .max_repeats = 10'000})
        .value_or_throw();
}

// A record's bytes, and its key's turn.
struct Batch {
    Batch(std::size_t count, std::size_t bytes, std::size_t key_count) : value(bytes, 'x') {
        for (std::size_t i = 0; i < key_count; ++i) keys.push_back("key-" + std::to_string(i));
        const std::string run = std::to_string(::getpid()) + "-";
        for (std::size_t i = 0; i < count; ++i) ids.push_back(run + std::to_string(i));
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

}  // namespace

int main(int count, char** words) try {
    const std::string command = count > 1 ? words[1] : "";
    const auto number = [&](int i) { return std::strtoul(words[i], nullptr, 10); };
    if (command == "drain" && count == 7) {
        return drain(words[2], words[3], number(4), number(5), number(6));
    }
    if (command == "pace" && count == 6) return pace(words[2], words[3], number(4), number(5));
    std::fprintf(stderr, "see the first lines of bench_sinks.cpp\n");
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_sinks: %s\n", error.what());
    return 1;
}
