#include "databases/sqlite/receive/use.h"

namespace outbox::consumer {

void require_transaction(sqlite3* database, const std::string& who) {
    if (sqlite3_get_autocommit(database) == 0) return;
    throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                who +
                    " needs the open transaction that applies the message or request: call it "
                    "between BEGIN IMMEDIATE and COMMIT");
}

void throw_caller_error(sqlite3* database, const char* doing) {
    ErrorInfo error = sqlite_error(database, doing);
    // In the caller's hands it is the transaction that has to run again.
    if ((sqlite3_errcode(database) & 0xff) == SQLITE_BUSY) {
        error.code = ErrorCode::kConflict;
        error.advice = Advice::kRetryEvent;
        error.message += "; roll back and run the transaction again, with BEGIN IMMEDIATE";
    }
    throw Error(std::move(error));
}

std::string quoted_name(std::string_view name) {
    std::string out = "\"";
    for (const char c : name) {
        if (c == '.') {
            out += "\".\"";
            continue;
        }
        if (c == '"') out += '"';
        out += c;
    }
    return out + "\"";
}

SqliteUse::SqliteUse(sqlite3* database, const std::string& sql, const char* doing)
    : database_(database), doing_(doing) {
    sqlite3_stmt* compiled = nullptr;
    check(sqlite3_prepare_v2(database, sql.c_str(), -1, &compiled, nullptr));
    statement_.reset(compiled);
}

SqliteUse& SqliteUse::text(std::string_view value) {
    check(sqlite3_bind_text64(statement_.get(), ++index_,
                              value.data() == nullptr ? "" : value.data(), value.size(),
                              SQLITE_STATIC, SQLITE_UTF8));
    return *this;
}

SqliteUse& SqliteUse::blob(std::string_view value) {
    check(sqlite3_bind_blob64(statement_.get(), ++index_,
                              value.data() == nullptr ? "" : value.data(), value.size(),
                              SQLITE_STATIC));
    return *this;
}

SqliteUse& SqliteUse::number(std::int64_t value) {
    check(sqlite3_bind_int64(statement_.get(), ++index_, value));
    return *this;
}

SqliteUse& SqliteUse::number_or_null(std::optional<std::int64_t> value) {
    if (value) return number(*value);
    ++index_;
    return *this;
}

bool SqliteUse::next() {
    const int code = sqlite3_step(statement_.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE) throw_caller_error(database_, doing_);
    return code == SQLITE_ROW;
}

int SqliteUse::changes() {
    next();
    return sqlite3_changes(database_);
}

void SqliteUse::reset() {
    sqlite3_reset(statement_.get());
    sqlite3_clear_bindings(statement_.get());
    index_ = 0;
}

bool SqliteUse::is_null(int column) const {
    return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

std::int64_t SqliteUse::integer(int column) const {
    return sqlite3_column_int64(statement_.get(), column);
}

std::string SqliteUse::bytes(int column) const {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
    return data == nullptr ? std::string() : std::string(data, size);
}

void SqliteUse::check(int code) const {
    if (code != SQLITE_OK) throw_caller_error(database_, doing_);
}

}  // namespace outbox::consumer
