#pragma once

#include <memory>
#include <optional>
#include <sqlite3.h>
#include <string>
#include <vector>

namespace outbox::test {

// A plain SQLite connection for arranging and looking at a test's tables. Every error throws
// std::runtime_error with SQLite's message.
class Sqlite {
  public:
    using Row = std::vector<std::optional<std::string>>;

    explicit Sqlite(const std::string& path);

    // Several statements may be given; the rows are those of all of them.
    std::vector<Row> query(const std::string& sql) { return query(handle(), sql); }
    static std::vector<Row> query(sqlite3* database, const std::string& sql);
    void exec(const std::string& sql) { query(sql); }

    // The first column of the one row; "" for NULL.
    std::string value(const std::string& sql);
    long long number(const std::string& sql) { return std::stoll(value(sql)); }

    sqlite3* handle() { return database_.get(); }

  private:
    struct Close {
        void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
    };
    std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace outbox::test
