#include "net/end_search.h"

#include <algorithm>
#include <utility>

namespace outbox::net {
namespace {

constexpr std::size_t kMostSuspects = 1'000;
constexpr std::size_t kWide = 4'096;               // a window of so many is none
constexpr std::uint32_t kMostEnds = 50;            // without anything that passes
constexpr std::uint32_t kEvidence = 2;             // as a circuit asks for, and for the same reason
constexpr std::chrono::milliseconds kRest{1'000};  // of a suspect that nothing passes, at first
constexpr std::chrono::milliseconds kAlone{1'000};  // of one that is under way, at first
constexpr std::chrono::milliseconds kMostAlone{15'000};
constexpr std::chrono::milliseconds kSuspectEvery{50};
constexpr std::chrono::milliseconds kQuiet{250};  // at first
constexpr std::chrono::milliseconds kMostQuiet{4'000};

std::chrono::milliseconds twice(std::chrono::milliseconds wait, std::chrono::milliseconds most) {
    return std::min(2 * wait, most);
}

}  // namespace

EndSearch::EndSearch() : most_quiet_(kQuiet) {}

// Not at its last place of a connection: one that ends each at its third message would have whoever
// is third seem at fault.
bool EndSearch::may_go(std::string_view id, Time now) const {
    const auto found = suspects_.find(id);
    if (found == suspects_.end()) return true;
    const Suspect& suspect = found->second;
    return (suspect.passed != passed_ && suspect.place != passed_here_) ||
           now - suspect.ended_at >= suspect.rest;
}

EndSearch::Turn EndSearch::turn(std::string_view waits, bool idle, Time now) {
    if (idle) {
        alone_ = {};
        is_out_ = false;
    }
    if (std::exchange(seen_, passed_) != passed_) waits_since_ = now;
    if (owed_ > Wait() && passed_here_ > 0) {
        next_suspect_ = std::max(next_suspect_, now + std::exchange(owed_, Wait()));
    }
    if (alone_ > Wait() && now - since_ < alone_) return Turn::kNobody;
    alone_ = {};
    if (waits.empty() || now < next_suspect_) return Turn::kOthers;
    if (!std::exchange(quiet_, true)) since_ = now;
    if (!idle && now - since_ < most_quiet_) return Turn::kNobody;
    quiet_ = false;
    if (!idle) {
        next_suspect_ = now + std::max(kRest, most_quiet_);
        most_quiet_ = twice(most_quiet_, kMostQuiet);
        return Turn::kOthers;
    }
    since_ = now;
    is_out_ = true;
    waits_since_ = now;
    most_quiet_ = kQuiet;
    const auto suspect = suspects_.find(waits);
    alone_ = suspect == suspects_.end() ? kAlone : suspect->second.alone;
    return Turn::kSuspect;
}

void EndSearch::answered(std::string_view id, bool took) {
    if (window_ != SIZE_MAX && ++window_ == kWide) window_ = SIZE_MAX;
    if (const auto suspect = suspects_.find(id); suspect != suspects_.end()) {
        suspects_.erase(suspect);
        is_out_ = false;
    }
    if (!took) return;
    ++passed_;
    ++passed_here_;
    ends_ = 0;
    lone_ends_ = 0;
}

EndSearch::Next EndSearch::ended(std::size_t under_way, std::string_view id, Time now) {
    window_ = 1;
    ++ends_;
    // Others go on for as long as they waited for the last, and not only while it connects anew.
    const bool was_out = std::exchange(is_out_, false);
    owed_ = was_out ? std::chrono::duration_cast<Wait>(now - waits_since_) : Wait();
    owed_ = std::max(owed_, kSuspectEvery);
    next_suspect_ = now + owed_;
    alone_ = {};
    quiet_ = false;
    Next next = Next::kAgain;
    if (under_way == 1) {
        next = judge(id, now);
    } else if (const auto suspect = suspects_.find(id); suspect != suspects_.end()) {
        // The others went beside it too soon to tell.
        suspect->second.alone = twice(suspect->second.alone, kMostAlone);
    }
    passed_here_ = 0;
    return ends_ > kMostEnds ? Next::kOutage : next;
}

EndSearch::Next EndSearch::judge(std::string_view id, Time now) {
    ++lone_ends_;
    if (id.empty()) return Next::kOutage;
    const auto found = suspects_.find(id);
    if (found == suspects_.end()) {
        if (suspects_.size() == kMostSuspects) {
            suspects_.erase(std::min_element(suspects_.begin(), suspects_.end(),
                                             [](const auto& a, const auto& b) {
                                                 return a.second.ended_at < b.second.ended_at;
                                             }));
        }
        suspects_.emplace(id, Suspect{.ended_at = now,
                                      .passed = passed_,
                                      .place = passed_here_,
                                      .alone = kAlone,
                                      .rest = kRest});
        return Next::kAgain;
    }
    Suspect& suspect = found->second;
    suspect.ended_at = now;
    if (std::exchange(suspect.passed, passed_) == passed_) return Next::kOutage;
    if (std::exchange(suspect.place, passed_here_) == passed_here_) {
        suspect.rest = twice(suspect.rest, kMostAlone);
        return Next::kAgain;
    }
    suspect.rest = kRest;
    if (++suspect.evidence < kEvidence) return Next::kAgain;
    --suspect.evidence;  // Its next needs new evidence.
    return Next::kOwnFault;
}

ErrorInfo own_fault(const ErrorInfo& error, std::string_view id) {
    return {ErrorCode::kRecordRefused, Advice::kRetryEvent, error.backend_code,
            "the server ends the connection whenever event " + std::string(id) +
                " is sent, and takes others; see its log. It said: " + error.message};
}

}  // namespace outbox::net
