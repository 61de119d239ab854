#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "net/end_news.h"
#include "net/end_search.h"

namespace outbox::pulsar {

struct Channel;
class Connection;

/// What is known of messages that end connections, by broker (`Brokers::key_of`), for as long as
/// the sink lives.
struct Searches {
    std::map<std::string, net::EndSearch> by_broker;
    net::EndNews news;
};

/// What goes to one broker, of all channels that are there: while a message is looked for that ends
/// the connection, it says whose turn it is. Not thread-safe.
struct Lane {
    using Time = std::chrono::steady_clock::time_point;

    explicit Lane(net::EndSearch& its_search) : search(its_search) {}

    net::EndSearch& search;
    Connection* connection = nullptr;  ///< Null: there is none.
    bool is_fresh = true;              ///< No message has gone over it.
    std::size_t under_way = 0;         ///< Messages without an answer.
    Time alive_at;                     ///< An answer came, or a connection ended.
    std::vector<Channel*> ready;       ///< In this round: what it has waits for its turn.
    Time held_until;                   ///< For a suspect that goes first.

    [[nodiscard]] bool is_narrow() const { return search.window() != SIZE_MAX; }
    void begin(Connection& at, Time now);
    [[nodiscard]] net::EndSearch::Line line() const;
    /// Of `ready`: whose suspect goes next, the first of its suspects then; null: none may go.
    [[nodiscard]] Channel* next_suspect(Time now) const;
    /// Of `ready`: whose message goes next, the first of its queue then; null: none does.
    [[nodiscard]] Channel* next_other(Time now) const;
};

}  // namespace outbox::pulsar
