#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "databases/sqlite/errors.h"

struct sqlite3;
struct sqlite3_stmt;

namespace outbox::sqlite {

class Database;

/// A prepared statement. On our connection the first error sticks: bind and step on, then look at
/// `status`. On a caller's it is thrown as `Error`. Must not outlive its connection.
class Statement {
  public:
    enum class Use : std::uint8_t { kOnce, kKept };

    Statement(const Database& database, std::string_view sql, Use use = Use::kOnce);
    /// `doing`: "writing an event"; it must outlive this. Where a write transaction is open,
    /// `read_schema` first.
    Statement(sqlite3* callers, std::string_view sql, Role role, const char* doing);

    /// Parameters in order, from the first after `reset`. Text is copied; null data() is NULL.
    Statement& bind(std::int64_t value);
    Statement& bind(double value);
    template <std::integral Value>
    Statement& bind(Value value) {
        return bind(static_cast<std::int64_t>(value));
    }
    Statement& bind(std::string_view text);
    Statement& bind_blob(std::string_view bytes);
    Statement& bind_null();
    Statement& bind_or_null(std::optional<std::int64_t> value);

    /// The same without a copy: the bytes must outlive the run. Null data() is the empty text.
    Statement& lend(std::string_view text);
    /// Null data() is NULL.
    Statement& lend_or_null(std::string_view text);
    Statement& lend_blob(std::string_view bytes);

    /// As far as it was read from the text it was made of: one statement. None: there was none.
    [[nodiscard]] std::string_view sql() const;
    /// It may change the database.
    [[nodiscard]] bool writes() const;

    /// True: there is a row, and its columns can be read until the next step.
    bool step();
    /// Runs to the end. `doing`: as `status`.
    Status run(const char* doing = nullptr);
    /// Makes one step; how many rows that changed.
    std::int64_t changed();
    /// For another run. Values that are not bound again stay.
    void reset();
    /// For another run, of which nothing of this one is known.
    void forget();
    [[nodiscard]] bool failed() const { return code_ != 0; }
    /// `doing`: "reading the mailbox"; without it the error names the file.
    [[nodiscard]] Status status(const char* doing = nullptr) const;

    /// Valid until the next step; null data() for NULL.
    [[nodiscard]] std::string_view text(int column) const;
    [[nodiscard]] std::string string(int column) const { return std::string(text(column)); }
    [[nodiscard]] std::int64_t integer(int column) const;
    [[nodiscard]] double number(int column) const;
    [[nodiscard]] bool is_null(int column) const { return text(column).data() == nullptr; }
    [[nodiscard]] int columns() const;

  private:
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };
    void prepare(std::string_view sql, Use use);
    void note(int result);

    sqlite3* connection_;
    Role role_;
    const std::string* path_ = nullptr;  // of our connection
    const char* doing_ = nullptr;        // on a caller's
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
    int bound_ = 0;
    int code_ = 0;  // of the first error
    std::string message_;
};

/// A run of a statement that is kept; forgets it at the end.
class Run {
  public:
    explicit Run(Statement& statement) : statement_(statement) {}
    ~Run() { statement_.forget(); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    Statement* operator->() const { return &statement_; }

  private:
    Statement& statement_;
};

/// One connection. Used by one thread.
class Database {
  public:
    enum class File : std::uint8_t { kMustExist, kMayBeMade };

    static Result<std::unique_ptr<Database>> open(const std::string& path, int busy_timeout_ms,
                                                  Role role = Role::kRelay,
                                                  File file = File::kMustExist);

    /// Several statements may be given; rows are dropped.
    Status execute(const std::string& sql);
    /// Begins a transaction that writes, and reads the schema in it. Blocks up to the busy timeout.
    Status begin();
    /// For who has begun one in their own way: as the function of this name. After an error none is
    /// open.
    Status read_schema();
    /// Rows that the last statement changed.
    [[nodiscard]] std::int64_t changes() const;
    /// Another file has taken the path, or none; or a link in it leads elsewhere.
    [[nodiscard]] bool has_moved() const;
    /// For who has committed and is about to say so: an error where the file has moved. Who waited
    /// for its lock may have written to one that nobody reads.
    [[nodiscard]] Status require_unmoved() const;
    [[nodiscard]] bool in_transaction() const;
    /// The file's name as SQLite has resolved it; where it has none, the path.
    [[nodiscard]] std::string file() const;
    /// While `*refused` a commit is a rollback, and an error of what committed: a statement of its
    /// own that no transaction is open for, too. It outlives this.
    void refuse_commits(const bool* refused);
    /// A rollback, but one to a savepoint, sets it. It outlives this.
    void tell_rollbacks(bool* rolled_back);
    /// An error where the disk or the memory failed the last call on this connection, a caller's
    /// too: not what was asked is at fault.
    [[nodiscard]] Status failure_of_machine(const char* doing) const;
    /// Resets statements of anybody's that are in the middle of their rows.
    void reset_open_statements();
    [[nodiscard]] sqlite3* handle() const { return handle_.get(); }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] Role role() const { return role_; }

  private:
    struct Close {
        void operator()(sqlite3* database) const;
    };
    std::unique_ptr<sqlite3, Close> handle_;
    std::string path_;
    Role role_ = Role::kRelay;
};

/// Runs SQL without rows on a caller's connection. Throws `Error`.
void execute(sqlite3* callers, const char* sql, Role role, const std::string& doing);
[[nodiscard]] bool in_transaction(sqlite3* callers);
/// Reads the schema in the transaction that is open, before a statement of it would: SQLite passes
/// over what keeps it from reading what ANALYZE has written there (sqlite3AnalysisLoad in its
/// analyze.c), but ends the transaction, so that what follows would be committed statement by
/// statement. Throws `Error`, then too.
void read_schema(sqlite3* callers, Role role, const std::string& doing);
/// Lets a transaction that is open and does not write yet (BEGIN DEFERRED) begin to, by a statement
/// that changes nothing, so that the schema is read before one that does, as above. Throws `Error`,
/// where that ended the transaction, too.
void begin_writing(sqlite3* callers, const char* changes_nothing, Role role,
                   const std::string& doing);
/// Does nothing where no transaction is open.
void roll_back(sqlite3* callers) noexcept;

/// A write transaction; rolls back unless committed.
class WriteTransaction {
  public:
    explicit WriteTransaction(Database& database) : database_(database) {}
    ~WriteTransaction();
    WriteTransaction(const WriteTransaction&) = delete;
    WriteTransaction& operator=(const WriteTransaction&) = delete;

    /// Blocks up to the busy timeout.
    Status begin() { return database_.begin(); }
    Status commit() { return database_.execute("COMMIT"); }

  private:
    Database& database_;
};

/// A connection that is made when it is needed and made again after `drop`, to a file that this
/// process has opened before: one that is not there is away, and no wrong path.
class Session {
  public:
    Session(std::string path, int busy_timeout_ms,
            std::function<Status(Database&)> prepare = nullptr);

    /// `kServerChanged` where another file has taken the path since, also since a `drop`: once,
    /// then that one is used. Where there is none the advice is to try again.
    Result<Database*> get();
    void drop() { database_.reset(); }

  private:
    [[nodiscard]] ErrorInfo replaced() const;
    /// Whether the file that was opened is another one than that before.
    bool is_another();

    std::optional<std::pair<std::uint64_t, std::uint64_t>> file_;  // device and inode
    std::string path_;
    int busy_timeout_ms_;
    std::function<Status(Database&)> prepare_;
    std::unique_ptr<Database> database_;
};

/// The path without links, by which those who come by several know that they mean one file; as it
/// is, where there is no file.
[[nodiscard]] std::string real_path(const std::string& path);

/// Of a connection whose commits others are told of as durable: with less one may be undone when
/// power fails, with FULL, too, where the journal is no write-ahead log.
inline constexpr const char* kDurable = "PRAGMA synchronous = EXTRA";

/// Microseconds since the Unix epoch: the clock of everything that SQLite's tables hold.
[[nodiscard]] std::int64_t now_us();

}  // namespace outbox::sqlite
