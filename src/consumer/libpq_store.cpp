#include "consumer/libpq_store.h"

#include <unordered_map>
#include <utility>

#include <outbox/adapters/libpq_consumer.h>

#include "consumer/mailbox_loop.h"
#include "consumer/message_time.h"

namespace outbox::consumer {
namespace {

constexpr const char* kHold =
    "SELECT pg_try_advisory_lock(hashtextextended('outbox_mailbox ' || $1, "
    "'outbox_mailbox'::regclass::oid::bigint))";

// What is present, never what lies behind a remembered position. The sum stops at the size limit;
// octet_length does not read a payload that is stored out of line.
constexpr const char* kFetch =
    "SELECT position, id, topic, key, headers::text, payload FROM ("
    "  SELECT w.*, sum(coalesce(octet_length(w.payload), 0)) OVER (ORDER BY w.position) "
    "              - coalesce(octet_length(w.payload), 0) AS before FROM ("
    "    SELECT position, id, topic, key, headers, payload FROM outbox_mailbox "
    "    WHERE mailbox = $1 AND (coalesce(key, '') = '' OR key <> ALL ($2::text[])) "
    "      AND position <> ALL ($3::bigint[]) "
    "    ORDER BY position LIMIT $4::bigint) w) b "
    "WHERE before < $5::bigint ORDER BY position";

constexpr const char* kFetchOnly =
    "SELECT position, id, topic, key, headers::text, payload FROM outbox_mailbox "
    "WHERE mailbox = $1 AND position = ANY ($2::bigint[]) ORDER BY position";

constexpr const char* kFetchRetries =
    "SELECT 0::bigint, message_id, topic, key, headers::text, payload "
    "FROM outbox_inbox_dead_letters WHERE consumer = $1 AND retry_requested_at IS NOT NULL "
    "ORDER BY retry_requested_at LIMIT $2::bigint";

// The effect comes after this: a repeat is known before anything happens.
constexpr const char* kTake =
    "WITH gone AS (DELETE FROM outbox_mailbox WHERE mailbox = $1 AND position = $2::bigint "
    "              RETURNING id), "
    "taken AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  SELECT $3, id, coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', "
    "                          '-infinity') FROM gone "
    "  ON CONFLICT (consumer, message_id) DO NOTHING RETURNING 1) "
    "SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM taken)";

// For a message whose id may have been pruned; raises OBQ01.
constexpr const char* kTakeCarefully =
    "WITH gone AS (DELETE FROM outbox_mailbox WHERE mailbox = $1 AND position = $2::bigint "
    "              RETURNING id) "
    "SELECT count(*), count(*) FILTER (WHERE inbox_accept($3, id, "
    "  timestamptz 'epoch' + $4::bigint * interval '1 microsecond')) FROM gone";

// In one order of ids everywhere, so that two batches do not wait for each other.
constexpr const char* kTakeAll =
    "WITH gone AS (DELETE FROM outbox_mailbox WHERE mailbox = $1 "
    "                AND position = ANY ($2::bigint[]) RETURNING position, id), "
    "taken AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  SELECT $3, g.id, coalesce(timestamptz 'epoch' + t.us * interval '1 microsecond', "
    "                            '-infinity') "
    "  FROM gone g JOIN unnest($2::bigint[], $4::bigint[]) AS t (position, us) USING (position) "
    "  ORDER BY g.id ON CONFLICT (consumer, message_id) DO NOTHING RETURNING message_id) "
    "SELECT g.position, t.message_id IS NOT NULL FROM gone g "
    "LEFT JOIN taken t ON t.message_id = g.id";

constexpr const char* kTakeRetry =
    "WITH gone AS (DELETE FROM outbox_inbox_dead_letters WHERE consumer = $1 AND message_id = $2 "
    "              AND retry_requested_at IS NOT NULL RETURNING 1) "
    "SELECT count(*), count(*) FROM gone";

constexpr const char* kBury =
    "WITH gone AS (DELETE FROM outbox_mailbox WHERE mailbox = $1 AND position = $2::bigint "
    "              RETURNING id, topic, key, headers, payload), "
    "seen AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  SELECT $3, id, coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', "
    "                          '-infinity') FROM gone "
    "  ON CONFLICT (consumer, message_id) DO NOTHING) "
    "INSERT INTO outbox_inbox_dead_letters "
    "  (consumer, message_id, topic, key, headers, payload, attempts, error_code, error) "
    "SELECT $3, id, topic, key, headers, payload, $5::integer, $6, $7 FROM gone "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET attempts = excluded.attempts, "
    "  error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at, "
    "  retry_requested_at = NULL";

constexpr const char* kBuryAgain =
    "UPDATE outbox_inbox_dead_letters SET attempts = attempts + $3::integer, error_code = $4, "
    "  error = $5, died_at = clock_timestamp(), retry_requested_at = NULL "
    "WHERE consumer = $1 AND message_id = $2";

constexpr const char* kRights =
    "SELECT 1 WHERE has_table_privilege('outbox_mailbox', 'SELECT') "
    "AND has_table_privilege('outbox_mailbox', 'DELETE') "
    "AND has_table_privilege('outbox_inbox', 'SELECT') "
    "AND has_table_privilege('outbox_inbox', 'INSERT') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'SELECT') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'INSERT') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'UPDATE') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'DELETE')";

const LibpqSession::Statement kStatements[] = {
    {"outbox_hold", kHold, 1},
    {"outbox_fetch", kFetch, 5},
    {"outbox_fetch_only", kFetchOnly, 2},
    {"outbox_retries", kFetchRetries, 2},
    {"outbox_take", kTake, 4},
    {"outbox_take_carefully", kTakeCarefully, 4},
    {"outbox_take_all", kTakeAll, 4},
    {"outbox_take_retry", kTakeRetry, 2},
    {"outbox_bury", kBury, 7},
    {"outbox_bury_again", kBuryAgain, 5},
    {"outbox_report", kReportFigures, 7},
};

void append_messages(const PGresult* rows, std::size_t max_bytes, spi::EventBatch& out) {
    const auto copied = [&](int row, int column) {
        const std::string_view value = cell(rows, row, column);
        return value.data() == nullptr ? value : out.copy(value);
    };
    for (int row = 0; row < PQntuples(rows) && out.bytes() < max_bytes; ++row) {
        spi::EventView event;
        event.position = big_endian(cell(rows, row, 0));
        event.id = copied(row, 1);
        event.topic = copied(row, 2);
        event.key = copied(row, 3);
        event.headers = copied(row, 4);
        event.payload = copied(row, 5);
        out.add(event);
    }
}

}  // namespace

LibpqStore::LibpqStore(std::string url, const MailboxOptions& options)
    : session_(std::move(url), options.connect_timeout_s, kStatements, kRights),
      mailbox_(options.mailbox),
      consumer_(options.consumer) {}

Status LibpqStore::connect() {
    if (!session_.sound()) disconnect();
    return session_.connect();
}

void LibpqStore::disconnect() {
    session_.disconnect();
    held_ = false;
}

Status LibpqStore::commit() {
    return session_.commit();
}

Status LibpqStore::roll_back(ErrorInfo& cause) {
    return session_.roll_back(cause);
}

Status LibpqStore::report(const Figures& figures) {
    return report_figures(session_, consumer_, member_name(), figures);
}

Result<bool> LibpqStore::hold_mailbox() {
    if (held_ && session_.connected()) return true;
    const Result<PgResult> result =
        session_.execute("outbox_hold", Params().text(mailbox_), "taking the mailbox");
    if (!result.ok()) return result.status();
    held_ = cell(result->get(), 0, 0) == std::string_view("\x01", 1);
    return held_;
}

Status LibpqStore::fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) {
    Params params;
    params.text(mailbox_);
    if (!choice.only.empty()) {
        params.untyped(array_literal(choice.only));
        const Result<PgResult> rows =
            session_.execute("outbox_fetch_only", params, "reading the mailbox");
        if (rows.ok()) append_messages(rows->get(), limits.max_bytes, out);
        return rows.status();
    }
    params.untyped(array_literal(choice.without_keys))
        .untyped(array_literal(choice.without_positions))
        .number(static_cast<std::int64_t>(limits.max_messages))
        .number(static_cast<std::int64_t>(limits.max_bytes));
    const Result<PgResult> rows = session_.execute("outbox_fetch", params, "reading the mailbox");
    if (rows.ok()) append_messages(rows->get(), limits.max_bytes, out);
    return rows.status();
}

Status LibpqStore::fetch_retries(std::size_t limit, spi::EventBatch& out) {
    Params params;
    params.text(consumer_).number(static_cast<std::int64_t>(limit));
    const Result<PgResult> rows =
        session_.execute("outbox_retries", params, "reading dead letters");
    if (rows.ok()) append_messages(rows->get(), SIZE_MAX, out);
    return rows.status();
}

Result<Taken> LibpqStore::begin(const spi::EventView& message) {
    if (!session_.connected() || !held_) {
        return ErrorInfo{ErrorCode::kConnectionLost,
                         Advice::kRetryDestination,
                         {},
                         "the session ended with the message before; a new one is made"};
    }
    if (Status status = session_.begin(); !status.ok()) return status;
    Params params;
    if (message.position == 0) {
        params.text(consumer_).text(message.id);
        return take("outbox_take_retry", params);
    }
    const auto time_us = message_time_us(message);
    params.text(mailbox_).number(message.position).text(consumer_).number_or_null(time_us);
    return take(
        may_be_quarantined(time_us, wall_clock_us()) ? "outbox_take_carefully" : "outbox_take",
        params);
}

Result<std::vector<Taken>> LibpqStore::begin_all(std::span<const spi::EventView> messages) {
    std::vector<std::int64_t> positions;
    std::vector<std::optional<std::int64_t>> times;
    std::unordered_map<std::int64_t, std::size_t> index_of;
    const std::int64_t now_us = wall_clock_us();
    for (const spi::EventView& message : messages) {
        index_of.emplace(message.position, positions.size());
        positions.push_back(message.position);
        times.push_back(message_time_us(message));
        if (may_be_quarantined(times.back(), now_us)) {
            return ErrorInfo{ErrorCode::kUnsupported, Advice::kRetryEvent, {}, "one by one"};
        }
    }
    if (!session_.connected() || !held_) {
        return ErrorInfo{ErrorCode::kConnectionLost, Advice::kRetryDestination, {}, "one by one"};
    }
    if (Status status = session_.begin(); !status.ok()) return status;
    Params params;
    params.text(mailbox_).untyped(array_literal(positions)).text(consumer_);
    params.untyped(array_literal(times));
    const Result<PgResult> rows = session_.execute("outbox_take_all", params, "taking messages");
    if (!rows.ok()) {
        const Status ended = session_.end_transaction();
        return ended.ok() ? rows.status() : ended;
    }
    std::vector<Taken> taken(messages.size(), Taken::kGone);
    for (int row = 0; row < PQntuples(rows->get()); ++row) {
        taken[index_of.at(big_endian(cell(rows->get(), row, 0)))] =
            cell(rows->get(), row, 1) == std::string_view("\x01", 1) ? Taken::kNew : Taken::kRepeat;
    }
    return taken;
}

Result<Taken> LibpqStore::take(const char* statement, const Params& params) {
    const Result<PgResult> counts = session_.execute(statement, params, "taking a message");
    if (!counts.ok()) {
        const Status ended = session_.end_transaction();
        return ended.ok() ? counts.status() : ended;
    }
    if (big_endian(cell(counts->get(), 0, 0)) == 0) return Taken::kGone;
    return big_endian(cell(counts->get(), 0, 1)) == 0 ? Taken::kRepeat : Taken::kNew;
}

Status LibpqStore::bury(const spi::EventView& message, const Burial& burial) {
    Params params;
    if (message.position == 0) {
        params.text(consumer_).text(message.id);
    } else {
        params.text(mailbox_)
            .number(message.position)
            .text(consumer_)
            .number_or_null(message_time_us(message));
    }
    params.number(burial.attempts).text(burial.error_code).text(burial.error);
    return session_
        .execute(message.position == 0 ? "outbox_bury_again" : "outbox_bury", params,
                 "moving a message to outbox_inbox_dead_letters")
        .status();
}

}  // namespace outbox::consumer

namespace outbox {

MailboxConsumer libpq_mailbox_consumer(const std::string& url, LibpqBatchHandler handler,
                                       MailboxOptions options) {
    options = consumer::checked(std::move(options));
    consumer::check_postgres_url(url);
    auto store = std::make_unique<consumer::LibpqStore>(url, options);
    const consumer::LibpqStore& session = *store;
    return consumer::make_mailbox_consumer(
        std::move(store),
        [&session, handler = std::move(handler)](std::span<const Message> messages) {
            handler(session.connection(), messages);
        },
        std::move(options), url);
}

MailboxConsumer libpq_mailbox_consumer(const std::string& url, LibpqHandler handler,
                                       MailboxOptions options) {
    return libpq_mailbox_consumer(
        url,
        LibpqBatchHandler(
            [handler = std::move(handler)](PGconn* transaction, std::span<const Message> messages) {
                for (const Message& message : messages) handler(transaction, message);
            }),
        std::move(options));
}

}  // namespace outbox
