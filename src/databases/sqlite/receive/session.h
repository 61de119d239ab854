#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "databases/sqlite/receive/errors.h"

namespace outbox::consumer {

/// The path in sqlite:///path. Throws `Error` kConfigInvalid for anything else.
std::string sqlite_path(const std::string& url);

/// A connection in whose transactions handlers work. Used by one thread.
class SqliteSession {
  public:
    /// `statements` are compiled when connecting; a `Run` takes one of them.
    SqliteSession(std::string path, int busy_timeout_s, std::vector<const char*> statements);

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] sqlite3* connection() const { return connection_.get(); }
    [[nodiscard]] bool connected() const { return connection_ != nullptr; }
    /// The path leads to another file than the one that is open.
    [[nodiscard]] bool has_moved() const;

    Status connect();
    void disconnect();

    Status begin();
    /// An error when the handler, or an error that it ignored, ended the transaction. After an
    /// error nothing is open.
    Status commit();
    /// Statements that a handler left open are reset. A transaction that cannot be rolled back dies
    /// with the connection.
    void end_transaction();

    [[nodiscard]] ErrorInfo error(const std::string& doing) const {
        return sqlite_error(connection_.get(), doing);
    }

    /// One execution of a compiled statement; resets it at the end. Views must outlive it.
    class Run {
      public:
        Run(const SqliteSession& session, const char* sql);
        ~Run();
        Run(const Run&) = delete;
        Run& operator=(const Run&) = delete;

        Run& text(std::string_view value);
        Run& text_or_null(std::string_view value);
        Run& blob_or_null(std::string_view value);
        Run& number(std::int64_t value);
        Run& number_or_null(std::optional<std::int64_t> value);

        /// True: a row. False: the end, or an error (`failed`).
        bool next();
        [[nodiscard]] bool failed() const { return failed_ || bind_error_ != SQLITE_OK; }
        /// Runs it to its end.
        Status finish(const char* doing);

        [[nodiscard]] std::int64_t integer(int column) const;
        [[nodiscard]] std::string_view bytes(int column) const;
        /// Appends rows of position, id, topic, key, headers, payload until one reaches
        /// `max_bytes`.
        void append_messages(std::size_t max_bytes, spi::EventBatch& out);

      private:
        void note(int code);

        const SqliteSession& session_;
        sqlite3_stmt* statement_;
        int index_ = 0;
        int bind_error_ = SQLITE_OK;
        bool failed_ = false;
    };

    /// How many rows the last statement changed.
    [[nodiscard]] std::int64_t changes() const { return sqlite3_changes64(connection_.get()); }

  private:
    struct Compiled {
        const char* sql;
        SqliteStatement statement;
    };
    Status open();
    void reset_open_statements() const;

    std::string path_;
    int busy_timeout_ms_;
    std::vector<const char*> sql_;
    SqliteConnection connection_;
    std::vector<Compiled> compiled_;
};

}  // namespace outbox::consumer
