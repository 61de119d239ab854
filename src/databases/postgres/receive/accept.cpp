#include <libpq-fe.h>
#include <string>
#include <unordered_map>

#include <outbox/adapters/libpq_consumer.h>

#include "consumer/env.h"
#include "consumer/message_time.h"
#include "databases/postgres/receive/prepared.h"
#include "databases/postgres/receive/transaction.h"

namespace outbox {
namespace {

using consumer::Params;
using consumer::Rows;

// Insert first: asking beforehand whether the id is there would be a race.
constexpr const char* kAccept =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES ($1, $2, "
    "coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', '-infinity')) "
    "ON CONFLICT (consumer, message_id) DO NOTHING";

// Looks at the floor first.
constexpr const char* kAcceptCarefully =
    "SELECT inbox_accept($1, $2, timestamptz 'epoch' + $3::bigint * interval '1 microsecond')";

constexpr consumer::Prepared kKeptAccept{"outbox_accept", kAccept};
constexpr consumer::Prepared kKeptAcceptCarefully{"outbox_accept_carefully", kAcceptCarefully};

// In one order everywhere, so that two batches with the same ids do not wait for each other.
constexpr const char* kAcceptBatch =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "SELECT $1, m.id, coalesce(timestamptz 'epoch' + m.us * interval '1 microsecond', '-infinity') "
    "FROM unnest($2::text[], $3::bigint[]) AS m (id, us) ORDER BY m.id "
    "ON CONFLICT (consumer, message_id) DO NOTHING RETURNING message_id";

constexpr const char* kAcceptSequence =
    "WITH taken AS (INSERT INTO outbox_inbox_sequences AS s (consumer, key, last_sequence) "
    "  SELECT $1, $2, $3::bigint WHERE $3::bigint = 1 OR EXISTS (SELECT 1 FROM "
    "    outbox_inbox_sequences k WHERE k.consumer = $1 AND k.key = $2) "
    "  ON CONFLICT (consumer, key) DO UPDATE SET last_sequence = excluded.last_sequence "
    "  WHERE s.last_sequence = excluded.last_sequence - 1 RETURNING 1) "
    "SELECT (SELECT count(*) FROM taken)";

constexpr const char* kLastSequence =
    "SELECT last_sequence FROM outbox_inbox_sequences WHERE consumer = $1 AND key = $2";

constexpr const char* kNextOffset =
    "SELECT next_offset FROM outbox_inbox_offsets "
    "WHERE consumer = $1 AND topic = $2 AND partition = $3::integer";

constexpr const char* kMoveOffset =
    "UPDATE outbox_inbox_offsets SET next_offset = $5::bigint, updated_at = clock_timestamp() "
    "WHERE consumer = $1 AND topic = $2 AND partition = $3::integer AND next_offset = $4::bigint";

constexpr const char* kFirstOffset =
    "INSERT INTO outbox_inbox_offsets (consumer, topic, partition, next_offset) "
    "VALUES ($1, $2, $3::integer, $4::bigint) ON CONFLICT DO NOTHING";

constexpr const char* kEntering = "entering a message in outbox_inbox";

Rows run(PGconn* connection, const Params& params, const char* sql, const char* doing) {
    Rows result = postgres::execute(connection, sql, params);
    if (!result.succeeded()) {
        throw Error(consumer::receive_error(connection, result.get(), doing));
    }
    return result;
}

bool changed_one(const Rows& result) {
    return result.affected() == 1;
}

constexpr const char* kInboxTable = "InboxTable";

std::string insert_into(PGconn* connection, const InboxTable& table) {
    const auto column = [&](const std::string& name) {
        return consumer::identifier(connection, name, kInboxTable);
    };
    std::string sql = "INSERT INTO " +
                      consumer::table_identifier(connection, table.table, kInboxTable) + " (" +
                      column(table.id_column);
    std::string values = ") VALUES ($1";
    if (!table.consumer_column.empty()) {
        sql += ", " + column(table.consumer_column);
        values += ", $2";
    }
    if (!table.time_column.empty()) {
        sql += ", " + column(table.time_column);
        values += ", clock_timestamp()";
    }
    return sql + values + ") ON CONFLICT DO NOTHING";
}

/// How one message is entered.
struct Entry {
    Entry(std::string_view consumer, const InboxEntry& message, std::int64_t now_us) {
        consumer::require_id(message.id);
        const auto time_us = consumer::microseconds(message.time);
        carefully = consumer::may_be_quarantined(time_us, now_us);
        params.text(consumer).text(message.id).number_or_null(time_us);
    }
    [[nodiscard]] const char* sql() const { return carefully ? kAcceptCarefully : kAccept; }
    [[nodiscard]] bool is_new(const Rows& result) const {
        return carefully ? result.boolean(0, 0) : changed_one(result);
    }

    bool carefully = false;
    Params params;
};

// Whoever hears of a repeat has its broker forget the message.
bool repeat_waits(PGconn* transaction, bool is_new) {
    if (!is_new) consumer::wait_as_a_write(transaction, kEntering);
    return is_new;
}

bool enter(PGconn* transaction, std::string_view consumer, const InboxEntry& message,
           std::int64_t now_us) {
    const Entry entry(consumer, message, now_us);
    return repeat_waits(transaction,
                        entry.is_new(run(transaction, entry.params, entry.sql(), kEntering)));
}

}  // namespace

bool accept(PGconn* transaction, std::string_view consumer, std::string_view message_id,
            MessageTime message_time) {
    consumer::require_transaction(transaction, "accept");
    return enter(transaction, consumer, {message_id, message_time},
                 consumer::callers_clock().wall_us());
}

bool begin_and_accept(PGconn* connection, std::string_view consumer, std::string_view message_id,
                      MessageTime message_time) {
    consumer::require_idle(connection, "begin_and_accept");
    const Entry entry(consumer, {message_id, message_time}, consumer::callers_clock().wall_us());
    const consumer::Prepared& statement = entry.carefully ? kKeptAcceptCarefully : kKeptAccept;
    consumer::keep(connection, statement);
    const bool is_new =
        entry.is_new(consumer::begun_with(connection, statement, entry.params, kEntering));
    try {
        return repeat_waits(connection, is_new);
    } catch (...) {
        static_cast<void>(postgres::execute(connection, "ROLLBACK"));
        throw;
    }
}

bool accept(PGconn* transaction, const InboxTable& table, std::string_view consumer,
            std::string_view message_id) {
    consumer::require_transaction(transaction, "accept");
    consumer::require_id(message_id);
    // The column says what type the id has.
    Params params;
    params.untyped(message_id);
    if (!table.consumer_column.empty()) params.untyped(consumer);
    return repeat_waits(
        transaction, changed_one(run(transaction, params, insert_into(transaction, table).c_str(),
                                     "entering a message in the application's inbox")));
}

std::vector<bool> accept_batch(PGconn* transaction, std::string_view consumer,
                               std::span<const InboxEntry> messages) {
    consumer::require_transaction(transaction, "accept_batch");
    const std::int64_t now_us = consumer::callers_clock().wall_us();
    std::vector<bool> is_new(messages.size());
    std::unordered_map<std::string_view, std::size_t> first_of;
    std::vector<std::string_view> ids;
    std::vector<std::optional<std::int64_t>> times;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        consumer::require_id(messages[i].id);
        const auto time_us = consumer::microseconds(messages[i].time);
        if (consumer::may_be_quarantined(time_us, now_us)) {
            is_new[i] = enter(transaction, consumer, messages[i], now_us);
        } else if (first_of.emplace(messages[i].id, i).second) {
            ids.push_back(messages[i].id);
            times.push_back(time_us);
        }
    }
    if (ids.empty()) return is_new;
    const std::string id_array = consumer::array_literal(ids);
    const std::string time_array = consumer::array_literal(times);
    Params params;
    params.text(consumer).untyped(id_array).untyped(time_array);
    const Rows rows = run(transaction, params, kAcceptBatch, kEntering);
    for (int row = 0; row < rows.size(); ++row) {
        is_new[first_of.at(rows.text(row, 0))] = true;
    }
    repeat_waits(transaction, !rows.empty());
    return is_new;
}

SequenceResult accept_sequence(PGconn* transaction, std::string_view consumer, std::string_view key,
                               std::int64_t sequence) {
    constexpr const char* kDoing = "entering a message in outbox_inbox_sequences";
    consumer::require_transaction(transaction, "accept_sequence");
    Params params;
    params.text(consumer).text(key).number(sequence);
    Params which;
    which.text(consumer).text(key);
    for (bool again = true;; again = false) {
        const Rows taken = run(transaction, params, kAcceptSequence, kDoing);
        if (taken.integer(0, 0) == 1) {
            return {SequenceResult::What::kNew, sequence + 1};
        }
        const Rows last = run(transaction, which, kLastSequence, kDoing);
        const std::int64_t expected = last.empty() ? 1 : last.integer(0, 0) + 1;
        if (sequence < expected) return {SequenceResult::What::kRepeat, expected};
        if (sequence > expected || !again) return {SequenceResult::What::kGap, expected};
        // The one before it was committed in between.
    }
}

std::optional<std::int64_t> next_offset(PGconn* connection, std::string_view consumer,
                                        std::string_view topic, int partition) {
    Params params;
    params.text(consumer).text(topic).number(partition);
    const Rows row = run(connection, params, kNextOffset, "reading outbox_inbox_offsets");
    if (row.empty()) return std::nullopt;
    return row.integer(0, 0);
}

bool accept_offset(PGconn* transaction, std::string_view consumer, std::string_view topic,
                   int partition, std::optional<std::int64_t> expected, std::int64_t next) {
    consumer::require_transaction(transaction, "accept_offset");
    Params params;
    params.text(consumer).text(topic).number(partition);
    if (expected) params.number(*expected);
    params.number(next);
    return changed_one(run(transaction, params, expected ? kMoveOffset : kFirstOffset,
                           "moving an offset in outbox_inbox_offsets"));
}

}  // namespace outbox
