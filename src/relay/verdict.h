#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include <outbox/spi/sink.h>
#include <outbox/spi/source.h>

#include "core/flapping.h"
#include "relay/flow.h"

namespace outbox::relay {

/// What the outcome of a record means: whose fault a failure is, and what becomes of the event and
/// of those behind it. Each call ends what the slot has in flight. One thread's.
class Verdict {
  public:
    static constexpr std::string_view kNoRouteTook = "no route took this event";

    explicit Verdict(Flow& flow) : flow_(flow) {}

    /// Acknowledged at `wall_us`.
    void published(core::SlotId slot, std::int64_t wall_us);
    void failed(core::SlotId slot, const spi::FailedRecord& failed);
    /// It went wrong before the destination was asked, which says nothing about the destination.
    void not_sent(core::SlotId slot, const ErrorInfo& error) { settle(slot, error.advice, error); }

    /// One key of each part whose turn it is goes to see whether the part is back.
    void try_parts(std::int64_t now_us);

    /// From now on these keys are blocked by dead letters, and those whose letter is on its way to
    /// the database.
    void block_keys(std::span<const spi::DeadKey> keys);
    /// The dead letters of these lanes are on disk, in the order in which they were given up on.
    void letters_recorded(std::span<const core::LaneKey> lanes);

  private:
    void wait_for_part(core::SlotId slot, const spi::FailedRecord& failed);
    void part_answers(core::LaneKey key);
    [[nodiscard]] bool to_be_told_down(const std::string& part, std::int64_t now_us);
    [[nodiscard]] bool to_be_told_up(const std::string& part, std::int64_t now_us);
    void tell_settled_parts(std::int64_t now_us);
    void tell_up(const std::string& part);
    void parts_next(core::SlotId slot);
    void whose_fault(core::SlotId slot, const ErrorInfo& error, bool suspect);
    [[nodiscard]] Advice judge(core::EventRef event, const ErrorInfo& error, bool suspect);
    void settle(core::SlotId slot, Advice advice, const ErrorInfo& error);
    void retry_later(core::SlotId slot, const ErrorInfo& error);
    void give_up(core::SlotId slot, const ErrorInfo& error);
    void redelivery_failed(core::SlotId slot, const ErrorInfo& error, bool for_good);
    void redelivery_over(core::SlotId slot);
    void tell_failed(core::SlotId slot, std::uint32_t attempts, std::int64_t delay_us,
                     const ErrorInfo& error);
    void note_dead(const spi::EventView& event, std::uint32_t attempts, const ErrorInfo& error);

    Flow& flow_;
    std::vector<core::LaneKey> going_on_;               // scratch: keys that waited for a part
    std::map<std::string, core::Flapping> told_parts_;  // that were down, or lately
    std::int64_t look_at_told_parts_us_ = 0;
    std::unordered_set<core::LaneKey> blocked_keys_;     // by dead letters (block_key)
    std::unordered_multiset<core::LaneKey> dying_keys_;  // of those, not yet on disk
};

}  // namespace outbox::relay
