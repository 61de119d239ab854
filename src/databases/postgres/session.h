#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include <outbox/spi/event_batch.h>
#include <outbox/spi/source.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/decode.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// A connection that is made again after it broke. Not thread-safe.
class Session {
  public:
    /// `prepare` sets up each new connection (prepared statements, settings). `path`: that of
    /// `Table`, for who touches its rows.
    Session(const PostgresSourceConfig& config, std::function<Status(Connection&)> prepare,
            std::string path = {})
        : url_(config.url),
          timeout_s_(config.connect_timeout_s),
          prepare_(std::move(prepare)),
          path_(std::move(path)) {}

    /// The connection, made if needed.
    Result<Connection*> get();

    /// To be told of each error, so that a broken connection is not used again.
    void failed() {
        if (connection_ && !connection_->usable()) connection_.reset();
    }
    void drop() { connection_.reset(); }

  private:
    std::string url_;
    int timeout_s_;
    std::function<Status(Connection&)> prepare_;
    std::string path_;
    std::optional<Connection> connection_;
};

/// Chooses LIMITs so that a statement returns about the bytes that are wanted, by the rows seen
/// last. Rows that turn out larger are cut off by the caller.
class RowSize {
  public:
    [[nodiscard]] std::size_t limit(std::size_t max_rows, std::size_t max_bytes) const;
    void note(std::size_t rows, std::size_t bytes);

  private:
    std::size_t average_ = 1024;
};

}  // namespace outbox::postgres
