#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <thread>

namespace outbox::test {

// Stands between a client and a PostgreSQL server, without TLS, and can change one inserted row of
// the replication stream on its way.
class DamagingProxy {
  public:
    explicit DamagingProxy(int server_port);
    ~DamagingProxy();
    DamagingProxy(const DamagingProxy&) = delete;
    DamagingProxy& operator=(const DamagingProxy&) = delete;

    int port() const { return port_; }

    // The next Insert message of pgoutput passes through `change`.
    void damage_next_insert(std::function<void(std::string&)> change);
    // It has passed.
    bool done() const { return state_.load() == State::kDone; }

  private:
    enum class State : int { kDone, kArmed };

    void accept_all();
    void pump(int client, int server);
    void change_if_armed(std::string& message);

    int server_port_;
    int port_ = 0;
    int listener_ = -1;
    std::atomic<bool> stopping_{false};
    std::atomic<State> state_{State::kDone};
    std::function<void(std::string&)> change_;  // written while kDone, read while kArmed
    std::thread acceptor_;
    std::list<std::thread> pumps_;  // of the acceptor
};

}  // namespace outbox::test
