#pragma once

#include <memory>
#include <sqlite3.h>
#include <string>

#include <outbox/error.h>

namespace outbox::producer {

struct DatabaseCloser {
    void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
using SqliteDatabase = std::unique_ptr<sqlite3, DatabaseCloser>;

struct StatementFinalizer {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using SqliteStatement = std::unique_ptr<sqlite3_stmt, StatementFinalizer>;

/// The connection's last error as ours. `doing`: "writing an event".
[[nodiscard]] ErrorInfo sqlite_error(sqlite3* database, const std::string& doing);

}  // namespace outbox::producer
