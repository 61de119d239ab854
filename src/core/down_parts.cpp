#include "core/down_parts.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace outbox::core {
namespace {

constexpr std::int64_t kUsPerS = 1'000'000;
constexpr std::int64_t kUsPerProbe = kUsPerS / DownParts::kProbesPerSecond;
// A probe has an outcome before, also behind all that a slow destination may have under way.
constexpr std::int64_t kProbeLostUs = 300 * kUsPerS;

}  // namespace

DownParts::DownParts(RetryPolicy backoff)
    : backoff_(backoff), lone_backoff_{backoff.max_ms, kLoneMaxMs, 0}, credit_us_(kUsPerS) {}

DownParts::News DownParts::failed(std::string_view name, LaneKey key, bool waits,
                                  std::int64_t now_us, std::uint64_t random) {
    const auto was = no_longer_probing(key, now_us);
    auto part = parts_.find(name);
    News news = News::kNone;
    if (parts_.size() < kMaxParts && lone_.empty()) told_too_many_ = false;
    if (part == parts_.end() && parts_.size() >= kMaxParts) {
        const std::uint32_t failures = (was ? was->failures : 0) + 1;
        if (waits) lone_.push({now_us + lone_backoff_.delay_us(failures, random), key, failures});
        return std::exchange(told_too_many_, true) ? News::kNone : News::kTooMany;
    }
    if (part == parts_.end()) {
        part = parts_.emplace(name, Part{}).first;
        const auto before = forgotten_.find(name);
        if (before == forgotten_.end() || before->second <= now_us) news = News::kPart;
        if (before != forgotten_.end()) forgotten_.erase(before);
    }
    // What was sent before it was known to be down says nothing about now.
    const bool is_probe = was && was->part == part;
    if (part->second.failures == 0 || is_probe) {
        ++part->second.failures;
        set_due(part, now_us + backoff_.delay_us(part->second.failures, random));
    }
    if (waits) part->second.keys.push_back(key);
    return news;
}

void DownParts::take_due(std::int64_t now_us, std::size_t under_way, std::vector<LaneKey>& out) {
    give_up_probes(now_us);
    earn(now_us);
    const std::size_t most = most_probing(under_way);
    while (credit_us_ >= kUsPerProbe && probing_.size() < most) {
        // In turns, as either may be many.
        lone_turn_ = !lone_turn_;
        if (lone_turn_ ? try_lone(now_us, out) || try_part(now_us, out)
                       : try_part(now_us, out) || try_lone(now_us, out)) {
            credit_us_ -= kUsPerProbe;
            continue;
        }
        return;
    }
}

void DownParts::heard(LaneKey key, std::int64_t now_us) {
    static_cast<void>(no_longer_probing(key, now_us));
}

std::optional<std::string> DownParts::passed(LaneKey key, std::int64_t now_us,
                                             std::vector<LaneKey>& out) {
    const auto found = probing_.find(key);
    if (found == probing_.end()) return std::nullopt;
    const Parts::iterator part = found->second.part;
    given_up_.erase({found->second.until_us, key});
    probing_.erase(found);
    earn(now_us);
    credit_us_ = std::min(credit_us_ + kEarned * kUsPerProbe, kMostEarned * kUsPerProbe);
    if (part == parts_.end()) {
        if (lone_.empty()) told_too_many_ = false;
        return std::nullopt;
    }
    out.insert(out.end(), part->second.keys.begin(), part->second.keys.end());
    due_.erase({part->second.due_us, part->first});
    return std::move(parts_.extract(part).key());
}

std::int64_t DownParts::next_due_us(std::size_t under_way) const {
    std::int64_t next_us = std::numeric_limits<std::int64_t>::max();
    if (!given_up_.empty()) next_us = given_up_.begin()->first;
    if (probing_.size() >= most_probing(under_way)) return next_us;
    std::int64_t due_us = std::numeric_limits<std::int64_t>::max();
    if (!due_.empty()) due_us = due_.begin()->first;
    if (!lone_.empty()) due_us = std::min(due_us, lone_.top().due_us);
    if (due_us == std::numeric_limits<std::int64_t>::max()) return next_us;
    const std::int64_t missing_us = std::max<std::int64_t>(0, kUsPerProbe - credit_us_);
    return std::min(next_us, std::max(due_us, credited_us_ + missing_us));
}

// Of a part whose probe it was, the next one may go now.
std::optional<DownParts::Probing> DownParts::no_longer_probing(LaneKey key, std::int64_t now_us) {
    const auto found = probing_.find(key);
    if (found == probing_.end()) return std::nullopt;
    const Probing probing = found->second;
    given_up_.erase({probing.until_us, key});
    probing_.erase(found);
    if (probing.part != parts_.end()) {
        probing.part->second.probe.reset();
        set_due(probing.part, now_us);
    }
    return probing;
}

void DownParts::set_due(Parts::iterator part, std::int64_t due_us) {
    due_.erase({part->second.due_us, part->first});
    part->second.due_us = due_us;
    due_.insert({due_us, part->first});
}

// No key waits for it, and nobody has heard that it is back.
void DownParts::forget(Parts::iterator part, std::int64_t now_us) {
    if (forgotten_.size() >= kMaxParts) {
        forgotten_.erase(
            std::min_element(forgotten_.begin(), forgotten_.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; }));
    }
    forgotten_[part->first] = now_us + kToldForUs;
    due_.erase({part->second.due_us, part->first});
    parts_.erase(part);
}

void DownParts::give_up_probes(std::int64_t now_us) {
    while (!given_up_.empty() && given_up_.begin()->first <= now_us) {
        heard(given_up_.begin()->second, now_us);
    }
}

void DownParts::begin_probe(LaneKey key, const Probing& probing, std::vector<LaneKey>& out) {
    heard(key, probing.until_us - kProbeLostUs);
    probing_.emplace(key, probing);
    given_up_.emplace(probing.until_us, key);
    out.push_back(key);
}

// False: no part's turn has come.
bool DownParts::try_part(std::int64_t now_us, std::vector<LaneKey>& out) {
    while (!due_.empty() && due_.begin()->first <= now_us) {
        const auto part = parts_.find(due_.begin()->second);
        if (part->second.keys.empty()) {
            forget(part, now_us);
            continue;
        }
        const LaneKey key = part->second.keys.front();
        part->second.keys.pop_front();
        const std::int64_t until_us = now_us + kProbeLostUs;
        begin_probe(key, {part, 0, until_us}, out);
        part->second.probe = key;
        set_due(part, until_us);
        return true;
    }
    return false;
}

bool DownParts::try_lone(std::int64_t now_us, std::vector<LaneKey>& out) {
    if (lone_.empty() || lone_.top().due_us > now_us) return false;
    const Lone lone = lone_.top();
    lone_.pop();
    begin_probe(lone.key, {parts_.end(), lone.failures, now_us + kProbeLostUs}, out);
    return true;
}

void DownParts::earn(std::int64_t now_us) {
    const std::int64_t passed_us = now_us - std::exchange(credited_us_, now_us);
    if (credit_us_ < kUsPerS) credit_us_ = std::min(kUsPerS, credit_us_ + passed_us);
}

std::size_t DownParts::most_probing(std::size_t under_way) {
    return std::max(kMostProbing, under_way / kShareOfUnderWay);
}

}  // namespace outbox::core
