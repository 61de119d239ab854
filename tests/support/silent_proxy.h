#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <string>
#include <thread>

namespace outbox::test {

/// Stands between clients and a server of this machine. On demand the connections that it has fall
/// silent, as one that a firewall has forgotten: they stay open and carry nothing any more, while
/// new ones do; or they bring no more than so much from the server.
class SilentProxy {
  public:
    explicit SilentProxy(int server_port);
    ~SilentProxy();
    SilentProxy(const SilentProxy&) = delete;
    SilentProxy& operator=(const SilentProxy&) = delete;

    /// A URL of the server, past this proxy.
    [[nodiscard]] std::string through(std::string url) const;
    void silence() { ++silences_; }
    /// From now on, of each connection that it has.
    void bring_at_most(std::size_t bytes) {
        ration_ = bytes;
        ++rations_;
    }
    /// So many new connections are closed without a word.
    void drop(int connections) { drops_ = connections; }
    /// Connections until now, dropped ones too.
    [[nodiscard]] int accepted() const { return accepted_; }

  private:
    void accept_all();
    void pump(int client, int server, int silences, int rations) const;

    int server_port_;
    int port_;
    int listener_;
    std::atomic<bool> stopping_ = false;
    std::atomic<int> silences_ = 0;
    std::atomic<int> rations_ = 0;
    std::atomic<std::size_t> ration_ = 0;
    std::atomic<int> drops_ = 0;
    std::atomic<int> accepted_ = 0;
    std::thread acceptor_;
    std::list<std::thread> pumps_;  // of the acceptor
};

}  // namespace outbox::test
