#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "net/http_client.h"
#include "net/http_endpoint.h"
#include "tracing/otlp_json.h"
#include "tracing/span_queue.h"

namespace outbox::tracing {

/// Sends spans to a receiver of OTLP, on a thread of its own, in batches of at most a second. What
/// it cannot take now is sent again for as long as the queue has room for what comes meanwhile;
/// what it refuses is given up. Nothing here delays or fails an event.
class OtlpExporter {
  public:
    static constexpr std::size_t kBatch = 512;
    static constexpr std::chrono::milliseconds kLinger{1'000};
    static constexpr std::chrono::milliseconds kRequestTime{10'000};
    /// Of the end: what is not taken by then is lost.
    static constexpr std::chrono::milliseconds kLastTries{2'000};

    /// Told once for each change, on the exporter's thread; empty: spans are taken again.
    using Tell = std::function<void(const std::string& error)>;

    OtlpExporter(net::HttpEndpoint endpoint, SpanSource source, Tell tell);
    /// Sends what is there, for up to `kLastTries`.
    ~OtlpExporter();
    OtlpExporter(const OtlpExporter&) = delete;
    OtlpExporter& operator=(const OtlpExporter&) = delete;

    /// Where spans are put; lives as long as this. Thread-safe.
    [[nodiscard]] SpanQueue& queue() { return queue_; }

    /// Taken by the receiver. From any thread.
    [[nodiscard]] std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
    /// The queue was full, the receiver refused them, or they were left at the end.
    [[nodiscard]] std::uint64_t dropped() const {
        return queue_.dropped() + refused_.load(std::memory_order_relaxed);
    }

    /// Sends no span and says whether that is taken. Errors: kConnectFailed, kAuthFailed,
    /// kConfigInvalid.
    static Status check(const net::HttpEndpoint& endpoint);

  private:
    void run(const std::stop_token& stop);
    void send(std::span<const Span> spans, const std::stop_token& stop);
    void told(const std::string& error);

    const net::HttpEndpoint endpoint_;
    const SpanSource source_;
    const Tell tell_;
    SpanQueue queue_;
    // The thread's.
    net::HttpClient http_;
    std::mt19937_64 random_;
    std::string last_error_;
    std::optional<std::chrono::steady_clock::time_point> end_;  // since it is told to stop

    std::atomic<std::uint64_t> sent_{0};
    std::atomic<std::uint64_t> refused_{0};
    std::jthread thread_;  // the last member: it uses the others
};

}  // namespace outbox::tracing
