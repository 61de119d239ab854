#include <string>

#include <outbox/adapters/libpq_consumer.h>

#include "consumer/libpq_errors.h"

namespace outbox {
namespace {

constexpr const char* kDoing = "entering a message in outbox_inbox";

// Insert first: asking beforehand whether the id is there would be a race.
constexpr const char* kAccept =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES ($1, $2, "
    "coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', '-infinity')) "
    "ON CONFLICT (consumer, message_id) DO NOTHING";

void require_transaction(PGconn* transaction) {
    switch (PQtransactionStatus(transaction)) {
        case PQTRANS_INTRANS:
            return;
        case PQTRANS_IDLE:
            throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                        "accept needs the open transaction that applies the message: call it "
                        "between BEGIN and COMMIT");
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

}  // namespace

bool accept(PGconn* transaction, std::string_view consumer, std::string_view message_id,
            std::optional<std::chrono::system_clock::time_point> message_time) {
    require_transaction(transaction);
    if (message_id.empty()) {
        throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                    "the message has no id, so a repeat could not be told from a new one");
    }
    std::string time;
    if (message_time) {
        time = std::to_string(
            std::chrono::duration_cast<std::chrono::microseconds>(message_time->time_since_epoch())
                .count());
    }
    // Binary text has a length, so that a NUL in an id is refused instead of ending it.
    const char* values[] = {consumer.data() == nullptr ? "" : consumer.data(), message_id.data(),
                            message_time ? time.c_str() : nullptr};
    const int lengths[] = {static_cast<int>(consumer.size()), static_cast<int>(message_id.size()),
                           0};
    constexpr int kFormats[] = {1, 1, 0};
    constexpr Oid kTextOid = 25;
    constexpr Oid kTypes[] = {kTextOid, kTextOid, 0};
    const consumer::PgResult result(
        PQexecParams(transaction, kAccept, 3, kTypes, values, lengths, kFormats, 0));
    if (!consumer::succeeded(result.get())) {
        throw Error(consumer::pg_error(transaction, result.get(), kDoing));
    }
    return std::string_view(PQcmdTuples(result.get())) == "1";
}

}  // namespace outbox
