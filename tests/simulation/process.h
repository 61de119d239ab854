#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "relay/relay.h"
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
    /// What to do with an error that ends a process. False, or empty: it is to end none.
    std::function<bool(int relay, const ErrorInfo& error)> may_end = {};
    /// The database is, or may be, set back, made anew or another one in this history.
    std::function<bool()> may_change = {};
};

/// A route as the simulation configures it.
[[nodiscard]] relay::RouteSpec route_spec(int route, const std::string& name,
                                          const Settings& settings);

/// One relay process: a `Relay` over its source, as the program runs it. Its threads are tasks of
/// the world (threads.cpp).
class RelayProcess {
  public:
    RelayProcess(const Surroundings& around, int number);

    void kill();
    void pause(std::int64_t us) { world_.pause(number_, world_.now_us() + us); }
    /// Asks it to hand over and end.
    void stop() { stop_.request_stop(); }
    [[nodiscard]] bool ended() const { return world_.ended(main_); }
    [[nodiscard]] int number() const { return number_; }

  private:
    void run();
    bool open_source();
    void stops(const ErrorInfo& why);
    [[nodiscard]] std::vector<relay::RouteSpec> routes() const;
    void tell(const relay::Note& note) const;

    const Surroundings& around_;
    World& world_;
    int number_;
    std::unique_ptr<spi::Source> source_;
    SimClock clock_;
    std::stop_source stop_;
    World::TaskId main_ = 0;
};

}  // namespace outbox::simulation
