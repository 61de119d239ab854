#pragma once

#include <fstream>
#include <memory>
#include <optional>
#include <string>
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
        explicit SqliteConnection(const std::string& path) : sqlite(path) {
            sqlite.exec("PRAGMA busy_timeout = 20000");
        }
        std::vector<Row> query(const std::string& sql) override { return sqlite.query(sql); }
        Sqlite sqlite;
    };
    TemporaryFolder folder_{"consumer"};
};

enum class Backend { kPostgres, kSqlite };

inline std::unique_ptr<Database> make_database(Backend backend) {
    if (backend == Backend::kPostgres) return std::make_unique<PostgresDatabase>();
    return std::make_unique<SqliteDatabase>();
}

inline std::string backend_name(Backend backend) {
    return backend == Backend::kPostgres ? "PostgreSQL" : "SQLite";
}

}  // namespace outbox::test
