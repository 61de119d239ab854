#include "consumer/libpq_inbox.h"

#include <utility>

#include <outbox/adapters/libpq_consumer.h>

#include "consumer/message_time.h"
#include "core/utf8.h"

namespace outbox::consumer {
namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxKeyBytes = 100'000;

constexpr const char* kFetchRetries =
    "SELECT message_id, topic, key, headers::text, payload "
    "FROM outbox_inbox_dead_letters WHERE consumer = $1 AND retry_requested_at IS NOT NULL "
    "ORDER BY retry_requested_at LIMIT $2::bigint";

constexpr const char* kTakeRetry =
    "DELETE FROM outbox_inbox_dead_letters WHERE consumer = $1 AND message_id = $2 "
    "AND retry_requested_at IS NOT NULL";

constexpr const char* kBury =
    "WITH seen AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  VALUES ($1, $2, coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', "
    "                           '-infinity')) ON CONFLICT (consumer, message_id) DO NOTHING) "
    "INSERT INTO outbox_inbox_dead_letters "
    "  (consumer, message_id, topic, key, headers, payload, attempts, error_code, error) "
    "VALUES ($1, $2, $4, $5, $6::json, $7::bytea, $8::integer, $9, $10) "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET attempts = excluded.attempts, "
    "  error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at, "
    "  retry_requested_at = NULL";

constexpr const char* kBuryAgain =
    "UPDATE outbox_inbox_dead_letters SET attempts = attempts + $3::integer, error_code = $4, "
    "  error = $5, died_at = clock_timestamp(), retry_requested_at = NULL "
    "WHERE consumer = $1 AND message_id = $2";

constexpr const char* kRights =
    "SELECT 1 WHERE has_table_privilege('outbox_inbox', 'SELECT') "
    "AND has_table_privilege('outbox_inbox', 'INSERT') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'SELECT') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'INSERT') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'UPDATE') "
    "AND has_table_privilege('outbox_inbox_dead_letters', 'DELETE')";

const LibpqSession::Statement kStatements[] = {
    {"outbox_retries", kFetchRetries, 2}, {"outbox_take_retry", kTakeRetry, 2},
    {"outbox_bury", kBury, 10},           {"outbox_bury_again", kBuryAgain, 5},
    {"outbox_report", kReportFigures, 7},
};

}  // namespace

LibpqInbox::LibpqInbox(std::string url, std::string consumer, int connect_timeout_s)
    : session_(std::move(url), connect_timeout_s, kStatements, kRights),
      consumer_(std::move(consumer)) {}

Status LibpqInbox::enter(std::span<const spi::EventView> messages, std::vector<Taken>& taken) {
    std::vector<InboxEntry> entries;
    entries.reserve(messages.size());
    for (const spi::EventView& message : messages) {
        InboxEntry entry{message.id, {}};
        if (const auto time_us = message_time_us(message)) {
            entry.time = std::chrono::system_clock::time_point(std::chrono::microseconds(*time_us));
        }
        entries.push_back(entry);
    }
    const std::vector<bool> is_new = accept_batch(session_.connection(), consumer_, entries);
    for (std::size_t i = 0; i < taken.size(); ++i) {
        taken[i] = is_new[i] ? Taken::kNew : Taken::kRepeat;
    }
    return {};
}

Status LibpqInbox::move(const OffsetStep& step) {
    if (accept_offset(session_.connection(), consumer_, step.topic, step.partition, step.expected,
                      step.next)) {
        return {};
    }
    return {ErrorCode::kConflict, Advice::kStop,
            "another member of consumer " + consumer_ + " has moved the offset of " +
                std::string(step.topic) + "/" + std::to_string(step.partition) +
                ": this one has lost the partition"};
}

Result<std::vector<Taken>> LibpqInbox::begin(std::span<const spi::EventView> messages, bool by_id,
                                             const OffsetStep* step) {
    if (Status status = session_.connect(); !status.ok()) return status;
    if (Status status = session_.begin(); !status.ok()) return status;
    std::vector<Taken> taken(messages.size(), Taken::kNew);
    Status status;
    try {
        if (by_id) status = enter(messages, taken);
        if (status.ok() && step != nullptr) status = move(*step);
    } catch (const Error& error) {
        status = Status(error.info());
    }
    if (status.ok()) return taken;
    const Status ended = session_.end_transaction();
    if (!ended.ok()) return ended;
    if (status.error().advice == Advice::kRetryDestination) session_.disconnect();
    return status;
}

Result<Taken> LibpqInbox::begin_retry(std::string_view message_id) {
    if (Status status = session_.connect(); !status.ok()) return status;
    if (Status status = session_.begin(); !status.ok()) return status;
    Params params;
    params.text(consumer_).text(message_id);
    const auto gone = session_.execute("outbox_take_retry", params, "taking a dead letter");
    if (!gone.ok()) {
        const Status ended = session_.end_transaction();
        return ended.ok() ? gone.status() : ended;
    }
    return std::string_view(PQcmdTuples(gone->get())) == "1" ? Taken::kNew : Taken::kGone;
}

Status LibpqInbox::bury(const spi::EventView& message, const Burial& burial,
                        const OffsetStep* step) {
    constexpr const char* kDoing = "moving a message to outbox_inbox_dead_letters";
    if (Status status = session_.connect(); !status.ok()) return status;
    if (Status status = session_.begin(); !status.ok()) return status;
    // What was refused may be so because the database does not take its id or key.
    const std::string id = to_storable_text(message.id, kMaxNameBytes);
    const std::string key = to_storable_text(message.key, kMaxKeyBytes);
    Params params;
    params.text(consumer_).text(id).number_or_null(message_time_us(message));
    params.text(message.topic);
    if (message.key.data() == nullptr) {
        params.null();
    } else {
        params.text(key);
    }
    if (message.headers.data() == nullptr) {
        params.null();
    } else {
        params.untyped(message.headers);
    }
    params.bytes(message.payload).number(burial.attempts);
    params.text(burial.error_code).text(burial.error);
    Status status = session_.execute("outbox_bury", params, kDoing).status();
    if (status.ok() && step != nullptr) {
        try {
            status = move(*step);
        } catch (const Error& error) {
            status = Status(error.info());
        }
    }
    if (status.ok()) return session_.commit();
    const Status ended = session_.end_transaction();
    return ended.ok() ? status : ended;
}

Status LibpqInbox::bury_again(std::string_view message_id, const Burial& burial) {
    Params params;
    params.text(consumer_).text(message_id).number(burial.attempts);
    params.text(burial.error_code).text(burial.error);
    return session_.execute("outbox_bury_again", params, "keeping a dead letter").status();
}

Status LibpqInbox::fetch_retries(std::size_t limit, spi::EventBatch& out) {
    Params params;
    params.text(consumer_).number(static_cast<std::int64_t>(limit));
    const auto rows = session_.execute("outbox_retries", params, "reading dead letters");
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < PQntuples(rows->get()); ++row) {
        spi::EventView event;
        event.id = cell(rows->get(), row, 0);
        event.topic = cell(rows->get(), row, 1);
        event.key = cell(rows->get(), row, 2);
        event.headers = cell(rows->get(), row, 3);
        event.payload = cell(rows->get(), row, 4);
        out.add_copy(event);
    }
    return {};
}

Result<std::optional<std::int64_t>> LibpqInbox::next_offset(std::string_view topic, int partition) {
    if (Status status = session_.connect(); !status.ok()) return status;
    try {
        return outbox::next_offset(session_.connection(), consumer_, topic, partition);
    } catch (const Error& error) {
        session_.disconnect();
        return error.info();
    }
}

Status LibpqInbox::report(std::string_view member, const Figures& figures) {
    if (Status status = session_.connect(); !status.ok()) return status;
    return report_figures(session_, consumer_, member, figures);
}

}  // namespace outbox::consumer
