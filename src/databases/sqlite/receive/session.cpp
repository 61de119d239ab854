#include "databases/sqlite/receive/session.h"

#include <algorithm>
#include <utility>

#include "core/url.h"

namespace outbox::consumer {
namespace {

using sqlite::Run;

constexpr const char* kBegin = "BEGIN IMMEDIATE";
constexpr const char* kCommit = "COMMIT";
constexpr const char* kRollback = "ROLLBACK";

}  // namespace

std::string sqlite_path(const std::string& url) {
    const Url parsed = parse_url(url).value_or_throw();
    if (parsed.scheme != "sqlite" || !parsed.authority.empty() || parsed.path.size() < 2) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    "'" + redact(url) + "' names no SQLite file: write sqlite:///absolute/path.db");
    }
    return parsed.path;
}

SqliteSession::SqliteSession(std::string path, int busy_timeout_s,
                             std::vector<const char*> statements)
    : path_(std::move(path)), busy_timeout_ms_(busy_timeout_s * 1000), sql_(std::move(statements)) {
    sql_.insert(sql_.end(), {kBegin, kCommit, kRollback});
}

Status SqliteSession::connect() {
    if (database_) return {};
    ++number_;
    Status status = open();
    if (!status.ok()) disconnect();
    return status;
}

void SqliteSession::disconnect() {
    is_handlers_ = false;
    compiled_.clear();
    database_.reset();
}

Status SqliteSession::open() {
    auto opened = sqlite::Database::open(path_, busy_timeout_ms_, sqlite::Role::kReceive);
    if (!opened.ok()) return opened.status();
    database_ = std::move(*opened);
    database_->refuse_commits(&is_handlers_);
    database_->tell_rollbacks(&rolled_back_);
    // A broker is told that a message is applied.
    if (Status status = database_->execute(sqlite::kDurable); !status.ok()) return status;
    const std::string doing = "opening " + path_;
    for (const char* sql : sql_) {
        compiled_.push_back({sql, {*database_, sql, sqlite::Statement::Use::kKept}});
        Status status = compiled_.back().statement.status(doing.c_str());
        if (!status.ok()) return status;
    }
    return {};
}

sqlite::Statement& SqliteSession::statement(const char* sql) {
    return std::find_if(compiled_.begin(), compiled_.end(),
                        [sql](const Compiled& compiled) { return compiled.sql == sql; })
        ->statement;
}

Status SqliteSession::begin() {
    Status status = Run(statement(kBegin))->run("beginning a transaction");
    if (status.ok()) status = database_->read_schema();
    is_handlers_ = status.ok();
    rolled_back_ = false;
    return status;
}

Status SqliteSession::commit() {
    if (lost_transaction()) {
        end_transaction();
        return {ErrorCode::kHandlerFailed, Advice::kRetryEvent,
                "the handler, or an error that it ignored, ended the transaction; it must neither "
                "commit nor roll back"};
    }
    // One that a handler left open would keep the transaction from ending, or its snapshot in use.
    database_->reset_open_statements();
    is_handlers_ = false;
    Status status = Run(statement(kCommit))->run("committing");
    if (!status.ok()) {
        end_transaction();
        return status;
    }
    status = database_->require_unmoved();
    if (!status.ok()) disconnect();
    return status;
}

void SqliteSession::end_transaction() {
    if (!database_) return;
    database_->reset_open_statements();
    is_handlers_ = false;
    if (!database_->in_transaction()) return;
    if (!Run(statement(kRollback))->run("rolling back").ok()) disconnect();
}

}  // namespace outbox::consumer
