#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

/// The bytes of logical replication, as pure functions: no connection, no clock, no memory of what
/// came before. Written after the PostgreSQL documentation, "Streaming Replication Protocol"
/// (CopyData envelopes), "Logical Replication Message Formats" and "Logical Streaming Replication
/// Parameters": pgoutput, proto_version 1, streaming off, with or without binary, messages and
/// origins.
///
/// All views point into the caller's bytes. Every length is checked; bytes that are not such a
/// message give an error that says what is wrong at which byte, with advice `kRetryDestination`:
/// drop the connection and join anew, since the table still holds every event.
namespace outbox::postgres::pgoutput {

/// A place in the write-ahead log; PostgreSQL prints it as two hexadecimal halves, "16/B374D848".
using Lsn = std::uint64_t;

[[nodiscard]] std::string format_lsn(Lsn lsn);
[[nodiscard]] std::optional<Lsn> parse_lsn(std::string_view text);

/// What one CopyData message of the server holds.
struct Envelope {
    bool keepalive = false;        ///< 'k', a primary keepalive; else 'w', XLogData.
    Lsn start_lsn = 0;             ///< XLogData: where the message stands.
    Lsn end_lsn = 0;               ///< The server's current end of WAL.
    std::int64_t sent_us = 0;      ///< The server's clock, microseconds since the Unix epoch.
    bool reply_requested = false;  ///< Keepalive: answer at once, or the server disconnects.
    std::string_view message;      ///< XLogData: what `parse_message` takes.
};

Status parse_envelope(std::string_view bytes, Envelope& out);

/// The bytes of a standby status update, 'r'. Each LSN is the last byte + 1; `flushed` is what the
/// server need not keep. `now_us`: microseconds since the Unix epoch.
[[nodiscard]] std::array<char, 34> status_update(Lsn written, Lsn flushed, Lsn applied,
                                                 std::int64_t now_us, bool request_reply);

/// The messages of pgoutput.
enum class Kind : std::uint8_t {
    kBegin,
    kCommit,
    kOrigin,
    kRelation,
    kType,
    kInsert,
    kUpdate,
    kDelete,
    kTruncate,
    kMessage,  ///< pg_logical_emit_message
};

/// A column of a row.
struct Value {
    enum class Form : std::uint8_t {
        kNull,
        kUnchanged,  ///< A TOASTed value that an update left alone and that is not sent.
        kText,       ///< As the type's output function writes it.
        kBinary,     ///< As the type's send function writes it.
    };
    Form form = Form::kNull;
    std::string_view bytes;  ///< kText, kBinary
};

struct RelationColumn {
    std::string_view name;
    std::uint32_t type_oid = 0;
    std::int32_t type_modifier = -1;
    bool key = false;  ///< Part of the replica identity.
};

/// One message. Only the members named for its kind mean something; keep one `Message` and parse
/// into it again and again, so that its vectors are allocated once.
struct Message {
    Kind kind = Kind::kBegin;

    std::uint32_t relation = 0;  ///< kRelation, kInsert, kUpdate, kDelete: the table's oid.
    /// kBegin: of the commit record. kCommit: likewise. kOrigin: of the commit at the origin.
    /// kMessage: of the message.
    Lsn lsn = 0;
    Lsn end_lsn = 0;             ///< kCommit: end of the transaction, what is to be confirmed.
    std::int64_t commit_us = 0;  ///< kBegin, kCommit: microseconds since the Unix epoch.
    std::uint32_t xid = 0;       ///< kBegin

    std::string_view schema;     ///< kRelation, kType; empty: pg_catalog.
    std::string_view name;       ///< kRelation, kType (of a domain: its base type's), kOrigin.
    std::uint32_t type_oid = 0;  ///< kType

    char replica_identity = 0;            ///< kRelation: 'd', 'n', 'f' or 'i'.
    std::vector<RelationColumn> columns;  ///< kRelation, in the order of the rows' values.

    std::vector<Value> row;      ///< kInsert, kUpdate: the new row.
    std::vector<Value> old_row;  ///< kUpdate, kDelete: see `old_form`.
    char old_form = 0;           ///< 'K': only the key columns; 'O': the whole row; 0: none.

    std::vector<std::uint32_t> truncated;  ///< kTruncate: oids of the tables.
    bool cascade = false;                  ///< kTruncate
    bool restart_identity = false;         ///< kTruncate

    bool transactional = false;  ///< kMessage
    std::string_view prefix;     ///< kMessage
    std::string_view content;    ///< kMessage
};

/// Parses one message (`Envelope::message`). A message of another kind, such as those of protocol
/// versions 2 to 4, is an error: it was not asked for, and what it says cannot be passed over.
Status parse_message(std::string_view bytes, Message& out);

}  // namespace outbox::postgres::pgoutput
