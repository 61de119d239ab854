#include "net/end_search.h"

#include <algorithm>
#include <utility>

namespace outbox::net {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostSuspects = 1'000;
constexpr std::size_t kWide = 4'096;               // a window of so many is none
constexpr std::uint32_t kMostEnds = 50;            // without anything that passes
constexpr std::uint32_t kEvidence = 2;             // as a circuit asks for, and for the same reason
constexpr std::chrono::milliseconds kRest{1'000};  // of a suspect that nothing passes
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

bool EndSearch::may_go(std::string_view id, Time now) const {
    const auto found = suspects_.find(id);
    if (found == suspects_.end()) return true;
    const Suspect& suspect = found->second;
    return !suspect.was_first || suspect.passed != passed_ || now - suspect.ended_at >= kRest;
}

EndSearch::Turn EndSearch::turn(std::string_view waits, Line line, Time now) {
    const bool idle = line != Line::kBusy;
    if (idle) {
        alone_ = {};
        is_out_ = false;
    }
    make_good(now);
    if (alone_ > Wait() && now - since_ < alone_) return Turn::kNobody;
    alone_ = {};
    if (waits.empty() || now < next_suspect_) {
        quiet_ = false;
        return Turn::kOthers;
    }
    if (!std::exchange(quiet_, true)) since_ = waits_since_ = now;
    if (!idle && now - since_ < most_quiet_) return Turn::kNobody;
    if (line == Line::kIdle) return Turn::kFresh;
    quiet_ = false;
    if (!idle) {
        next_suspect_ = now + std::max(kRest, most_quiet_);
        most_quiet_ = twice(most_quiet_, kMostQuiet);
        return Turn::kOthers;
    }
    since_ = now;
    is_out_ = true;
    owes_ = true;
    most_quiet_ = kQuiet;
    const auto suspect = suspects_.find(waits);
    alone_ = suspect == suspects_.end() ? kAlone : suspect->second.alone;
    return Turn::kSuspect;
}

// From when one of them has passed others go on for as long as they waited, and not only while it
// connects anew.
void EndSearch::make_good(Time now) {
    const bool passes = std::exchange(seen_, passed_) != passed_;
    if (!is_out_ && has_passed() && std::exchange(owes_, false)) {
        next_suspect_ = std::max(next_suspect_, now + (now - waits_since_));
    }
    if (passes) waits_since_ = now;
}

void EndSearch::answered(std::string_view id, bool took) {
    if (window_ != SIZE_MAX) window_ = window_ + 1 < kWide ? window_ + 1 : SIZE_MAX;
    if (const auto suspect = suspects_.find(id); suspect != suspects_.end()) {
        suspects_.erase(suspect);
        is_out_ = false;
    }
    if (!took) return;
    ++passed_;
    ends_ = 0;
    lone_ends_ = 0;
}

EndSearch::Next EndSearch::ended(std::size_t under_way, std::string_view id, Time now) {
    window_ = 1;
    ++ends_;
    // Ends for others delay no suspect: there may be one for each that passes.
    if (owes_) next_suspect_ = now + std::max<Clock::duration>(now - waits_since_, kSuspectEvery);
    alone_ = {};
    quiet_ = false;
    const bool was_first = std::exchange(is_out_, false);
    Next next = Next::kAgain;
    if (under_way == 1) {
        next = judge(id, was_first, now);
    } else if (const auto suspect = suspects_.find(id); suspect != suspects_.end()) {
        // The others went beside it too soon to tell.
        suspect->second.alone = twice(suspect->second.alone, kMostAlone);
    }
    return ends_ > kMostEnds ? Next::kOutage : next;
}

void EndSearch::away() {
    owes_ = false;
    quiet_ = false;
}

EndSearch::Next EndSearch::judge(std::string_view id, bool was_first, Time now) {
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
        suspects_.emplace(id, Suspect{.ended_at = now, .passed = passed_, .alone = kAlone});
        return Next::kAgain;
    }
    Suspect& suspect = found->second;
    suspect.ended_at = now;
    const bool was_before = std::exchange(suspect.was_first, was_first);
    const bool passes = std::exchange(suspect.passed, passed_) != passed_;
    if (!was_before || !was_first) return Next::kAgain;
    if (!passes) return Next::kOutage;
    if (++suspect.evidence < kEvidence) return Next::kAgain;
    --suspect.evidence;  // Its next needs new evidence.
    return Next::kOwnFault;
}

ErrorInfo outage(const ErrorInfo& error, std::size_t under_way, std::string_view id) {
    ErrorInfo told = error;
    if (under_way == 1 && !id.empty()) {
        told.message += "; it ended while event " + std::string(id) + " alone was under way";
    }
    return told;
}

ErrorInfo own_fault(const ErrorInfo& error, std::string_view id) {
    return {ErrorCode::kRecordRefused, Advice::kRetryEvent, error.backend_code,
            "the server ends the connection whenever event " + std::string(id) +
                " is sent, and takes others; see its log. It said: " + error.message};
}

}  // namespace outbox::net
