#pragma once

#include <string>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/stream/row_decoder.h"

namespace outbox::postgres {

inline constexpr const char* kPublication = "outbox";

/// Whether events of a table can come by the stream of the log, as the server is now.
struct StreamVerdict {
    StreamTable table;
    /// Why not, each with the statement that would change it; empty: they can.
    std::vector<std::string> obstacles;
    /// Makes the publication, which is missing and which this user may make; empty: it fits.
    std::string publication_sql;

    /// What `published_as` gave.
    std::string published;

    [[nodiscard]] std::string text() const;  ///< The obstacles on one line.
};

/// SQL of a value that is another one after each change of what the publication shows of the table.
[[nodiscard]] std::string published_as(const Table& table, int server_version);

/// Looks and changes nothing. Blocks on the database.
Result<StreamVerdict> look_at_stream(Connection& connection, const Table& table,
                                     const PostgresSourceConfig& config);

/// Looks, and makes the publication if it is missing and this user may.
Result<StreamVerdict> prepare_stream(Connection& connection, const Table& table,
                                     const PostgresSourceConfig& config);

/// Why a stream that runs must not go on; empty: it may. To be asked now and then.
Result<std::string> look_at_running_stream(Connection& connection, const Table& table,
                                           const StreamTable& stream);

}  // namespace outbox::postgres
