#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/database.h"
#include "tests/simulation/process.h"

namespace outbox::simulation {

struct Verdict {
    std::vector<std::string> violations;
    std::vector<std::string> trace;  ///< The last lines, when tracing.
    std::size_t events = 0;
    std::size_t repeats = 0;
    std::size_t dead = 0;
    Judge::Streamed streamed;
    std::uint64_t epochs = 0;
    std::int64_t ended_us = 0;
    std::int64_t worst_latency_us = 0;  ///< Of events of keys with nothing wrong.
    std::uint64_t fingerprint = 0;
};

/// One history from its beginning to the day when everything is through.
class History {
  public:
    explicit History(const Settings& settings);
    Verdict run();

  private:
    void write(int writer);
    void write_one_transaction(Random& random, int writer);
    SimEvent make_event(Random& random, const std::vector<std::string>& keys);
    void chaos();
    void hurt_a_relay(Random& random);
    void operate();
    void keep_busy();
    void start_relay();

    Settings settings_;
    World world_;
    Judge judge_;
    Database database_;
    Broker broker_;
    Surroundings around_;
    std::vector<std::unique_ptr<RelayProcess>> relays_;  // dead ones, too
    std::vector<RelayProcess*> living_;
    int next_relay_ = 1;
    int writing_ = 0;
    bool settling_ = false;
    bool done_ = false;
};

}  // namespace outbox::simulation
