#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "consumer/queue/inlet.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

/// What kind of queue a broker's is.
struct QueueSettings {
    /// Only the connection that came first is handed messages, as long as it lives: keys keep their
    /// order. Else they are shared out.
    bool one_at_a_time = true;
    /// What is not acknowledged for so long is handed to another, too, and any of them may
    /// acknowledge it; kNever: it is its connection's until that ends.
    std::int64_t again_after_us = kNever;
    double call_fails = 0;  ///< Share of calls that break, before or after their effect.

    [[nodiscard]] bool keeps_order() const { return one_at_a_time && again_after_us == kNever; }
};

/// A queue of a broker, and its members' connections. What is not acknowledged when its connection
/// ends comes again, in its place.
class SimQueue {
  public:
    /// Until `away_until_us` the broker is away.
    SimQueue(World& world, const QueueSettings& settings, const std::int64_t& away_until_us)
        : world_(world), settings_(settings), away_until_us_(away_until_us) {}

    void put(consumer::Arrival arrival);
    [[nodiscard]] std::unique_ptr<consumer::Inlet> open();
    /// Ends some connection, as a broker does that hears nothing of it. False: there is none.
    bool cut_one();
    /// How often a message was handed over.
    [[nodiscard]] std::size_t deliveries() const { return next_delivery_ - 1; }

  private:
    friend class SimInlet;
    using Place = std::uint64_t;
    struct Item {
        consumer::Arrival arrival;
        std::uint32_t deliveries = 0;
    };
    struct Handed {
        Place place = 0;
        int connection = 0;
        std::int64_t since_us = 0;
    };

    [[nodiscard]] bool away() const { return world_.now_us() < away_until_us_; }
    [[nodiscard]] bool breaks() { return away() || world_.random().chance(settings_.call_fails); }
    int connect();
    [[nodiscard]] bool connected(int connection) const;
    void end(int connection);
    void hand_over(int connection, consumer::Amount room, std::vector<consumer::Arrival>& out);
    void take_back_what_takes_long();
    void acknowledge(int connection, std::span<const std::uint64_t> deliveries);
    void take_back(const Handed& handed);

    World& world_;
    const QueueSettings& settings_;
    const std::int64_t& away_until_us_;
    std::map<Place, Item> items_;
    std::set<Place> ready_;                   // those that nobody has
    std::map<std::uint64_t, Handed> handed_;  // by delivery
    std::vector<int> connections_;            // as they came
    Place next_place_ = 1;
    std::uint64_t next_delivery_ = 1;
    int next_connection_ = 1;
};

}  // namespace outbox::simulation
