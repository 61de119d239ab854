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

/// For a transaction that changes nothing, because it found done what another did, and on whose
/// word others forget the work: has its COMMIT wait for the synchronous standbys, as that of a
/// write does. What it found may itself be committed here alone: who crashed, or was cancelled,
/// while it waited for them is seen. An id (xid) by itself does not wait; a message in the log
/// does.
inline constexpr const char* kWaitAsAWrite =
    "SELECT pg_catalog.pg_logical_emit_message(true, 'outbox_repeat', ''::pg_catalog.text) "
    "WHERE pg_catalog.current_setting('synchronous_standby_names') <> '' "
    "AND pg_catalog.current_setting('synchronous_commit') NOT IN ('off', 'local')";

}  // namespace outbox::postgres
