#pragma once

#include <cstdint>
#include <optional>
#include <sqlite3.h>
#include <string>
#include <string_view>

#include "databases/sqlite/receive/errors.h"

namespace outbox::consumer {

/// Throws `Error` unless a transaction is open; `who` names the call: "accept".
void require_transaction(sqlite3* database, const std::string& who);

/// Throws the connection's last error, for a transaction that is the caller's.
[[noreturn]] void throw_caller_error(sqlite3* database, const char* doing);

/// "schema.table" or "column", as SQL.
[[nodiscard]] std::string quoted_name(std::string_view name);

/// One statement, run once on the caller's connection. Throws `Error`. Texts must outlive it.
class SqliteUse {
  public:
    SqliteUse(sqlite3* database, const std::string& sql, const char* doing);

    SqliteUse& text(std::string_view value);
    SqliteUse& blob(std::string_view value);
    SqliteUse& number(std::int64_t value);
    SqliteUse& number_or_null(std::optional<std::int64_t> value);

    /// True: there is a row. False: done.
    bool next();
    /// Runs it; how many rows it changed.
    int changes();
    /// For another run with other values.
    void reset();

    [[nodiscard]] int columns() const { return sqlite3_column_count(statement_.get()); }
    [[nodiscard]] bool is_null(int column) const;
    [[nodiscard]] std::int64_t integer(int column) const;
    [[nodiscard]] std::string bytes(int column) const;

  private:
    void check(int code) const;

    sqlite3* database_;
    const char* doing_;
    SqliteStatement statement_;
    int index_ = 0;
};

}  // namespace outbox::consumer
