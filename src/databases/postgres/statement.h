#pragma once

#include <cstdint>

#include "databases/postgres/params.h"
#include "databases/postgres/rows.h"

struct pg_conn;

// What runs on any connection: one of ours (`Client`), or a caller's.
namespace outbox::postgres {

enum class Format : std::uint8_t { kText, kBinary };

/// Run a statement and wait for it. Without parameters several may be given; the last one's result.
[[nodiscard]] Rows execute(pg_conn* connection, const char* sql);
[[nodiscard]] Rows execute(pg_conn* connection, const char* sql, const Params& params,
                           Format format = Format::kBinary);
[[nodiscard]] Rows execute_prepared(pg_conn* connection, const char* name, const Params& params,
                                    Format format = Format::kBinary);

/// Send one, for who waits otherwise. False: see PQerrorMessage.
[[nodiscard]] bool send(pg_conn* connection, const char* sql, const Params& params,
                        Format format = Format::kBinary);
[[nodiscard]] bool send_prepared(pg_conn* connection, const char* name, const Params& params,
                                 Format format = Format::kBinary);

/// One of several statements for one round trip. It points to what it sends.
struct Step {
    const char* statement;
    const Params* params = nullptr;
    bool prepared = true;  ///< `statement` is a prepared statement's name, not SQL.
};
[[nodiscard]] bool send(pg_conn* connection, const Step& step, Format format = Format::kBinary);

}  // namespace outbox::postgres
