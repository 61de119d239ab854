#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "relay/lease_keeper.h"
#include "relay/term.h"
#include "tests/simulation/broker.h"
#include "tests/simulation/clock.h"

namespace outbox::simulation {

/// What a relay process lives in.
struct Surroundings {
    World& world;
    Judge& judge;
    Broker& broker;
    const Settings& settings;
    /// What every clock on the wall shows beyond the time since the start.
    const std::int64_t& wall_offset_us;
    /// Called by the process as it starts, until it succeeds.
    std::function<Result<std::unique_ptr<spi::Source>>(int relay)> open_source;
    /// The host of the process is gone: the database will not learn that its connections are.
    std::function<void(int relay, spi::Source* source)> vanish;
    /// The routes as configured when the process starts; empty: all of the settings.
    std::function<std::vector<relay::RouteSpec>()> routes = {};
    /// The destination of a route; empty: a simulated one.
    std::function<Result<std::unique_ptr<spi::Sink>>(int relay, int route)> make_sink = {};
    /// What to do with an error that ends a process. False: it is to end none. Without it a term
    /// that cannot begin is tried again.
    std::function<bool(const ErrorInfo& error)> may_end = {};
    /// Its connections are real: they close as it ends, and a term takes time to begin.
    bool real = false;
};

/// A route as the simulation configures it.
[[nodiscard]] relay::RouteSpec route_spec(int route, const std::string& name,
                                          const Settings& settings);

/// One relay process: the real lease keeper, pipelines and record keeper, turned by tasks of the
/// world where `Relay` and `Term` use threads.
class RelayProcess {
  public:
    RelayProcess(const Surroundings& around, int number);

    void kill();
    void pause(std::int64_t us) { world_.pause(number_, world_.now_us() + us); }
    /// Asks it to hand over and end.
    void stop() { stopping_ = true; }
    [[nodiscard]] bool ended() const { return world_.ended(main_); }
    [[nodiscard]] int number() const { return number_; }

  private:
    struct Running;

    void run();
    void hold_the_lease();
    void serve(std::uint64_t epoch);
    Result<std::unique_ptr<relay::Term>> open(std::uint64_t epoch);
    void cannot_open(const ErrorInfo& why);
    void stops(const ErrorInfo& why);
    void turn_route(Running& running, std::size_t route);
    void turn_recorder(Running& running);
    void turn_remover(Running& running);
    void turn_housekeeper(Running& running);
    void turn(Running& running, const bool& ending, std::int64_t most_us,
              const std::function<Status()>& one_turn, const std::function<bool()>& done);
    void ended_by(Running& running, const Status& why);

    const Surroundings& around_;
    World& world_;
    Judge& judge_;
    int number_;
    std::unique_ptr<spi::Source> source_;
    SimClock clock_;
    relay::RelayOptions options_;
    relay::Notify notify_;
    std::vector<relay::RouteSpec> routes_;
    std::vector<std::unique_ptr<relay::RouteStats>> stats_;
    std::vector<relay::RouteStats*> told_;
    relay::LeaseView view_;
    std::optional<relay::LeaseKeeper> lease_;
    bool stopping_ = false;
    World::TaskId main_ = 0;
};

}  // namespace outbox::simulation
