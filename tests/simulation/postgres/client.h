#pragma once

#include <libpq-fe.h>
#include <optional>
#include <string>
#include <vector>

namespace outbox::simulation {

/// A connection of a task that is no relay's: a service's or an operator's. Its statements wait as
/// all do in this world, and what they did is known in the step in which they did it.
class Client {
  public:
    explicit Client(std::string url) : url_(std::move(url)) {}
    ~Client() { close(); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    /// False: it failed, or the connection broke (`lost`), and with it the transaction. The next
    /// one is made by the next statement.
    bool run(const std::string& sql);
    /// For who calls libpq himself; null: it cannot connect.
    pg_conn* handle();
    [[nodiscard]] bool lost() const { return connection_ == nullptr; }
    /// Of the last statement.
    [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const { return rows_; }
    [[nodiscard]] const std::string& error() const { return error_; }
    [[nodiscard]] const std::string& state() const { return state_; }
    void close();

  private:
    bool connect();
    bool wait(short events);

    std::string url_;
    PGconn* connection_ = nullptr;
    std::vector<std::vector<std::string>> rows_;
    std::string error_;
    std::string state_;
};

}  // namespace outbox::simulation
