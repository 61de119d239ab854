#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "databases/postgres/params.h"
#include "databases/postgres/rows.h"

struct pg_conn;

namespace outbox::postgres {

struct Finish {
    void operator()(pg_conn* connection) const;
};
/// A connection of ours. What is below takes a caller's as well.
using Handle = std::unique_ptr<pg_conn, Finish>;

/// One of libpq's connection parameters.
struct Setting {
    const char* name;
    const char* value;
};

/// Connects with these; a URL under "dbname" overrides those before it. Gives a handle also where
/// that failed (PQstatus tells); null: no memory. A refusal tells its state (`sqlstate_in`).
/// `in_time`: false when the server gave no answer within `timeout`.
[[nodiscard]] Handle connect(std::span<const Setting> settings, std::chrono::seconds timeout,
                             bool& in_time);

/// A session's commits outlive a crash of the server, and a failover to a synchronous standby where
/// there is one, whatever the database's or the role's default.
inline constexpr const char* kDurable =
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false) "
    "WHERE pg_catalog.current_setting('synchronous_commit') IN ('off', 'local')";

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

}  // namespace outbox::postgres
