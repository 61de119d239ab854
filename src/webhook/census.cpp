#include "webhook/census.h"

#include <algorithm>
#include <string>

#include "webhook/dispatch_options.h"

namespace outbox::webhook {
namespace {

constexpr std::int64_t kAfterErrorUs = 10 * kSecondUs;
// Of each second it takes about so much, in a few steps.
constexpr std::int64_t kMomentUs = 50'000;
constexpr int kMaxSteps = 10;
constexpr std::size_t kFewestRows = 100;
constexpr std::size_t kFirstRows = 1'000;
constexpr std::size_t kMostRows = 10'000;

}  // namespace

Census::Census(Outlet& outlet, Queues& queues, const core::Clock& clock)
    : outlet_(outlet), queues_(queues), clock_(clock), rows_(kFirstRows) {}

Status Census::go_on() {
    const std::int64_t begun_us = clock_.boot_us();
    if (begun_us < next_us_) return {};
    next_us_ = begun_us + kSecondUs;
    std::int64_t now_us = begun_us;
    for (int i = 0; i < kMaxSteps && now_us < begun_us + kMomentUs; ++i) {
        const std::int64_t before_us = now_us;
        const auto more = step();
        now_us = clock_.boot_us();
        const bool slow = now_us - before_us > kMomentUs / 2;
        rows_ = slow ? std::max(rows_ / 4, kFewestRows) : std::min(rows_ * 2, kMostRows);
        if (!more.ok()) {
            tell_failed_ = !std::exchange(failing_, true);
            next_us_ = now_us + kAfterErrorUs;
            return more.status();
        }
        failing_ = false;
        if (*more) continue;
        end(now_us);
        break;
    }
    return {};
}

// Whether there may be more.
Result<bool> Census::step() {
    if (!looking_) {
        looking_ = true;
        counts_.clear();
        queues_.begin_count();
    }
    const bool first = counts_.empty();
    const std::size_t rows = rows_;
    auto counts = outlet_.count(first ? std::string() : counts_.back().endpoint_id,
                                first ? 0 : counts_.back().last, rows);
    if (!counts.ok()) return counts.status();
    std::vector<Count> complete;
    std::int64_t counted = 0;
    for (Count& count : *counts) {
        counted += count.waiting + count.dead;
        if (!counts_.empty() && counts_.back().endpoint_id == count.endpoint_id) {
            counts_.back().waiting += count.waiting;
            counts_.back().dead += count.dead;
            counts_.back().last = count.last;
            continue;
        }
        if (!counts_.empty()) complete.push_back(counts_.back());
        counts_.push_back(std::move(count));
    }
    const bool more = counted >= static_cast<std::int64_t>(rows);
    if (!more && !counts_.empty()) complete.push_back(counts_.back());
    queues_.count(complete);
    return more;
}

void Census::end(std::int64_t now_us) {
    queues_.end_count();
    looking_ = false;
    found_ = std::exchange(counts_, {});
    tell_found_ = true;
    next_us_ = now_us + std::exchange(again_us_, kEveryUs);
}

const std::vector<Count>* Census::take_found() {
    return std::exchange(tell_found_, false) ? &found_ : nullptr;
}

}  // namespace outbox::webhook
