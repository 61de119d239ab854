#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace outbox::test {

// One of several brokers, as far as one that publishes sees it: it says where topics are, and takes
// messages. Its answers are made by what it is given; the bytes around them are those of wire.h.
class FakeBroker {
  public:
    // What it says of where a topic is.
    struct Place {
        int port = 0;                    // of the broker on 127.0.0.1; 0: no answer at all
        bool redirects = false;          // it is to be asked there
        bool authoritative = false;      // as if it had said so
        bool through_proxy = false;      // it is reached by way of this one
        std::string host = "127.0.0.1";  // of the broker
    };
    struct Behaviour {
        std::function<Place(const std::string& topic, bool authoritative)> lookup;
        bool answers_messages = true;
        // Whether it ends the connection for a message, the one at `place` on it, from 1.
        std::function<bool(const std::string& frame, std::size_t place)> ends = {};
    };

    explicit FakeBroker(Behaviour behaviour);
    ~FakeBroker();
    FakeBroker(const FakeBroker&) = delete;
    FakeBroker& operator=(const FakeBroker&) = delete;

    int port() const { return port_; }
    void set_behaviour(Behaviour behaviour);
    void drop_connections();
    std::size_t messages();            // that came
    std::vector<std::string> asked();  // for which brokers, by way of this one

  private:
    void serve(int client);
    bool ends(const std::string& frame, std::size_t place);
    // What it answers, if anything.
    std::string answer(std::uint64_t type, const std::string& command);

    int listener_ = -1;
    int port_ = 0;
    std::mutex mutex_;
    Behaviour behaviour_;
    std::size_t messages_ = 0;
    std::vector<std::string> asked_;
    std::vector<int> clients_;
    std::vector<std::thread> threads_;
    std::thread accepting_;
};

}  // namespace outbox::test
