#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "core/clock.h"
#include "relay/options.h"
#include "replay/history.h"
#include "replay/runs.h"

namespace outbox::replay {

/// For so long a runner that does not answer is taken for alive.
inline constexpr std::int64_t kRunLeaseMs = 10'000;

/// Sends the events of a run by the pipeline of a relay, at the run's pace, in the order of each
/// key. Used by one thread.
class Runner {
  public:
    struct Deps {
        History& history;
        Runs& runs;
        const core::Clock& clock;
        const relay::Notify& notify;
    };
    enum class Ending : std::uint8_t {
        kFinished,
        kStopped,    ///< `stop` said so; another may go on.
        kCancelled,  ///< Somebody cancelled the run.
    };
    /// How far it is, for people.
    struct Look {
        std::int64_t sent = 0;
        std::int64_t refused = 0;
        double rate_per_s = 0;
        bool waits = false;   ///< The destination does not take events now.
        bool slowed = false;  ///< Live events of the route wait.
    };

    /// `route`: the run's, with the encoder of a replay. `yields`: goes slower while events of the
    /// route wait.
    Runner(Deps deps, relay::RouteSpec route, relay::RelayOptions options, bool yields)
        : deps_(deps), route_(std::move(route)), options_(std::move(options)), yields_(yields) {
        // What is recorded is a place in the history: an event that is held back keeps all that was
        // sent behind it from being recorded.
        options_.taken_for_recorded_ms = 3'000;
    }

    /// Blocks until the run is over or `stop` says to leave it, which waits up to the shutdown
    /// grace for what is under way. `epoch`: of this runner. `told` is called now and then. Errors:
    /// `kLeaseLost` as from `Runs::record`, and what stopped the route.
    Result<Ending> run(Run& run, std::uint64_t epoch, std::unique_ptr<spi::Sink> sink,
                       const std::function<bool()>& stop,
                       const std::function<void(const Look&)>& told);

  private:
    const Deps deps_;
    relay::RouteSpec route_;
    relay::RelayOptions options_;
    const bool yields_;
};

}  // namespace outbox::replay
