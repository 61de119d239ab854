#include "databases/postgres/receive/mailbox.h"

#include <unordered_map>
#include <utility>

#include <outbox/adapters/libpq_consumer.h>

#include "consumer/message_time.h"
#include "consumer/one_by_one.h"
#include "mailbox/loop.h"

namespace outbox::consumer {
namespace {

constexpr const char* kHold =
    "SELECT pg_try_advisory_lock(hashtextextended('outbox_mailbox ' || $1, "
    "'outbox_mailbox'::regclass::oid::bigint))";

constexpr const char* kWaiting =
    "SELECT count(*) FROM (SELECT FROM outbox_mailbox WHERE mailbox = $1 LIMIT $2::bigint) w";

// What is present. The sum stops at the size limit;
// octet_length does not read a payload that is stored out of line.
const char* fetch_sql() {
    static const std::string sql =
        std::string("SELECT position, id, topic, key, headers::text, payload, (SELECT ") +
        postgres::kLookSql +
        ") FROM ("
        "  SELECT w.*, sum(coalesce(octet_length(w.payload), 0)) OVER (ORDER BY w.position) "
        "              - coalesce(octet_length(w.payload), 0) AS before FROM ("
        "    SELECT position, id, topic, key, headers, payload FROM outbox_mailbox "
        "    WHERE mailbox = $1 AND (coalesce(key, '') = '' OR key <> ALL ($2::text[])) "
        "      AND position <> ALL ($3::bigint[]) AND position >= $6::bigint "
        "    ORDER BY position LIMIT $4::bigint) w) b "
        "WHERE before < $5::bigint ORDER BY position";
    return sql.c_str();
}

constexpr const char* kFetchOnly =
    "SELECT position, id, topic, key, headers::text, payload FROM outbox_mailbox "
    "WHERE mailbox = $1 AND position = ANY ($2::bigint[]) ORDER BY position";

// The effect comes after this: a repeat is known before anything happens. Positions begin anew
// where the mailbox is emptied or restored: a row of another id is not the one that was read. By
// COLLATE it is found by its position, as its neighbours are, and not by the index of ids.
constexpr const char* kTake =
    "WITH gone AS (DELETE FROM outbox_mailbox WHERE mailbox = $1 AND position = $2::bigint "
    "              AND id COLLATE \"C\" = $5 RETURNING id), "
    "taken AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  SELECT $3, id, coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', "
    "                          '-infinity') FROM gone "
    "  ON CONFLICT (consumer, message_id) DO NOTHING RETURNING 1) "
    "SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM taken)";

// For a message whose id may have been pruned; raises OBQ01.
constexpr const char* kTakeCarefully =
    "WITH gone AS (DELETE FROM outbox_mailbox WHERE mailbox = $1 AND position = $2::bigint "
    "              AND id COLLATE \"C\" = $5 RETURNING id) "
    "SELECT count(*), count(*) FILTER (WHERE inbox_accept($3, id, "
    "  timestamptz 'epoch' + $4::bigint * interval '1 microsecond')) FROM gone";

// In one order of ids everywhere, so that two batches do not wait for each other. The positions
// come twice: by the array they are found in the index whatever the planner thinks of the join. It
// takes the rows for a few, and a join with `taken` would be a loop in a loop.
constexpr const char* kTakeAll =
    "WITH gone AS (DELETE FROM outbox_mailbox m "
    "  USING unnest($2::bigint[], $4::bigint[], $5::text[]) AS t (position, us, id) "
    "  WHERE m.mailbox = $1 AND m.position = ANY ($2::bigint[]) AND m.position = t.position "
    "  AND m.id COLLATE \"C\" = t.id RETURNING m.position, m.id, t.us), "
    "taken AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  SELECT $3, id, coalesce(timestamptz 'epoch' + us * interval '1 microsecond', "
    "                          '-infinity') FROM gone "
    "  ORDER BY id ON CONFLICT (consumer, message_id) DO NOTHING RETURNING message_id) "
    "SELECT position, id IN (SELECT message_id FROM taken) FROM gone";

constexpr const char* kBury =
    "WITH gone AS (DELETE FROM outbox_mailbox WHERE mailbox = $1 AND position = $2::bigint "
    "              AND id COLLATE \"C\" = $8 RETURNING id, topic, key, headers, payload), "
    "seen AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  SELECT $3, id, coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', "
    "                          '-infinity') FROM gone "
    "  ON CONFLICT (consumer, message_id) DO NOTHING RETURNING 1), "
    "buried AS (INSERT INTO outbox_inbox_dead_letters "
    "  (consumer, message_id, topic, key, headers, payload, attempts, error_code, error, mailbox) "
    "  SELECT $3, id, topic, key, headers, payload, $5::integer, $6, $7, $1 FROM gone "
    "  WHERE EXISTS (SELECT FROM seen) "
    "  ON CONFLICT (consumer, message_id) DO UPDATE SET attempts = excluded.attempts, "
    "    error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at, "
    "    retry_requested_at = NULL, mailbox = excluded.mailbox RETURNING 1) "
    "SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM buried)";

const char* any_writes() {
    static const std::string sql = postgres::any_writes_sql("outbox_mailbox");
    return sql.c_str();
}

constexpr const char* kTaking = "taking a message";

std::vector<LibpqSession::Right> rights_of(const MailboxOptions& options) {
    std::vector<LibpqSession::Right> rights{{"outbox_mailbox", "SELECT, DELETE"}};
    if (options.inbox_retention_s > 0) rights.push_back({"outbox_inbox", "DELETE"});
    return rights;
}

// Of the two counts that a statement for one message gives.
Taken taken_of(const Rows& counts) {
    if (counts.integer(0, 0) == 0) return Taken::kGone;
    return counts.integer(0, 1) == 0 ? Taken::kRepeat : Taken::kNew;
}

}  // namespace

LibpqMailbox::LibpqMailbox(std::string url, const MailboxOptions& options, const core::Clock& clock)
    : inbox_(std::move(url), options.connect_timeout_s, options.consumer,
             {.statements = {{"outbox_hold", kHold},
                             {"outbox_waiting", kWaiting},
                             {"outbox_fetch", fetch_sql()},
                             {"outbox_fetch_only", kFetchOnly},
                             {"outbox_any_writes", any_writes()},
                             {"outbox_take", kTake},
                             {"outbox_take_carefully", kTakeCarefully},
                             {"outbox_take_all", kTakeAll},
                             {"outbox_bury", kBury}},
              .rights = rights_of(options),
              .letters_of = options.mailbox},
             clock),
      mailbox_(options.mailbox),
      clock_(clock) {}

Result<Hold> LibpqMailbox::hold_mailbox() {
    if (held()) return Hold::kStill;
    const Result<Rows> result =
        inbox_.session().execute("outbox_hold", Params().text(mailbox_), "taking the mailbox");
    if (!result.ok()) return result.status();
    if (!result->boolean(0, 0)) return Hold::kNo;
    held_in_ = inbox_.session().number();
    snapshots_ = {};  // it may be another server
    frontier_ = {};
    return Hold::kNew;
}

Result<std::int64_t> LibpqMailbox::waiting(std::int64_t most) {
    const Result<Rows> count = inbox_.session().execute(
        "outbox_waiting", Params().text(mailbox_).number(most), "counting the mailbox");
    if (!count.ok()) return count.status();
    return count->integer(0, 0);
}

Status LibpqMailbox::fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) {
    Params params;
    params.text(mailbox_);
    if (!choice.only.empty()) {
        params.untyped(array_literal(choice.only));
        const Result<Rows> rows =
            inbox_.session().execute("outbox_fetch_only", params, "reading the mailbox");
        if (rows.ok()) append_messages(*rows, limits.max_bytes, out);
        return rows.status();
    }
    if (Status status = ask_long_open(); !status.ok()) return status;
    params.untyped(array_literal(choice.without_keys))
        .untyped(array_literal(choice.without_positions))
        .number(static_cast<std::int64_t>(limits.max_messages))
        .number(static_cast<std::int64_t>(limits.max_bytes))
        .number(choice.from);
    const Result<Rows> rows =
        inbox_.session().execute("outbox_fetch", params, "reading the mailbox");
    if (!rows.ok() || rows->empty()) return rows.status();
    append_messages(*rows, limits.max_bytes, out);
    const std::int64_t last = out.events().back().position;
    frontier_.reach(last, false, snapshots_.looked(rows->text(0, 6), clock_.boot_us()));
    const std::int64_t seen = std::min(frontier_.settled(), last);
    next_from_ = seen == 0 ? 0 : seen + 1;
    return {};
}

// One that is open for hours and writes elsewhere would have each look read all places of what is
// gone.
Status LibpqMailbox::ask_long_open() {
    const std::vector<std::uint32_t>* open = snapshots_.long_open(clock_.boot_us());
    if (open == nullptr) return {};
    const Result<Rows> writes = inbox_.session().execute(
        "outbox_any_writes", Params().untyped(array_literal(*open)), "reading the mailbox");
    if (writes.ok()) snapshots_.answered(writes->boolean(0, 0), clock_.boot_us());
    return writes.status();
}

LibpqMailbox::Take LibpqMailbox::take(const spi::EventView& message) const {
    const auto time_us = message_time_us(message);
    Take take{
        may_be_quarantined(time_us, inbox_.now_us()) ? "outbox_take_carefully" : "outbox_take", {}};
    take.params.text(mailbox_)
        .number(message.position)
        .text(inbox_.consumer())
        .number_or_null(time_us)
        .text(message.id);
    return take;
}

Result<Taken> LibpqMailbox::begin(const spi::EventView& message) {
    if (!held()) {
        return ErrorInfo{ErrorCode::kConnectionLost,
                         Advice::kRetryDestination,
                         {},
                         "the session ended with the message before; a new one is made"};
    }
    const Take how = take(message);
    const auto counts = inbox_.begin_with(how.statement, how.params, kTaking);
    if (!counts.ok()) return counts.status();
    return taken_of(*counts);
}

MailboxStore::Turn LibpqMailbox::commit_and_begin(const spi::EventView& next) {
    const Take how = take(next);
    const Step step{how.statement, &how.params};
    LibpqSession::Turn turn = inbox_.session().commit_and_begin_with({&step, 1}, kTaking);
    if (!turn.begun) return {std::move(turn.committed), {}};
    if (!turn.begun->ok()) return {std::move(turn.committed), turn.begun->status()};
    return {std::move(turn.committed), taken_of(turn.begun->value().front())};
}

Result<std::vector<Taken>> LibpqMailbox::begin_all(std::span<const spi::EventView> messages) {
    std::vector<std::int64_t> positions;
    std::vector<std::optional<std::int64_t>> times;
    std::vector<std::string> ids;
    std::unordered_map<std::int64_t, std::size_t> index_of;
    const std::int64_t now = inbox_.now_us();
    for (const spi::EventView& message : messages) {
        index_of.emplace(message.position, positions.size());
        positions.push_back(message.position);
        times.push_back(message_time_us(message));
        ids.emplace_back(message.id);
        if (may_be_quarantined(times.back(), now)) {
            return ErrorInfo{ErrorCode::kUnsupported, Advice::kRetryEvent, {}, "one by one"};
        }
    }
    if (!held()) {
        return ErrorInfo{ErrorCode::kConnectionLost, Advice::kRetryDestination, {}, "one by one"};
    }
    Params params;
    params.text(mailbox_).untyped(array_literal(positions)).text(inbox_.consumer());
    params.untyped(array_literal(times)).untyped(array_literal(ids));
    const Result<Rows> rows = inbox_.begin_with("outbox_take_all", params, "taking messages");
    if (!rows.ok()) return rows.status();
    std::vector<Taken> taken(messages.size(), Taken::kGone);
    for (int row = 0; row < rows->size(); ++row) {
        taken[index_of.at(rows->integer(row, 0))] =
            rows->boolean(row, 1) ? Taken::kNew : Taken::kRepeat;
    }
    return taken;
}

Result<Taken> LibpqMailbox::bury(const spi::EventView& message, const Burial& burial) {
    Params params;
    params.text(mailbox_).number(message.position).text(inbox_.consumer());
    params.number_or_null(message_time_us(message));
    params.number(burial.attempts).text(burial.error_code).text(burial.error).text(message.id);
    const Result<Rows> counts = inbox_.session().execute(
        "outbox_bury", params, "moving a message to outbox_inbox_dead_letters");
    if (!counts.ok()) return counts.status();
    return taken_of(*counts);
}

}  // namespace outbox::consumer

namespace outbox {

MailboxConsumer libpq_mailbox_consumer(const std::string& url, LibpqBatchHandler handler,
                                       MailboxOptions options) {
    options = consumer::checked(std::move(options));
    consumer::check_postgres_url(url);
    const consumer::Env env = consumer::real_env();
    auto store = std::make_unique<consumer::LibpqMailbox>(url, options, env.clock);
    const consumer::LibpqMailbox& session = *store;
    return consumer::make_mailbox_consumer(
        std::move(store),
        [&session, handler = std::move(handler)](std::span<const Message> messages) {
            handler(session.connection(), messages);
        },
        std::move(options), env);
}

MailboxConsumer libpq_mailbox_consumer(const std::string& url, LibpqHandler handler,
                                       MailboxOptions options) {
    return libpq_mailbox_consumer(
        url, LibpqBatchHandler(consumer::one_by_one<PGconn>(std::move(handler))),
        std::move(options));
}

}  // namespace outbox
