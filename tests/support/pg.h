#pragma once

#include <libpq-fe.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace outbox::test {

// A plain connection for arranging and looking at a test's tables. Every error throws
// std::runtime_error with the server's message.
class Pg {
  public:
    using Row = std::vector<std::optional<std::string>>;

    explicit Pg(const std::string& url);

    // Several statements may be given; the rows are those of the last.
    std::vector<Row> query(const std::string& sql) { return query(handle(), sql); }
    static std::vector<Row> query(PGconn* connection, const std::string& sql);
    void exec(const std::string& sql) { query(sql); }

    // The first column of the one row; "" for NULL.
    std::string value(const std::string& sql);
    long long number(const std::string& sql) { return std::stoll(value(sql)); }

    PGconn* handle() { return connection_.get(); }

  private:
    struct Finish {
        void operator()(PGconn* connection) const { PQfinish(connection); }
    };
    std::unique_ptr<PGconn, Finish> connection_;
};

}  // namespace outbox::test
