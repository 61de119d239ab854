#include "databases/postgres/receive/broker_store.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "consumer/message_time.h"
#include "core/utf8.h"

namespace outbox::consumer {
namespace {

constexpr std::size_t kMaxKeyBytes = 100'000;

// In one order everywhere, so that two batches with the same ids do not wait for each other.
constexpr const char* kEnter =
    "INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "SELECT $1, m.id, coalesce(timestamptz 'epoch' + m.us * interval '1 microsecond', '-infinity') "
    "FROM unnest($2::text[], $3::bigint[]) AS m (id, us) ORDER BY m.id "
    "ON CONFLICT (consumer, message_id) DO NOTHING RETURNING message_id";

constexpr const char* kKnown =
    "SELECT message_id FROM outbox_inbox WHERE consumer = $1 AND message_id = ANY ($2::text[])";

// For a message whose id may have been pruned; raises OBQ01.
constexpr const char* kEnterCarefully =
    "SELECT $2::text WHERE inbox_accept($1, $2, "
    "  timestamptz 'epoch' + $3::bigint * interval '1 microsecond')";

constexpr const char* kMove =
    "UPDATE outbox_inbox_offsets SET next_offset = $5::bigint, cluster_id = $6, last_id = $7, "
    "  updated_at = clock_timestamp() "
    "WHERE consumer = $1 AND topic = $2 AND partition = $3::integer AND next_offset = $4::bigint";

constexpr const char* kFirst =
    "INSERT INTO outbox_inbox_offsets "
    "  (consumer, topic, partition, next_offset, cluster_id, last_id) "
    "SELECT $1, $2, $3::integer, $5::bigint, $6, $7 WHERE $4::bigint IS NULL ON CONFLICT DO "
    "NOTHING";

constexpr const char* kNext =
    "SELECT next_offset, cluster_id, last_id FROM outbox_inbox_offsets "
    "WHERE consumer = $1 AND topic = $2 AND partition = $3::integer";

constexpr const char* kBury =
    "WITH seen AS (INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "  SELECT $1, $2, coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', "
    "                          '-infinity') WHERE $11::integer = 1 "
    "  ON CONFLICT (consumer, message_id) DO NOTHING RETURNING 1) "
    "INSERT INTO outbox_inbox_dead_letters "
    "  (consumer, message_id, topic, key, headers, payload, attempts, error_code, error) "
    "SELECT $1, $2, $4, $5, $6::json, $7::bytea, $8::integer, $9, $10 "
    "WHERE $11::integer = 0 OR EXISTS (SELECT FROM seen) "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET topic = excluded.topic, key = excluded.key, "
    "  headers = excluded.headers, payload = excluded.payload, attempts = excluded.attempts, "
    "  error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at, "
    "  retry_requested_at = NULL";

constexpr const char* kBegun =
    "WITH forgotten AS (DELETE FROM outbox_inbox_begun WHERE consumer = $1 AND message_id <> $2 "
    "  AND begun_at < clock_timestamp() - interval '30 days') "
    "INSERT INTO outbox_inbox_begun AS b (consumer, message_id, times) VALUES ($1, $2, 1) "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET times = b.times + 1, "
    "  begun_at = excluded.begun_at RETURNING times";

constexpr const char* kEnded =
    "UPDATE outbox_inbox_begun SET times = times - 1 WHERE consumer = $1 AND message_id = $2 "
    "AND times > 0";

constexpr const char* kEndedForGood =
    "DELETE FROM outbox_inbox_begun WHERE consumer = $1 AND message_id = $2";

constexpr const char* kNoting = "writing outbox_inbox_begun";

constexpr const char* kEntering = "entering a message in outbox_inbox";

/// The statements of one transaction's beginning, with their parameters.
class Beginning {
  public:
    explicit Beginning(const std::string& consumer) : consumer_(consumer) {}

    // Each id once, in one statement; those that may be quarantined before it, each by itself.
    void enter(std::span<const spi::EventView> messages, std::int64_t now_us) {
        std::vector<std::string_view> ids;
        std::vector<std::optional<std::int64_t>> times;
        for (std::size_t i = 0; i < messages.size(); ++i) {
            const spi::EventView& message = messages[i];
            if (!first_of_.emplace(message.id, i).second) continue;
            const auto time_us = message_time_us(message);
            if (may_be_quarantined(time_us, now_us)) {
                add("outbox_enter_carefully")
                    .text(consumer_)
                    .text(message.id)
                    .number_or_null(time_us);
            } else {
                ids.push_back(message.id);
                times.push_back(time_us);
            }
        }
        if (ids.empty()) return;
        add("outbox_enter")
            .text(consumer_)
            .untyped(array_literal(ids))
            .untyped(array_literal(times));
    }
    void look_for(std::span<const OtherId> others) {
        std::vector<std::string_view> ids;
        for (const OtherId& other : others) ids.push_back(other.id);
        add("outbox_known").text(consumer_).untyped(array_literal(ids));
    }
    void move(const OffsetStep& step) {
        add(step.expected ? "outbox_move" : "outbox_first")
            .text(consumer_)
            .text(step.topic)
            .number(step.partition)
            .number_or_null(step.expected)
            .number(step.next)
            .text(step.cluster_id)
            .text(step.last_id);
    }
    Params& add(const char* statement) {
        steps_.push_back({statement, &params_.emplace_back()});
        return params_.back();
    }
    [[nodiscard]] std::span<const Step> steps() const { return steps_; }

    /// Marks the messages that the result of an entering statement names.
    void mark_new(const Rows& rows, std::vector<Taken>& taken) const {
        for (int row = 0; row < rows.size(); ++row) {
            taken[first_of_.at(rows.text(row, 0))] = Taken::kNew;
        }
    }

    /// And as repeats those of which the result of `look_for` has another id.
    static void mark_known(const Rows& rows, std::span<const OtherId> others,
                           std::vector<Taken>& taken) {
        std::unordered_set<std::string_view> known;
        for (int row = 0; row < rows.size(); ++row) known.insert(rows.text(row, 0));
        for (const OtherId& other : others) {
            if (known.contains(other.id)) taken[other.message] = Taken::kRepeat;
        }
    }

  private:
    const std::string& consumer_;
    std::deque<Params> params_;  // steps point to them
    std::vector<Step> steps_;
    std::unordered_map<std::string_view, std::size_t> first_of_;
};

std::vector<LibpqSession::Right> rights_of(const BrokerStoreOptions& options) {
    std::vector<LibpqSession::Right> rights;
    if (options.offsets) {
        rights.push_back({"outbox_inbox_offsets", "SELECT, INSERT, UPDATE"});
    }
    if (options.prunes) rights.push_back({"outbox_inbox", "DELETE"});
    if (options.counts_begun) {
        rights.push_back({"outbox_inbox_begun", "SELECT, INSERT, UPDATE, DELETE"});
    }
    return rights;
}

std::vector<Prepared> statements_of(const BrokerStoreOptions& options) {
    std::vector<Prepared> statements{{"outbox_enter", kEnter},
                                     {"outbox_known", kKnown},
                                     {"outbox_enter_carefully", kEnterCarefully},
                                     {"outbox_move", kMove},
                                     {"outbox_first", kFirst},
                                     {"outbox_next", kNext},
                                     {"outbox_bury", kBury}};
    if (options.counts_begun) {
        statements.insert(statements.end(), {{"outbox_begun", kBegun},
                                             {"outbox_ended", kEnded},
                                             {"outbox_ended_for_good", kEndedForGood}});
    }
    return statements;
}

bool changed_one(const Rows& result) {
    return result.affected() == 1;
}

}  // namespace

LibpqBrokerStore::LibpqBrokerStore(std::string url, const BrokerStoreOptions& options,
                                   const core::Clock& clock)
    : inbox_(std::move(url), options.connect_timeout_s, options.consumer,
             {.statements = statements_of(options),
              .rights = rights_of(options),
              .set_up = postgres::kDurable},
             clock) {}

Result<std::vector<Taken>> LibpqBrokerStore::begin(std::span<const spi::EventView> messages,
                                                   bool by_id, std::span<const OtherId> others,
                                                   const OffsetStep* step) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    const bool looks = by_id && !others.empty();
    Beginning beginning(inbox_.consumer());
    if (looks) beginning.look_for(others);
    if (by_id) beginning.enter(messages, inbox_.now_us());
    if (step != nullptr) beginning.move(*step);
    auto results = inbox_.session().begin_with(beginning.steps(), kEntering);
    if (!results.ok()) return results.status();
    if (step != nullptr) {
        if (!changed_one(results->back())) {
            const Status ended = inbox_.session().end_transaction();
            return ended.ok() ? Status(offset_lost(inbox_.consumer(), *step)) : ended;
        }
        results->pop_back();
    }
    std::vector<Taken> taken(messages.size(), by_id ? Taken::kRepeat : Taken::kNew);
    for (std::size_t i = looks ? 1 : 0; i < results->size(); ++i) {
        beginning.mark_new((*results)[i], taken);
    }
    // The broker forgets a repeat, too, so what entered it must be as durable as what is new.
    if (by_id && step == nullptr && std::ranges::count(taken, Taken::kNew) == 0) {
        if (Status status = inbox_.wait_as_a_write(kEntering); !status.ok()) return status;
    }
    if (looks) Beginning::mark_known(results->front(), others, taken);
    return taken;
}

Result<Taken> LibpqBrokerStore::bury(const spi::EventView& message, const Burial& burial,
                                     bool by_id, const OffsetStep* step) {
    constexpr const char* kDoing = "moving a message to outbox_inbox_dead_letters";
    if (Status status = inbox_.connect(); !status.ok()) return status;
    // What was refused may be so because the database does not take its id, topic or key.
    const std::string id = to_storable_text(message.id, kMaxIdBytes);
    const std::string key = to_storable_text(message.key, kMaxKeyBytes);
    const std::string topic = to_storable_text(message.topic, kMaxKeyBytes);
    Beginning beginning(inbox_.consumer());
    Params& params = beginning.add("outbox_bury");
    params.text(inbox_.consumer()).text(id).number_or_null(message_time_us(message));
    params.text(topic);
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
    params.bytes_or_null(message.payload).number(burial.attempts);
    params.text(burial.error_code).text(burial.error).number(by_id ? 1 : 0);
    if (step != nullptr) beginning.move(*step);
    const auto results = inbox_.session().begin_with(beginning.steps(), kDoing);
    if (!results.ok()) return results.status();
    if (step == nullptr || changed_one(results->back())) {
        const Taken taken = changed_one(results->front()) ? Taken::kNew : Taken::kRepeat;
        if (taken == Taken::kRepeat && step == nullptr) {
            if (Status status = inbox_.wait_as_a_write(kDoing); !status.ok()) return status;
        }
        if (Status status = inbox_.session().commit(); !status.ok()) return status;
        return taken;
    }
    const Status ended = inbox_.session().end_transaction();
    return ended.ok() ? Status(offset_lost(inbox_.consumer(), *step)) : ended;
}

Result<std::int64_t> LibpqBrokerStore::note_begun(std::string_view message_id) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    Params params;
    params.text(inbox_.consumer()).text(message_id);
    const auto row = inbox_.session().execute("outbox_begun", params, kNoting);
    if (!row.ok()) return row.status();
    return row->integer(0, 0);
}

Status LibpqBrokerStore::note_ended(std::string_view message_id, bool for_good) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    Params params;
    params.text(inbox_.consumer()).text(message_id);
    return inbox_.session()
        .execute(for_good ? "outbox_ended_for_good" : "outbox_ended", params, kNoting)
        .status();
}

Result<std::optional<LogPlace>> LibpqBrokerStore::place(std::string_view topic, int partition) {
    if (Status status = inbox_.connect(); !status.ok()) return status;
    Params params;
    params.text(inbox_.consumer()).text(topic).number(partition);
    const auto row =
        inbox_.session().execute("outbox_next", params, "reading outbox_inbox_offsets");
    if (!row.ok()) return row.status();
    if (row->empty()) return std::optional<LogPlace>();
    LogPlace place{row->integer(0, 0), row->string(0, 1), {}};
    if (const auto last = row->text(0, 2); last.data() != nullptr) place.last_id = last;
    return std::optional<LogPlace>(std::move(place));
}

}  // namespace outbox::consumer
