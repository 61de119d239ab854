#include "databases/postgres/receive/transaction.h"

#include <bit>
#include <cstring>
#include <utility>

namespace outbox::consumer {
namespace {

constexpr int kText = 0;
constexpr int kBinary = 1;
constexpr Oid kTextOid = 25;
constexpr Oid kByteaOid = 17;

}  // namespace

void require_transaction(PGconn* connection, const std::string& who) {
    switch (PQtransactionStatus(connection)) {
        case PQTRANS_INTRANS:
            return;
        case PQTRANS_IDLE:
            throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                        who +
                            " needs the open transaction that applies the message or request: "
                            "call it between BEGIN and COMMIT");
        case PQTRANS_INERROR:
            throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                        "the transaction has failed already: roll it back and run it again");
        case PQTRANS_ACTIVE:
            throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                        "the connection is busy with another statement: fetch its results first");
        case PQTRANS_UNKNOWN:
            break;
    }
    throw Error(ErrorCode::kConnectionLost, Advice::kRetryDestination,
                "the connection to PostgreSQL is broken: connect again and run the transaction "
                "again");
}

std::string_view cell(const PGresult* rows, int row, int column) {
    if (PQgetisnull(rows, row, column) != 0) return {};
    return {PQgetvalue(rows, row, column),
            static_cast<std::size_t>(PQgetlength(rows, row, column))};
}

std::int64_t big_endian(std::string_view bytes) {
    static_assert(std::endian::native == std::endian::little);
    if (bytes.size() == sizeof(std::int32_t)) {
        std::uint32_t value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        return static_cast<std::int32_t>(__builtin_bswap32(value));
    }
    if (bytes.size() != sizeof(std::int64_t)) return 0;
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return static_cast<std::int64_t>(__builtin_bswap64(value));
}

std::string array_literal(std::span<const std::string_view> texts) {
    std::string out = "{";
    for (const std::string_view text : texts) {
        if (out.size() > 1) out += ',';
        out += '"';
        for (const char c : text) {
            if (c == '"' || c == '\\') out += '\\';
            out += c;
        }
        out += '"';
    }
    return out + "}";
}

std::string array_literal(const std::vector<std::string>& texts) {
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return array_literal(std::span<const std::string_view>(views));
}

std::string array_literal(const std::vector<std::optional<std::int64_t>>& numbers) {
    std::string out = "{";
    for (const auto& number : numbers) {
        if (out.size() > 1) out += ',';
        out += number ? std::to_string(*number) : "NULL";
    }
    return out + "}";
}

std::string array_literal(const std::vector<std::int64_t>& numbers) {
    return array_literal(std::vector<std::optional<std::int64_t>>(numbers.begin(), numbers.end()));
}

Params& Params::text(std::string_view value) {
    values_.push_back({.type = kTextOid, .format = kBinary, .borrowed = value, .owned = {}});
    return *this;
}

Params& Params::untyped(std::string_view value) {
    values_.push_back({.format = kText, .borrowed = {}, .owned = std::string(value)});
    return *this;
}

Params& Params::bytes(std::string_view value) {
    values_.push_back({.type = kByteaOid,
                       .format = kBinary,
                       .is_null = value.data() == nullptr,
                       .borrowed = value,
                       .owned = {}});
    return *this;
}

Params& Params::number(std::int64_t value) {
    return untyped(std::to_string(value));
}

Params& Params::null() {
    values_.push_back({.is_null = true, .borrowed = {}, .owned = {}});
    return *this;
}

Params::Arrays::Arrays(const std::vector<Value>& values) {
    for (const Value& value : values) {
        const bool is_text = value.format == kText;
        const std::string_view bytes = is_text ? std::string_view(value.owned) : value.borrowed;
        types.push_back(value.type);
        // An empty view may have no data, which would mean NULL.
        const char* start = bytes.data() == nullptr ? "" : bytes.data();
        data.push_back(value.is_null ? nullptr : start);
        sizes.push_back(static_cast<int>(bytes.size()));
        formats.push_back(value.format);
    }
}

PgResult Params::execute(PGconn* connection, const char* sql) const {
    const Arrays arrays(values_);
    return PgResult(PQexecParams(connection, sql, arrays.count(), arrays.types.data(),
                                 arrays.data.data(), arrays.sizes.data(), arrays.formats.data(),
                                 kBinary));
}

PgResult Params::execute_prepared(PGconn* connection, const char* name) const {
    const Arrays arrays(values_);
    return PgResult(PQexecPrepared(connection, name, arrays.count(), arrays.data.data(),
                                   arrays.sizes.data(), arrays.formats.data(), kBinary));
}

bool Params::send(PGconn* connection, const char* sql) const {
    const Arrays arrays(values_);
    return PQsendQueryParams(connection, sql, arrays.count(), arrays.types.data(),
                             arrays.data.data(), arrays.sizes.data(), arrays.formats.data(),
                             kBinary) == 1;
}

bool Params::send_prepared(PGconn* connection, const char* name) const {
    const Arrays arrays(values_);
    return PQsendQueryPrepared(connection, name, arrays.count(), arrays.data.data(),
                               arrays.sizes.data(), arrays.formats.data(), kBinary) == 1;
}

void require_idle(PGconn* connection, const std::string& who) {
    const PGTransactionStatusType status = PQtransactionStatus(connection);
    if (status == PQTRANS_UNKNOWN) {
        throw Error(ErrorCode::kConnectionLost, Advice::kRetryDestination,
                    "the connection to PostgreSQL is broken: connect again");
    }
    if (status == PQTRANS_IDLE && PQpipelineStatus(connection) == PQ_PIPELINE_OFF) return;
    throw Error(ErrorCode::kConflict, Advice::kStop,
                who +
                    " begins a transaction: end the one that is open, and fetch the results of "
                    "every statement, first");
}

namespace {

// The result of one statement of a pipeline; each is followed by a null.
PgResult next_result(PGconn* connection) {
    PgResult result(PQgetResult(connection));
    if (result && PQresultStatus(result.get()) != PGRES_PIPELINE_SYNC) {
        const PgResult end(PQgetResult(connection));
    }
    return result;
}

bool send_all(PGconn* connection, std::span<const Step> steps) {
    const Params none;
    for (const Step& step : steps) {
        const Params& params = step.params == nullptr ? none : *step.params;
        if (!(step.prepared ? params.send_prepared(connection, step.statement)
                            : params.send(connection, step.statement))) {
            return false;
        }
    }
    return PQpipelineSync(connection) == 1;
}

}  // namespace

StepResults run_together(PGconn* connection, std::span<const Step> steps, const char* doing) {
    StepResults results;
    if (PQenterPipelineMode(connection) != 1 || !send_all(connection, steps)) {
        results.error = receive_error({}, PQerrorMessage(connection), doing);
        return results;
    }
    while (PgResult result = next_result(connection)) {
        if (PQresultStatus(result.get()) == PGRES_PIPELINE_SYNC) break;
        if (succeeded(result.get())) {
            results.done.push_back(std::move(result));
        } else if (!results.error) {
            results.error = receive_error(connection, result.get(), doing);
        }
        if (PQstatus(connection) != CONNECTION_OK) break;
    }
    if (PQexitPipelineMode(connection) != 1 && !results.error) {
        results.error = receive_error({}, PQerrorMessage(connection), doing);
    }
    return results;
}

PgResult begun(PGconn* connection, std::span<const Step> steps, const char* doing) {
    StepResults results = run_together(connection, steps, doing);
    if (!results.error) return std::move(results.done.back());
    const PGTransactionStatusType status = PQtransactionStatus(connection);
    if (status == PQTRANS_INTRANS || status == PQTRANS_INERROR) {
        const PgResult ended(PQexec(connection, "ROLLBACK"));
    }
    throw Error(*std::move(results.error));
}

}  // namespace outbox::consumer
