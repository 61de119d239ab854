#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

#include "tests/simulation/judge.h"
#include "tests/simulation/settings.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

/// What a destination keeps of a record.
struct Kept {
    std::string id;
    std::string topic;
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<std::pair<std::string, std::string>> headers;
};

/// The destinations of the routes.
struct Broker {
    /// Until when it is away, by route.
    std::map<int, std::int64_t> away_until_us;
    /// The same of a part of it, by route and part.
    std::map<std::pair<int, int>, std::int64_t> part_away_until_us = {};
    /// What it does to records meanwhile: lets them wait, or fails them.
    bool away_fails = false;
    int sessions = 0;
    /// Told of an event whose record is handed over; empty: nobody.
    std::function<void(Position)> sees = {};
    /// Where a record goes that is accepted; empty: nowhere.
    std::function<void(const Kept&)> keeps = {};
};

/// A destination as one relay sees it. What has been handed over goes on its way whatever becomes
/// of the relay: a task of its own decides about each record, some time later.
class SimSink final : public spi::Sink {
  public:
    SimSink(World& world, Judge& judge, Broker& broker, const Settings& settings, int relay,
            int route);
    ~SimSink() override;

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return capabilities_;
    }
    Status check() override;
    Result<std::string> destination() override { return std::string("somewhere"); }
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;

  private:
    struct Session;

    World& world_;
    Judge& judge_;
    Broker& broker_;
    int relay_;
    int route_;
    spi::SinkCapabilities capabilities_;
    std::shared_ptr<Session> session_;  // shared with its task, which outlives the relay
};

}  // namespace outbox::simulation
