#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/lanes.h"
#include "core/retry_policy.h"

namespace outbox::core {

/// Parts of a destination that are down while others answer (a topic, a partition), and the keys
/// that wait for them. Each part is a destination of its own: one key at a time is let go, as a
/// probe, and all of them once a probe has passed. Pure; not thread-safe; times are
/// `Clock::boot_us`.
class DownParts {
  public:
    /// More parts than this are not told apart.
    static constexpr std::size_t kMaxParts = 1'000;

    explicit DownParts(RetryPolicy backoff) : backoff_(backoff) {}

    [[nodiscard]] bool empty() const { return parts_.empty(); }
    [[nodiscard]] std::size_t count() const { return parts_.size(); }
    [[nodiscard]] bool contains(std::string_view name) const { return parts_.contains(name); }

    /// Whether `failed` can be told of this part.
    [[nodiscard]] bool has_room(std::string_view name) const {
        return parts_.size() < kMaxParts || parts_.contains(name);
    }

    /// The part `name` failed on an event of `key`. `waits`: the key waits from now on, until it is
    /// handed out by `take_due` or `passed`; false: it waits already. Precondition: `has_room`.
    void failed(std::string_view name, LaneKey key, bool waits, std::int64_t now_us,
                std::uint64_t random) {
        auto found = parts_.find(name);
        if (found == parts_.end()) found = parts_.emplace(name, Part{}).first;
        Part& part = found->second;
        // What was sent before it was known to be down says nothing about now.
        if (part.failures == 0 || part.probe == key) {
            ++part.failures;
            part.due_us = now_us + backoff_.delay_us(part.failures, random);
            part.probe.reset();
        }
        if (waits) part.keys.push_back(key);
    }

    /// Appends the keys whose turn it is to be tried. A probe of which nothing is heard (its row
    /// was removed) gives way to the next; a part for which no key waits any more is forgotten.
    void take_due(std::int64_t now_us, std::vector<LaneKey>& out) {
        for (auto it = parts_.begin(); it != parts_.end();) {
            Part& part = it->second;
            if (now_us < part.due_us) {
                ++it;
            } else if (part.keys.empty()) {
                it = parts_.erase(it);
            } else {
                part.probe = part.keys.front();
                part.keys.pop_front();
                out.push_back(*part.probe);
                part.due_us = now_us + backoff_.max_ms * 1000;
                ++it;
            }
        }
    }

    /// What was heard of an event of `key` says nothing of the parts of which it was the probe,
    /// other than `failed_part`: their next one may go now.
    void heard(LaneKey key, std::string_view failed_part, std::int64_t now_us) {
        for (auto& [name, part] : parts_) {
            if (part.probe != key || name == failed_part) continue;
            part.probe.reset();
            part.due_us = now_us;
        }
    }

    /// An event of `key` was published. Appends the keys that waited for the part of which it was
    /// the probe, and says which that is.
    std::optional<std::string> passed(LaneKey key, std::vector<LaneKey>& out) {
        for (auto it = parts_.begin(); it != parts_.end(); ++it) {
            if (it->second.probe != key) continue;
            out.insert(out.end(), it->second.keys.begin(), it->second.keys.end());
            std::string name = it->first;
            parts_.erase(it);
            return name;
        }
        return std::nullopt;
    }

    /// When `take_due` has something to do; INT64_MAX: never.
    [[nodiscard]] std::int64_t next_due_us() const {
        std::int64_t next_us = std::numeric_limits<std::int64_t>::max();
        for (const auto& [name, part] : parts_) next_us = std::min(next_us, part.due_us);
        return next_us;
    }

  private:
    struct Part {
        std::uint32_t failures = 0;
        std::int64_t due_us = 0;
        std::deque<LaneKey> keys;  // in the order in which they failed
        std::optional<LaneKey> probe;
    };

    RetryPolicy backoff_;
    std::map<std::string, Part, std::less<>> parts_;
};

}  // namespace outbox::core
