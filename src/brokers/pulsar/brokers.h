#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "brokers/pulsar/connection.h"

namespace outbox::pulsar {

/// The connections to the brokers of one cluster: the first, which is asked where topics are and
/// nothing else, and those that it leads to, which are made in the background, be it to the same
/// broker: how a connection with messages ends tells of these. Not thread-safe.
class Brokers {
  public:
    Brokers(const PulsarConfig& config, std::unique_ptr<Connection> first);
    /// Waits for connections that are being made, up to the connect timeout.
    ~Brokers();
    Brokers(const Brokers&) = delete;
    Brokers& operator=(const Brokers&) = delete;

    [[nodiscard]] Connection& first() { return *first_; }
    [[nodiscard]] const Connection& first() const { return *first_; }

    /// What a broker is known by here: "host:port", and whether it is reached by way of the first.
    [[nodiscard]] static std::string key_of(const net::Host& host, bool through_proxy);
    /// The connection; null: it is being made from now on, and `take_arrived` tells of it.
    Connection* get(const net::Host& host, bool through_proxy);

    struct Arrived {
        std::string key;
        Connection* connection = nullptr;  ///< Null: `error` says why there is none.
        ErrorInfo error = {};
    };
    [[nodiscard]] std::vector<Arrived> take_arrived();
    [[nodiscard]] bool expects_any() const;

    /// Of those that stand.
    void for_each(const std::function<void(Connection&)>& act);
    /// One that is not the first.
    void close(const Connection& connection);

    [[nodiscard]] std::size_t unsent() const;
    [[nodiscard]] std::uint64_t heard() const;
    void wait(std::chrono::milliseconds most) const;

  private:
    using Opened = Result<std::unique_ptr<Connection>>;
    struct Other {
        std::future<Opened> coming;  // invalid once it has come
        std::unique_ptr<Connection> connection;
    };

    const PulsarConfig config_;
    const std::unique_ptr<Connection> first_;
    std::map<std::string, Other> others_;  // by `key_of`
    std::uint64_t heard_of_closed_ = 0;
};

}  // namespace outbox::pulsar
