#include <string>

#include <outbox/adapters/libpq_consumer.h>

#include "consumer/libpq_transaction.h"

namespace outbox {
namespace {

constexpr const char* kDoing = "entering a message in outbox_inbox";

// Insert first: asking beforehand whether the id is there would be a race.
constexpr const char* kAccept =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES ($1, $2, "
    "coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', '-infinity')) "
    "ON CONFLICT (consumer, message_id) DO NOTHING";

}  // namespace

bool accept(PGconn* transaction, std::string_view consumer, std::string_view message_id,
            std::optional<std::chrono::system_clock::time_point> message_time) {
    consumer::require_transaction(transaction, "accept");
    if (message_id.empty()) {
        throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                    "the message has no id, so a repeat could not be told from a new one");
    }
    consumer::Params params;
    params.text(consumer).text(message_id);
    if (message_time) {
        params.number(
            std::chrono::duration_cast<std::chrono::microseconds>(message_time->time_since_epoch())
                .count());
    } else {
        params.null();
    }
    const consumer::PgResult result = params.execute(transaction, kAccept);
    if (!consumer::succeeded(result.get())) {
        throw Error(consumer::pg_error(transaction, result.get(), kDoing));
    }
    return std::string_view(PQcmdTuples(result.get())) == "1";
}

}  // namespace outbox
