#include <fcntl.h>
#include <memory>
#include <sqlite3.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "core/embedded_sql.h"
#include "core/utf8.h"
#include "sinks/mailbox/client.h"
#include "sinks/mailbox/errors.h"

namespace outbox::mailbox {
namespace {

// Acknowledged means durable: in WAL mode NORMAL may lose the last commits when power fails.
constexpr const char* kSession = "PRAGMA synchronous = FULL";

constexpr const char* kTableExists =
    "SELECT 1 FROM sqlite_master WHERE name = 'outbox_mailbox' AND type IN ('table', 'view')";

constexpr const char* kInsert =
    "INSERT INTO outbox_mailbox (mailbox, id, topic, key, headers, payload) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (mailbox, id) DO NOTHING";

struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, Close>;
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

// SQLite takes an empty file for an empty database, and gives its journals the same mode. Failing
// is left to SQLite, which says why.
void make_private_file(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) ::close(file);
}

class SqliteClient final : public Client {
  public:
    explicit SqliteClient(const MailboxConfig& config) : config_(config) {}

    Status prepare() override {
        if (insert_ && !moved()) return {};
        close();
        Status status = open();
        if (!status.ok()) close();
        return status;
    }

    Status insert(std::span<const Row> rows) override {
        Status status = run("BEGIN IMMEDIATE");
        for (const Row& row : rows) {
            if (!status.ok()) break;
            status = insert_one(row);
        }
        if (status.ok()) status = run("COMMIT");
        if (status.ok()) return status;
        if (sqlite3_get_autocommit(database_.get()) == 0) {
            // Its own result is of no use: what is open dies with the connection at the latest.
            static_cast<void>(run("ROLLBACK"));
        }
        if (!blames_a_message(status.error().advice)) close();
        return status;
    }

  private:
    Status open() {
        make_private_file(config_.target);
        sqlite3* database = nullptr;
        const int code = sqlite3_open_v2(
            config_.target.c_str(), &database,
            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
        database_.reset(database);
        if (code != SQLITE_OK) return error();
        sqlite3_extended_result_codes(database_.get(), 1);
        sqlite3_busy_timeout(database_.get(), config_.connect_timeout_s * 1000);
        if (Status status = run(kSession); !status.ok()) return status;
        if (Status status = ensure_table(); !status.ok()) return status;
        return compile(kInsert, insert_);
    }

    Status ensure_table() {
        Statement look;
        if (Status status = compile(kTableExists, look); !status.ok()) return status;
        const int found = sqlite3_step(look.get());
        if (found == SQLITE_ROW) return {};
        if (found != SQLITE_DONE) return error();
        look.reset();
        const std::string sql(embedded_sql_text("consumer/sqlite/mailbox.sql"));
        Status status = run(sql.c_str());
        if (status.ok() || status.error().code != ErrorCode::kNoRights) return status;
        return no_table(config_.target, status.error(), sql);
    }

    Status insert_one(const Row& row) {
        sqlite3_reset(insert_.get());
        bind(1, config_.mailbox);
        bind(2, row.id);
        bind(3, row.topic);
        bind(4, row.key);
        bind(5, row.headers);
        // Text, so that SQLite's JSON functions read it; bytes that are none stay as they are.
        if (is_utf8(row.payload) && row.payload.find('\0') == std::string_view::npos) {
            bind(6, row.payload);
        } else {
            note(sqlite3_bind_blob64(insert_.get(), 6, row.payload.data(), row.payload.size(),
                                     SQLITE_STATIC));
        }
        const int bound = std::exchange(bind_error_, SQLITE_OK);
        if (bound != SQLITE_OK) return sqlite_error(bound, sqlite3_errstr(bound));
        Status status;
        if (sqlite3_step(insert_.get()) != SQLITE_DONE) status = error();
        sqlite3_reset(insert_.get());
        return status;
    }

    // The bytes outlive the statement's step. A null view is NULL.
    void bind(int index, std::string_view value) {
        note(sqlite3_bind_text64(insert_.get(), index, value.data(), value.size(), SQLITE_STATIC,
                                 SQLITE_UTF8));
    }
    void note(int code) {
        if (code != SQLITE_OK) bind_error_ = code;
    }

    Status run(const char* sql) {
        if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
        return error();
    }

    Status compile(const char* sql, Statement& out) {
        sqlite3_stmt* statement = nullptr;
        if (sqlite3_prepare_v2(database_.get(), sql, -1, &statement, nullptr) != SQLITE_OK) {
            return error();
        }
        out.reset(statement);
        return {};
    }

    // Another file has taken the path, or none: what is written to the old one is lost.
    [[nodiscard]] bool moved() const {
        int has_moved = 0;
        return sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &has_moved) ==
                   SQLITE_OK &&
               has_moved != 0;
    }

    void close() {
        insert_.reset();
        database_.reset();
    }

    [[nodiscard]] ErrorInfo error() const {
        return sqlite_error(sqlite3_extended_errcode(database_.get()),
                            config_.target + ": " + sqlite3_errmsg(database_.get()));
    }

    MailboxConfig config_;
    Database database_;
    Statement insert_;
    int bind_error_ = SQLITE_OK;
};

}  // namespace

std::unique_ptr<Client> make_sqlite_client(const MailboxConfig& config) {
    return std::make_unique<SqliteClient>(config);
}

}  // namespace outbox::mailbox
