#pragma once

#include <memory>
#include <sqlite3.h>
#include <string>

#include <outbox/error.h>

namespace outbox::consumer {

struct CloseDatabase {
    void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
using SqliteConnection = std::unique_ptr<sqlite3, CloseDatabase>;

struct FinalizeStatement {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using SqliteStatement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

/// The connection's last error as ours; advice as in libpq_errors.h. `doing`: "reading the
/// mailbox".
[[nodiscard]] ErrorInfo sqlite_error(sqlite3* database, const std::string& doing);

}  // namespace outbox::consumer
