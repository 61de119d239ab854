#include "sources/postgres/client.h"

#include <array>
#include <charconv>
#include <cstring>
#include <endian.h>
#include <libpq-fe.h>
#include <poll.h>
#include <utility>

#include "core/url.h"
#include "sources/postgres/errors.h"

namespace outbox::postgres {
namespace {

constexpr int kMinServerVersion = 140000;
constexpr std::size_t kCopySignatureBytes = 11;

// Plans must not depend on when statistics were taken last: a cached plan made while the table was
// empty would read it from end to end for ever.
constexpr const char* kSession =
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET jit = off; SET enable_seqscan = off; "
    "SET max_parallel_workers_per_gather = 0; "
    "SET standard_conforming_strings = on; SET client_min_messages = error; "
    "SET default_transaction_isolation = 'read committed'; SET statement_timeout = '60s'; "
    "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'; "
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') IN ('off', 'local')";

std::string text_or_empty(const char* text) {
    return text == nullptr ? std::string() : std::string(text);
}

ErrorContext context_of(const PGconn* connection) {
    ErrorContext context{text_or_empty(PQuser(connection)), text_or_empty(PQdb(connection)), {}};
    const std::string port = text_or_empty(PQport(connection));
    context.host = text_or_empty(PQhost(connection)) + (port.empty() ? "" : ":" + port);
    return context;
}

// "FATAL:  28P01: password authentication failed" -> "28P01", and the text behind it. The state
// of a failed connection is only found in the verbose message.
std::string_view state_in(std::string_view message, std::string_view& text) {
    constexpr std::size_t kStateSize = 5;
    for (auto at = message.find(":  "); at != std::string_view::npos;
         at = message.find(":  ", at + 1)) {
        const std::string_view rest = message.substr(at + 3);
        if (rest.size() < kStateSize + 2 || rest[kStateSize] != ':') continue;
        const std::string_view state = rest.substr(0, kStateSize);
        if (state.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
            std::string_view::npos) {
            continue;
        }
        text = rest.substr(kStateSize + 2);
        text = text.substr(0, text.find('\n'));
        return state;
    }
    return {};
}

// A malformed URL is reported by libpq with the URL in the message, password included: so only
// what stands before the first quotation is passed on.
ErrorInfo url_error(const std::string& message) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "not a PostgreSQL URL (" + message.substr(0, message.find_first_of("\"\n")) +
                "...): write postgresql://USER@HOST:PORT/DATABASE and percent-encode special "
                "characters"};
}

ErrorInfo connect_error(PGconn* connection, bool timed_out, int timeout_s) {
    const ErrorContext context = context_of(connection);
    const std::string message = text_or_empty(PQerrorMessage(connection));
    std::string_view text;
    if (const std::string_view state = state_in(message, text); !state.empty()) {
        return map_error(state, text, context);
    }
    // Values that libpq finds wrong before it connects.
    if (message.find("invalid ") != std::string::npos && PQsocket(connection) < 0) {
        return url_error(message);
    }
    std::string reason = redact(message);
    while (!reason.empty() && reason.back() == '\n') reason.pop_back();
    for (char& c : reason) c = c == '\n' || c == '\t' ? ' ' : c;
    if (timed_out) reason = "no answer within " + std::to_string(timeout_s) + " s";
    return {ErrorCode::kConnectFailed,
            Advice::kRetryDestination,
            {},
            "cannot connect to PostgreSQL at " + context.host + ": " + reason +
                "; check host and port of the URL and that the server runs"};
}

Status check_url(const std::string& url) {
    char* message = nullptr;
    PQconninfoOption* options = PQconninfoParse(url.c_str(), &message);
    if (options != nullptr) {
        PQconninfoFree(options);
        return {};
    }
    const std::string reason = text_or_empty(message);
    PQfreemem(message);
    return url_error(reason);
}

// Drives the connection attempt; false when the time is over.
bool poll_connection(PGconn* connection, std::chrono::steady_clock::time_point deadline) {
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK && state != PGRES_POLLING_FAILED) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd entry{PQsocket(connection),
                     static_cast<short>(state == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};
        if (::poll(&entry, 1, static_cast<int>(left.count())) == 0) return false;
        state = PQconnectPoll(connection);
    }
    return true;
}

template <typename T>
T read_big_endian(const char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    if constexpr (sizeof value == 2) return static_cast<T>(be16toh(static_cast<uint16_t>(value)));
    return static_cast<T>(be32toh(static_cast<uint32_t>(value)));
}

ErrorInfo protocol_error(const char* what) {
    return {ErrorCode::kQueryFailed,
            Advice::kStop,
            {},
            std::string("unexpected answer of the server: ") + what};
}

}  // namespace

std::string quote_identifier(std::string_view name) {
    std::string out = "\"";
    for (const char c : name) {
        if (c == '"') out += '"';
        out += c;
    }
    return out + '"';
}

std::string quote_literal(std::string_view text) {
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'') out += '\'';
        out += c;
    }
    return out + '\'';
}

std::string decode_bytea(std::string_view text) {
    std::size_t size = 0;
    unsigned char* bytes =
        PQunescapeBytea(reinterpret_cast<const unsigned char*>(std::string(text).c_str()), &size);
    if (bytes == nullptr) return {};
    std::string out(reinterpret_cast<const char*>(bytes), size);
    PQfreemem(bytes);
    return out;
}

void Rows::Clear::operator()(pg_result* result) const {
    PQclear(result);
}

int Rows::size() const {
    return PQntuples(result_.get());
}

std::string_view Rows::text(int row, int column) const {
    if (PQgetisnull(result_.get(), row, column) != 0) return {};
    return {PQgetvalue(result_.get(), row, column),
            static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

std::int64_t Rows::integer(int row, int column) const {
    const std::string_view value = text(row, column);
    std::int64_t number = 0;
    std::from_chars(value.data(), value.data() + value.size(), number);
    return number;
}

std::int64_t Rows::affected() const {
    const std::string_view value = PQcmdTuples(result_.get());
    std::int64_t number = 0;
    std::from_chars(value.data(), value.data() + value.size(), number);
    return number;
}

void Connection::Finish::operator()(pg_conn* connection) const {
    PQfinish(connection);
}

void Connection::FreeCopy::operator()(char* bytes) const {
    PQfreemem(bytes);
}

Result<Connection> Connection::open(const std::string& url, int timeout_s, Kind kind) {
    if (Status status = check_url(url); !status.ok()) return status;
    // What stands before dbname is a default that the URL may change; what stands behind is not.
    const bool replication = kind == Kind::kReplication;
    const std::array<const char*, 10> names{
        "fallback_application_name", "keepalives_idle",
        "keepalives_interval",       "keepalives_count",
        "tcp_user_timeout",          "dbname",
        "client_encoding",           replication ? "replication" : nullptr,
        "application_name",          nullptr};
    const std::array<const char*, 10> values{
        "outbox", "5", "2", "3", "15000", url.c_str(), "UTF8", "database", kStreamApplicationName,
        nullptr};
    Connection made(PQconnectStartParams(names.data(), values.data(), 1));
    PGconn* connection = made.connection_.get();
    if (connection == nullptr) {
        return ErrorInfo{ErrorCode::kInternal, Advice::kStop, {}, "out of memory"};
    }
    PQsetErrorVerbosity(connection, PQERRORS_VERBOSE);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
    const bool in_time =
        PQstatus(connection) == CONNECTION_BAD || poll_connection(connection, deadline);
    if (!in_time || PQstatus(connection) != CONNECTION_OK) {
        return connect_error(connection, !in_time, timeout_s);
    }
    PQsetErrorVerbosity(connection, PQERRORS_DEFAULT);
    PQsetNoticeProcessor(connection, [](void*, const char*) {}, nullptr);
    if (made.server_version() < kMinServerVersion) {
        return ErrorInfo{ErrorCode::kUnsupported,
                         Advice::kStop,
                         {},
                         "PostgreSQL " + std::to_string(made.server_version() / 10000) +
                             " is too old: 14 or newer is needed"};
    }
    if (Status status = made.execute(kSession); !status.ok()) return status;
    return made;
}

ErrorInfo Connection::error_of(const pg_result* result) const {
    const ErrorContext context = context_of(connection_.get());
    const char* state = result == nullptr ? nullptr : PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char* text =
        result == nullptr ? nullptr : PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state == nullptr || text == nullptr) {
        return map_error("", PQerrorMessage(connection_.get()), context);
    }
    return map_error(state, text, context);
}

Result<Rows> Connection::checked(pg_result* result) const {
    Rows rows(result);
    const ExecStatusType state = PQresultStatus(result);
    if (state == PGRES_COMMAND_OK || state == PGRES_TUPLES_OK) return rows;
    return error_of(result);
}

Status Connection::execute(const std::string& sql) {
    return checked(PQexec(connection_.get(), sql.c_str())).status();
}

Result<Rows> Connection::query(const std::string& sql, const Params& params) {
    return checked(PQexecParams(connection_.get(), sql.c_str(), params.size(), params.types_.data(),
                                params.pointers(), params.lengths_.data(), params.formats_.data(),
                                0));
}

Status Connection::prepare(const char* name, const std::string& sql, const Params& params) {
    return checked(
               PQprepare(connection_.get(), name, sql.c_str(), params.size(), params.types_.data()))
        .status();
}

Result<Rows> Connection::query_prepared(const char* name, const Params& params) {
    return checked(PQexecPrepared(connection_.get(), name, params.size(), params.pointers(),
                                  params.lengths_.data(), params.formats_.data(), 0));
}

Status Connection::run_pipeline(std::span<const Statement> statements,
                                std::vector<std::int64_t>* affected) {
    PGconn* connection = connection_.get();
    const auto lost = [&] { return error_of(nullptr); };
    if (PQenterPipelineMode(connection) == 0) return lost();
    for (const Statement& statement : statements) {
        const Params& params = statement.params;
        const int sent = statement.prepared != nullptr
                             ? PQsendQueryPrepared(connection, statement.prepared, params.size(),
                                                   params.pointers(), params.lengths_.data(),
                                                   params.formats_.data(), 0)
                             : PQsendQueryParams(connection, statement.sql.c_str(), params.size(),
                                                 params.types_.data(), params.pointers(),
                                                 params.lengths_.data(), params.formats_.data(), 0);
        if (sent == 0) return lost();
    }
    if (PQpipelineSync(connection) == 0) return lost();
    Status first_error;
    for (std::size_t i = 0; i < statements.size(); ++i) {
        Rows rows(PQgetResult(connection));
        if (rows.get() == nullptr) return lost();
        const ExecStatusType state = PQresultStatus(rows.get());
        if (state == PGRES_FATAL_ERROR && first_error.ok()) first_error = error_of(rows.get());
        if (affected != nullptr) affected->push_back(rows.affected());
        while (rows.get() != nullptr) rows = Rows(PQgetResult(connection));
        if (!usable()) return first_error.ok() ? Status(lost()) : first_error;
    }
    for (Rows sync(PQgetResult(connection)); PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC;
         sync = Rows(PQgetResult(connection))) {
        // A commit that fails at its end reports here.
        if (PQresultStatus(sync.get()) == PGRES_FATAL_ERROR && first_error.ok()) {
            first_error = error_of(sync.get());
        }
        if (!usable()) return first_error.ok() ? Status(lost()) : first_error;
    }
    if (PQexitPipelineMode(connection) == 0 && first_error.ok()) return lost();
    return first_error;
}

Status Connection::start_prepared(const char* name, const Params& params) {
    if (PQsendQueryPrepared(connection_.get(), name, params.size(), params.pointers(),
                            params.lengths_.data(), params.formats_.data(), 1) == 0 ||
        PQsetSingleRowMode(connection_.get()) == 0) {
        return error_of(nullptr);
    }
    stream_ = Stream::kRows;
    return {};
}

Status Connection::start_copy(const std::string& query) {
    const Rows rows(
        PQexec(connection_.get(), ("COPY (" + query + ") TO STDOUT (FORMAT binary)").c_str()));
    if (PQresultStatus(rows.get()) != PGRES_COPY_OUT) return error_of(rows.get());
    stream_ = Stream::kCopy;
    copy_header_ = true;
    return {};
}

bool Connection::next(std::span<Field> fields, Status& status) {
    return stream_ == Stream::kCopy ? next_copy(fields, status) : next_row(fields, status);
}

bool Connection::next_row(std::span<Field> fields, Status& status) {
    row_.emplace(PQgetResult(connection_.get()));
    pg_result* result = row_->get();
    if (PQresultStatus(result) != PGRES_SINGLE_TUPLE) {
        if (result == nullptr || PQresultStatus(result) == PGRES_FATAL_ERROR) {
            status = error_of(result);
        }
        if (Status ended = end_stream(); status.ok()) status = std::move(ended);
        return false;
    }
    if (PQnfields(result) != static_cast<int>(fields.size())) {
        status = protocol_error("wrong number of columns");
        return false;
    }
    for (int i = 0; i < PQnfields(result); ++i) {
        Field& field = fields[static_cast<std::size_t>(i)];
        const bool null = PQgetisnull(result, 0, i) != 0;
        field.data = null ? nullptr : PQgetvalue(result, 0, i);
        field.size = static_cast<std::size_t>(PQgetlength(result, 0, i));
    }
    return true;
}

// The format: https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
bool Connection::next_copy(std::span<Field> fields, Status& status) {
    char* bytes = nullptr;
    const int got = PQgetCopyData(connection_.get(), &bytes, 0);
    copy_row_.reset(bytes);
    if (got < 0) {
        status = got == -1 ? end_stream() : Status(error_of(nullptr));
        return false;
    }
    std::size_t at = 0;
    const auto size = static_cast<std::size_t>(got);
    if (copy_header_) {
        constexpr std::size_t kHeaderBytes = kCopySignatureBytes + 8;
        if (size < kHeaderBytes) {
            status = protocol_error("COPY header cut short");
            return false;
        }
        at = kHeaderBytes + read_big_endian<std::uint32_t>(bytes + kCopySignatureBytes + 4);
        copy_header_ = false;
    }
    if (at + 2 > size) {
        status = protocol_error("COPY row cut short");
        return false;
    }
    const auto count = read_big_endian<std::int16_t>(bytes + at);
    at += 2;
    if (count == -1) return next_copy(fields, status);  // the trailer; the end comes next
    if (count != static_cast<std::int16_t>(fields.size())) {
        status = protocol_error("wrong number of columns");
        return false;
    }
    for (Field& field : fields) {
        if (at + 4 > size) {
            status = protocol_error("COPY row cut short");
            return false;
        }
        const auto length = read_big_endian<std::int32_t>(bytes + at);
        at += 4;
        field = {length < 0 ? nullptr : bytes + at, 0};
        if (length < 0) continue;
        field.size = static_cast<std::size_t>(length);
        if (field.size > size - at) {
            status = protocol_error("COPY value longer than its row");
            return false;
        }
        at += field.size;
    }
    return true;
}

Status Connection::end_stream() {
    stream_ = Stream::kNone;
    row_.reset();
    copy_row_.reset();
    Status status;
    for (Rows rows(PQgetResult(connection_.get())); rows.get() != nullptr;
         rows = Rows(PQgetResult(connection_.get()))) {
        if (PQresultStatus(rows.get()) == PGRES_FATAL_ERROR) status = error_of(rows.get());
        if (!usable()) break;
    }
    return status;
}

Status Connection::stop() {
    if (stream_ == Stream::kNone) return {};
    std::array<char, 256> reason{};
    if (PGcancel* cancel = PQgetCancel(connection_.get()); cancel != nullptr) {
        PQcancel(cancel, reason.data(), static_cast<int>(reason.size()));
        PQfreeCancel(cancel);
    }
    if (stream_ == Stream::kCopy) {
        char* bytes = nullptr;
        while (PQgetCopyData(connection_.get(), &bytes, 0) > 0) copy_row_.reset(bytes);
    }
    const Status ended = end_stream();
    constexpr std::string_view kCancelled = "57014";
    return ended.ok() || ended.error().backend_code == kCancelled ? Status() : ended;
}

bool Connection::usable() const {
    return connection_ != nullptr && PQstatus(connection_.get()) == CONNECTION_OK;
}

int Connection::server_version() const {
    return PQserverVersion(connection_.get());
}

int Connection::client_backend_pid() const {
    return PQbackendPID(connection_.get());
}

std::string Connection::user() const {
    return text_or_empty(PQuser(connection_.get()));
}

std::string Connection::database() const {
    return text_or_empty(PQdb(connection_.get()));
}

}  // namespace outbox::postgres
