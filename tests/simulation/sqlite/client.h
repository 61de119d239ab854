#pragma once

#include <string>
#include <vector>

struct sqlite3;

namespace outbox::simulation {

/// A service's or an operator's connection to a database file.
class SqliteClient {
  public:
    explicit SqliteClient(std::string path, int busy_timeout_ms = 2'000)
        : path_(std::move(path)), busy_timeout_ms_(busy_timeout_ms) {}
    ~SqliteClient() { close(); }
    SqliteClient(const SqliteClient&) = delete;
    SqliteClient& operator=(const SqliteClient&) = delete;

    /// One statement, whose rows are kept. Opens the file where it is not open, and makes none.
    bool run(const std::string& sql);
    [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const { return rows_; }
    [[nodiscard]] const std::string& error() const { return error_; }
    [[nodiscard]] bool busy() const;
    [[nodiscard]] bool in_transaction() const;
    /// Another file has taken the path.
    [[nodiscard]] bool has_moved() const;
    bool open();
    void close();
    [[nodiscard]] sqlite3* handle() const { return handle_; }

  private:
    bool fails(int result);

    const std::string path_;
    const int busy_timeout_ms_;
    sqlite3* handle_ = nullptr;
    std::vector<std::vector<std::string>> rows_;
    std::string error_;
    int code_ = 0;
};

}  // namespace outbox::simulation
