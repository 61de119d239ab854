#pragma once

#include <libpq-fe.h>
#include <memory>
#include <string>
#include <vector>

namespace orders {

using PostgresRows = std::vector<std::vector<std::string>>;  ///< NULL is an empty text.

/// Runs one statement, for up to 10 s. Failures throw `outbox::Error`: `kRetryDestination` while
/// the server is away, `kRetryEvent` after a deadlock or a serialization failure (run the
/// transaction again), `kDeadLetter` for data that the tables refuse, else `kStop`.
PostgresRows query_postgres(PGconn* connection, const std::string& sql,
                            const std::vector<std::string>& parameters = {});

/// One PostgreSQL connection. Failures throw as `query_postgres`; connecting takes up to 5 s.
class Postgres {
  public:
    /// `application`: the name that the server shows for us.
    Postgres(const std::string& url, const char* application);

    [[nodiscard]] PGconn* handle() const { return connection_.get(); }

    /// False once the server has closed the connection.
    [[nodiscard]] bool usable() const;

    PostgresRows query(const std::string& sql, const std::vector<std::string>& parameters = {}) {
        return query_postgres(handle(), sql, parameters);
    }
    /// Several statements without parameters.
    void script(const std::string& statements);

  private:
    struct Finish {
        void operator()(PGconn* connection) const { PQfinish(connection); }
    };
    std::unique_ptr<PGconn, Finish> connection_;
};

}  // namespace orders
