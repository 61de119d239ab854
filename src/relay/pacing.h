#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <outbox/spi/source.h>

#include "relay/flow.h"

namespace outbox::relay {

/// When a route reads, what it fetches again, and how what was read comes into its lanes. Keeps
/// what is held within the limits of `RelayOptions`. One thread's.
class Pacing {
  public:
    struct Deps {
        spi::Reader& reader;
        std::span<RouteSpec> routes;             ///< All of the relay; must outlive this.
        std::size_t index;                       ///< Of this one among them.
        const std::atomic<bool>& removals_full;  ///< See `Remover::full`.
    };

    /// `failing`: what the last owner of the lease left of it.
    Pacing(Flow& flow, const Deps& deps, std::vector<spi::Delivery> failing);

    /// Keys whose wait is over get their events back into memory, as many as it has room for.
    void refill(std::int64_t now_us);
    /// Reads the next events where the time has come and there is room, and takes back what was
    /// set aside, each first in turn: neither takes all the room.
    void fill(std::int64_t now_us);
    /// These tenants are paused, and no others, as soon as that keeps the order of their keys.
    void pause(std::vector<std::string> tenants);
    /// Takes a dead letter that an operator wants sent again; the database offers it again where
    /// there is no room.
    void admit_redelivery(spi::DeadLetter&& letter);

    /// Waits for events in place of the sink, where the reader can. False: it cannot.
    bool wait_for_events(std::chrono::milliseconds wait, std::int64_t now_us);
    /// Whether the reader can end such a wait, so that outcomes, which come first, are to be quick.
    [[nodiscard]] bool reader_wakes() const;
    /// The last read returned as much as it might, so that another follows at once.
    [[nodiscard]] bool more_follows() const { return more_follows_; }
    /// Whether only the reader can end a wait early: nothing is under way and reading follows.
    [[nodiscard]] bool waits_for_events() const;
    /// When it has something to do again.
    [[nodiscard]] std::int64_t next_us(std::int64_t now_us) const;

  private:
    void read(std::int64_t now_us);
    void take_back(std::int64_t now_us);
    [[nodiscard]] std::size_t room() const;
    [[nodiscard]] bool may_read() const;
    [[nodiscard]] bool is_stuck() const;
    void give_way();
    [[nodiscard]] bool wants_probe() const;
    [[nodiscard]] bool lacks_probe() const;
    [[nodiscard]] bool may_refill() const;
    [[nodiscard]] bool may_take_back() const;
    [[nodiscard]] bool return_due();
    [[nodiscard]] bool refill_some(std::int64_t now_us, std::size_t count);
    void read_failed(const ErrorInfo& error, std::int64_t now_us);
    void read_recovered();
    void note_path();
    [[nodiscard]] std::span<const std::string> aside();
    void admit(std::uint32_t batch_id, std::int64_t now_us);
    struct Failed {
        std::uint32_t attempts = 0;
        std::int64_t due_us = 0;
    };
    [[nodiscard]] Failed failed_before(const spi::EventView& event, std::int64_t now_us);
    /// False: it was set aside.
    bool admit_event(std::uint32_t batch_id, std::uint32_t index, std::int64_t now_us);
    void enter(std::uint32_t batch_id, std::uint32_t index, core::TenantId tenant,
               std::uint32_t attempts, std::int64_t due_us, std::int64_t now_us);
    void pause_now();
    [[nodiscard]] bool is_wanted(const spi::EventView& event);

    Flow& flow_;
    Deps deps_;
    std::unordered_map<std::string, spi::Delivery> failing_before_;  // by event id

    std::vector<core::Lanes::Due> due_;     // positions to fetch; kept when fetching fails
    std::vector<TenantQueues::Back> back_;  // scratch of `take_back`
    std::vector<spi::Position> positions_;  // scratch of `refill` and `take_back`
    std::vector<core::SlotId> letters_;     // scratch of `give_way`
    std::vector<std::string> aside_;        // scratch of `read`
    std::optional<std::vector<std::string>> to_pause_;

    std::int64_t next_read_us_ = 0;
    std::int64_t last_event_us_ = 0;
    std::int64_t read_wait_us_;
    bool more_follows_ = false;
    bool read_failed_ = false;
    bool back_first_ = true;
    bool reading_through_ = false;   // most of a full batch was set aside
    std::int64_t next_back_us_ = 0;  // not earlier while reading through
};

}  // namespace outbox::relay
