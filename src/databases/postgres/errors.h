#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/error.h>

struct pg_conn;
struct pg_result;

namespace outbox::postgres {

/// Whose statement failed. What an SQLSTATE is does not depend on it; what to do about it does.
enum class Role : std::uint8_t {
    kRelay,    ///< The relay's, where it reads from: what a person must mend stops it.
    kMailbox,  ///< The relay's, where it writes to: a destination, which may come right by itself.
    kReceive,  ///< A consumer's, or one in the transaction of whoever receives.
    kOperate,  ///< A command's: as of who receives, but for what is to be done about it.
    kEmit,     ///< One in the transaction of whoever writes an event; a migration's.
    kStore,    ///< One that keeps payloads: what is not said here is a destination's outage.
};

/// What an error message is about, for the remedies of `Role::kRelay`.
struct ErrorContext {
    std::string user;
    std::string database;
    std::string host;  ///< "host:port" or the folder of the socket.
    /// PostgreSQL's in_hot_standby; nothing: it does not say.
    std::optional<bool> standby;
};

/// The relay's error for an SQLSTATE and the server's message. An empty state means that the
/// connection broke or was never made.
[[nodiscard]] ErrorInfo relay_error(std::string_view sqlstate, std::string_view message,
                                    const ErrorContext& context);

/// The same of a mailbox. Advice `retry_event` and `dead_letter` mean that a message of the batch
/// is at fault, anything else that the destination is.
[[nodiscard]] ErrorInfo mailbox_error(std::string_view sqlstate, std::string_view message);

/// The same of a store of payloads; `store`: what the message begins with.
[[nodiscard]] ErrorInfo store_error(std::string_view sqlstate, std::string_view message,
                                    const std::string& store);

/// The same of who receives; `doing`: "reading the mailbox". Advice: retry_event with kConflict =
/// run the transaction again; other retry_event or dead_letter = this message's own;
/// retry_destination = the database's.
[[nodiscard]] ErrorInfo receive_error(std::string_view sqlstate, std::string_view message,
                                      const std::string& doing);
[[nodiscard]] ErrorInfo receive_error(const pg_conn* connection, const pg_result* result,
                                      const std::string& doing);

/// The same of who operates.
[[nodiscard]] ErrorInfo operate_error(const pg_conn* connection, const pg_result* result,
                                      const std::string& doing);

/// The same of who writes; `doing`: "writing an event".
[[nodiscard]] ErrorInfo emit_error(const pg_conn* connection, const pg_result* result,
                                   const std::string& doing);

/// Why a migration's connection was refused, with the server's state; `message` is kept as it is.
[[nodiscard]] ErrorInfo migrator_refused(std::string_view sqlstate, std::string message);

/// For what libpq says of a URL or a setting that it cannot read. Its message quotes the URL,
/// password included: only what stands before is passed on.
[[nodiscard]] ErrorInfo url_error(std::string_view libpq_message);

/// Of a statement over several rows: whether it may succeed without some of them.
enum class Concerns : std::uint8_t {
    kRows,     ///< Somebody holds those (SQLSTATE 55P03), or a value or a constraint is in the way.
    kPerhaps,  ///< A function of the owner's that runs for each row may have raised it.
    kAll,      ///< The server: its memory, its disk, a standby. The connection.
};
/// What a function of the owner's meets elsewhere (postgres_fdw, an extension) has the states of
/// the server's own trouble (08, 53, 57P, 58, XX): kPerhaps.
[[nodiscard]] Concerns what_concerns(const ErrorInfo& error);
/// It does or may. The server's own trouble ends the connection, or every statement behind it
/// fails.
[[nodiscard]] bool may_concern_rows(const pg_conn* connection, const ErrorInfo& error);

/// The server's words alone, without the relay's remedy, which is for errors of whole statements.
[[nodiscard]] std::string words_of(const ErrorInfo& error);

/// "FATAL:  28P01: password authentication failed" -> "28P01", and the text behind it: a failed
/// connection tells its state only in the verbose message. Empty where there is none.
[[nodiscard]] std::string_view sqlstate_in(std::string_view message,
                                           std::string_view* text = nullptr);
/// The same for roles that carry messages; empty, too, where it would accuse one: what is invalid
/// while the connection is made is a setting.
[[nodiscard]] std::string_view refused_state_in(std::string_view message);

/// What to do where libpq itself, in a message without SQLSTATE, refused the server's certificate
/// or had no password; empty where it says something else. libpq before 18 does not say why a
/// certificate was refused.
[[nodiscard]] std::string_view refusal_remedy(std::string_view message);

}  // namespace outbox::postgres
