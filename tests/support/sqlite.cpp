#include "tests/support/sqlite.h"

#include <stdexcept>

namespace outbox::test {
namespace {

constexpr int kBusyTimeoutMs = 60'000;

int collect(void* rows, int columns, char** values, char**) {
    Sqlite::Row row;
    for (int column = 0; column < columns; ++column) {
        row.push_back(values[column] ? std::optional<std::string>(values[column]) : std::nullopt);
    }
    static_cast<std::vector<Sqlite::Row>*>(rows)->push_back(std::move(row));
    return 0;
}

}  // namespace

Sqlite::Sqlite(const std::string& path) {
    sqlite3* opened = nullptr;
    const int result = sqlite3_open(path.c_str(), &opened);
    database_.reset(opened);
    if (result != SQLITE_OK) throw std::runtime_error(sqlite3_errmsg(opened));
    sqlite3_busy_timeout(opened, kBusyTimeoutMs);
}

std::vector<Sqlite::Row> Sqlite::query(sqlite3* database, const std::string& sql) {
    std::vector<Row> rows;
    if (sqlite3_exec(database, sql.c_str(), collect, &rows, nullptr) != SQLITE_OK) {
        throw std::runtime_error(sqlite3_errmsg(database) + (" in: " + sql));
    }
    return rows;
}

std::string Sqlite::value(const std::string& sql) {
    const auto rows = query(sql);
    if (rows.size() != 1) {
        throw std::runtime_error(std::to_string(rows.size()) + " rows instead of one: " + sql);
    }
    return rows[0].at(0).value_or("");
}

}  // namespace outbox::test
