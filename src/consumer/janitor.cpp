#include "consumer/janitor.h"

#include <chrono>
#include <utility>

#include "consumer/operate.h"

namespace outbox::consumer {

Janitor::Janitor(std::string url, int connect_timeout_s, std::int64_t retention_s)
    : url_(std::move(url)), connect_timeout_s_(connect_timeout_s), retention_s_(retention_s) {}

std::optional<ErrorInfo> Janitor::turn() {
    constexpr std::int64_t kIntervalUs = 60'000'000;
    if (retention_s_ == 0) return std::nullopt;
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::steady_clock::now().time_since_epoch())
                         .count();
    if (now < next_us_) return std::nullopt;
    next_us_ = now + kIntervalUs;
    const auto operations = open_operations(url_, connect_timeout_s_);
    const Status status =
        operations.ok() ? (*operations)->prune(retention_s_).status() : operations.status();
    if (status.ok()) {
        told_.clear();
        return std::nullopt;
    }
    const std::string text = describe(status.error());
    if (text == std::exchange(told_, text)) return std::nullopt;
    return status.error();
}

}  // namespace outbox::consumer
