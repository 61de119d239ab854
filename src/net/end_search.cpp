#include "net/end_search.h"

#include <algorithm>
#include <functional>
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
constexpr std::size_t kLives = 16;                 // that are kept
constexpr std::chrono::milliseconds kLate{1'000};  // no server ends connections so young by age

std::chrono::milliseconds twice(std::chrono::milliseconds wait, std::chrono::milliseconds most) {
    return std::min(2 * wait, most);
}

std::size_t hash_of(std::string_view id) {
    return std::hash<std::string_view>{}(id);
}

// By which it is told whether others of its kind pass.
std::string_view key_of(const spi::Record& record) {
    return record.key.empty() ? record.topic : record.key;
}

}  // namespace

EndSearch::EndSearch() : most_quiet_(kQuiet) {}

bool EndSearch::may_go(std::string_view id, Time now) const {
    const auto found = suspects_.find(id);
    if (found == suspects_.end()) return true;
    const Suspect& suspect = found->second;
    return !suspect.was_first || suspect.passed != passed_ || now - suspect.ended_at >= kRest;
}

bool EndSearch::is_stranger(const spi::Record& record) const {
    return is_on() && !passed_keys_.has(key_of(record));
}

bool EndSearch::may_go_beside_strangers(std::uint64_t token) const {
    const bool is_doubted = doubted_.contains(token);
    if (strangers_.empty()) return true;
    return doubted_.contains(*strangers_.begin()) == is_doubted &&
           strangers_.size() < (is_doubted ? doubted_window_ : strangers_window_);
}

bool EndSearch::may_stranger_go(const spi::Record& record, bool others_wait, Time now) const {
    if (!is_on()) return true;
    if (!may_go_beside_strangers(record.token)) return false;
    return !others_wait || (!owes_ && now >= next_stranger_);
}

EndSearch::Turn EndSearch::turn(const Waits& waits, Line line, Time now) {
    const bool idle = line != Line::kBusy;
    if (idle) {
        alone_ = {};
        is_out_ = false;
    }
    if (std::exchange(was_busy_, false) || !idle) busy_at_ = now;
    look_for_answers(idle, now);
    make_good(now);
    if (alone_ > Wait() && now - since_ < alone_) return Turn::kNobody;
    alone_ = {};
    if (waits.suspect.empty() || now < next_suspect_ || (waits.others && !has_passed())) {
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
    is_beside_ = false;
    owes_ = true;
    most_quiet_ = kQuiet;
    const auto suspect = suspects_.find(waits.suspect);
    alone_ = suspect == suspects_.end() ? kAlone : suspect->second.alone;
    return Turn::kSuspect;
}

// From when one of them has passed others go on for as long as they waited, and not only while it
// connects anew; and for as long again the newest strangers.
void EndSearch::make_good(Time now) {
    const bool passes = std::exchange(seen_, passed_) != passed_;
    if (!is_out_ && has_passed() && std::exchange(owes_, false)) {
        const Clock::duration waited = now - waits_since_;
        next_suspect_ = std::max(next_suspect_, now + waited);
        next_stranger_ = now + waited;
        newest_until_ = now + 2 * waited;
    }
    if (passes) waits_since_ = now;
}

// Others do not wait for what is not answered.
void EndSearch::look_for_answers(bool idle, Time now) {
    if (std::exchange(seen_answers_, answers_) != answers_ || idle) answered_at_ = now;
    if (!is_on() || window_ == SIZE_MAX || now - answered_at_ < kAlone) return;
    answered_at_ = now;
    ++window_;
    if (strangers_.size() == 1) {
        if (!slow_) slow_ = *strangers_.begin();
        strangers_.clear();
    } else {
        ++strangers_window_;
        ++doubted_window_;
    }
}

void EndSearch::began(std::size_t host, Time now) {
    host_ = host;
    began_at_ = now;
    busy_at_ = now;
    was_busy_ = false;
    is_out_ = false;
    strangers_.clear();
    slow_.reset();
}

void EndSearch::sent(const spi::Record& record) {
    was_busy_ = true;
    if (!is_on() || is_suspect(record.id)) return;
    if (is_out_) is_beside_ = true;
    if (is_stranger(record)) strangers_.insert(record.token);
}

void EndSearch::answered(const spi::Record& record, bool took) {
    if (window_ != SIZE_MAX) window_ = window_ + 1 < kWide ? window_ + 1 : SIZE_MAX;
    if (const auto suspect = suspects_.find(record.id); suspect != suspects_.end()) {
        suspects_.erase(suspect);
        is_out_ = false;
    }
    ++answers_;
    if (slow_ == record.token) slow_.reset();
    const bool was_doubted = !doubted_.empty() && doubted_.erase(record.token) > 0;
    if (!strangers_.empty() && strangers_.erase(record.token) > 0) {
        ++(was_doubted ? doubted_window_ : strangers_window_);
    }
    if (!took) return;
    passed_keys_.add(key_of(record));
    ++passed_;
    if (is_on()) ++passed_at_[host_];
    ends_ = 0;
}

EndSearch::Next EndSearch::ended(const Records& under_way, Time now) {
    ++ends_;
    Next next = Next::kAgain;
    if (!under_way.empty()) {
        window_ = 1;
        // Ends for others delay no suspect: there may be one for each that passes.
        if (owes_) {
            next_suspect_ = now + std::max<Clock::duration>(now - waits_since_, kSuspectEvery);
        }
        alone_ = {};
        quiet_ = false;
        const bool was_out = std::exchange(is_out_, false);
        if (was_out) next = ended_with_suspect(under_way, now);
        if (!was_out || !strangers_.empty()) {
            const Next of_others = ended_with_others(under_way, now);
            if (!was_out) next = of_others;
        }
        strangers_.clear();
        slow_.reset();
    }
    return ends_ > kMostEnds ? Next::kOutage : next;
}

void EndSearch::given_up(const spi::Record& record) {
    strangers_.erase(record.token);
    doubted_.erase(record.token);
    if (slow_ == record.token) slow_.reset();
    if (is_suspect(record.id)) is_out_ = false;
}

void EndSearch::ended_idle(Time now) {
    if (!is_on()) return;
    keep_life(now - began_at_, {});
    keep_life(now - busy_at_, {});
}

void EndSearch::away() {
    owes_ = false;
    quiet_ = false;
    doubted_.clear();
}

EndSearch::Next EndSearch::ended_with_suspect(const Records& under_way, Time now) {
    const spi::Record& first = *under_way.front();
    if (under_way.size() == 1 && !is_beside_) return judge(first, true, now);
    // They went beside it too soon to tell, unless it was time for the connection to end.
    if (const auto found = suspects_.find(first.id); found != suspects_.end()) {
        Wait& alone = found->second.alone;
        alone = is_its_age(first.id, now) ? kAlone : twice(alone, kMostAlone);
    }
    return Next::kAgain;
}

// Where one stranger was among them it is that, and that for which others waited; else each may be.
EndSearch::Next EndSearch::ended_with_others(const Records& under_way, Time now) {
    Records doubtful;
    Next next = Next::kAgain;
    keep_life(now - began_at_, under_way);
    for (const spi::Record* record : under_way) {
        if (slow_ == record->token) next = judge(*record, false, now);
        if (strangers_.contains(record->token)) doubtful.push_back(record);
    }
    if (slow_ || !doubtful.empty()) {
        if (!std::exchange(owes_, true)) waits_since_ = now;
        newest_until_ = Time::max();
    } else {
        doubtful = under_way;
        for (const spi::Record* record : under_way) passed_keys_.remove(key_of(*record));
    }
    strangers_window_ = 1;
    doubted_window_ = 1;
    const bool is_one = doubtful.size() == 1;
    for (const spi::Record* record : doubtful) {
        if (is_one) {
            doubted_.erase(record->token);
        } else {
            doubted_.insert(record->token);
        }
    }
    return is_one ? judge(*doubtful.front(), false, now) : next;
}

void EndSearch::suspect(const spi::Record& record, Time now) {
    if (suspects_.size() == kMostSuspects) {
        suspects_.erase(std::min_element(
            suspects_.begin(), suspects_.end(),
            [](const auto& a, const auto& b) { return a.second.ended_at < b.second.ended_at; }));
    }
    suspects_.emplace(record.id, Suspect{.ended_at = now, .passed = passed_, .alone = kAlone});
}

EndSearch::Next EndSearch::judge(const spi::Record& record, bool was_first, Time now) {
    ++found_;
    if (record.id.empty()) return Next::kOutage;
    const auto found = suspects_.find(record.id);
    if (found == suspects_.end()) {
        suspect(record, now);
        return Next::kAgain;
    }
    Suspect& suspect = found->second;
    suspect.ended_at = now;
    const bool was_before = std::exchange(suspect.was_first, was_first);
    const bool passes = std::exchange(suspect.passed, passed_) != passed_;
    const bool was_here = std::exchange(suspect.host, host_) == host_;
    const std::uint64_t passed_here = passed_at_[host_];
    const bool passes_here = std::exchange(suspect.passed_there, passed_here) != passed_here;
    if (!was_before || !was_first) return Next::kAgain;
    if (!passes) return Next::kOutage;
    const bool is_age = is_its_age(record.id, now);
    if (is_age) suspect.alone = kAlone;
    if (!was_here || !passes_here || is_age) return Next::kAgain;
    if (++suspect.evidence < kEvidence) return Next::kAgain;
    --suspect.evidence;  // Its next needs new evidence.
    return Next::kOwnFault;
}

void EndSearch::keep_life(Clock::duration time, const Records& under_way) {
    if (time < kLate) return;
    if (lives_.size() == kLives) lives_.pop_front();
    lives_.push_back({time, {}});
    for (const spi::Record* record : under_way) {
        lives_.back().under_way.push_back(hash_of(record->id));
    }
}

// Whether connections of late ended at the age of this one without it. What ends a connection at
// once needs no such doubt.
bool EndSearch::is_its_age(std::string_view id, Time now) const {
    const Clock::duration age = now - began_at_;
    return std::any_of(lives_.begin(), lives_.end(), [&](const Life& life) {
        const Clock::duration apart = age < life.time ? life.time - age : age - life.time;
        const auto& with = life.under_way;
        return apart <= life.time / 4 &&
               std::find(with.begin(), with.end(), hash_of(id)) == with.end();
    });
}

ErrorInfo outage(const ErrorInfo& error, const EndSearch::Records& under_way) {
    ErrorInfo told = error;
    if (under_way.size() == 1 && !under_way.front()->id.empty()) {
        told.message +=
            "; it ended while event " + std::string(under_way.front()->id) + " alone was under way";
    }
    return told;
}

ErrorInfo own_fault(const ErrorInfo& error, std::string_view id) {
    return {ErrorCode::kRecordRefused, Advice::kRetryEvent, error.backend_code,
            "the server ends the connection whenever event " + std::string(id) +
                " is sent, and takes others; see its log. It said: " + error.message};
}

}  // namespace outbox::net
