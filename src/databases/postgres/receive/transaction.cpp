#include "databases/postgres/receive/transaction.h"

#include <libpq-fe.h>
#include <utility>

namespace outbox::consumer {

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

void wait_as_a_write(PGconn* transaction, const char* doing) {
    const Rows result = postgres::execute(transaction, kWaitAsAWrite);
    if (!result.succeeded()) throw Error(receive_error(transaction, result.get(), doing));
}

std::string identifier(PGconn* connection, std::string_view name, const char* what) {
    char* text = PQescapeIdentifier(connection, name.data(), name.size());
    if (text == nullptr) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    std::string(what) + ": '" + std::string(name) +
                        "' is not the name of a table or column");
    }
    std::string out(text);
    PQfreemem(text);
    return out;
}

std::string table_identifier(PGconn* connection, std::string_view name, const char* what) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) return identifier(connection, name, what);
    return identifier(connection, name.substr(0, dot), what) + "." +
           identifier(connection, name.substr(dot + 1), what);
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
Rows next_result(PGconn* connection) {
    Rows result(PQgetResult(connection));
    if (result.get() != nullptr && PQresultStatus(result.get()) != PGRES_PIPELINE_SYNC) {
        const Rows end(PQgetResult(connection));
    }
    return result;
}

bool send_all(PGconn* connection, std::span<const Step> steps) {
    for (const Step& step : steps) {
        if (!postgres::send(connection, step)) return false;
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
    while (true) {
        Rows result = next_result(connection);
        if (result.get() == nullptr) break;
        if (PQresultStatus(result.get()) == PGRES_PIPELINE_SYNC) break;
        if (result.succeeded()) {
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

Rows begun(PGconn* connection, std::span<const Step> steps, const char* doing) {
    StepResults results = run_together(connection, steps, doing);
    if (!results.error) return std::move(results.done.back());
    const PGTransactionStatusType status = PQtransactionStatus(connection);
    if (status == PQTRANS_INTRANS || status == PQTRANS_INERROR) {
        static_cast<void>(postgres::execute(connection, "ROLLBACK"));
    }
    throw Error(*std::move(results.error));
}

}  // namespace outbox::consumer
