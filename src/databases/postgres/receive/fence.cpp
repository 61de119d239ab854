#include "consumer/fence.h"

#include <libpq-fe.h>

#include <outbox/adapters/libpq_fence.h>

#include "databases/postgres/receive/fence.h"
#include "databases/postgres/receive/transaction.h"

namespace outbox {

FenceLook look_for(PGconn* connection, std::string_view consumer, std::string_view token) {
    static_cast<void>(consumer::fenced_ids(consumer, token));
    if (PQtransactionStatus(connection) != PQTRANS_IDLE) {
        consumer::require_transaction(connection, "look_for");
    }
    consumer::Params params;
    params.text(consumer).text(token);
    const consumer::Rows rows = postgres::execute(connection, consumer::kLookForEvents, params);
    if (!rows.succeeded()) {
        constexpr std::string_view kNoSuchFunction = "42883";
        ErrorInfo error =
            consumer::receive_error(connection, rows.get(), "looking for events in outbox_inbox");
        if (error.backend_code == kNoSuchFunction) {
            error.code = ErrorCode::kNoSuchTable;
            error.message +=
                ". `outbox migrate --db URL --only consumer` makes outbox_wait; if it "
                "is there, put its schema on the search_path";
        }
        throw Error(std::move(error));
    }
    consumer::FenceVerdict verdict;
    for (int row = 0; row < rows.size(); ++row)
        verdict.add(rows.string(row, 0), rows.string(row, 1));
    return std::move(verdict).look();
}

}  // namespace outbox
