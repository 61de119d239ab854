#include "databases/sqlite/mailbox_writer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/embedded_sql.h"
#include "core/url.h"
#include "core/utf8.h"
#include "databases/sqlite/client.h"
#include "mailbox/errors.h"

namespace outbox::mailbox {
namespace {

constexpr const char* kTableExists =
    "SELECT 1 FROM sqlite_master WHERE name = 'outbox_mailbox' AND type IN ('table', 'view')";

constexpr const char* kInsert =
    "INSERT INTO outbox_mailbox (mailbox, id, topic, key, headers, payload) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (mailbox, id) DO NOTHING";

using sqlite::Statement;

class SqliteClient final : public Client {
  public:
    explicit SqliteClient(const MailboxConfig& config) : config_(config) {}

    Status prepare() override {
        if (insert_ && !database_->has_moved()) return {};
        close();
        Status status = open();
        if (status.ok()) status = ensure_table();
        if (status.ok()) status = compile_insert();
        if (!status.ok()) close();
        return status;
    }

    Status look() override {
        if (insert_ && !database_->has_moved()) return {};
        Status status = open();
        bool there = false;
        if (status.ok()) status = look_for_table(there);
        if (status.ok() && there) status = compile_insert();
        close();
        return status;
    }

    // Makes nothing: who only looks asks it, too.
    Result<std::string> destination() override {
        const bool ready = insert_ && !database_->has_moved();
        if (!ready) {
            close();
            if (Status status = open(); !status.ok()) return status;
        }
        std::string name = "sqlite " + database_->file() + ", mailbox " + config_.mailbox;
        if (!ready) close();
        return name;
    }

    Status insert(std::span<const Row> rows) override {
        Status status = database_->begin();
        for (const Row& row : rows) {
            if (!status.ok()) break;
            status = insert_one(row);
        }
        if (status.ok()) status = database_->execute("COMMIT");
        if (status.ok()) status = database_->require_unmoved();
        if (status.ok()) return status;
        if (database_->in_transaction()) {
            // Its own result is of no use: what is open dies with the connection at the latest.
            static_cast<void>(database_->execute("ROLLBACK"));
        }
        if (!blames_a_message(status.error().advice) && !may_concern_a_row(status.error())) close();
        return status;
    }

    void drop() override { close(); }

    // A trigger that cannot be run, as what it names is missing, has the general code.
    [[nodiscard]] bool may_concern_a_row(const ErrorInfo& error) const override {
        return error.backend_code == "SQLITE_1";
    }

  private:
    // A file that is missing may be on a volume that is not there now: it is not made.
    Status open() {
        insert_.reset();
        constexpr int kMillis = 1000;
        auto opened = sqlite::Database::open(config_.target, config_.connect_timeout_s * kMillis,
                                             sqlite::Role::kMailbox);
        if (!opened.ok()) return opened.status();
        database_ = std::move(*opened);
        return database_->execute(sqlite::kDurable);
    }

    Status look_for_table(bool& there) {
        Statement table(*database_, kTableExists);
        there = table.step();
        return table.status();
    }

    Status ensure_table() {
        bool there = false;
        Status status = look_for_table(there);
        if (!status.ok() || there) return status;
        const std::string sql(embedded_sql_text("consumer/sqlite/mailbox.sql"));
        status = database_->execute(sql);
        if (status.ok() || status.error().code != ErrorCode::kNoRights) return status;
        return no_table(config_.target, status.error(), sql);
    }

    // The bytes outlive the run. A key or headers that are missing are NULL.
    Status insert_one(const Row& row) {
        const sqlite::Run insert(*insert_);
        insert->lend_or_null(config_.mailbox).lend_or_null(row.id).lend_or_null(row.topic);
        insert->lend_or_null(row.key).lend_or_null(row.headers);
        // Text, so that SQLite's JSON functions read it; bytes that are none stay as they are.
        if (is_utf8(row.payload) && row.payload.find('\0') == std::string_view::npos) {
            insert->lend_or_null(row.payload);
        } else {
            insert->lend_blob(row.payload);
        }
        return insert->run();
    }

    Status compile_insert() {
        insert_.emplace(*database_, kInsert, Statement::Use::kKept);
        Status status = insert_->status();
        if (!status.ok()) insert_.reset();
        return status;
    }

    void close() {
        insert_.reset();
        database_.reset();
    }

    MailboxConfig config_;
    std::unique_ptr<sqlite::Database> database_;
    std::optional<Statement> insert_;  // goes before the connection does
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
