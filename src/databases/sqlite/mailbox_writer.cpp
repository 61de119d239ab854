#include "databases/sqlite/mailbox_writer.h"

#include <memory>
#include <sqlite3.h>
#include <string>
#include <utility>

#include "core/embedded_sql.h"
#include "core/url.h"
#include "core/utf8.h"
#include "databases/sqlite/mailbox_errors.h"
#include "mailbox/errors.h"

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

class SqliteClient final : public Client {
  public:
    explicit SqliteClient(const MailboxConfig& config) : config_(config) {}

    Status prepare() override {
        if (insert_ && !moved()) return {};
        close();
        Status status = open();
        if (status.ok()) status = ensure_table();
        if (status.ok()) status = compile(kInsert, insert_);
        if (!status.ok()) close();
        return status;
    }

    Status look() override {
        if (insert_ && !moved()) return {};
        Statement table;
        Status status = open();
        if (status.ok()) status = compile(kTableExists, table);
        const int found = status.ok() ? sqlite3_step(table.get()) : SQLITE_OK;
        table.reset();
        if (found == SQLITE_ROW) {
            status = compile(kInsert, insert_);
            insert_.reset();
        } else if (status.ok() && found != SQLITE_DONE) {
            status = error();
        }
        close();
        return status;
    }

    Result<std::string> destination() override {
        if (Status status = prepare(); !status.ok()) return status;
        const char* file = sqlite3_db_filename(database_.get(), "main");
        return "sqlite " + std::string(file == nullptr ? config_.target : file) + ", mailbox " +
               config_.mailbox;
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
        sqlite3* database = nullptr;
        // A file that is missing may be on a volume that is not there now: it is not made.
        const int code = sqlite3_open_v2(config_.target.c_str(), &database,
                                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
        database_.reset(database);
        if (code == SQLITE_CANTOPEN) {
            return {ErrorCode::kNoSuchDatabase, Advice::kRetryDestination,
                    config_.target +
                        " cannot be opened; is its volume there? A new mailbox is "
                        "made by: outbox migrate --only consumer --db sqlite://" +
                        config_.target};
        }
        if (code != SQLITE_OK) return error();
        sqlite3_extended_result_codes(database_.get(), 1);
        sqlite3_busy_timeout(database_.get(), config_.connect_timeout_s * 1000);
        return run(kSession);
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

Result<std::unique_ptr<Client>> open_sqlite_mailbox(const MailboxConfig& config) {
    const auto invalid = [](std::string message) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "", std::move(message)};
    };
    const auto url = parse_url(config.target);
    if (!url.ok()) return url.error();
    if (!url->authority.empty() || url->path.size() < 2) {
        return invalid("'mailbox+" + redact(config.target) +
                       "' names no file: write mailbox+sqlite:///absolute/path.db, with three "
                       "slashes");
    }
    if (!url->query.empty() || !config.owners.empty()) {
        return invalid("unknown parameter '" +
                       (url->query.empty() ? "owner" : url->query.front().first) +
                       "' in the mailbox URL; the only one for SQLite is mailbox");
    }
    MailboxConfig of_file = config;
    of_file.target = url->path;
    return std::unique_ptr<Client>(std::make_unique<SqliteClient>(of_file));
}

}  // namespace outbox::mailbox
