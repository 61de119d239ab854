#include "databases/sqlite/receive/session.h"

#include <algorithm>
#include <utility>

#include "core/url.h"

namespace outbox::consumer {
namespace {

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

bool SqliteSession::has_moved() const {
    int moved = 0;
    const int code =
        sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    return code == SQLITE_OK && moved != 0;
}

Status SqliteSession::connect() {
    if (connection_) return {};
    Status status = open();
    if (!status.ok()) disconnect();
    return status;
}

void SqliteSession::disconnect() {
    compiled_.clear();
    connection_.reset();
}

Status SqliteSession::open() {
    sqlite3* database = nullptr;
    const int code = sqlite3_open_v2(path_.c_str(), &database,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    connection_.reset(database);
    const std::string doing = "opening " + path_;
    if (code != SQLITE_OK) return error(doing);
    sqlite3_extended_result_codes(database, 1);
    sqlite3_busy_timeout(database, busy_timeout_ms_);
    for (const char* sql : sql_) {
        sqlite3_stmt* compiled = nullptr;
        if (sqlite3_prepare_v3(database, sql, -1, SQLITE_PREPARE_PERSISTENT, &compiled, nullptr) !=
            SQLITE_OK) {
            return error(doing);
        }
        compiled_.push_back({sql, SqliteStatement(compiled)});
    }
    return {};
}

Status SqliteSession::begin() {
    return Run(*this, kBegin).finish("beginning a transaction");
}

Status SqliteSession::commit() {
    if (sqlite3_get_autocommit(connection_.get()) != 0) {
        end_transaction();
        return {ErrorCode::kHandlerFailed, Advice::kRetryEvent,
                "the handler, or an error that it ignored, ended the transaction; it must neither "
                "commit nor roll back"};
    }
    reset_open_statements();
    Status status = Run(*this, kCommit).finish("committing");
    if (!status.ok()) end_transaction();
    return status;
}

void SqliteSession::end_transaction() {
    if (!connection_) return;
    reset_open_statements();
    if (sqlite3_get_autocommit(connection_.get()) != 0) return;
    if (!Run(*this, kRollback).finish("rolling back").ok()) disconnect();
}

// One that a handler left open would keep the transaction from ending, or its snapshot in use.
void SqliteSession::reset_open_statements() const {
    for (sqlite3_stmt* s = sqlite3_next_stmt(connection_.get(), nullptr); s != nullptr;
         s = sqlite3_next_stmt(connection_.get(), s)) {
        if (sqlite3_stmt_busy(s) != 0) sqlite3_reset(s);
    }
}

SqliteSession::Run::Run(const SqliteSession& session, const char* sql)
    : session_(session),
      statement_(std::find_if(session.compiled_.begin(), session.compiled_.end(),
                              [sql](const Compiled& compiled) { return compiled.sql == sql; })
                     ->statement.get()) {}

SqliteSession::Run::~Run() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
}

SqliteSession::Run& SqliteSession::Run::text(std::string_view value) {
    note(sqlite3_bind_text64(statement_, ++index_, value.data() == nullptr ? "" : value.data(),
                             value.size(), SQLITE_STATIC, SQLITE_UTF8));
    return *this;
}

SqliteSession::Run& SqliteSession::Run::text_or_null(std::string_view value) {
    if (value.data() != nullptr) return text(value);
    ++index_;
    return *this;
}

SqliteSession::Run& SqliteSession::Run::blob_or_null(std::string_view value) {
    ++index_;
    if (value.data() == nullptr) return *this;
    note(sqlite3_bind_blob64(statement_, index_, value.data(), value.size(), SQLITE_STATIC));
    return *this;
}

SqliteSession::Run& SqliteSession::Run::number(std::int64_t value) {
    note(sqlite3_bind_int64(statement_, ++index_, value));
    return *this;
}

SqliteSession::Run& SqliteSession::Run::number_or_null(std::optional<std::int64_t> value) {
    if (value) return number(*value);
    ++index_;
    return *this;
}

bool SqliteSession::Run::next() {
    if (bind_error_ != SQLITE_OK) return false;
    const int code = sqlite3_step(statement_);
    failed_ = code != SQLITE_ROW && code != SQLITE_DONE;
    return code == SQLITE_ROW;
}

Status SqliteSession::Run::finish(const char* doing) {
    while (next()) {
    }
    return failed() ? Status(session_.error(doing)) : Status();
}

std::int64_t SqliteSession::Run::integer(int column) const {
    return sqlite3_column_int64(statement_, column);
}

std::string_view SqliteSession::Run::bytes(int column) const {
    if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return {};
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
    return data == nullptr ? std::string_view("") : std::string_view(data, size);
}

void SqliteSession::Run::append_messages(std::size_t max_bytes, spi::EventBatch& out) {
    const auto copied = [&](int column) {
        const std::string_view value = bytes(column);
        return value.data() == nullptr ? value : out.copy(value);
    };
    while (out.bytes() < max_bytes && next()) {
        spi::EventView event;
        event.position = integer(0);
        event.id = copied(1);
        event.topic = copied(2);
        event.key = copied(3);
        event.headers = copied(4);
        event.payload = copied(5);
        out.add(event);
    }
}

void SqliteSession::Run::note(int code) {
    if (code != SQLITE_OK) bind_error_ = code;
}

}  // namespace outbox::consumer
