#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>

struct sqlite3;
struct sqlite3_stmt;

namespace outbox::sqlite {

class Database;

/// A prepared statement. The first error sticks: bind and step on, then look at `status`.
/// Must not outlive its database.
class Statement {
  public:
    Statement(Database& database, std::string_view sql);

    /// Parameters in order, from the first after `reset`. Text is copied; null data() is NULL.
    Statement& bind(std::int64_t value);
    Statement& bind(double value);
    Statement& bind(std::string_view text);
    Statement& bind_blob(std::string_view bytes);
    Statement& bind_null();

    /// True: there is a row, and its columns can be read until the next step.
    bool step();
    /// Runs to the end.
    Status run();
    void reset();
    [[nodiscard]] Status status() const;

    /// Valid until the next step; null data() for NULL.
    [[nodiscard]] std::string_view text(int column) const;
    [[nodiscard]] std::string string(int column) const { return std::string(text(column)); }
    [[nodiscard]] std::int64_t integer(int column) const;
    [[nodiscard]] double number(int column) const;

  private:
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };
    void note(int result);

    Database* database_;
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
    int bound_ = 0;
    std::optional<ErrorInfo> error_;
};

/// One connection. Used by one thread.
class Database {
  public:
    /// The file must exist.
    static Result<std::unique_ptr<Database>> open(const std::string& path, int busy_timeout_ms);

    /// Several statements may be given; rows are dropped.
    Status execute(const std::string& sql);
    /// Rows that the last statement changed.
    [[nodiscard]] std::int64_t changes() const;
    [[nodiscard]] sqlite3* handle() const { return handle_.get(); }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    struct Close {
        void operator()(sqlite3* database) const;
    };
    std::unique_ptr<sqlite3, Close> handle_;
    std::string path_;
};

/// A write transaction; rolls back unless committed.
class WriteTransaction {
  public:
    explicit WriteTransaction(Database& database) : database_(database) {}
    ~WriteTransaction();
    WriteTransaction(const WriteTransaction&) = delete;
    WriteTransaction& operator=(const WriteTransaction&) = delete;

    /// Blocks up to the busy timeout.
    Status begin() { return database_.execute("BEGIN IMMEDIATE"); }
    Status commit() { return database_.execute("COMMIT"); }

  private:
    Database& database_;
};

/// A connection that is made when it is needed and made again after `drop`.
class Session {
  public:
    Session(std::string path, int busy_timeout_ms,
            std::function<Status(Database&)> prepare = nullptr);

    /// `kServerChanged` where another file has taken the path since: once, then that one is used.
    /// Where there is none any more that is tried again, and no wrong path.
    Result<Database*> get();
    void drop() { database_.reset(); }

  private:
    std::string path_;
    int busy_timeout_ms_;
    std::function<Status(Database&)> prepare_;
    std::unique_ptr<Database> database_;
    bool was_open_ = false;
};

/// Microseconds since the Unix epoch: the clock of everything that SQLite's tables hold.
[[nodiscard]] std::int64_t now_us();

}  // namespace outbox::sqlite
