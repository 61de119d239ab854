#pragma once

#include <libpq-fe.h>
#include <memory>
#include <string>
#include <vector>

namespace orders {

/// One PostgreSQL connection. Failures throw `outbox::Error`, with advice `kRetryDestination`
/// while the server is away. Every wait is bounded: 5 s to connect, 10 s for a statement.
class Postgres {
  public:
    using Rows = std::vector<std::vector<std::string>>;  ///< NULL is an empty text.

    explicit Postgres(const std::string& url);

    [[nodiscard]] PGconn* handle() const { return connection_.get(); }

    /// False once the server has closed the connection.
    [[nodiscard]] bool usable() const;

    Rows query(const std::string& sql, const std::vector<std::string>& parameters = {});

  private:
    struct Finish {
        void operator()(PGconn* connection) const { PQfinish(connection); }
    };
    std::unique_ptr<PGconn, Finish> connection_;
};

}  // namespace orders
