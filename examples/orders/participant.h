#pragma once

#include <functional>
#include <string>
#include <vector>

#include "event_loop.h"

namespace orders {

/// A service that acts on events and tells others by events.
struct Participant {
    std::string name;
    std::string summary;
    std::string tables;               ///< SQL that creates the service's own if they are missing.
    std::vector<std::string> topics;  ///< What it reads from Kafka.
    std::size_t workers = 2;          ///< Transactions at the same time, with Kafka.
    std::function<void(CLI::App&)> add_options = [](CLI::App&) {};
    std::function<void()> start = [] {};  ///< Called when the options are known.
    EventLoop::Handler handle;
};

/// `main` of a participant: applies the events about orders until SIGINT or SIGTERM. Returns the
/// exit code: 0 stopped, 2 wrong settings, or a database that cannot be used.
int run_participant(const Participant& participant, int argc, char** argv);

}  // namespace orders
