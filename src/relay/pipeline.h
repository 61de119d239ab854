#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <outbox/spi/sink.h>
#include <outbox/spi/source.h>

#include "codec/raw.h"
#include "core/circuit.h"
#include "core/clock.h"
#include "core/down_parts.h"
#include "core/lanes.h"
#include "relay/lease_view.h"
#include "relay/options.h"
#include "relay/outcome_queue.h"
#include "relay/route_stats.h"

namespace outbox::relay {

/// One route at work: table -> lanes -> sink -> outcomes. `step` is one turn of it; a thread of
/// the relay, or the simulation, calls it again and again. Not thread-safe but for `drain`.
class Pipeline {
  public:
    struct Deps {
        spi::Reader& reader;
        spi::Sink& sink;
        OutcomeQueue& queue;
        const LeaseView& lease;
        const core::Clock& clock;
        RouteStats& stats;
        const Notify& notify;
        const std::atomic<bool>& removals_full;  ///< See `Remover::full`.
    };

    /// What the last owner left of the route.
    struct Inheritance {
        std::string destination;  ///< What it calls itself; empty: not known yet.
        std::vector<spi::Delivery> failing;
        std::vector<std::string> dead_keys;  ///< Keys that dead letters block.
    };

    /// `routes` are all routes of the relay and `index` is this one; both they and `options` must
    /// outlive the pipeline.
    Pipeline(Deps deps, std::size_t index, std::span<RouteSpec> routes, const RelayOptions& options,
             Inheritance inheritance, std::uint64_t seed);

    /// Reads, publishes and collects outcomes once; waits for the sink when there is nothing else
    /// to do, at most `poll_idle_ms`. Not ok: the route must stop (advice kStop).
    Status step();

    /// Stop reading and sending; outcomes are still collected. May be called from any thread.
    void drain() { draining_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] bool drained() const { return lanes_.in_flight() == 0; }

  private:
    static constexpr std::string_view kNoRouteTook = "no route took this event";

    // A destination, or a part of one, is asked at least this often whether it is back.
    static constexpr std::int64_t kCircuitMaxMs = 5'000;

    struct Held {
        spi::EventBatch batch;
        std::uint32_t live = 0;  // events that hold a slot
        std::size_t bytes = 0;
        std::uint64_t serial = 0;  // one for each use
    };
    // The record of the event in a slot, so that sending it again costs no memory.
    struct Encoded {
        spi::Record record;
        std::uint64_t channel = 0;  // the topic's hash
        std::uint64_t serial = 0;
        std::uint32_t index = 0;
        std::uint32_t sends = 0;  // of this slot, so that no token comes twice
    };

    void take_feedback();
    void block_keys(std::span<const std::string> keys);
    void refill(std::int64_t now_us);
    [[nodiscard]] bool refill_some(std::int64_t now_us, std::size_t count);
    void note_size(const spi::EventBatch& batch);
    void read(std::int64_t now_us);
    void admit(std::uint32_t batch_id, std::int64_t now_us);
    void admit_event(std::uint32_t batch_id, std::uint32_t index, std::int64_t now_us);
    [[nodiscard]] static ErrorInfo unmatched(const spi::EventView& event);
    [[nodiscard]] bool is_asked_for(spi::Position position) const;
    void admit_redelivery(spi::DeadLetter&& letter);
    [[nodiscard]] bool identified();
    void publish();
    [[nodiscard]] bool send(core::SlotId slot);
    Result<spi::Record> encode(const spi::EventView& event, Held& held);
    void probe();
    void collect(std::int64_t now_us);
    [[nodiscard]] bool is_under_way(std::uint64_t token);
    void finish(core::SlotId slot, std::int64_t wall_us);
    void fail(core::SlotId slot, const ErrorInfo& error, bool suspect);
    void wait_for_part(core::SlotId slot, const spi::FailedRecord& failed);
    void try_parts(std::int64_t now_us);
    void part_answers(core::LaneKey key);
    void no_longer_told(Position position);
    [[nodiscard]] Advice judge(spi::Position position, const ErrorInfo& error, bool suspect);
    void settle(core::SlotId slot, Advice advice, const ErrorInfo& error);
    void retry_later(core::SlotId slot, const ErrorInfo& error);
    void give_up(core::SlotId slot, const ErrorInfo& error);
    void note_dead(const spi::EventView& event, std::uint32_t attempts, const ErrorInfo& error);
    void redelivery_failed(core::SlotId slot, const ErrorInfo& error, bool for_good);
    [[nodiscard]] bool may_wait_for_events(std::int64_t now_us) const;
    [[nodiscard]] std::int64_t wait_ms(std::int64_t now_us) const;
    void report();
    void note_circuit();
    void note_path();

    [[nodiscard]] core::LaneKey lane_key(const spi::EventView& event) const;
    [[nodiscard]] const spi::EventView& event_of(core::SlotId slot) const;
    std::uint32_t open_batch();
    void let_go(std::uint32_t batch_id, std::uint32_t events);
    void release_waiting();
    [[nodiscard]] std::size_t room() const;
    [[nodiscard]] bool may_read() const;
    [[nodiscard]] bool may_expose(std::size_t spare) const;
    [[nodiscard]] bool may_refill() const;

    Deps deps_;
    std::size_t index_;
    std::span<RouteSpec> routes_;
    RouteSpec& route_;
    const RelayOptions& options_;
    std::unordered_map<std::string, spi::Delivery> failing_before_;  // by event id
    std::mt19937_64 random_;
    // Lanes are told apart by a hash of their keys. Who chooses keys must not be able to choose
    // some that share a lane, and so wait for each other's failures.
    const std::uint64_t lane_seed_;

    core::Lanes lanes_;
    core::Circuit circuit_;
    core::DownParts parts_;
    core::Circuit::State noted_circuit_ = core::Circuit::State::kClosed;
    codec::RawEncoder encoder_;
    std::vector<std::unique_ptr<Held>> batches_;
    std::vector<std::uint32_t> free_batches_;
    std::vector<Encoded> encoded_;  // by slot
    const bool by_topic_;           // a key has records of one topic under way
    std::uint64_t next_serial_ = 1;
    std::size_t held_bytes_ = 0;
    std::deque<std::size_t> dying_bytes_;  // of dead letters on their way to disk, in order
    std::size_t unrecorded_ = 0;           // finished, and not yet on disk

    Outcomes outcomes_;
    Feedback feedback_;
    spi::Completions completions_;
    std::vector<core::LaneKey> going_on_;  // scratch: keys that waited for a part
    std::unordered_set<Position> told_;    // wait for a part, and that is recorded
    std::vector<core::Lanes::Due> due_;    // positions to fetch; kept when fetching fails
    std::vector<Position> positions_;      // scratch of `refill`
    std::vector<std::uint32_t> released_;
    std::unordered_set<core::LaneKey> blocked_keys_;     // by dead letters (block_key)
    std::unordered_multiset<core::LaneKey> dying_keys_;  // of those, not yet on disk
    struct Redelivery {
        std::uint32_t attempts = 0;  // since the operator asked
        std::uint32_t attempts_before = 0;
        bool unmatched = false;
    };
    std::unordered_map<std::int64_t, Redelivery> redeliveries_;  // by dead_id
    std::unordered_set<std::int64_t> redelivering_;
    // Those whose retry is on disk, with the newest look that may have begun before.
    std::unordered_map<std::int64_t, std::uint64_t> settled_redeliveries_;
    std::uint64_t dead_recorded_look_ = 0;  // likewise of the newest dead letter

    std::string destination_;              // what the ledger holds for; empty: not known
    bool identified_ = false;              // the sink leads there
    std::string refused_destination_;      // where it leads in its stead
    std::size_t bytes_per_event_ = 1'024;  // of those read last

    std::int64_t next_read_us_ = 0;
    std::int64_t last_event_us_ = 0;
    std::int64_t read_wait_us_ = 0;
    bool read_more_ = false;  // the last read was full
    bool read_failed_ = false;
    Status fatal_;
    std::atomic<bool> draining_{false};
};

}  // namespace outbox::relay
