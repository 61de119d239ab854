#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {

// An empty database of its own for one test, PostgreSQL or SQLite. `connect` gives a connection of
// one thread's own.
class Database {
  public:
    using Row = std::vector<std::optional<std::string>>;

    class Connection {
      public:
        virtual ~Connection() = default;
        virtual std::vector<Row> query(const std::string& sql) = 0;
        void exec(const std::string& sql) { query(sql); }
        std::string value(const std::string& sql) {
            const auto rows = query(sql);
            if (rows.size() != 1) throw std::runtime_error("not one row: " + sql);
            return rows[0].at(0).value_or("");
        }
        long long number(const std::string& sql) { return std::stoll(value(sql)); }
    };

    virtual ~Database() = default;
    virtual std::string url() const = 0;
    virtual std::unique_ptr<Connection> connect() const = 0;
    // The payload column as text.
    virtual std::string payload_text() const = 0;

    std::string mailbox_url(const std::string& mailbox = {}) const {
        return "mailbox+" + url() + (mailbox.empty() ? "" : "?mailbox=" + mailbox);
    }
};

class PostgresDatabase final : public Database {
  public:
    explicit PostgresDatabase(PostgresServer& server = shared_postgres())
        : url_(server.create_database()) {}
    std::string url() const override { return url_; }
    std::unique_ptr<Connection> connect() const override {
        return std::make_unique<PgConnection>(url_);
    }
    std::string payload_text() const override { return "convert_from(payload, 'UTF8')"; }

  private:
    struct PgConnection final : Connection {
        explicit PgConnection(const std::string& url) : pg(url) {}
        std::vector<Row> query(const std::string& sql) override { return pg.query(sql); }
        Pg pg;
    };
    std::string url_;
};

class SqliteDatabase final : public Database {
  public:
    SqliteDatabase() { static_cast<void>(Sqlite(path())); }  // the file is there, and empty
    std::string url() const override { return "sqlite://" + path(); }
    std::string path() const { return folder_ / "consumer.db"; }
    std::unique_ptr<Connection> connect() const override {
        return std::make_unique<SqliteConnection>(path());
    }
    std::string payload_text() const override { return "payload"; }

  private:
    struct SqliteConnection final : Connection {
        explicit SqliteConnection(const std::string& path) : sqlite(path) {}
        std::vector<Row> query(const std::string& sql) override { return sqlite.query(sql); }
        Sqlite sqlite;
    };
    TemporaryFolder folder_{"consumer"};
};

enum class Backend { kPostgres, kSqlite };

// Has a message applied elsewhere between the transaction of a connection and its next one.
class AppliedElsewhere {
  public:
    AppliedElsewhere(const std::filesystem::path& file, std::string consumer, std::string id)
        : db_(file), consumer_(std::move(consumer)), id_(std::move(id)) {}
    // Called in the transaction that is going to fail.
    void after_this(sqlite3* connection) {
        sqlite3_trace_v2(
            connection, SQLITE_TRACE_STMT,
            [](unsigned, void* self, void*, void* sql) {
                const std::string_view text(static_cast<const char*>(sql));
                if (text.starts_with("BEGIN")) static_cast<AppliedElsewhere*>(self)->apply();
                return 0;
            },
            this);
    }
    bool done() const { return done_; }

  private:
    void apply() {
        if (done_.exchange(true)) return;
        db_.exec("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('" + consumer_ + "', '" +
                 id_ + "')");
    }
    Sqlite db_;
    std::string consumer_;
    std::string id_;
    std::atomic<bool> done_ = false;
};

// Once a row comes into the table, in its transaction, a copy takes the place of an SQLite file
// with a write-ahead log.
class ReplacedInTransaction {
  public:
    // Nobody has the file open.
    ReplacedInTransaction(std::string path, const std::string& table) : path_(std::move(path)) {
        Sqlite(path_).exec("PRAGMA journal_mode = WAL; CREATE TRIGGER replaced AFTER INSERT ON " +
                           table + " BEGIN SELECT replace_the_file(); END");
        std::filesystem::copy_file(path_, copy());
        current = this;
        sqlite3_auto_extension(entry());
    }
    ~ReplacedInTransaction() {
        sqlite3_cancel_auto_extension(entry());
        current = nullptr;
    }
    ReplacedInTransaction(const ReplacedInTransaction&) = delete;
    ReplacedInTransaction& operator=(const ReplacedInTransaction&) = delete;

    void replace() const {
        if (!std::filesystem::exists(copy())) return;
        for (const char* log : {"-wal", "-shm"}) std::filesystem::remove(path_ + log);
        std::filesystem::rename(copy(), path_);
    }

  private:
    std::string copy() const { return path_ + ".copy"; }
    static void (*entry())() { return reinterpret_cast<void (*)()>(&add_function); }
    static int add_function(sqlite3* connection, char** /*error*/, const void* /*api*/) {
        return sqlite3_create_function(
            connection, "replace_the_file", 0, SQLITE_UTF8 | SQLITE_INNOCUOUS, nullptr,
            [](sqlite3_context*, int, sqlite3_value**) { current->replace(); }, nullptr, nullptr);
    }
    static inline const ReplacedInTransaction* current = nullptr;
    std::string path_;
};

inline std::unique_ptr<Database> make_database(Backend backend) {
    if (backend == Backend::kPostgres) return std::make_unique<PostgresDatabase>();
    return std::make_unique<SqliteDatabase>();
}

inline std::string backend_name(Backend backend) {
    return backend == Backend::kPostgres ? "PostgreSQL" : "SQLite";
}

}  // namespace outbox::test
