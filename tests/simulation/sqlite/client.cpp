#include "tests/simulation/sqlite/client.h"

#include <memory>
#include <sqlite3.h>
#include <utility>

namespace outbox::simulation {

void SqliteClient::close() {
    sqlite3_close_v2(std::exchange(handle_, nullptr));
}

bool SqliteClient::fails(int result) {
    code_ = result;
    error_ = handle_ == nullptr ? "no connection" : sqlite3_errmsg(handle_);
    if (handle_ != nullptr)
        error_ += " (" + std::to_string(sqlite3_extended_errcode(handle_)) + ")";
    return false;
}

bool SqliteClient::open() {
    const int result = sqlite3_open_v2(path_.c_str(), &handle_, SQLITE_OPEN_READWRITE, nullptr);
    if (result != SQLITE_OK) {
        fails(result);
        close();
        return false;
    }
    sqlite3_busy_timeout(handle_, busy_timeout_ms_);
    // A service that wants to keep what it was told is committed.
    const int durable =
        sqlite3_exec(handle_, "PRAGMA main.synchronous = EXTRA", nullptr, nullptr, nullptr);
    if (durable == SQLITE_OK) return true;
    fails(durable);
    close();
    return false;
}

bool SqliteClient::run(const std::string& sql) {
    rows_.clear();
    error_.clear();
    code_ = SQLITE_OK;
    if (handle_ == nullptr && !open()) return false;
    sqlite3_stmt* prepared = nullptr;
    const int made = sqlite3_prepare_v2(handle_, sql.c_str(), -1, &prepared, nullptr);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared,
                                                                          sqlite3_finalize);
    if (made != SQLITE_OK) return fails(made);
    int result = 0;
    while ((result = sqlite3_step(prepared)) == SQLITE_ROW) {
        rows_.emplace_back();
        for (int column = 0; column < sqlite3_column_count(prepared); ++column) {
            const auto* text = sqlite3_column_text(prepared, column);
            rows_.back().emplace_back(text == nullptr ? "" : reinterpret_cast<const char*>(text));
        }
    }
    return result == SQLITE_DONE || fails(result);
}

bool SqliteClient::busy() const {
    constexpr int kPrimary = 0xff;
    return (code_ & kPrimary) == SQLITE_BUSY;
}

bool SqliteClient::in_transaction() const {
    return handle_ != nullptr && sqlite3_get_autocommit(handle_) == 0;
}

bool SqliteClient::has_moved() const {
    int moved = 0;
    return handle_ != nullptr &&
           sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved != 0;
}

}  // namespace outbox::simulation
