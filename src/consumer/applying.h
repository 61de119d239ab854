#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <outbox/consumer/mailbox.h>

#include "consumer/inbox_store.h"
#include "core/retry_policy.h"

// What the runners of mailboxes and of logs share.
namespace outbox::consumer {

constexpr std::uint32_t kMaxConflicts = 20;    // then the attempt counts
constexpr std::uint32_t kMaxLostSessions = 3;  // by one message; then they count
constexpr std::size_t kMaxErrorBytes = 8'000;
constexpr std::size_t kMaxRetriesAtOnce = 10;
constexpr std::int64_t kKeepUs = 1'000'000;  // between looks at dead letters and the version
constexpr std::int64_t kReportUs = 5'000'000;
constexpr core::RetryPolicy kReconnect{100, 5'000, 1};

[[nodiscard]] Message message_of(const spi::EventView& event, std::uint32_t attempt);

/// Runs a handler; what it threw.
[[nodiscard]] std::optional<ErrorInfo> thrown_by(const std::function<void()>& handler);

/// An error as it is kept with a dead letter.
[[nodiscard]] std::string storable(const ErrorInfo& error);

/// Whether the transaction is to be run again at once.
[[nodiscard]] inline bool is_conflict(const Status& status) {
    return !status.ok() && status.error().code == ErrorCode::kConflict &&
           status.error().advice == Advice::kRetryEvent;
}

/// What has happened since the start. Counted by some threads, read by any.
struct LiveStats {
    std::atomic<std::uint64_t> applied{0};
    std::atomic<std::uint64_t> repeats{0};
    std::atomic<std::uint64_t> failed{0};
    std::atomic<std::uint64_t> dead{0};
    std::atomic<std::uint64_t> conflicts{0};

    /// A message whose transaction is committed; what to report.
    ConsumerReport::What count(Taken taken);
    [[nodiscard]] ConsumerStats read() const;
    [[nodiscard]] MemberStats member(std::int64_t lag, const std::string& queue = {},
                                     std::optional<std::int64_t> queue_lag = 0) const;
};

inline void bump(std::atomic<std::uint64_t>& counter) {
    counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace outbox::consumer
