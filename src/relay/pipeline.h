#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <outbox/spi/sink.h>
#include <outbox/spi/source.h>

#include "codec/encoder.h"
#include "core/flapping.h"
#include "relay/flow.h"
#include "relay/lease_view.h"
#include "relay/options.h"
#include "relay/outcome_queue.h"
#include "relay/pacing.h"
#include "relay/publish_spans.h"
#include "relay/route_stats.h"
#include "relay/verdict.h"

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
        std::vector<spi::DeadKey> dead_keys;  ///< Keys that dead letters block.
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
    [[nodiscard]] bool drained() const { return flow_.lanes.in_flight() == 0; }

    /// After the last step: what the sink still has to tell.
    void report_last() { report(deps_.clock.boot_us(), true); }

  private:
    // The record of the event in a slot, so that sending it again costs no memory.
    struct Encoded {
        spi::Record record;
        std::uint64_t channel = 0;  // the topic's hash
        std::uint64_t serial = 0;
        std::uint32_t index = 0;
        std::uint32_t sends = 0;   // of this slot, so that no token comes twice
        std::int64_t sent_us = 0;  // Unix epoch; 0: nobody wants to know
    };

    void take_feedback();
    [[nodiscard]] bool identified();
    void publish();
    void probe();
    [[nodiscard]] bool send(core::SlotId slot);
    Result<spi::Record> encode(const core::Work& work);
    [[nodiscard]] bool is_asked_for(const core::Work& work) const;
    void collect(std::int64_t now_us);
    void tell_recorded(std::int64_t now_us);
    void tell_span(core::SlotId slot, std::int64_t wall_us, const ErrorInfo* error = nullptr);
    void tell_unsent(core::SlotId slot, const ErrorInfo& error);
    void report(std::int64_t now_us, bool last);
    [[nodiscard]] bool is_under_way(std::uint64_t token);
    [[nodiscard]] bool may_go_on(std::int64_t now_us) const;
    [[nodiscard]] std::int64_t wait_ms(std::int64_t now_us) const;
    [[nodiscard]] bool outcomes_may_wait() const;
    void report();
    void note_circuit(std::int64_t now_us);
    void note_cause(std::int64_t now_us);

    Deps deps_;
    std::size_t index_;
    Flow flow_;
    Pacing pacing_;
    Verdict verdict_;

    const PublishSpans spans_;
    std::unique_ptr<codec::Encoder> encoder_;
    std::vector<Encoded> encoded_;  // by slot
    const bool by_topic_;           // a key has records of one topic under way
    std::int64_t turn_us_ = 0;      // when what is sent now is, for spans; Unix epoch
    spi::Completions completions_;
    std::optional<std::uint64_t>
        acknowledged_to_;  // of `Flow::finished_total`; the sink waits for it
    std::int64_t acknowledged_us_ = 0;
    std::int64_t next_report_us_ = 0;
    bool more_follows_ = false;       // as the sink was told
    bool outcomes_may_wait_ = false;  // likewise
    Feedback feedback_;
    std::uint64_t dead_recorded_look_ = 0;  // the newest look before a dead letter was on disk

    std::string destination_;          // what the ledger holds for; empty: not known
    bool identified_ = false;          // the sink leads there
    std::string refused_destination_;  // where it leads in its stead
    core::Circuit::State noted_circuit_ = core::Circuit::State::kClosed;
    core::Flapping told_circuit_;
    std::string noted_cause_;  // of the open circuit
    std::int64_t cause_noted_us_ = 0;
    std::atomic<bool> draining_{false};
};

}  // namespace outbox::relay
