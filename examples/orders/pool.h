#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <outbox/error.h>

namespace orders {

/// At most `limit` connections, made when needed and kept for the next user. Thread-safe.
template <typename Connection>
class Pool {
  public:
    static constexpr std::chrono::seconds kMaxWait{5};

    Pool(std::size_t limit, std::function<std::unique_ptr<Connection>()> connect)
        : limit_(limit), connect_(std::move(connect)) {}

    /// A connection on loan. Goes back to the pool, unless an exception passed while it was used:
    /// then it is closed, and whatever was open in it is rolled back.
    class Loan {
      public:
        Loan(Pool& pool, std::unique_ptr<Connection> connection)
            : pool_(pool),
              connection_(std::move(connection)),
              exceptions_(std::uncaught_exceptions()) {}
        ~Loan() {
            if (std::uncaught_exceptions() > exceptions_) connection_.reset();
            pool_.give_back(std::move(connection_));
        }
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;
        Connection& operator*() { return *connection_; }
        Connection* operator->() { return connection_.get(); }

      private:
        Pool& pool_;
        std::unique_ptr<Connection> connection_;
        int exceptions_;
    };

    /// Waits up to `kMaxWait` for a free connection, then throws.
    [[nodiscard]] Loan take() {
        std::unique_ptr<Connection> connection;
        {
            std::unique_lock lock(mutex_);
            if (!freed_.wait_for(lock, kMaxWait, [&] { return !idle_.empty() || made_ < limit_; }))
                throw outbox::Error(outbox::ErrorCode::kConnectFailed,
                                    outbox::Advice::kRetryDestination,
                                    "all database connections are busy; try again later");
            if (idle_.empty()) {
                ++made_;
            } else {
                connection = std::move(idle_.back());
                idle_.pop_back();
            }
        }
        if (connection == nullptr || !connection->usable()) {
            try {
                connection = connect_();
            } catch (...) {
                give_back(nullptr);
                throw;
            }
        }
        return Loan(*this, std::move(connection));
    }

  private:
    void give_back(std::unique_ptr<Connection> connection) noexcept {
        {
            const std::lock_guard lock(mutex_);
            if (connection != nullptr)
                idle_.push_back(std::move(connection));
            else
                --made_;
        }
        freed_.notify_one();
    }

    const std::size_t limit_;
    const std::function<std::unique_ptr<Connection>()> connect_;
    std::mutex mutex_;
    std::condition_variable freed_;
    std::vector<std::unique_ptr<Connection>> idle_;
    std::size_t made_ = 0;
};

}  // namespace orders
