#pragma once

#include <libpq-fe.h>
#include <memory>
#include <sqlite3.h>
#include <string>
#include <vector>

namespace orchestrated {

using Values = std::vector<std::string>;

/// Runs one statement with the parameters $1, $2, ... in the order of their first use; how many
/// rows it changed. Throws `outbox::Error`, kConflict/retry_event where the transaction is to run
/// again.
int execute(PGconn* connection, const std::string& sql, const Values& values = {});
int execute(sqlite3* connection, const std::string& sql, const Values& values = {});

struct CloseConnection {
    void operator()(PGconn* connection) const { PQfinish(connection); }
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
};

/// Calls `use` with a connection to postgresql://... or sqlite:///path, a PGconn* or a sqlite3*.
std::unique_ptr<PGconn, CloseConnection> connect_postgres(const std::string& url);
std::unique_ptr<sqlite3, CloseConnection> connect_sqlite(const std::string& url);

inline bool is_sqlite(const std::string& url) {
    return url.starts_with("sqlite://");
}

template <typename Use>
void with_connection(const std::string& url, Use use) {
    if (is_sqlite(url)) return use(connect_sqlite(url).get());
    use(connect_postgres(url).get());
}

inline const char* begin(PGconn*) {
    return "BEGIN";
}
inline const char* begin(sqlite3*) {
    return "BEGIN IMMEDIATE";
}

}  // namespace orchestrated
