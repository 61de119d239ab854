#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "core/check.h"

namespace outbox::relay {

/// Dead letters that an operator wants sent again. The database offers each until its retry is on
/// disk, so that what is under way, or settled since that look began, must not be taken again.
/// By `dead_id`. Pure; not thread-safe.
class Redeliveries {
  public:
    struct State {
        std::uint32_t attempts = 0;         ///< Failed since the operator asked.
        std::uint32_t attempts_before = 0;  ///< And before that.
        bool unmatched = false;             ///< It died because no route took it.
        std::uint32_t waits = 0;            ///< Times that it met a part that is down.
        std::int64_t not_before_us = 0;     ///< For that, by `Clock::boot_us`.
    };

    [[nodiscard]] std::size_t under_way() const { return under_way_.size(); }
    [[nodiscard]] bool is_under_way(std::int64_t dead_id) const {
        return under_way_.contains(dead_id);
    }
    /// Takes it on; the state of an earlier failed attempt, if there was one.
    State& begin(std::int64_t dead_id) {
        under_way_.insert(dead_id);
        return states_[dead_id];
    }
    /// Of one that is under way.
    [[nodiscard]] const State& state(std::int64_t dead_id) const {
        const auto found = states_.find(dead_id);
        OUTBOX_CHECK(found != states_.end(), "a dead letter that is sent again was taken on");
        return found->second;
    }

    /// It met a part of the destination that is down, and is not to be taken on before the wait
    /// that `delay_us` gives for the n-th time. That number.
    template <typename Delay>
    std::uint32_t waits_for_part(std::int64_t dead_id, std::int64_t now_us, const Delay& delay_us) {
        State& state = states_[dead_id];
        state.not_before_us = now_us + delay_us(++state.waits);
        return state.waits;
    }
    [[nodiscard]] bool is_waiting(std::int64_t dead_id, std::int64_t now_us) const {
        const auto found = states_.find(dead_id);
        return found != states_.end() && now_us < found->second.not_before_us;
    }
    /// It waits for the next look, which offers it again after `attempts` failed ones.
    void offered_again(std::int64_t dead_id, std::uint32_t attempts) {
        under_way_.erase(dead_id);
        states_[dead_id].attempts = attempts;
    }
    /// Published, or given up on: under way until that is on disk.
    void ended(std::int64_t dead_id) { states_.erase(dead_id); }

    /// These are on disk; `newest_look` may have begun before.
    void recorded(std::span<const std::int64_t> dead_ids, std::uint64_t newest_look) {
        for (const std::int64_t dead_id : dead_ids) {
            under_way_.erase(dead_id);
            settled_[dead_id] = newest_look;
        }
    }
    /// Whether a look may have found it before its retry was on disk.
    [[nodiscard]] bool is_stale(std::int64_t dead_id, std::uint64_t look) const {
        const auto settled = settled_.find(dead_id);
        return settled != settled_.end() && look <= settled->second;
    }
    /// All looks before this one have been answered.
    void forget_before(std::uint64_t look) {
        std::erase_if(settled_, [&](const auto& settled) { return settled.second < look; });
    }

  private:
    std::unordered_map<std::int64_t, State> states_;
    std::unordered_set<std::int64_t> under_way_;
    // With the newest look that may have begun before the retry was on disk.
    std::unordered_map<std::int64_t, std::uint64_t> settled_;
};

}  // namespace outbox::relay
