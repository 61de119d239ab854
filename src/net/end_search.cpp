#include "net/end_search.h"

#include <algorithm>
#include <utility>

namespace outbox::net {
namespace {

constexpr std::size_t kMostSuspects = 1'000;
constexpr std::size_t kWide = 4'096;      // a window of so many is none
constexpr std::uint32_t kMostEnds = 50;   // without anything that passes
constexpr std::uint32_t kEvidence = 2;    // as a circuit asks for, and for the same reason
constexpr std::chrono::seconds kRest{1};  // of a suspect that nothing passes
constexpr std::chrono::milliseconds kSuspectEvery{50};
constexpr std::chrono::milliseconds kMostQuiet{250};

}  // namespace

bool EndSearch::may_go(std::string_view id, Time now) const {
    const auto suspect = suspects_.find(id);
    return suspect == suspects_.end() || suspect->second.passed != passed_ ||
           now - suspect->second.ended_at >= kRest;
}

EndSearch::Turn EndSearch::turn(bool waits, bool idle, Time now) {
    if (idle) suspect_out_ = false;
    if (suspect_out_ && now - since_ < kRest) return Turn::kNobody;
    suspect_out_ = false;
    if (!waits || now < next_suspect_) return Turn::kOthers;
    if (!std::exchange(quiet_, true)) since_ = now;
    if (!idle && now - since_ < kMostQuiet) return Turn::kNobody;
    quiet_ = false;
    since_ = now;
    suspect_out_ = idle;
    if (!idle) next_suspect_ = now + kRest;
    return idle ? Turn::kSuspect : Turn::kOthers;
}

void EndSearch::answered(std::string_view id, bool took) {
    if (window_ != SIZE_MAX && ++window_ == kWide) window_ = SIZE_MAX;
    if (const auto suspect = suspects_.find(id); suspect != suspects_.end()) {
        suspects_.erase(suspect);
    }
    if (!took) return;
    ++passed_;
    ends_ = 0;
    lone_ends_ = 0;
}

EndSearch::Next EndSearch::ended(std::size_t under_way, std::string_view id, Time now) {
    window_ = 1;
    ++ends_;
    next_suspect_ = now + kSuspectEvery;
    suspect_out_ = false;
    quiet_ = false;
    const Next next = under_way > 1 ? Next::kAgain : judge(id, now);
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
        suspects_.emplace(id, Suspect{now, passed_});
        return Next::kAgain;
    }
    Suspect& suspect = found->second;
    suspect.ended_at = now;
    if (std::exchange(suspect.passed, passed_) == passed_) return Next::kOutage;
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
