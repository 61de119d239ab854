#include "databases/postgres/receive/inbox_store.h"

#include <algorithm>
#include <utility>

#include "databases/postgres/receive/operator_sql.h"

namespace outbox::consumer {
namespace {

constexpr const char* kFetchRetries =
    "SELECT 0::bigint, message_id, topic, key, headers::text, payload "
    "FROM outbox_inbox_dead_letters WHERE consumer = $1 AND (retry_requested_at <= "
    "clock_timestamp() OR retry_requested_at > clock_timestamp() + $4::bigint * interval '1 "
    "microsecond') AND (mailbox IS NULL OR mailbox = $3) ORDER BY retry_requested_at LIMIT "
    "$2::bigint";

constexpr const char* kTakeRequest =
    "UPDATE outbox_inbox_dead_letters SET attempts = attempts + 1, retry_requested_at = NULL "
    "WHERE (consumer, message_id) IN ("
    "  SELECT consumer, message_id FROM outbox_inbox_dead_letters WHERE consumer = $1 "
    "  AND message_id = $2 AND retry_requested_at IS NOT NULL FOR UPDATE SKIP LOCKED)";

// These two say how many they changed, and how many there are.
constexpr const char* kPutRequestBack =
    "WITH put AS (UPDATE outbox_inbox_dead_letters SET attempts = attempts - 1, "
    "  retry_requested_at = clock_timestamp() + $3::bigint * interval '1 microsecond' "
    "WHERE (consumer, message_id) IN ("
    "  SELECT consumer, message_id FROM outbox_inbox_dead_letters WHERE consumer = $1 "
    "  AND message_id = $2 AND retry_requested_at IS NULL FOR UPDATE SKIP LOCKED) RETURNING 1) "
    "SELECT (SELECT count(*) FROM put), count(*) FROM outbox_inbox_dead_letters "
    "WHERE consumer = $1 AND message_id = $2 AND retry_requested_at IS NULL";

constexpr const char* kTakeRetry =
    "WITH taken AS (DELETE FROM outbox_inbox_dead_letters WHERE (consumer, message_id) IN ("
    "  SELECT consumer, message_id FROM outbox_inbox_dead_letters WHERE consumer = $1 "
    "  AND message_id = $2 FOR UPDATE SKIP LOCKED) RETURNING 1) "
    "SELECT (SELECT count(*) FROM taken), count(*) FROM outbox_inbox_dead_letters "
    "WHERE consumer = $1 AND message_id = $2";

constexpr const char* kBuryAgain =
    "UPDATE outbox_inbox_dead_letters SET error_code = $3, error = $4, "
    "  died_at = clock_timestamp() WHERE (consumer, message_id) IN ("
    "  SELECT consumer, message_id FROM outbox_inbox_dead_letters WHERE consumer = $1 "
    "  AND message_id = $2 FOR UPDATE SKIP LOCKED)";

constexpr const char* kReport =
    "INSERT INTO outbox_inbox_stats "
    "  (consumer, member, applied, repeats, failed, dead, lag, queue, queue_lag) "
    "VALUES ($1, $2, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, "
    "  nullif($8, ''), $9::bigint) "
    "ON CONFLICT (consumer, member) DO UPDATE SET applied = excluded.applied, "
    "  repeats = excluded.repeats, failed = excluded.failed, dead = excluded.dead, "
    "  lag = excluded.lag, queue = excluded.queue, queue_lag = excluded.queue_lag, "
    "  updated_at = excluded.updated_at";

// Figures of members that are gone are kept together under no name: of `member`, and of those that
// have long said nothing.
constexpr const char* kFold =
    "WITH gone AS (DELETE FROM outbox_inbox_stats WHERE consumer = $1 AND member <> '' "
    "  AND (member = $2 OR updated_at < clock_timestamp() - $3::bigint * interval '1 second') "
    "  RETURNING applied, repeats, failed, dead) "
    "INSERT INTO outbox_inbox_stats AS s (consumer, member, applied, repeats, failed, dead) "
    "SELECT $1, '', sum(applied), sum(repeats), sum(failed), sum(dead) FROM gone "
    "HAVING count(*) > 0 ON CONFLICT (consumer, member) DO UPDATE SET "
    "  applied = s.applied + excluded.applied, repeats = s.repeats + excluded.repeats, "
    "  failed = s.failed + excluded.failed, dead = s.dead + excluded.dead, "
    "  updated_at = excluded.updated_at";

// Null where the tables were made by hand, from what `migrate --print` shows.
constexpr const char* kIsVersioned =
    "SELECT coalesce(has_table_privilege(to_regclass('outbox_migrations'), 'SELECT'), false)";

constexpr const char* kClock =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text";

constexpr const char* kClockAndVersion =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text, "
    "coalesce(max(version), 0)::text FROM outbox_migrations WHERE side = 'consumer'";

// To be tried again soon: nobody waits for the one who holds it.
ErrorInfo held(std::string_view message_id) {
    return {ErrorCode::kConflict,
            Advice::kRetryEvent,
            {},
            "another session holds the dead letter " + std::string(message_id)};
}

std::vector<Prepared> with_ours(std::vector<Prepared> more) {
    more.insert(more.end(), {{"outbox_retries", kFetchRetries},
                             {"outbox_take_retry", kTakeRetry},
                             {"outbox_bury_again", kBuryAgain},
                             {"outbox_take_request", kTakeRequest},
                             {"outbox_put_request_back", kPutRequestBack},
                             {"outbox_report", kReport},
                             {"outbox_fold", kFold},
                             {"outbox_wait_as_a_write", kWaitAsAWrite}});
    return more;
}

// docs/receiving.md names these. The floor is written when ids are pruned, and locked under
// REPEATABLE READ and SERIALIZABLE.
std::vector<LibpqSession::Right> with_ours(std::vector<LibpqSession::Right> more) {
    more.insert(more.end(), {{"outbox_inbox", "SELECT, INSERT"},
                             {"outbox_inbox_floor", "SELECT, INSERT, UPDATE"},
                             {"outbox_inbox_dead_letters", "SELECT, INSERT, UPDATE, DELETE"},
                             {"outbox_inbox_stats", "SELECT, INSERT, UPDATE, DELETE"}});
    return more;
}

}  // namespace

void append_messages(const Rows& rows, std::size_t max_bytes, spi::EventBatch& out) {
    const auto copied = [&](int row, int column) {
        const std::string_view value = rows.text(row, column);
        return value.data() == nullptr ? value : out.copy(value);
    };
    for (int row = 0; row < rows.size() && out.bytes() < max_bytes; ++row) {
        spi::EventView event;
        event.position = rows.integer(row, 0);
        event.id = copied(row, 1);
        event.topic = copied(row, 2);
        event.key = copied(row, 3);
        event.headers = copied(row, 4);
        event.payload = copied(row, 5);
        out.add(event);
    }
}

LibpqInboxStore::LibpqInboxStore(std::string url, int connect_timeout_s, std::string consumer,
                                 Extra extra, const core::Clock& clock)
    : session_(std::move(url), connect_timeout_s, with_ours(std::move(extra.statements)),
               with_ours(std::move(extra.rights))),
      consumer_(std::move(consumer)),
      letters_of_(std::move(extra.letters_of)),
      set_up_(extra.set_up),
      member_(member_name()),
      clock_(clock) {}

OpenSql LibpqInboxStore::opener() const {
    return [url = session_.url(), timeout_s = session_.connect_timeout_s()] {
        return open_postgres_sql(url, timeout_s, std::nullopt);
    };
}

Status LibpqInboxStore::connect() {
    if (session_.sound()) return {};
    disconnect();
    if (Status status = session_.connect(); !status.ok()) return status;
    const LibpqSession::Use use(session_);
    const Rows there = postgres::execute(connection(), kIsVersioned);
    versioned_ = there.succeeded() && there.text(0, 0) == "t";
    Status status = check_version();
    if (status.ok() && set_up_ != nullptr) {
        const Rows set = postgres::execute(connection(), set_up_);
        if (!set.succeeded()) {
            status = receive_error(connection(), set.get(), "preparing the session");
        }
    }
    if (!status.ok()) disconnect();
    return status;
}

Status LibpqInboxStore::check_version() {
    if (!session_.connected()) return {};
    const LibpqSession::Use use(session_);
    const Rows found = postgres::execute(connection(), versioned_ ? kClockAndVersion : kClock);
    if (!found.succeeded()) {
        return receive_error(connection(), found.get(), "reading outbox_migrations");
    }
    clock_ahead_us_ = std::stoll(found.string(0, 0)) - clock_.boot_us();
    if (!versioned_) return {};
    return check_inbox_version(std::stoll(found.string(0, 1)));
}

std::int64_t LibpqInboxStore::now_us() const {
    return clock_.boot_us() + clock_ahead_us_;
}

Status LibpqInboxStore::fetch_retries(std::size_t limit, spi::EventBatch& out) {
    Params params;
    params.text(consumer_).number(static_cast<std::int64_t>(limit)).text(letters_of_);
    params.number(longest_wait_us_);
    const Result<Rows> rows = session_.execute("outbox_retries", params, "reading dead letters");
    if (rows.ok()) append_messages(*rows, SIZE_MAX, out);
    return rows.status();
}

Result<Rows> LibpqInboxStore::begin_with(const char* statement, const Params& params,
                                         const char* doing) {
    const Step step{statement, &params};
    auto results = session_.begin_with({&step, 1}, doing);
    if (!results.ok()) return results.status();
    return std::move(results->front());
}

Status LibpqInboxStore::wait_as_a_write(const char* doing) {
    const auto told = session_.execute("outbox_wait_as_a_write", Params(), doing);
    if (told.ok()) return {};
    const Status ended = session_.end_transaction();
    return ended.ok() ? told.status() : ended;
}

Result<Taken> LibpqInboxStore::take_request(std::string_view message_id) {
    if (Status status = connect(); !status.ok()) return status;
    Params params;
    params.text(consumer_).text(message_id);
    const auto taken = session_.execute("outbox_take_request", params, "taking a dead letter");
    if (!taken.ok()) return taken.status();
    return taken->affected() == 1 ? Taken::kNew : Taken::kGone;
}

Status LibpqInboxStore::put_request_back(std::string_view message_id, std::int64_t delay_us) {
    longest_wait_us_ = std::max(longest_wait_us_, delay_us);
    if (Status status = connect(); !status.ok()) return status;
    Params params;
    params.text(consumer_).text(message_id).number(delay_us);
    const auto put = session_.execute("outbox_put_request_back", params, "keeping a dead letter");
    if (!put.ok()) return put.status();
    return put->integer(0, 0) == 0 && put->integer(0, 1) > 0 ? held(message_id) : Status();
}

Result<Taken> LibpqInboxStore::begin_retry(std::string_view message_id) {
    if (Status status = connect(); !status.ok()) return status;
    Params params;
    params.text(consumer_).text(message_id);
    const auto taken = begin_with("outbox_take_retry", params, "taking a dead letter");
    if (!taken.ok()) return taken.status();
    if (taken->integer(0, 0) == 1) return Taken::kNew;
    if (taken->integer(0, 1) == 0) return Taken::kGone;
    if (Status ended = session_.end_transaction(); !ended.ok()) return ended;
    return held(message_id);
}

Status LibpqInboxStore::bury_again(std::string_view message_id, const Burial& burial) {
    if (Status status = connect(); !status.ok()) return status;
    Params params;
    params.text(consumer_).text(message_id);
    params.text(burial.error_code).text(burial.error);
    return session_.execute("outbox_bury_again", params, "keeping a dead letter").status();
}

Status LibpqInboxStore::report(const MemberStats& stats) {
    if (Status status = connect(); !status.ok()) return status;
    Params params;
    params.text(consumer_).text(member_);
    params.number(static_cast<std::int64_t>(stats.applied));
    params.number(static_cast<std::int64_t>(stats.repeats));
    params.number(static_cast<std::int64_t>(stats.failed));
    params.number(static_cast<std::int64_t>(stats.dead));
    params.number(stats.lag).text(stats.queue).number_or_null(stats.queue_lag);
    const LibpqSession::Use use(session_);
    // Not by `execute`: a role without the right to write figures must not lose its session.
    const Rows result = postgres::execute_prepared(connection(), "outbox_report", params);
    if (!result.succeeded()) {
        return receive_error(connection(), result.get(), "writing outbox_inbox_stats");
    }
    return fold("");
}

Status LibpqInboxStore::fold(std::string_view member) {
    if (!session_.sound()) return {};
    Params params;
    params.text(consumer_).text(member).number(kMemberGoneS);
    const LibpqSession::Use use(session_);
    const Rows result = postgres::execute_prepared(connection(), "outbox_fold", params);
    if (result.succeeded()) return {};
    return receive_error(connection(), result.get(), "writing outbox_inbox_stats");
}

}  // namespace outbox::consumer
