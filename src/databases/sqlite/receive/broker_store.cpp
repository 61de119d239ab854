#include "databases/sqlite/receive/broker_store.h"

#include <utility>

#include "consumer/message_time.h"
#include "core/utf8.h"

namespace outbox::consumer {
namespace {

constexpr std::size_t kMaxTopicBytes = 100'000;

constexpr const char* kKnown = "SELECT 1 FROM outbox_inbox WHERE consumer = ?1 AND message_id = ?2";

constexpr const char* kMove =
    "UPDATE outbox_inbox_offsets SET next_offset = ?5, cluster_id = ?6, last_id = ?7, "
    "  updated_at = ?8 "
    "WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND next_offset = ?4";

constexpr const char* kFirst =
    "INSERT INTO outbox_inbox_offsets "
    "  (consumer, topic, partition, next_offset, cluster_id, last_id, updated_at) "
    "SELECT ?1, ?2, ?3, ?5, ?6, ?7, ?8 WHERE ?4 IS NULL ON CONFLICT DO NOTHING";

constexpr const char* kNext =
    "SELECT next_offset, cluster_id, last_id FROM outbox_inbox_offsets "
    "WHERE consumer = ?1 AND topic = ?2 AND partition = ?3";

constexpr const char* kBury =
    "INSERT INTO outbox_inbox_dead_letters "
    "  (consumer, message_id, topic, key, headers, payload, attempts, error_code, error, died_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET topic = excluded.topic, key = excluded.key, "
    "  headers = excluded.headers, payload = excluded.payload, attempts = excluded.attempts, "
    "  error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at, "
    "  retry_requested_at = NULL";

constexpr const char* kBegun =
    "INSERT INTO outbox_inbox_begun AS b (consumer, message_id, times, begun_at) "
    "VALUES (?1, ?2, 1, ?3) "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET times = b.times + 1, "
    "  begun_at = excluded.begun_at RETURNING times";

constexpr const char* kForgotten =
    "DELETE FROM outbox_inbox_begun WHERE consumer = ?1 AND message_id <> ?2 AND begun_at < ?3";

constexpr const char* kEnded =
    "UPDATE outbox_inbox_begun SET times = times - 1 WHERE consumer = ?1 AND message_id = ?2 "
    "AND times > 0";

constexpr const char* kEndedForGood =
    "DELETE FROM outbox_inbox_begun WHERE consumer = ?1 AND message_id = ?2";

constexpr const char* kNoting = "writing outbox_inbox_begun";

std::vector<const char*> statements_of(const BrokerStoreOptions& options) {
    std::vector<const char*> statements{kKnown, kMove, kFirst, kNext, kBury};
    if (options.counts_begun) {
        statements.insert(statements.end(), {kBegun, kForgotten, kEnded, kEndedForGood});
    }
    return statements;
}

}  // namespace

SqliteBrokerStore::SqliteBrokerStore(std::string path, const BrokerStoreOptions& options,
                                     const core::Clock& clock)
    : inbox_(std::move(path), options.connect_timeout_s, options.consumer, statements_of(options),
             clock) {}

Result<std::vector<Taken>> SqliteBrokerStore::begin(std::span<const spi::EventView> messages,
                                                    bool by_id, std::span<const OtherId> others,
                                                    const OffsetStep* step) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    if (Status status = inbox_.session().begin(); !status.ok()) return status;
    std::vector<Taken> taken(messages.size(), Taken::kNew);
    Status status;
    for (std::size_t i = 0; by_id && status.ok() && i < messages.size(); ++i) {
        status = inbox_.enter(messages[i], taken[i]);
    }
    for (const OtherId& other : others) {
        if (!by_id || !status.ok()) break;
        const Run row(inbox_.session().statement(kKnown));
        if (row->lend(inbox_.consumer()).lend(other.id).step()) {
            taken[other.message] = Taken::kRepeat;
        }
        if (row->failed()) status = row->status("reading outbox_inbox");
    }
    if (status.ok()) status = move(step);
    if (status.ok()) return taken;
    inbox_.session().end_transaction();
    return status;
}

Status SqliteBrokerStore::move(const OffsetStep* step) {
    if (step == nullptr) return {};
    Status status = Run(inbox_.session().statement(step->expected ? kMove : kFirst))
                        ->lend(inbox_.consumer())
                        .lend(step->topic)
                        .bind(step->partition)
                        .bind_or_null(step->expected)
                        .bind(step->next)
                        .lend(step->cluster_id)
                        .lend(step->last_id)
                        .bind(inbox_.now_us())
                        .run("moving an offset in outbox_inbox_offsets");
    if (status.ok() && inbox_.session().changes() == 0)
        return offset_lost(inbox_.consumer(), *step);
    return status;
}

Result<Taken> SqliteBrokerStore::bury(const spi::EventView& message, const Burial& burial,
                                      bool by_id, const OffsetStep* step) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    if (Status status = inbox_.session().begin(); !status.ok()) return status;
    spi::EventView storable = message;
    const std::string id = to_storable_text(message.id, kMaxIdBytes);
    storable.id = id;
    const std::string topic = to_storable_text(message.topic, kMaxTopicBytes);
    storable.topic = topic;
    Taken taken = Taken::kNew;
    Status status;
    if (by_id) {
        status = inbox_.enter_buried(storable);
        if (status.ok() && inbox_.session().changes() == 0) taken = Taken::kRepeat;
    }
    if (status.ok() && taken == Taken::kNew) {
        status = Run(inbox_.session().statement(kBury))
                     ->lend(inbox_.consumer())
                     .lend(storable.id)
                     .lend(storable.topic)
                     .lend_or_null(message.key)
                     .lend_or_null(message.headers)
                     .lend_blob(message.payload)
                     .bind(burial.attempts)
                     .lend(burial.error_code)
                     .lend(burial.error)
                     .bind(inbox_.now_us())
                     .run("moving a message to outbox_inbox_dead_letters");
    }
    if (status.ok()) status = move(step);
    if (status.ok()) status = inbox_.session().commit();
    if (status.ok()) return taken;
    inbox_.session().end_transaction();
    return status;
}

Result<std::int64_t> SqliteBrokerStore::note_begun(std::string_view message_id) {
    constexpr std::int64_t kMonthUs = std::int64_t{30} * 24 * 3600 * 1'000'000;
    if (Status status = inbox_.connect(); !status.ok()) return status;
    const std::int64_t now = inbox_.now_us();
    Status status = Run(inbox_.session().statement(kForgotten))
                        ->lend(inbox_.consumer())
                        .lend(message_id)
                        .bind(now - kMonthUs)
                        .run(kNoting);
    if (!status.ok()) return status;
    const Run row(inbox_.session().statement(kBegun));
    if (!row->lend(inbox_.consumer()).lend(message_id).bind(now).step()) {
        return row->status(kNoting);
    }
    const std::int64_t times = row->integer(0);
    while (row->step()) {
    }
    if (row->failed()) return row->status(kNoting);
    return times;
}

Status SqliteBrokerStore::note_ended(std::string_view message_id, bool for_good) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    return Run(inbox_.session().statement(for_good ? kEndedForGood : kEnded))
        ->lend(inbox_.consumer())
        .lend(message_id)
        .run(kNoting);
}

Result<std::optional<LogPlace>> SqliteBrokerStore::place(std::string_view topic, int partition) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    const Run row(inbox_.session().statement(kNext));
    const bool found = row->lend(inbox_.consumer()).lend(topic).bind(partition).step();
    if (row->failed()) return row->status("reading outbox_inbox_offsets");
    if (!found) return std::optional<LogPlace>();
    LogPlace place{row->integer(0), std::string(row->text(1)), {}};
    if (const auto last = row->text(2); last.data() != nullptr) place.last_id = last;
    return std::optional<LogPlace>(std::move(place));
}

}  // namespace outbox::consumer
