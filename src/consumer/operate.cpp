#include "consumer/operate.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "consumer/env.h"
#include "consumer/inbox_store.h"
#include "consumer/message_time.h"
#include "consumer/operator_sql.h"

namespace outbox::consumer {
namespace {

constexpr std::int64_t kMicroseconds = 1'000'000;

std::string bytes_of(std::string_view hex) {
    std::string bytes;
    bytes.reserve(hex.size() / 2);
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        unsigned char byte = 0;
        std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
        bytes += static_cast<char>(byte);
    }
    return bytes;
}

/// Dead letters of one consumer.
class InboxDeadLetters final : public DeadLetters {
  public:
    InboxDeadLetters(Sql& sql, std::string consumer, std::string os_user)
        : sql_(sql), consumer_(std::move(consumer)), os_user_(std::move(os_user)) {}

    Result<std::vector<DeadInfo>> dead(const DeadFilter& filter, std::int64_t after_dead_id,
                                       std::size_t limit, bool with_payload) override {
        if (Status status = check(filter); !status.ok()) return status;
        if (after_dead_id != 0) {
            return ErrorInfo{ErrorCode::kUnsupported,
                             Advice::kStop,
                             {},
                             "dead letters of a consumer have no number to go on from"};
        }
        const Where where = where_of(filter);
        const auto rows = sql_.run(
            "SELECT message_id, topic, key, headers, " + sql_.event_type() +
                ", attempts, error_code, error, " + sql_.microseconds("died_at") + ", " +
                sql_.microseconds("retry_requested_at") + ", payload IS NULL, " +
                (with_payload ? sql_.payload_hex() : "NULL") + " FROM outbox_inbox_dead_letters" +
                where.sql() + " ORDER BY died_at, message_id LIMIT " + std::to_string(limit),
            where.parameters());
        if (!rows.ok()) return rows.status();
        std::vector<DeadInfo> out;
        for (const Sql::Row& row : *rows) {
            DeadInfo& dead = out.emplace_back();
            dead.id = row[0].value_or("");
            dead.route = consumer_;
            dead.topic = row[1].value_or("");
            dead.key = row[2].value_or("");
            dead.headers = row[3].value_or("");
            dead.event_type = row[4].value_or("");
            dead.attempts = number(row[5]);
            dead.error_code = row[6].value_or("");
            dead.error = row[7].value_or("");
            dead.died_at_us = number(row[8]);
            dead.retry_requested_at_us = number(row[9]);
            dead.payload_is_null = row[10] == "t" || row[10] == "1";
            dead.payload = bytes_of(row[11].value_or(""));
        }
        return out;
    }
    Result<std::int64_t> count_dead(const DeadFilter& filter) override {
        if (Status status = check(filter); !status.ok()) return status;
        const Where where = where_of(filter);
        const auto rows = sql_.run("SELECT count(*) FROM outbox_inbox_dead_letters" + where.sql(),
                                   where.parameters());
        if (!rows.ok()) return rows.status();
        return number((*rows)[0][0]);
    }
    Result<std::int64_t> retry_dead(const DeadFilter& filter) override {
        return change("UPDATE outbox_inbox_dead_letters SET retry_requested_at = " + sql_.now(),
                      "dead retry", filter);
    }
    Result<std::int64_t> discard_dead(const DeadFilter& filter) override {
        return change("DELETE FROM outbox_inbox_dead_letters", kDiscard, filter);
    }

  private:
    static constexpr std::string_view kDiscard = "dead discard";
    // What is not restricted by a filter would be everything.
    static Status check(const DeadFilter& filter) {
        if (!filter.tenant.empty()) {
            return {ErrorCode::kConfigInvalid, Advice::kStop,
                    "a consumer does not know whose events its dead letters are; leave the tenant "
                    "out, and name ids, a key, an event type or an error code"};
        }
        if (filter.route.empty()) return {};
        return {ErrorCode::kConfigInvalid, Advice::kStop,
                "dead letters of a consumer belong to no route; leave the route out, and name ids, "
                "a key, an event type or an error code"};
    }
    [[nodiscard]] Where where_of(const DeadFilter& filter) const {
        Where where;
        where.in("consumer", {consumer_});
        where.in("message_id", filter.ids);
        where.equals("key", filter.key);
        where.equals("error_code", filter.error_code);
        where.equals(sql_.event_type(), filter.event_type);
        return where;
    }
    Result<std::int64_t> change(const std::string& what, std::string_view action,
                                const DeadFilter& filter) {
        if (Status status = check(filter); !status.ok()) return status;
        return sql_.change_letters(what, where_of(filter),
                                   {.os_user = os_user_,
                                    .source = "consumer " + consumer_,
                                    .action = std::string(action),
                                    .detail = describe(filter),
                                    .discards = action == kDiscard});
    }

    Sql& sql_;
    std::string consumer_;
    std::string os_user_;
};

class InboxOperations final : public ConsumerOperations {
  public:
    InboxOperations(std::unique_ptr<Sql> sql, std::string os_user)
        : sql_(std::move(sql)), os_user_(std::move(os_user)) {}

    Result<bool> has_tables() override {
        const auto rows = sql_->run(sql_->table_count("outbox_inbox"), {});
        if (!rows.ok()) return rows.status();
        return number((*rows)[0][0]) > 0;
    }

    Result<bool> has_producer() override { return sql_->has_producer(); }
    Result<std::vector<std::string>> unlogged() override { return sql_->unlogged(); }

    Result<std::vector<ConsumerInfo>> consumers() override {
        // Tables that nobody has migrated yet say nothing of queues.
        const auto queues = sql_->run(sql_->table_count("outbox_inbox_begun"), {});
        if (!queues.ok()) return queues.status();
        const std::string is_there = sql_->microseconds("updated_at") + " > " +
                                     sql_->microseconds(sql_->now()) + " - " +
                                     std::to_string(kMemberGoneS * kMicroseconds);
        // What waits in a queue waits for all its members, each of which says how much it saw.
        const std::string in_queues =
            number((*queues)[0][0]) == 0
                ? "SELECT NULL AS consumer, 0 AS lag"
                : "SELECT consumer, CASE WHEN count(lag) = count(*) THEN sum(lag) END AS lag "
                  "FROM (SELECT consumer, queue, "
                  "max(queue_lag) AS lag FROM outbox_inbox_stats WHERE queue IS NOT NULL AND " +
                      is_there + " GROUP BY consumer, queue) each_queue GROUP BY consumer";
        const auto rows = sql_->run(
            "SELECT n.consumer, s.applied, s.repeats, s.failed, d.dead, "
            "CASE WHEN q.consumer IS NULL OR q.lag IS NOT NULL "
            "THEN coalesce(s.lag, 0) + coalesce(q.lag, 0) END, " +
                sql_->microseconds("f.floor") + ", " + sql_->microseconds("s.updated_at") +
                " FROM (SELECT consumer FROM outbox_inbox_stats "
                "  UNION SELECT consumer FROM outbox_inbox_floor "
                "  UNION SELECT consumer FROM outbox_inbox_dead_letters) n "
                "LEFT JOIN (SELECT consumer, sum(applied) AS applied, sum(repeats) AS repeats, "
                "  sum(failed) AS failed, sum(CASE WHEN " +
                is_there +
                " THEN lag END) AS lag, max(updated_at) AS updated_at "
                "  FROM outbox_inbox_stats GROUP BY consumer) s ON s.consumer = n.consumer "
                "LEFT JOIN (" +
                in_queues +
                ") q ON q.consumer = n.consumer "
                "LEFT JOIN (SELECT consumer, count(*) AS dead FROM outbox_inbox_dead_letters "
                "  GROUP BY consumer) d ON d.consumer = n.consumer "
                "LEFT JOIN outbox_inbox_floor f ON f.consumer = n.consumer ORDER BY 1",
            {});
        if (!rows.ok()) return rows.status();
        std::vector<ConsumerInfo> out;
        for (const Sql::Row& row : *rows) {
            out.push_back({.name = row[0].value_or(""),
                           .applied_total = number(row[1]),
                           .repeats_total = number(row[2]),
                           .failed_total = number(row[3]),
                           .dead = number(row[4]),
                           .lag = row[5] ? std::optional(number(row[5])) : std::nullopt,
                           .floor_us = number(row[6]),
                           .updated_at_us = number(row[7])});
        }
        return out;
    }

    Result<std::vector<MailboxInfo>> mailboxes() override {
        const auto rows =
            sql_->run("SELECT mailbox, count(*), " + sql_->microseconds("min(received_at)") +
                          " FROM outbox_mailbox GROUP BY mailbox ORDER BY mailbox",
                      {});
        if (!rows.ok()) return rows.status();
        std::vector<MailboxInfo> out;
        for (const Sql::Row& row : *rows) {
            const double age = static_cast<double>(machine_clock().wall_us() - number(row[2])) /
                               static_cast<double>(kMicroseconds);
            out.push_back({row[0].value_or(""), number(row[1]), age > 0 ? age : 0});
        }
        return out;
    }

    Result<PrunedInbox> prune(std::int64_t retention_s) override {
        return sql_->prune(retention_s);
    }

    Result<PrunedInbox> prunable(std::int64_t retention_s) override {
        return sql_->prunable(retention_s);
    }

    std::unique_ptr<DeadLetters> dead_letters(const std::string& consumer) override {
        return std::make_unique<InboxDeadLetters>(*sql_, consumer, os_user_);
    }

    Result<ReceivedMessages> find(const std::string& id) override {
        ReceivedMessages out;
        const auto waiting = sql_->run(
            "SELECT m.mailbox, " + sql_->microseconds("m.received_at") +
                ", (SELECT count(*) FROM outbox_mailbox e WHERE e.mailbox = m.mailbox AND e.key = "
                "m.key AND e.position < m.position) FROM outbox_mailbox m WHERE m.id = $1 ORDER BY "
                "m.mailbox",
            {id});
        if (!waiting.ok()) return waiting.status();
        for (const Sql::Row& row : *waiting) {
            out.found.push_back({.mailbox = row[0].value_or(""),
                                 .received_at_us = number(row[1]),
                                 .earlier_of_key = number(row[2])});
        }
        // In tables that nobody has migrated yet the name is that of `of_old`: none was discarded.
        const auto known = sql_->run(
            "SELECT k.consumer, " + sql_->microseconds("k.applied_at") +
                ", (SELECT CASE WHEN discarded THEN 1 END FROM outbox_inbox i WHERE i.consumer = "
                "k.consumer AND i.message_id = k.message_id) FROM (SELECT false AS discarded) "
                "of_old CROSS JOIN (SELECT consumer, message_id, applied_at FROM outbox_inbox "
                "WHERE message_id = $1) k ORDER BY k.consumer",
            {id});
        if (!known.ok()) return known.status();
        for (const Sql::Row& row : *known) {
            out.found.push_back({.consumer = row[0].value_or(""),
                                 .applied_at_us = number(row[1]),
                                 .discarded = row[2].has_value()});
        }
        if (Status status = find_letters(id, out); !status.ok()) return status;
        const auto floors = sql_->run("SELECT consumer, " + sql_->microseconds("floor") +
                                          " FROM outbox_inbox_floor ORDER BY consumer",
                                      {});
        if (!floors.ok()) return floors.status();
        for (const Sql::Row& row : *floors) {
            out.consumers.push_back({.name = row[0].value_or(""), .floor_us = number(row[1])});
        }
        return out;
    }

    Status dead_ids(const std::function<void(std::string_view)>& take) override {
        const auto there = sql_->run(sql_->table_count("outbox_inbox_dead_letters"), {});
        if (!there.ok()) return there.status();
        if (number((*there)[0][0]) == 0) return {};
        return sql_->read(sql_->own("SELECT message_id FROM outbox_inbox_dead_letters"),
                          [&](ConsumerOperations::Cells cells) {
                              take(cells[0].value_or(""));
                              return Status();
                          });
    }

    Status read(const std::string& query, const std::function<Status(Cells)>& take) override {
        return sql_->read(query, take);
    }

  private:
    // An id of the inbox may be that of a letter.
    Status find_letters(const std::string& id, ReceivedMessages& out) {
        const auto letters = sql_->run(
            "SELECT consumer, attempts, error_code, error, " + sql_->microseconds("died_at") +
                ", " + sql_->microseconds("retry_requested_at") +
                " FROM outbox_inbox_dead_letters WHERE message_id = $1 ORDER BY consumer",
            {id});
        if (!letters.ok()) return letters.status();
        for (const Sql::Row& row : *letters) {
            const std::string consumer = row[0].value_or("");
            auto place =
                std::find_if(out.found.begin(), out.found.end(),
                             [&](const ReceivedMessage& one) { return one.consumer == consumer; });
            if (place == out.found.end()) {
                place = out.found.insert(place, {.consumer = consumer});
            }
            DeadInfo& dead = place->dead.emplace();
            dead.attempts = number(row[1]);
            dead.error_code = row[2].value_or("");
            dead.error = row[3].value_or("");
            dead.died_at_us = number(row[4]);
            dead.retry_requested_at_us = number(row[5]);
        }
        return {};
    }

    std::unique_ptr<Sql> sql_;
    std::string os_user_;
};

}  // namespace

std::unique_ptr<ConsumerOperations> make_operations(std::unique_ptr<Sql> sql,
                                                    const std::string& os_user) {
    return std::make_unique<InboxOperations>(std::move(sql), os_user);
}

}  // namespace outbox::consumer
