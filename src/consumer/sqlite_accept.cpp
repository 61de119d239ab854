#include <outbox/adapters/sqlite_consumer.h>

#include "consumer/sqlite_errors.h"

namespace outbox {
namespace {

constexpr const char* kDoing = "entering a message in outbox_inbox";

// Insert first: asking beforehand whether the id is there would be a race.
constexpr const char* kAccept =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "VALUES (?1, ?2, coalesce(?3, -9223372036854775807)) "
    "ON CONFLICT (consumer, message_id) DO NOTHING";

[[noreturn]] void fail(sqlite3* database) {
    ErrorInfo error = consumer::sqlite_error(database, kDoing);
    // In the caller's hands it is the transaction that has to run again.
    if ((sqlite3_errcode(database) & 0xff) == SQLITE_BUSY) {
        error.code = ErrorCode::kConflict;
        error.advice = Advice::kRetryEvent;
        error.message += "; roll back and run the transaction again, with BEGIN IMMEDIATE";
    }
    throw Error(std::move(error));
}

}  // namespace

bool accept(sqlite3* transaction, std::string_view consumer, std::string_view message_id,
            std::optional<std::chrono::system_clock::time_point> message_time) {
    if (sqlite3_get_autocommit(transaction) != 0) {
        throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                    "accept needs the open transaction that applies the message: call it between "
                    "BEGIN IMMEDIATE and COMMIT");
    }
    if (message_id.empty()) {
        throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                    "the message has no id, so a repeat could not be told from a new one");
    }
    sqlite3_stmt* compiled = nullptr;
    if (sqlite3_prepare_v2(transaction, kAccept, -1, &compiled, nullptr) != SQLITE_OK) {
        fail(transaction);
    }
    const consumer::SqliteStatement statement(compiled);
    const std::string_view name = consumer.data() == nullptr ? std::string_view("") : consumer;
    const auto bind_text = [&](int index, std::string_view text) {
        return sqlite3_bind_text64(compiled, index, text.data(), text.size(), SQLITE_STATIC,
                                   SQLITE_UTF8) == SQLITE_OK;
    };
    bool bound = bind_text(1, name) && bind_text(2, message_id);
    if (message_time) {
        const auto since_epoch =
            std::chrono::duration_cast<std::chrono::microseconds>(message_time->time_since_epoch());
        bound = bound && sqlite3_bind_int64(compiled, 3, since_epoch.count()) == SQLITE_OK;
    }
    if (!bound || sqlite3_step(compiled) != SQLITE_DONE) fail(transaction);
    return sqlite3_changes64(transaction) == 1;
}

}  // namespace outbox
