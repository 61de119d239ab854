#pragma once

#include <cstddef>
#include <cstdint>

#include "relay/options.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

/// A guard that is taken away, to see that the checkers notice.
enum class Fault : std::uint8_t {
    kNone,
    kEarlyAcknowledgement,  ///< The sink acknowledges what it has only been handed.
    kGapAfterFailure,       ///< The sink accepts what lies behind a failed record.
    kLostLeaseIgnored,      ///< A lost lease is reported as renewed.
    kRefusalHoldsUpAll,     ///< Behind a record that it refuses the sink takes nothing for long.
};

/// What kind of world a seed makes.
struct Settings {
    std::uint64_t seed = 0;
    Fault fault = Fault::kNone;
    bool tracing = false;

    int routes = 1;
    int relays = 2;
    int writers = 4;
    int keys = 8;
    std::int64_t writing_us = 15 * kSecond;  ///< Writers and chaos go on this long.
    std::int64_t settle_us = 120 * kSecond;  ///< And then everything must be through in this time.
    double trouble = 0.05;                   ///< Share of events with something wrong.
    double call_fails = 0.01;                ///< Share of database calls that break.
    double outcome_unknown = 0.01;           ///< Share of records accepted without an answer.
    double record_lost = 0.005;              ///< Share of records neither accepted nor answered.
    bool timeouts = true;                    ///< Some events look as if the destination were down.
    bool fail_stop = false;
    bool rebuilds = false;   ///< A refusal fails everything under way.
    bool suspects = false;   ///< And the sink is not sure which record it was.
    bool block_key = false;  ///< Dead letters block their keys on the last route.
    bool kills = true;
    bool pauses = true;
    bool outages = true;
    bool parts = false;  ///< Of destinations, which are away alone.
    bool database_outages = true;
    bool clock_jumps = true;
    relay::RelayOptions options;

    static Settings from_seed(std::uint64_t seed);
    /// Nothing goes wrong but single events, and there is room for what waits: how long events wait
    /// that have nothing to do with those is bounded (`Judge::check_latency`).
    void quieten();
};

}  // namespace outbox::simulation
