#pragma once

#include <cstdint>
#include <sqlite3.h>
#include <string>

namespace orders {

/// One SQLite connection in WAL mode. Failures throw `outbox::Error`: `kRetryDestination` where
/// waiting can help (locked, disk full, file gone), `kDeadLetter` for data that the tables refuse,
/// else `kStop`.
class Sqlite {
  public:
    explicit Sqlite(const std::string& path);
    ~Sqlite() { sqlite3_close(handle_); }
    Sqlite(const Sqlite&) = delete;
    Sqlite& operator=(const Sqlite&) = delete;

    [[nodiscard]] sqlite3* handle() const { return handle_; }
    [[nodiscard]] static bool usable() { return true; }

    /// Several statements without results.
    void exec(const std::string& sql);

  private:
    sqlite3* handle_ = nullptr;
};

/// Throws the `outbox::Error` for the last failure on this connection.
[[noreturn]] void throw_sqlite_error(sqlite3* connection, const std::string& what);

/// A statement and its current row. Text that a column gives is a copy.
class SqliteStatement {
  public:
    SqliteStatement(sqlite3* connection, const std::string& sql);
    ~SqliteStatement() { sqlite3_finalize(statement_); }
    SqliteStatement(const SqliteStatement&) = delete;
    SqliteStatement& operator=(const SqliteStatement&) = delete;

    SqliteStatement& bind(int parameter, const std::string& value);
    SqliteStatement& bind(int parameter, std::int64_t value);

    /// True: there is a row. False: done.
    bool step();
    [[nodiscard]] int columns() const { return sqlite3_column_count(statement_); }
    [[nodiscard]] std::string text(int column) const;
    [[nodiscard]] std::int64_t integer(int column) const;

  private:
    sqlite3* connection_;
    sqlite3_stmt* statement_ = nullptr;
};

}  // namespace orders
