#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "relay/lease_keeper.h"
#include "relay/term.h"
#include "tests/simulation/broker.h"
#include "tests/simulation/database.h"
#include "tests/simulation/source.h"

namespace outbox::simulation {

/// One relay process: the real lease keeper, pipelines and record keeper, turned by tasks of the
/// world where `Relay` and `Term` use threads.
class RelayProcess {
  public:
    RelayProcess(World& world, Database& database, Judge& judge, Broker& broker,
                 const Settings& settings, int number);

    void kill();
    void pause(std::int64_t us) { world_.pause(number_, world_.now_us() + us); }
    /// Asks it to hand over and end.
    void stop() { stopping_ = true; }
    [[nodiscard]] bool ended() const { return world_.ended(main_); }
    [[nodiscard]] int number() const { return number_; }

  private:
    class SimClock final : public core::Clock {
      public:
        SimClock(const World& world, const std::int64_t& wall_offset_us, std::int64_t boot_us)
            : world_(world), wall_offset_us_(wall_offset_us), booted_us_(boot_us) {}
        [[nodiscard]] std::int64_t boot_us() const override { return world_.now_us() + booted_us_; }
        [[nodiscard]] std::int64_t wall_us() const override {
            return world_.now_us() + wall_offset_us_;
        }

      private:
        const World& world_;
        const std::int64_t& wall_offset_us_;
        std::int64_t booted_us_;
    };
    struct Running;

    void run();
    void serve(std::uint64_t epoch);
    void turn_route(Running& running, std::size_t route);
    void turn_recorder(Running& running);
    void turn_remover(Running& running);
    void turn_housekeeper(Running& running);
    void turn(Running& running, const bool& ending, std::int64_t most_us,
              const std::function<Status()>& one_turn, const std::function<bool()>& done);
    void ended_by(Running& running, const Status& why);

    World& world_;
    Judge& judge_;
    int number_;
    SimSource source_;
    SimClock clock_;
    relay::RelayOptions options_;
    relay::Notify notify_;
    std::vector<relay::RouteSpec> routes_;
    std::vector<std::unique_ptr<relay::RouteStats>> stats_;
    relay::LeaseView view_;
    relay::LeaseKeeper lease_;
    bool stopping_ = false;
    World::TaskId main_ = 0;
};

}  // namespace outbox::simulation
