#pragma once

#include <memory>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "databases/sqlite/client.h"

namespace outbox::consumer {

/// The path in sqlite:///path. Throws `Error` kConfigInvalid for anything else.
std::string sqlite_path(const std::string& url);

/// A connection in whose transactions handlers work. Nothing but `commit` commits in them: where a
/// handler, or an error that it ignored, has ended one, SQLite would commit what follows statement
/// by statement, or with the transaction that the handler has begun. Used by one thread.
class SqliteSession {
  public:
    /// `statements` are compiled when connecting.
    SqliteSession(std::string path, int busy_timeout_s, std::vector<const char*> statements);
    SqliteSession(const SqliteSession&) = delete;
    SqliteSession& operator=(const SqliteSession&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] sqlite3* connection() const { return database_ ? database_->handle() : nullptr; }
    [[nodiscard]] bool connected() const { return database_ != nullptr; }
    /// The path leads to another file than the one that is open.
    [[nodiscard]] bool has_moved() const { return database_->has_moved(); }

    Status connect();
    /// Of this session; another one each time it is made anew, and never 0.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    void disconnect();

    Status begin();
    /// An error when the handler, or an error that it ignored, ended the transaction. After an
    /// error nothing is open.
    Status commit();
    /// Of the transaction that was begun: the handler, or an error that it ignored, ended it.
    [[nodiscard]] bool lost_transaction() const { return is_handlers_ && rolled_back_; }
    /// An error where the disk or the memory failed the handler's last call.
    [[nodiscard]] Status failure_of_machine() const {
        return database_->failure_of_machine("applying a message");
    }
    /// Statements that a handler left open are reset. A transaction that cannot be rolled back dies
    /// with the connection.
    void end_transaction();

    /// One of the compiled ones, for a `sqlite::Run`.
    [[nodiscard]] sqlite::Statement& statement(const char* sql);
    /// One that is not; the session is connected.
    [[nodiscard]] sqlite::Statement prepare(const char* sql) const { return {*database_, sql}; }
    /// How many rows the last statement changed.
    [[nodiscard]] std::int64_t changes() const { return database_->changes(); }

  private:
    struct Compiled {
        const char* sql;
        sqlite::Statement statement;
    };
    Status open();

    std::string path_;
    int busy_timeout_ms_;
    std::vector<const char*> sql_;
    std::unique_ptr<sqlite::Database> database_;
    std::uint64_t number_ = 0;
    std::vector<Compiled> compiled_;
    bool is_handlers_ = false;  // between `begin` and its end
    bool rolled_back_ = false;  // since `begin`
};

}  // namespace outbox::consumer
