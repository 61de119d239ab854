#include "databases/sqlite/receive/inbox_store.h"

#include <algorithm>
#include <utility>

#include "consumer/message_time.h"
#include "databases/sqlite/receive/operator_sql.h"

namespace outbox::consumer {
namespace {

constexpr const char* kFetchRetries =
    "SELECT 0, message_id, topic, key, headers, payload FROM outbox_inbox_dead_letters "
    "WHERE consumer = ?1 AND retry_requested_at IS NOT NULL AND (mailbox IS NULL OR mailbox = ?3) "
    // What is no number somebody else wrote, who wants it now.
    "AND (retry_requested_at <= ?4 OR retry_requested_at > ?4 + ?5 "
    "     OR typeof(retry_requested_at) = 'text') "
    "ORDER BY retry_requested_at LIMIT ?2";

constexpr const char* kTakeRequest =
    "UPDATE outbox_inbox_dead_letters SET attempts = attempts + 1, retry_requested_at = NULL "
    "WHERE consumer = ?1 AND message_id = ?2 AND retry_requested_at IS NOT NULL";

constexpr const char* kPutRequestBack =
    "UPDATE outbox_inbox_dead_letters SET attempts = attempts - 1, retry_requested_at = ?3 "
    "WHERE consumer = ?1 AND message_id = ?2 AND retry_requested_at IS NULL";

constexpr const char* kTakeRetry =
    "DELETE FROM outbox_inbox_dead_letters WHERE consumer = ?1 AND message_id = ?2";

constexpr const char* kBuryAgain =
    "UPDATE outbox_inbox_dead_letters SET error_code = ?3, error = ?4, died_at = ?5 "
    "WHERE consumer = ?1 AND message_id = ?2";

constexpr const char* kReport =
    "INSERT INTO outbox_inbox_stats "
    "  (consumer, member, applied, repeats, failed, dead, lag, queue, queue_lag, updated_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, ''), ?9, ?10) "
    "ON CONFLICT (consumer, member) DO UPDATE SET "
    "  applied = excluded.applied, repeats = excluded.repeats, failed = excluded.failed, "
    "  dead = excluded.dead, lag = excluded.lag, queue = excluded.queue, "
    "  queue_lag = excluded.queue_lag, updated_at = excluded.updated_at";

// Figures of members that are gone are kept together under no name: of `member`, and of those that
// have long said nothing.
constexpr const char* kFold =
    "INSERT INTO outbox_inbox_stats AS s "
    "  (consumer, member, applied, repeats, failed, dead, updated_at) "
    "SELECT ?1, '', sum(applied), sum(repeats), sum(failed), sum(dead), ?4 "
    "FROM outbox_inbox_stats "
    "WHERE consumer = ?1 AND member <> '' AND (member = ?2 OR updated_at < ?3) GROUP BY consumer "
    "ON CONFLICT (consumer, member) DO UPDATE SET "
    "  applied = s.applied + excluded.applied, repeats = s.repeats + excluded.repeats, "
    "  failed = s.failed + excluded.failed, dead = s.dead + excluded.dead, "
    "  updated_at = excluded.updated_at";

constexpr const char* kForget =
    "DELETE FROM outbox_inbox_stats "
    "WHERE consumer = ?1 AND member <> '' AND (member = ?2 OR updated_at < ?3)";

constexpr const char* kEnter =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time, applied_at) "
    "VALUES (?1, ?2, coalesce(?3, -9223372036854775807), ?4) "
    "ON CONFLICT (consumer, message_id) DO NOTHING";

constexpr const char* kFloor = "SELECT floor FROM outbox_inbox_floor WHERE consumer = ?1";

constexpr const char* kIsVersioned = "SELECT 1 FROM sqlite_master WHERE name = 'outbox_migrations'";

constexpr const char* kVersion =
    "SELECT coalesce(max(version), 0) FROM outbox_migrations WHERE side = 'consumer'";

std::vector<const char*> with_ours(std::vector<const char*> more) {
    more.insert(more.end(), {kFetchRetries, kTakeRequest, kPutRequestBack, kTakeRetry, kBuryAgain,
                             kReport, kFold, kForget, kEnter, kFloor, kIsVersioned});
    return more;
}

}  // namespace

void append_messages(const Run& rows, std::size_t max_bytes, spi::EventBatch& out) {
    const auto copied = [&](int column) {
        const std::string_view value = rows->text(column);
        return value.data() == nullptr ? value : out.copy(value);
    };
    while (out.bytes() < max_bytes && rows->step()) {
        spi::EventView event;
        event.position = rows->integer(0);
        event.id = copied(1);
        event.topic = copied(2);
        event.key = copied(3);
        event.headers = copied(4);
        event.payload = copied(5);
        out.add(event);
    }
}

SqliteInboxStore::SqliteInboxStore(std::string path, int busy_timeout_s, std::string consumer,
                                   std::vector<const char*> more, const core::Clock& clock,
                                   std::string letters_of)
    : session_(path, busy_timeout_s, with_ours(std::move(more))),
      consumer_(std::move(consumer)),
      letters_of_(std::move(letters_of)),
      path_(std::move(path)),
      busy_timeout_s_(busy_timeout_s),
      member_(member_name()),
      clock_(clock) {}

OpenSql SqliteInboxStore::opener() const {
    return [path = path_, timeout_s = busy_timeout_s_, &clock = clock_] {
        return open_sqlite_sql(path, timeout_s, clock);
    };
}

Status SqliteInboxStore::connect() {
    if (session_.connected() && !session_.has_moved()) return {};
    disconnect();
    if (Status status = session_.connect(); !status.ok()) return status;
    versioned_ = Run(session_.statement(kIsVersioned))->step();
    Status status = check_version();
    if (!status.ok()) disconnect();
    return status;
}

Status SqliteInboxStore::check_version() {
    if (!versioned_ || !session_.connected()) return {};
    sqlite::Statement version = session_.prepare(kVersion);
    if (!version.step()) return version.status("reading outbox_migrations");
    return check_inbox_version(version.integer(0));
}

Status SqliteInboxStore::roll_back(ErrorInfo& cause) {
    if (const Status machine = session_.failure_of_machine(); !machine.ok()) {
        cause = machine.error();
    } else if (session_.lost_transaction()) {
        cause.message +=
            " (the handler, or an error that it ignored, had ended the transaction before)";
    }
    session_.end_transaction();
    return {};
}

Status SqliteInboxStore::fetch_retries(std::size_t limit, spi::EventBatch& out) {
    const Run rows(session_.statement(kFetchRetries));
    rows->lend(consumer_).bind(static_cast<std::int64_t>(limit)).lend(letters_of_);
    rows->bind(now_us()).bind(longest_wait_us_);
    append_messages(rows, SIZE_MAX, out);
    return rows->status("reading dead letters");
}

Result<Taken> SqliteInboxStore::take_request(std::string_view message_id) {
    if (Status status = connect(); !status.ok()) return status;
    Status status = Run(session_.statement(kTakeRequest))
                        ->lend(consumer_)
                        .lend(message_id)
                        .run("taking a dead letter");
    if (!status.ok()) return status;
    return session_.changes() == 0 ? Taken::kGone : Taken::kNew;
}

Status SqliteInboxStore::put_request_back(std::string_view message_id, std::int64_t delay_us) {
    longest_wait_us_ = std::max(longest_wait_us_, delay_us);
    if (Status status = connect(); !status.ok()) return status;
    return Run(session_.statement(kPutRequestBack))
        ->lend(consumer_)
        .lend(message_id)
        .bind(now_us() + delay_us)
        .run("keeping a dead letter");
}

Result<Taken> SqliteInboxStore::begin_retry(std::string_view message_id) {
    if (Status status = connect(); !status.ok()) return status;
    if (Status status = session_.begin(); !status.ok()) return status;
    Status status = Run(session_.statement(kTakeRetry))
                        ->lend(consumer_)
                        .lend(message_id)
                        .run("taking a dead letter");
    if (status.ok()) return session_.changes() == 0 ? Taken::kGone : Taken::kNew;
    session_.end_transaction();
    return status;
}

Status SqliteInboxStore::bury_again(std::string_view message_id, const Burial& burial) {
    if (Status status = connect(); !status.ok()) return status;
    return Run(session_.statement(kBuryAgain))
        ->lend(consumer_)
        .lend(message_id)
        .lend(burial.error_code)
        .lend(burial.error)
        .bind(now_us())
        .run("keeping a dead letter");
}

Status SqliteInboxStore::report(const MemberStats& stats) {
    if (Status status = connect(); !status.ok()) return status;
    const Run report(session_.statement(kReport));
    report->lend(consumer_).lend(member_).bind(static_cast<std::int64_t>(stats.applied));
    report->bind(static_cast<std::int64_t>(stats.repeats));
    report->bind(static_cast<std::int64_t>(stats.failed));
    report->bind(static_cast<std::int64_t>(stats.dead)).bind(stats.lag);
    report->lend(stats.queue);
    report->bind_or_null(stats.queue_lag).bind(now_us());
    if (Status status = report->run("writing outbox_inbox_stats"); !status.ok()) return status;
    return fold("");
}

Status SqliteInboxStore::fold(std::string_view member) {
    if (!session_.connected()) return {};
    if (Status status = session_.begin(); !status.ok()) return status;
    constexpr std::int64_t kMicroseconds = 1'000'000;
    constexpr const char* kDoing = "writing outbox_inbox_stats";
    const std::int64_t now = now_us();
    const std::int64_t before_us = now - kMemberGoneS * kMicroseconds;
    Status status = Run(session_.statement(kFold))
                        ->lend(consumer_)
                        .lend(member)
                        .bind(before_us)
                        .bind(now)
                        .run(kDoing);
    if (status.ok()) {
        status = Run(session_.statement(kForget))
                     ->lend(consumer_)
                     .lend(member)
                     .bind(before_us)
                     .run(kDoing);
    }
    if (status.ok()) return session_.commit();
    session_.end_transaction();
    return status;
}

Status SqliteInboxStore::enter(const spi::EventView& message, Taken& taken) {
    const std::int64_t now = now_us();
    if (Status status = enter_at(message, now); !status.ok()) return status;
    taken = session_.changes() == 1 ? Taken::kNew : Taken::kRepeat;
    if (taken == Taken::kRepeat) return {};
    const auto time_us = message_time_us(message);
    return may_be_quarantined(time_us, now) ? check_floor(message, *time_us, now) : Status();
}

Status SqliteInboxStore::enter_buried(const spi::EventView& message) {
    return enter_at(message, now_us());
}

Status SqliteInboxStore::enter_at(const spi::EventView& message, std::int64_t now_us) {
    return Run(session_.statement(kEnter))
        ->lend(consumer_)
        .lend(message.id)
        .bind_or_null(message_time_us(message))
        .bind(now_us)
        .run("entering a message in outbox_inbox");
}

// SQLite has one writer, so no floor can rise between this look and the insert.
Status SqliteInboxStore::check_floor(const spi::EventView& message, std::int64_t time_us,
                                     std::int64_t now_us) {
    const Run floor(session_.statement(kFloor));
    floor->lend(consumer_);
    const bool found = floor->step();
    if (floor->failed()) return floor->status("reading the inbox's floor");
    return quarantine_unless(message.id, consumer_, time_us, found ? floor->integer(0) : kNoFloorUs,
                             now_us);
}

}  // namespace outbox::consumer
