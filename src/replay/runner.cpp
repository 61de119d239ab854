#include "replay/runner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <unordered_set>
#include <utility>

#include "relay/lease_view.h"
#include "relay/outcome_queue.h"
#include "relay/pipeline.h"
#include "relay/route_stats.h"
#include "replay/pace.h"
#include "replay/tracker.h"

namespace outbox::replay {
namespace {

using relay::Note;

constexpr std::int64_t kRecordEveryUs = 500'000;
constexpr std::size_t kRecordEvents = 2'000;  // or so many
constexpr std::int64_t kLeaseMarginMs = 1'000;
constexpr std::int64_t kLoadEveryUs = 1'000'000;
constexpr std::int64_t kLoadEvents = 1'000;  // that may wait for the relay without slowing a run
constexpr double kLoadSeconds = 5;           // nor those of so long
constexpr std::int64_t kMostLoad = 100'000;  // that are counted
constexpr double kYieldingShare = 0.1;       // of the rate
constexpr std::int64_t kCancelGraceMs = 5'000;
constexpr std::int64_t kUs = 1'000;

/// What of the history the pipeline may have now.
class PacedReader final : public spi::Reader {
  public:
    PacedReader(HistoryReader& inner, Tracker& tracker, Pace& pace, const core::Clock& clock,
                std::size_t most_open)
        : inner_(inner), tracker_(tracker), pace_(pace), clock_(clock), most_open_(most_open) {}

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override {
        const std::size_t room = most_open_ - std::min(most_open_, tracker_.open());
        const std::size_t count = pace_.may_go(clock_.boot_us(), std::min(limits.max_events, room));
        if (count == 0 || inner_.at_end()) return {};
        const std::size_t before = out.size();
        if (Status status = inner_.read({count, limits.max_bytes}, out); !status.ok()) {
            return status;
        }
        pace_.went(out.size() - before);
        for (std::size_t i = before; i < out.size(); ++i) {
            spi::EventView& event = out.events()[i];
            event.attempts = 0;  // of the time when it was sent first
            event.next_attempt_us = 0;
            tracker_.handed_out(event.position);
        }
        return {};
    }

    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override {
        const std::size_t before = out.size();
        if (Status status = inner_.fetch(positions, out); !status.ok()) return status;
        std::unordered_set<spi::Position> found;
        for (std::size_t i = before; i < out.size(); ++i) {
            spi::EventView& event = out.events()[i];
            event.attempts = 0;
            event.next_attempt_us = 0;
            found.insert(event.position);
        }
        for (const spi::Position position : positions) {
            if (!found.contains(position)) tracker_.gone(position);
        }
        return {};
    }

    void forget(std::span<const spi::Position> positions) override { inner_.forget(positions); }

  private:
    HistoryReader& inner_;
    Tracker& tracker_;
    Pace& pace_;
    const core::Clock& clock_;
    const std::size_t most_open_;
};

/// One run at work: the turns of pipeline and table, in one thread.
class Work {
  public:
    Work(const Runner::Deps& deps, relay::RouteSpec& route, const relay::RelayOptions& options,
         Run& run, std::uint64_t epoch, HistoryReader& reader, std::unique_ptr<spi::Sink> sink)
        : deps_(deps),
          run_(run),
          epoch_(epoch),
          inner_(reader),
          tracker_(run.sent, run.refused, run.refusals),
          pace_(run.rate, deps.clock.boot_us()),
          reader_(reader, tracker_, pace_, deps.clock, options.max_unrecorded),
          queue_(1),
          pipeline_(
              {reader_, *sink, queue_, lease_, deps.clock, stats_, deps.notify, removals_full_}, 0,
              {&route, 1}, options, {run.met, {}, {}},
              static_cast<std::uint64_t>(deps.clock.boot_us())),
          sink_(std::move(sink)) {}

    /// The lease was taken at `since_us`.
    void begin(std::int64_t since_us) {
        extend(since_us);
        recorded_at_us_ = since_us;
        rate_since_us_ = since_us;
    }

    Status turn(bool yields) {
        if (Status status = pipeline_.step(); !status.ok()) return status;
        take_outcomes();
        const std::int64_t now_us = deps_.clock.boot_us();
        if (yields && now_us - load_at_us_ >= kLoadEveryUs) look_at_load(now_us);
        if (now_us - recorded_at_us_ < kRecordEveryUs && ended_ < kRecordEvents) return {};
        return record(now_us);
    }

    /// Writes down how far it is. Away: is tried again with the next turn.
    Status record(std::int64_t now_us) {
        std::vector<spi::Position> passed;
        tracker_.move_on(passed);
        if (!passed.empty()) run_.place = inner_.place_of(passed.back());
        note_rate(now_us);
        run_.sent = tracker_.sent();
        run_.refused = tracker_.refused();
        run_.refusals = tracker_.refusals();
        unanswered_.insert(unanswered_.end(), passed.begin(), passed.end());
        recorded_at_us_ = now_us;
        ended_ = 0;
        const auto state = deps_.runs.record(
            run_, epoch_, {run_.sent, run_.refused, run_.refusals, run_.place, run_.rate_per_s},
            kRunLeaseMs);
        if (!state.ok()) return record_failed(state.error());
        if (failed_) deps_.notify({Note::Level::kInfo, "record_recovered", {}});
        failed_ = false;
        run_.state = *state;
        extend(now_us);
        relay::Feedback feedback;
        feedback.recorded = std::exchange(unanswered_, {});
        if (!feedback.empty()) queue_.answer(0, std::move(feedback));
        return {};
    }

    /// Nothing is left to be sent, and all of it is written down.
    [[nodiscard]] bool done() const {
        return inner_.at_end() && tracker_.open() == 0 && unanswered_.empty() && !failed_;
    }
    [[nodiscard]] bool cancelled() const { return run_.state == "cancelled"; }

    /// Sends nothing more, and waits for what is under way.
    Status end(std::int64_t grace_ms) {
        pipeline_.drain();
        const std::int64_t until_us = deps_.clock.boot_us() + grace_ms * kUs;
        // What stopped the route is known, and its last outcomes come with one turn.
        while (pipeline_.step().ok() && !pipeline_.drained() && deps_.clock.boot_us() < until_us) {
        }
        pipeline_.report_last();
        take_outcomes();
        return record(deps_.clock.boot_us());
    }

    [[nodiscard]] Runner::Look look() const {
        return {run_.sent, run_.refused, run_.rate_per_s,
                stats_.circuit.load(std::memory_order_relaxed) != core::Circuit::State::kClosed,
                pace_.is_slowed()};
    }

  private:
    void extend(std::int64_t since_us) {
        lease_.extend(since_us + (kRunLeaseMs - kLeaseMarginMs) * kUs);
    }

    void take_outcomes() {
        taken_.resize(1);
        queue_.take(0, std::chrono::milliseconds(0), taken_);
        relay::Outcomes& outcomes = taken_.front();
        ended_ += outcomes.finished.size();
        for (const spi::DeadLetter& letter : outcomes.dead) {
            const spi::EventView& event = letter.event.events().front();
            tracker_.refused(letter.position,
                             {std::string(event.id), std::string(event.order_key()),
                              letter.error_code + ": " + letter.error});
        }
        for (const spi::Position position : outcomes.finished) tracker_.sent(position);
        relay::Feedback feedback;
        // A crash would have it sent and refused once more, and overtakes no decision.
        feedback.dead_lanes = std::move(outcomes.dead_lanes);
        if (!feedback.empty()) queue_.answer(0, std::move(feedback));
        outcomes.clear();
    }

    Status record_failed(const ErrorInfo& error) {
        if (error.code == ErrorCode::kLeaseLost) return error;
        if (!failed_) {
            deps_.notify({Note::Level::kError, "record_failed", {{"error", describe(error)}}});
        }
        failed_ = true;
        return {};
    }

    void note_rate(std::int64_t now_us) {
        constexpr double kMicroseconds = 1e6;
        const std::int64_t all = tracker_.sent() + tracker_.refused();
        const double seconds = static_cast<double>(now_us - rate_since_us_) / kMicroseconds;
        if (seconds < 1) return;
        if (rate_from_ >= 0) run_.rate_per_s = static_cast<double>(all - rate_from_) / seconds;
        rate_from_ = all;
        rate_since_us_ = now_us;
    }

    // Live events come first. Without an answer it goes slower, too.
    void look_at_load(std::int64_t now_us) {
        load_at_us_ = now_us;
        const auto load = deps_.history.load(kMostLoad);
        const bool waits = !load.ok() || static_cast<double>(load->waiting) >
                                             std::max(static_cast<double>(kLoadEvents),
                                                      kLoadSeconds * load->rate_per_s);
        pace_.slow_down_to(waits ? kYieldingShare : 1);
    }

    const Runner::Deps& deps_;
    Run& run_;
    const std::uint64_t epoch_;
    HistoryReader& inner_;
    Tracker tracker_;
    Pace pace_;
    PacedReader reader_;
    relay::OutcomeQueue queue_;
    relay::LeaseView lease_;
    relay::RouteStats stats_;
    const std::atomic<bool> removals_full_{false};
    relay::Pipeline pipeline_;
    std::unique_ptr<spi::Sink> sink_;  // goes before the events that it still sends
    std::vector<relay::Outcomes> taken_;
    std::vector<spi::Position> unanswered_;  // the run is past them, and that is not on disk
    std::size_t ended_ = 0;                  // since it was recorded last
    bool failed_ = false;                    // the last time
    std::int64_t recorded_at_us_ = 0;
    std::int64_t load_at_us_ = 0;
    std::int64_t rate_since_us_ = 0;
    std::int64_t rate_from_ = -1;
};

}  // namespace

Result<Runner::Ending> Runner::run(Run& run, std::uint64_t epoch, std::unique_ptr<spi::Sink> sink,
                                   const std::function<bool()>& stop,
                                   const std::function<void(const Look&)>& told) {
    auto reader = deps_.history.open_reader(run.place, run.end);
    if (!reader.ok()) return reader.error();
    Work work(deps_, route_, options_, run, epoch, **reader, std::move(sink));
    work.begin(deps_.clock.boot_us());
    Status status;
    std::optional<Ending> ending;
    while (!ending) {
        status = work.turn(yields_);
        told(work.look());
        if (!status.ok()) break;
        if (work.done()) {
            ending = Ending::kFinished;
        } else if (work.cancelled()) {
            ending = Ending::kCancelled;
        } else if (stop()) {
            ending = Ending::kStopped;
        }
    }
    if (!status.ok() && status.error().code == ErrorCode::kLeaseLost) return status.error();
    if (ending != Ending::kFinished) {
        const Status ended =
            work.end(ending == Ending::kCancelled ? kCancelGraceMs : options_.shutdown_grace_ms);
        if (status.ok()) status = ended;
    }
    const std::string state = !status.ok()                  ? "failed"
                              : ending == Ending::kFinished ? "finished"
                                                            : "";
    const Status left =
        deps_.runs.leave(run, epoch, state, status.ok() ? "" : describe(status.error()));
    if (!status.ok()) return status.error();
    if (!left.ok()) return left.error();
    told(work.look());
    return *ending;
}

}  // namespace outbox::replay
