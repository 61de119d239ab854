// What one event costs in the relay itself: the real pipeline between a source and a sink that do
// nothing. bench_relay [EVENTS] prints nanoseconds of CPU per event.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "relay/pipeline.h"
#include "tests/relay/options.h"

namespace {

using namespace outbox;

class SteadyClock : public core::Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override {
        return std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    [[nodiscard]] std::int64_t wall_us() const override { return boot_us(); }
};

class EndlessReader : public spi::Reader {
  public:
    explicit EndlessReader(std::int64_t count) : left_(count), payload_(200, 'x') {
        for (int i = 0; i < 10'000; ++i) keys_.push_back("key-" + std::to_string(i));
    }
    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override {
        for (std::size_t i = 0; i < limits.max_events && left_ > 0; ++i, --left_) {
            spi::EventView event;
            event.position = ++position_;
            event.id = out.copy("01890000-0000-7000-8000-000000000000");
            event.aggregate_type = out.copy("Bench");
            event.aggregate_id = out.copy(keys_[static_cast<std::size_t>(position_) % 10'000]);
            event.event_type = out.copy("Filled");
            event.payload = out.copy(payload_);
            event.tenant_id = out.copy("default");
            event.occurred_at_us = 1'700'000'000'000'000 + position_;
            out.add(event);
        }
        return {};
    }
    Status fetch(std::span<const spi::Position>, spi::EventBatch&) override { return {}; }
    void forget(std::span<const spi::Position>) override {}

  private:
    std::int64_t left_;
    spi::Position position_ = 0;
    std::string payload_;
    std::vector<std::string> keys_;
};

class InstantSink : public spi::Sink {
  public:
    InstantSink() {
        capabilities_.name = "instant";
        capabilities_.fail_stop_order = true;
    }
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return capabilities_;
    }
    Status check() override { return {}; }
    Result<std::string> destination() override { return std::string("instant"); }
    [[nodiscard]] bool publish(const spi::Record& record) override {
        tokens_.push_back(record.token);
        return true;
    }
    void poll(std::chrono::milliseconds, spi::Completions& out) override {
        out.acknowledged.swap(tokens_);
        tokens_.clear();
    }

  private:
    spi::SinkCapabilities capabilities_;
    std::vector<std::uint64_t> tokens_;
};

double cpu_s() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
    const std::int64_t count = argc > 1 ? std::atoll(argv[1]) : 2'000'000;
    EndlessReader reader(count);
    InstantSink sink;
    SteadyClock clock;
    relay::OutcomeQueue queue(1);
    relay::LeaseView lease;
    lease.extend(INT64_MAX);
    relay::RouteStats stats;
    const relay::Notify notify = [](const relay::Note&) {};
    std::vector<relay::RouteSpec> routes(1);
    routes[0].topics = *core::TopicRule::make("{aggregate_type|lower}-events", {}, "events");
    const relay::RelayOptions options = relay::usual_options();
    const std::atomic<bool> full{false};
    relay::Pipeline pipeline({reader, sink, queue, lease, clock, stats, notify, full}, 0, routes,
                             options, {}, 1);
    std::vector<relay::Outcomes> taken(1);
    const double before = cpu_s();
    std::int64_t done = 0;
    while (done < count) {
        if (!pipeline.step().ok()) return 1;
        queue.take(0, std::chrono::milliseconds(0), taken);
        done += static_cast<std::int64_t>(taken[0].finished.size());
        relay::Feedback feedback;
        feedback.recorded.swap(taken[0].finished);
        queue.answer(0, std::move(feedback));
        taken[0].clear();
    }
    std::printf("{\"ns_per_event\": %.0f}\n",
                (cpu_s() - before) * 1e9 / static_cast<double>(count));
    return 0;
}
