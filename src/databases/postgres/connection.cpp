#include "databases/postgres/connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <endian.h>
#include <libpq-fe.h>
#include <utility>
#include <vector>

#include "core/sql_text.h"
#include "core/url.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/lock_holders.h"
#include "databases/postgres/row_security.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kCopySignatureBytes = 11;

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

constexpr int kMinServerVersion = 140000;
// Longer than any statement may take, so that a server that is slow says so itself.
constexpr std::chrono::seconds kMaxWait{65};
constexpr std::chrono::seconds kDropWithin{1};

// Plans must not depend on when statistics were taken last: a cached plan made while the table was
// empty would read it from end to end for ever, or collect and sort all that is behind a position
// to take the first few.
// With a path that names a schema in which others may create, a function or operator of theirs
// could be chosen for the server's own: the path is the catalog's, and our statements name the
// schema. A relay that is stopped in the middle of a transaction holds its locks for no longer than
// a lease lasts: they keep the one that stands by waiting.
constexpr const char* kSession =
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; "
    "SET extra_float_digits = 1; SET bytea_output = 'hex'; SET jit = off; SET enable_seqscan = "
    "off; SET enable_bitmapscan = off; "
    "SET max_parallel_workers_per_gather = 0; "
    "SET standard_conforming_strings = on; SET client_min_messages = error; "
    "SET default_transaction_isolation = 'read committed'; SET statement_timeout = '60s'; "
    "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '5s'; "
    "SELECT pg_catalog.array_to_string(ARRAY(SELECT pg_catalog.quote_ident(s::pg_catalog.text) "
    "FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) s), E'\x01'), "
    "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)";

ErrorContext context_of(const Client& client) {
    ErrorContext context{client.user(), client.database(), client.host(), {}};
    const char* standby = PQparameterStatus(client.handle(), "in_hot_standby");
    if (standby != nullptr) context.standby = std::string_view(standby) == "on";
    return context;
}

ErrorInfo connect_error(const Client& client, int timeout_s) {
    const std::string message = client.message();
    std::string_view text;
    if (const std::string_view state = sqlstate_in(message, &text); !state.empty()) {
        return relay_error(state, text, context_of(client));
    }
    // Values that libpq finds wrong before it connects.
    if (!client.was_open() && message.find("invalid ") != std::string::npos &&
        PQsocket(client.handle()) < 0) {
        return url_error(message);
    }
    const std::string reason = client.in_time()
                                   ? redacted_line(message)
                                   : "no answer within " + std::to_string(timeout_s) + " s";
    std::string_view remedy = refusal_remedy(message);
    if (remedy.empty()) remedy = "check host and port of the URL and that the server runs";
    return {ErrorCode::kConnectFailed,
            Advice::kRetryDestination,
            {},
            "cannot connect to PostgreSQL at " + client.host() + ": " + reason + "; " +
                std::string(remedy)};
}

}  // namespace

std::string decode_bytea(std::string_view text) {
    std::size_t size = 0;
    unsigned char* bytes =
        PQunescapeBytea(reinterpret_cast<const unsigned char*>(std::string(text).c_str()), &size);
    if (bytes == nullptr) return {};
    std::string out(reinterpret_cast<const char*>(bytes), size);
    PQfreemem(bytes);
    return out;
}

Result<Connection> Connection::open(const std::string& url, int timeout_s, Kind kind) {
    if (const std::string fault = url_fault(url); !fault.empty()) {
        return url_error(fault);
    }
    constexpr std::array kDefaults{
        Setting{"fallback_application_name", "outbox"}, Setting{"keepalives_idle", "5"},
        Setting{"keepalives_interval", "2"}, Setting{"keepalives_count", "3"},
        Setting{"tcp_user_timeout", "15000"}};
    constexpr std::array kReplication{Setting{"replication", "database"},
                                      Setting{"application_name", kStreamApplicationName}};
    Connection made;
    Client& client = made.client_;
    const Status begun =
        client.connect(url, std::chrono::seconds(timeout_s), kDefaults,
                       kind == Kind::kReplication ? std::span<const Setting>(kReplication)
                                                  : std::span<const Setting>());
    if (!begun.ok()) return begun;
    if (!client.sound()) return connect_error(client, timeout_s);
    client.send_without_waiting();
    if (made.server_version() < kMinServerVersion) {
        return ErrorInfo{ErrorCode::kUnsupported,
                         Advice::kStop,
                         {},
                         "PostgreSQL " + std::to_string(made.server_version() / 10000) +
                             " is too old: 14 or newer is needed"};
    }
    made.limit_waits(std::chrono::seconds(timeout_s));
    Result<Rows> path = made.checked(made.answer_to(kSession));
    if (!path.ok()) return path.status();
    for (std::string_view rest = path->text(0, 0); !rest.empty();) {
        const auto end = std::min(rest.find('\x01'), rest.size());
        made.schemas_.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (Status status = made.execute(kDurable); !status.ok()) return status;
    made.limit_waits(kMaxWait);
    return made;
}

ErrorInfo Connection::error_of(const Rows& rows) const {
    const ErrorContext context = context_of(client_);
    if (client_.silent()) {
        return {ErrorCode::kConnectionLost,
                Advice::kRetryDestination,
                {},
                "PostgreSQL at " + context.host + " gave no answer within " +
                    std::to_string(client_.patience().most.count() / 1000) +
                    " s; is it overloaded or stopped?"};
    }
    if (rows.state().data() == nullptr || rows.message().data() == nullptr) {
        return relay_error("", client_.message(), context);
    }
    ErrorInfo error = relay_error(rows.state(), rows.message(), context);
    if (asks_ && error.backend_code == kNoLockState) {
        error.message = no_lock_message("for too long", holders());
    }
    return error;
}

void Connection::runs(std::string_view statement) {
    if (asks_) asks_->statement = statement;
}

// The transaction of this one has failed.
std::string Connection::holders() const {
    // As short as the shortest limit of a statement.
    constexpr std::int64_t kHeldS = 2;
    auto other = open(asks_->url, asks_->timeout_s);
    if (!other.ok()) return {};
    // A statement may have a table as a parameter, or by its number.
    std::string who;
    for (const std::string& statement : {asks_->statement, std::string()}) {
        const auto rows = other->query(std::string(lock_holders_sql()),
                                       Params().integer(kHeldS).text("").text(statement));
        if (rows.ok()) who = rows->string(0, 0);
        if (!who.empty()) break;
    }
    return who;
}

void Connection::FreeCopy::operator()(char* bytes) const {
    PQfreemem(bytes);
}

Result<Rows> Connection::checked(Rows rows) const {
    if (rows.succeeded()) return rows;
    return error_of(rows);
}

Status Connection::execute(const std::string& sql) {
    runs(sql);
    return checked(answer_to(sql)).status();
}

Result<Rows> Connection::query(const std::string& sql, const Params& params) {
    runs(sql);
    return checked(collect(send(client_.handle(), sql.c_str(), params, Format::kText)));
}

Status Connection::require_all_rows(const std::string& wanted, const std::string& table) {
    const auto hides = query(hides_rows_sql(wanted));
    if (!hides.ok()) return hides.status();
    if (!hides->empty()) {
        return {ErrorCode::kNoRights, Advice::kStop,
                hides_rows_text(hides->string(0, 0), quote_identifier(user())), "42501"};
    }
    std::string off =
        "SELECT set_config('row_security', 'off', false) WHERE NOT EXISTS (SELECT FROM (VALUES " +
        wanted + ") AS w(name, rights) WHERE row_security_active(to_regclass(w.name)::oid))";
    if (!table.empty()) {
        off +=
            " AND NOT EXISTS (SELECT FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = "
            "to_regclass(" +
            quote_literal(table) + "))";
    }
    return query(off).status();
}

Status Connection::prepare(const char* name, const std::string& sql, const Params& params) {
    return checked(collect(PQsendPrepare(client_.handle(), name, sql.c_str(), params.count(),
                                         params.types())))
        .status();
}

Result<Rows> Connection::query_prepared(const char* name, const Params& params) {
    runs({});
    return checked(collect(send_prepared(client_.handle(), name, params, Format::kText)));
}

Status Connection::run_pipeline(std::span<const Statement> statements,
                                std::vector<std::int64_t>* affected) {
    PGconn* connection = client_.handle();
    const auto lost = [&] { return error_of(Rows()); };
    runs({});
    if (PQenterPipelineMode(connection) == 0) return lost();
    for (const Statement& statement : statements) {
        if (!send(connection, statement.step(), Format::kText)) return lost();
    }
    if (PQpipelineSync(connection) == 0) return lost();
    Status first_error;
    for (std::size_t i = 0; i < statements.size(); ++i) {
        Rows rows = client_.next_result();
        if (rows.get() == nullptr) return lost();
        const ExecStatusType state = PQresultStatus(rows.get());
        if (state == PGRES_FATAL_ERROR && first_error.ok()) first_error = error_of(rows);
        if (affected != nullptr) affected->push_back(rows.affected());
        while (rows.get() != nullptr) rows = client_.next_result();
        if (!usable()) return first_error.ok() ? Status(lost()) : first_error;
    }
    for (Rows sync = client_.next_result(); PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC;
         sync = client_.next_result()) {
        // A commit that fails at its end reports here.
        if (PQresultStatus(sync.get()) == PGRES_FATAL_ERROR && first_error.ok()) {
            first_error = error_of(sync);
        }
        if (!usable()) return first_error.ok() ? Status(lost()) : first_error;
    }
    if (PQexitPipelineMode(connection) == 0 && first_error.ok()) return lost();
    return first_error;
}

Status Connection::start_prepared(const char* name, const Params& params) {
    if (!send_prepared(client_.handle(), name, params) ||
        PQsetSingleRowMode(client_.handle()) == 0) {
        return error_of(Rows());
    }
    stream_ = Stream::kRows;
    return {};
}

Status Connection::start_copy(const std::string& query) {
    const Rows rows = answer_to("COPY (" + query + ") TO STDOUT (FORMAT binary)");
    if (PQresultStatus(rows.get()) != PGRES_COPY_OUT) return error_of(rows);
    stream_ = Stream::kCopy;
    copy_header_ = true;
    return {};
}

bool Connection::next(std::span<Field> fields, Status& status) {
    return stream_ == Stream::kCopy ? next_copy(fields, status) : next_row(fields, status);
}

bool Connection::next_row(std::span<Field> fields, Status& status) {
    row_.emplace(client_.next_result());
    pg_result* result = row_->get();
    if (PQresultStatus(result) != PGRES_SINGLE_TUPLE) {
        if (result == nullptr || PQresultStatus(result) == PGRES_FATAL_ERROR) {
            status = error_of(*row_);
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

// The size of the row that is in `copy_row_` then; -1 at the end, -2 after an error.
int Connection::take_copy_row() {
    char* bytes = nullptr;
    int got = 0;
    while ((got = PQgetCopyData(client_.handle(), &bytes, 1)) == 0) {
        if (!client_.hear()) return -2;
    }
    copy_row_.reset(bytes);
    return got;
}

// The format: https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
bool Connection::next_copy(std::span<Field> fields, Status& status) {
    const int got = take_copy_row();
    const char* bytes = copy_row_.get();
    if (got < 0) {
        status = got == -1 ? end_stream() : Status(error_of(Rows()));
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
    for (Rows rows = client_.next_result(); rows.get() != nullptr; rows = client_.next_result()) {
        if (PQresultStatus(rows.get()) == PGRES_FATAL_ERROR) status = error_of(rows);
        if (!usable()) break;
    }
    return status;
}

// Piece by piece: a row may be longer than what comes in that time. An error is none here, where
// nobody wants the rest.
void Connection::stop() {
    if (stream_ == Stream::kNone) return;
    using Clock = std::chrono::steady_clock;
    PGconn* const server = client_.handle();
    const Patience patience = client_.patience();
    client_.limit_waits({kDropWithin, patience.descriptor, patience.stop});
    bool ended = false;
    for (const auto until = Clock::now() + kDropWithin; !ended && Clock::now() < until;) {
        if (stream_ == Stream::kCopy) {
            char* bytes = nullptr;
            const int got = PQgetCopyData(server, &bytes, 1);
            copy_row_.reset(bytes);
            if (got < 0) stream_ = Stream::kRows;  // of which the results are left
            if (got != 0) continue;
        } else if (PQisBusy(server) == 0) {
            ended = Rows(PQgetResult(server)).get() == nullptr;
            continue;
        }
        if (!client_.hear()) break;
    }
    client_.limit_waits(patience);
    stream_ = Stream::kNone;
    row_.reset();
    copy_row_.reset();
    if (!ended) client_.close();
}

bool Connection::keeps_utf8() const {
    const char* encoding = PQparameterStatus(client_.handle(), "server_encoding");
    return encoding == nullptr || std::string_view(encoding) == "UTF8";
}

int Connection::server_version() const {
    return PQserverVersion(client_.handle());
}

int Connection::client_backend_pid() const {
    return PQbackendPID(client_.handle());
}

}  // namespace outbox::postgres
