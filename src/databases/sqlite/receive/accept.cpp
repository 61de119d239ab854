#include <outbox/adapters/sqlite_consumer.h>

#include "consumer/env.h"
#include "consumer/message_time.h"
#include "databases/sqlite/receive/transaction.h"

namespace outbox {
namespace {

using consumer::callers_statement;
using sqlite::Statement;

constexpr const char* kEntering = "entering a message in outbox_inbox";

// Insert first: asking beforehand whether the id is there would be a race.
constexpr const char* kAccept =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time, applied_at) "
    "VALUES (?1, ?2, coalesce(?3, -9223372036854775807), ?4) "
    "ON CONFLICT (consumer, message_id) DO NOTHING";

constexpr const char* kFloor = "SELECT floor FROM outbox_inbox_floor WHERE consumer = ?1";

constexpr const char* kAcceptSequence =
    "INSERT INTO outbox_inbox_sequences AS s (consumer, key, last_sequence) "
    "SELECT ?1, ?2, ?3 WHERE ?3 = 1 OR EXISTS (SELECT 1 FROM outbox_inbox_sequences k "
    "  WHERE k.consumer = ?1 AND k.key = ?2) "
    "ON CONFLICT (consumer, key) DO UPDATE SET last_sequence = excluded.last_sequence "
    "WHERE s.last_sequence = excluded.last_sequence - 1";

constexpr const char* kLastSequence =
    "SELECT last_sequence FROM outbox_inbox_sequences WHERE consumer = ?1 AND key = ?2";

constexpr const char* kNextOffset =
    "SELECT next_offset FROM outbox_inbox_offsets "
    "WHERE consumer = ?1 AND topic = ?2 AND partition = ?3";

constexpr const char* kMoveOffset =
    "UPDATE outbox_inbox_offsets SET next_offset = ?5, updated_at = ?6 "
    "WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND next_offset = ?4";

constexpr const char* kFirstOffset =
    "INSERT INTO outbox_inbox_offsets (consumer, topic, partition, next_offset, updated_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";

// SQLite has one writer, so no floor can rise between this look and the insert.
void check_floor(sqlite3* transaction, std::string_view consumer, std::string_view id,
                 std::int64_t time_us, std::int64_t now_us) {
    Statement floor = callers_statement(transaction, kFloor, kEntering);
    const bool found = floor.lend(consumer).step();
    consumer::quarantine_unless(id, consumer, time_us,
                                found ? floor.integer(0) : consumer::kNoFloorUs, now_us)
        .or_throw();
}

// The floor is asked only of what the inbox does not know: a repeat is a repeat whatever its age.
bool enter(sqlite3* transaction, Statement& insert, std::string_view consumer,
           const InboxEntry& message, std::int64_t now_us) {
    consumer::require_id(message.id);
    const auto time_us = consumer::microseconds(message.time);
    insert.reset();
    insert.lend(consumer).lend(message.id).bind_or_null(time_us).bind(now_us);
    if (insert.changed() == 0) return false;
    if (consumer::may_be_quarantined(time_us, now_us)) {
        check_floor(transaction, consumer, message.id, *time_us, now_us);
    }
    return true;
}

}  // namespace

bool accept(sqlite3* transaction, std::string_view consumer, std::string_view message_id,
            MessageTime message_time) {
    consumer::require_transaction(transaction, "accept");
    Statement insert = callers_statement(transaction, kAccept, kEntering);
    return enter(transaction, insert, consumer, {message_id, message_time},
                 consumer::callers_clock().wall_us());
}

bool accept(sqlite3* transaction, const InboxTable& table, std::string_view consumer,
            std::string_view message_id) {
    consumer::require_transaction(transaction, "accept");
    consumer::require_id(message_id);
    std::string columns = consumer::quoted_name(table.id_column);
    std::string values = "?1";
    if (!table.consumer_column.empty()) {
        columns += ", " + consumer::quoted_name(table.consumer_column);
        values += ", ?2";
    }
    if (!table.time_column.empty()) {
        columns += ", " + consumer::quoted_name(table.time_column);
        values += ", CURRENT_TIMESTAMP";
    }
    Statement insert =
        callers_statement(transaction,
                          "INSERT INTO " + consumer::quoted_name(table.table) + " (" + columns +
                              ") VALUES (" + values + ") ON CONFLICT DO NOTHING",
                          "entering a message in the application's inbox");
    insert.lend(message_id);
    if (!table.consumer_column.empty()) insert.lend(consumer);
    return insert.changed() == 1;
}

std::vector<bool> accept_batch(sqlite3* transaction, std::string_view consumer,
                               std::span<const InboxEntry> messages) {
    consumer::require_transaction(transaction, "accept_batch");
    const std::int64_t now_us = consumer::callers_clock().wall_us();
    Statement insert = callers_statement(transaction, kAccept, kEntering);
    std::vector<bool> is_new;
    is_new.reserve(messages.size());
    for (const InboxEntry& message : messages) {
        is_new.push_back(enter(transaction, insert, consumer, message, now_us));
    }
    return is_new;
}

SequenceResult accept_sequence(sqlite3* transaction, std::string_view consumer,
                               std::string_view key, std::int64_t sequence) {
    constexpr const char* kDoing = "entering a message in outbox_inbox_sequences";
    consumer::require_transaction(transaction, "accept_sequence");
    Statement take = callers_statement(transaction, kAcceptSequence, kDoing);
    if (take.lend(consumer).lend(key).bind(sequence).changed() == 1) {
        return {SequenceResult::What::kNew, sequence + 1};
    }
    Statement last = callers_statement(transaction, kLastSequence, kDoing);
    const std::int64_t expected = last.lend(consumer).lend(key).step() ? last.integer(0) + 1 : 1;
    return {sequence < expected ? SequenceResult::What::kRepeat : SequenceResult::What::kGap,
            expected};
}

std::optional<std::int64_t> next_offset(sqlite3* connection, std::string_view consumer,
                                        std::string_view topic, int partition) {
    Statement row = callers_statement(connection, kNextOffset, "reading outbox_inbox_offsets");
    if (!row.lend(consumer).lend(topic).bind(partition).step()) return std::nullopt;
    return row.integer(0);
}

bool accept_offset(sqlite3* transaction, std::string_view consumer, std::string_view topic,
                   int partition, std::optional<std::int64_t> expected, std::int64_t next) {
    consumer::require_transaction(transaction, "accept_offset");
    Statement move = callers_statement(transaction, expected ? kMoveOffset : kFirstOffset,
                                       "moving an offset in outbox_inbox_offsets");
    move.lend(consumer).lend(topic).bind(partition);
    if (expected) move.bind(*expected);
    return move.bind(next).bind(consumer::callers_clock().wall_us()).changed() == 1;
}

}  // namespace outbox
