#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/error.h>
#include <outbox/spi/source.h>

#include "core/circuit.h"
#include "core/mutex.h"

namespace outbox::relay {

/// Counts of publish latencies by upper bound. Written by one thread, read by any.
class LatencyHistogram {
  public:
    /// Upper bounds in milliseconds; one more bucket holds what is above.
    static constexpr std::array<double, 14> kBoundsMs = {1,   2,   3,   5,    10,   20,    50,
                                                         100, 200, 500, 1000, 5000, 30000, 300000};

    void add_us(std::int64_t latency_us) {
        const auto* const bound = std::ranges::lower_bound(kBoundsUs, latency_us);
        bump(counts_[static_cast<std::size_t>(bound - kBoundsUs.begin())], 1);
        bump(sum_us_, static_cast<std::uint64_t>(latency_us < 0 ? 0 : latency_us));
    }
    [[nodiscard]] std::uint64_t count(std::size_t bucket) const {
        return counts_[bucket].load(std::memory_order_relaxed);
    }
    [[nodiscard]] double sum_s() const {
        return static_cast<double>(sum_us_.load(std::memory_order_relaxed)) / 1e6;
    }

  private:
    static constexpr auto kBoundsUs = [] {
        std::array<std::int64_t, kBoundsMs.size()> bounds{};
        std::ranges::transform(kBoundsMs, bounds.begin(),
                               [](double ms) { return static_cast<std::int64_t>(ms * 1'000); });
        return bounds;
    }();
    // One writer: a plain add without the cost of a locked instruction.
    static void bump(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    std::array<std::atomic<std::uint64_t>, kBoundsMs.size() + 1> counts_{};
    std::atomic<std::uint64_t> sum_us_{0};
};

/// What a route counts for metrics and status. Written by the route's thread (`dead` by the
/// recorder), read by any thread.
struct RouteStats {
    static constexpr std::size_t kErrorCodes = static_cast<std::size_t>(ErrorCode::kInternal) + 1;

    std::atomic<std::uint64_t> published{0};
    std::atomic<std::uint64_t> dead{0};
    std::atomic<std::int64_t> queued{0};
    std::atomic<std::int64_t> in_flight{0};
    std::atomic<std::int64_t> unrecorded{0};
    std::atomic<std::int64_t> waiting{0};       ///< Events whose key waits for a failing event.
    std::atomic<std::int64_t> redelivering{0};  ///< Dead letters that are being sent again.
    std::atomic<std::int64_t> parts_down{0};
    std::atomic<std::int64_t> held_bytes{0};
    std::atomic<core::Circuit::State> circuit{core::Circuit::State::kClosed};
    std::atomic<std::int64_t> last_step_us{0};
    std::atomic<spi::Position> settled{0};  ///< See `spi::RouteBeginning`; of this term.
    std::array<std::atomic<std::uint64_t>, kErrorCodes> errors{};
    std::atomic<bool> on_stream{false};          ///< Events come from the database's log.
    std::atomic<std::uint64_t> stream_joins{0};  ///< Times that began,
    std::atomic<std::uint64_t> stream_falls{0};  ///< and ended while the route went on.
    std::atomic<std::int64_t> stream_lag_bytes{0};
    std::atomic<std::int64_t> stream_kept_bytes{0};
    LatencyHistogram latency;

    void error(const ErrorInfo& info) {
        errors[static_cast<std::size_t>(info.code)].fetch_add(1, std::memory_order_relaxed);
        const core::Lock lock(mutex_);
        last_error_ = describe(info);
        ++error_count_;
    }
    /// How often `error` was called.
    [[nodiscard]] std::uint64_t error_count() const {
        const core::Lock lock(mutex_);
        return error_count_;
    }
    [[nodiscard]] std::string last_error() const {
        const core::Lock lock(mutex_);
        return last_error_;
    }
    /// Nothing is under way any more, nor known of the destination: what is counted stays, what is
    /// measured goes. A thread of the term that goes on may measure again.
    void end_term() {
        for (auto* measured : {&queued, &in_flight, &unrecorded, &waiting, &redelivering,
                               &parts_down, &held_bytes, &stream_lag_bytes, &stream_kept_bytes}) {
            measured->store(0, std::memory_order_relaxed);
        }
        circuit.store(core::Circuit::State::kClosed, std::memory_order_relaxed);
        set_sink_stats({});
        set_tenants({});
        begin_path();
    }
    /// A route begins, with the table: it did not fall back to it.
    void begin_path() {
        on_stream.store(false, std::memory_order_relaxed);
        const core::Lock lock(mutex_);
        path_ = kTable;
    }
    void set_path(const spi::ReadPath& path) {
        const bool stream = path.path == "stream";
        if (on_stream.exchange(stream, std::memory_order_relaxed) != stream) {
            (stream ? stream_joins : stream_falls).fetch_add(1, std::memory_order_relaxed);
        }
        const core::Lock lock(mutex_);
        path_ = path;
    }
    [[nodiscard]] spi::ReadPath path() const {
        const core::Lock lock(mutex_);
        return path_;
    }

    /// Tenants of whom most events wait, with `kOtherTenants` for the rest.
    struct Tenants {
        std::vector<std::pair<std::string, std::size_t>> waiting;
        std::size_t paused = 0;
    };
    static constexpr std::size_t kMaxTenants = 20;
    static constexpr std::string_view kOtherTenants = "other";
    void set_tenants(Tenants tenants) {
        const core::Lock lock(mutex_);
        tenants_ = std::move(tenants);
    }
    [[nodiscard]] Tenants tenants() const {
        const core::Lock lock(mutex_);
        return tenants_;
    }

    /// What the sink says of itself.
    void set_sink_stats(std::vector<std::pair<std::string_view, std::int64_t>> stats) {
        const core::Lock lock(mutex_);
        sink_stats_ = std::move(stats);
    }
    [[nodiscard]] std::vector<std::pair<std::string_view, std::int64_t>> sink_stats() const {
        const core::Lock lock(mutex_);
        return sink_stats_;
    }

  private:
    static inline const spi::ReadPath kTable{"polling", {}};

    mutable core::Mutex mutex_;
    std::vector<std::pair<std::string_view, std::int64_t>> sink_stats_ OUTBOX_GUARDED_BY(mutex_);
    Tenants tenants_ OUTBOX_GUARDED_BY(mutex_);
    std::string last_error_ OUTBOX_GUARDED_BY(mutex_);
    std::uint64_t error_count_ OUTBOX_GUARDED_BY(mutex_) = 0;
    spi::ReadPath path_ OUTBOX_GUARDED_BY(mutex_) = kTable;
};

}  // namespace outbox::relay
