#include "databases/sqlite/client.h"

#include <chrono>
#include <sqlite3.h>
#include <utility>

#include "databases/sqlite/errors.h"

namespace outbox::sqlite {

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
    sqlite3_finalize(statement);
}

Statement::Statement(Database& database, std::string_view sql) : database_(&database) {
    sqlite3_stmt* prepared = nullptr;
    note(sqlite3_prepare_v3(database.handle(), sql.data(), static_cast<int>(sql.size()), 0,
                            &prepared, nullptr));
    statement_.reset(prepared);
}

void Statement::note(int result) {
    if (result == SQLITE_OK || result == SQLITE_ROW || result == SQLITE_DONE || error_) return;
    error_ = sqlite_error(sqlite3_extended_errcode(database_->handle()),
                          sqlite3_errmsg(database_->handle()), database_->path());
}

Statement& Statement::bind(std::int64_t value) {
    if (!error_) note(sqlite3_bind_int64(statement_.get(), ++bound_, value));
    return *this;
}

Statement& Statement::bind(double value) {
    if (!error_) note(sqlite3_bind_double(statement_.get(), ++bound_, value));
    return *this;
}

Statement& Statement::bind(std::string_view text) {
    if (text.data() == nullptr) return bind_null();
    if (!error_) {
        note(sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(),
                                 SQLITE_TRANSIENT, SQLITE_UTF8));
    }
    return *this;
}

Statement& Statement::bind_blob(std::string_view bytes) {
    if (bytes.data() == nullptr) return bind_null();
    if (!error_) {
        note(sqlite3_bind_blob64(statement_.get(), ++bound_, bytes.data(), bytes.size(),
                                 SQLITE_TRANSIENT));
    }
    return *this;
}

Statement& Statement::bind_null() {
    if (!error_) note(sqlite3_bind_null(statement_.get(), ++bound_));
    return *this;
}

bool Statement::step() {
    if (error_) return false;
    const int result = sqlite3_step(statement_.get());
    note(result);
    return result == SQLITE_ROW;
}

Status Statement::run() {
    while (step()) {
    }
    Status outcome = status();
    reset();
    return outcome;
}

void Statement::reset() {
    sqlite3_reset(statement_.get());
    bound_ = 0;
}

Status Statement::status() const {
    return error_ ? Status(*error_) : Status();
}

std::string_view Statement::text(int column) const {
    if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return {};
    // The bytes of text and of a blob alike; SQLite gives no pointer for an empty blob.
    const void* bytes = sqlite3_column_blob(statement_.get(), column);
    const int size = sqlite3_column_bytes(statement_.get(), column);
    return bytes == nullptr
               ? std::string_view("")
               : std::string_view(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

std::int64_t Statement::integer(int column) const {
    return sqlite3_column_int64(statement_.get(), column);
}

double Statement::number(int column) const {
    return sqlite3_column_double(statement_.get(), column);
}

void Database::Close::operator()(sqlite3* database) const {
    sqlite3_close_v2(database);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, int busy_timeout_ms) {
    auto database = std::make_unique<Database>();
    database->path_ = path;
    sqlite3* handle = nullptr;
    const int result = sqlite3_open_v2(path.c_str(), &handle,
                                       SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    database->handle_.reset(handle);
    if (result != SQLITE_OK) return sqlite_error(result, sqlite3_errmsg(handle), path);
    sqlite3_busy_timeout(handle, busy_timeout_ms);
    return database;
}

Status Database::execute(const std::string& sql) {
    if (sqlite3_exec(handle(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return sqlite_error(sqlite3_extended_errcode(handle()), sqlite3_errmsg(handle()), path_);
}

std::int64_t Database::changes() const {
    return sqlite3_changes64(handle());
}

WriteTransaction::~WriteTransaction() {
    if (sqlite3_get_autocommit(database_.handle()) == 0) {
        sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
    }
}

Session::Session(std::string path, int busy_timeout_ms, std::function<Status(Database&)> prepare)
    : path_(std::move(path)), busy_timeout_ms_(busy_timeout_ms), prepare_(std::move(prepare)) {}

Result<Database*> Session::get() {
    if (database_) {
        int moved = 0;
        const int asked =
            sqlite3_file_control(database_->handle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
        if (asked != SQLITE_OK || moved == 0) return database_.get();
        database_.reset();
        return ErrorInfo{ErrorCode::kServerChanged,
                         Advice::kStop,
                         {},
                         "the file " + path_ + " was replaced or removed"};
    }
    auto opened = Database::open(path_, busy_timeout_ms_);
    if (!opened.ok() && was_open_) {
        return ErrorInfo{
            ErrorCode::kConnectFailed, Advice::kRetryDestination, opened.error().backend_code,
            "the file " + path_ + " is away or cannot be opened; is its volume there?"};
    }
    if (!opened.ok()) return opened.error();
    was_open_ = true;
    if (prepare_) {
        if (Status status = prepare_(**opened); !status.ok()) return status;
    }
    database_ = std::move(*opened);
    return database_.get();
}

std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace outbox::sqlite
