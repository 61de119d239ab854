#include "databases/postgres/connection.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <endian.h>
#include <libpq-fe.h>
#include <poll.h>
#include <utility>

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

void Connection::limit_waits(std::chrono::milliseconds max_wait, int stop) {
    max_wait_ = max_wait;
    stop_ = stop;
}

// Takes in what has come, after a wait for it. False: nothing came in time, or ever will.
bool Connection::wait_for_input() {
    // A negative descriptor is passed over.
    std::array<pollfd, 2> entries{pollfd{PQsocket(connection_.get()), POLLIN, 0},
                                  pollfd{stop_, POLLIN, 0}};
    const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(max_wait_.count()));
    if (ready < 0 && errno == EINTR) return true;
    if (ready <= 0 || entries[1].revents != 0) {
        silent_ = true;
        return false;
    }
    return PQconsumeInput(connection_.get()) != 0;
}

Rows Connection::next_result() {
    while (PQisBusy(connection_.get()) != 0 && wait_for_input()) {
    }
    return Rows(silent_ ? nullptr : PQgetResult(connection_.get()));
}

Rows Connection::collect(int sent) {
    Rows last(nullptr);
    while (sent != 0) {
        Rows next = next_result();
        if (next.get() == nullptr) break;
        last = std::move(next);
        const ExecStatusType state = PQresultStatus(last.get());
        if (state == PGRES_COPY_OUT || state == PGRES_COPY_BOTH || !usable()) break;
    }
    return silent_ ? Rows(nullptr) : std::move(last);
}

Rows Connection::answer_to(const std::string& command) {
    return collect(PQsendQuery(connection_.get(), command.c_str()));
}

Result<Rows> Connection::checked(Rows rows) const {
    const ExecStatusType state = PQresultStatus(rows.get());
    if (state == PGRES_COMMAND_OK || state == PGRES_TUPLES_OK) return rows;
    return error_of(rows.get());
}

Status Connection::execute(const std::string& sql) {
    return checked(answer_to(sql)).status();
}

Result<Rows> Connection::query(const std::string& sql, const Params& params) {
    return checked(collect(PQsendQueryParams(connection_.get(), sql.c_str(), params.size(),
                                             params.types_.data(), params.pointers(),
                                             params.lengths_.data(), params.formats_.data(), 0)));
}

Status Connection::prepare(const char* name, const std::string& sql, const Params& params) {
    return checked(collect(PQsendPrepare(connection_.get(), name, sql.c_str(), params.size(),
                                         params.types_.data())))
        .status();
}

Result<Rows> Connection::query_prepared(const char* name, const Params& params) {
    return checked(
        collect(PQsendQueryPrepared(connection_.get(), name, params.size(), params.pointers(),
                                    params.lengths_.data(), params.formats_.data(), 0)));
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
        Rows rows = next_result();
        if (rows.get() == nullptr) return lost();
        const ExecStatusType state = PQresultStatus(rows.get());
        if (state == PGRES_FATAL_ERROR && first_error.ok()) first_error = error_of(rows.get());
        if (affected != nullptr) affected->push_back(rows.affected());
        while (rows.get() != nullptr) rows = next_result();
        if (!usable()) return first_error.ok() ? Status(lost()) : first_error;
    }
    for (Rows sync = next_result(); PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC;
         sync = next_result()) {
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
    const Rows rows = answer_to("COPY (" + query + ") TO STDOUT (FORMAT binary)");
    if (PQresultStatus(rows.get()) != PGRES_COPY_OUT) return error_of(rows.get());
    stream_ = Stream::kCopy;
    copy_header_ = true;
    return {};
}

bool Connection::next(std::span<Field> fields, Status& status) {
    return stream_ == Stream::kCopy ? next_copy(fields, status) : next_row(fields, status);
}

bool Connection::next_row(std::span<Field> fields, Status& status) {
    row_.emplace(next_result());
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

// The size of the row that is in `copy_row_` then; -1 at the end, -2 after an error.
int Connection::take_copy_row() {
    char* bytes = nullptr;
    int got = 0;
    while ((got = PQgetCopyData(connection_.get(), &bytes, 1)) == 0) {
        if (!wait_for_input()) return -2;
    }
    copy_row_.reset(bytes);
    return got;
}

// The format: https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
bool Connection::next_copy(std::span<Field> fields, Status& status) {
    const int got = take_copy_row();
    const char* bytes = copy_row_.get();
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
    for (Rows rows = next_result(); rows.get() != nullptr; rows = next_result()) {
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
        while (take_copy_row() > 0) {
        }
    }
    const Status ended = end_stream();
    constexpr std::string_view kCancelled = "57014";
    return ended.ok() || ended.error().backend_code == kCancelled ? Status() : ended;
}

bool Connection::usable() const {
    return !silent_ && connection_ != nullptr && PQstatus(connection_.get()) == CONNECTION_OK;
}

int Connection::server_version() const {
    return PQserverVersion(connection_.get());
}

int Connection::client_backend_pid() const {
    return PQbackendPID(connection_.get());
}

std::string Connection::user() const {
    return PQuser(connection_.get());
}

std::string Connection::database() const {
    return PQdb(connection_.get());
}

}  // namespace outbox::postgres
