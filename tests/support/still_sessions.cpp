#include "tests/support/still_sessions.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>

namespace outbox::test {

StillSessions::~StillSessions() {
    for (const Session& session : stopped_) kill(session.pid, SIGCONT);
}

void StillSessions::stop_idle() {
    for (const Pg::Row& row : database_.query(
             "SELECT pid, client_port FROM pg_stat_activity WHERE datname = current_database() "
             "AND application_name = '" +
             application_ + "' AND state = 'idle'")) {
        const Session session{std::stoi(row[0].value()),
                              static_cast<unsigned>(std::stoul(row[1].value()))};
        if (std::ranges::any_of(stopped_, [&](const auto& s) { return s.pid == session.pid; })) {
            continue;
        }
        kill(session.pid, SIGSTOP);
        stopped_.push_back(session);
    }
}

bool StillSessions::keep_waiting(const std::function<void()>& ask, std::future<void>& waiting) {
    stop_idle();
    waiting = std::async(std::launch::async, ask);
    while (waiting.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
        if (are_asked()) return true;
    }
    return false;
}

// By what waits in their sockets, while the other side is still there.
bool StillSessions::are_asked() const {
    constexpr unsigned kEstablished = 1;
    std::ifstream connections("/proc/net/tcp");
    std::string line;
    while (std::getline(connections, line)) {
        unsigned port = 0;
        unsigned state = 0;
        unsigned unread = 0;
        if (std::sscanf(line.c_str(), " %*d: %*x:%*x %*x:%x %x %*x:%x", &port, &state, &unread) !=
                3 ||
            state != kEstablished || unread == 0) {
            continue;
        }
        if (std::ranges::any_of(stopped_, [&](const auto& s) { return s.client_port == port; })) {
            return true;
        }
    }
    return false;
}

}  // namespace outbox::test
