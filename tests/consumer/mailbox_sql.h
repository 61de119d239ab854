#pragma once

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include <outbox/producer/migrate.h>

#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {

// A consumer's database, and a member that applies by SQL alone.
class MailboxSql : public testing::Test {
  protected:
    MailboxSql() {
        migrate(url_, {.side = MigrationSide::kConsumer, .payload = {}});
        db_.emplace(url_);
        db_->exec(
            "CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, id text, key text)");
    }
    void arrive(const std::string& id, const std::string& key, const std::string& box = "default") {
        db_->exec("INSERT INTO outbox_mailbox (mailbox, id, topic, key, payload) VALUES ('" + box +
                  "', '" + id + "', 'orders', nullif('" + key + "', ''), '{}')");
    }
    // What is taken by the transaction that is open.
    static std::vector<std::string> take(Pg& member, int most = 100) {
        std::vector<std::string> ids;
        for (const Pg::Row& row : member.query("SELECT id FROM outbox_mailbox_take('billing', "
                                               "'default', " +
                                               std::to_string(most) + ")")) {
            ids.push_back(row[0].value_or(""));
        }
        return ids;
    }
    static void apply(Pg& member, const std::string& id) {
        member.exec(
            "INSERT INTO effects (id, key) SELECT id, key FROM outbox_mailbox WHERE id = '" + id +
            "'; SELECT outbox_mailbox_done('billing', 'default', position) FROM "
            "outbox_mailbox WHERE id = '" +
            id + "'");
    }
    static void apply_letter(Pg& member, const std::string& id) {
        member.exec(
            "INSERT INTO effects (id, key) SELECT message_id, key FROM outbox_inbox_dead_letters "
            "WHERE message_id = '" +
            id +
            "'; SELECT outbox_mailbox_done('billing', 'default', -letter) FROM "
            "outbox_inbox_dead_letters WHERE message_id = '" +
            id + "'");
    }
    void retry() { db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = now()"); }
    void fail(const std::string& id, int most = 5) {
        db_->exec("SELECT outbox_mailbox_failed('billing', 'default', position, 'no stock', " +
                  std::to_string(most) + ") FROM outbox_mailbox WHERE id = '" + id + "'");
    }
    void end_waits() { db_->exec("UPDATE outbox_mailbox_tries SET not_before = '-infinity'"); }
    std::string effects() {
        return db_->value("SELECT coalesce(string_agg(id, ' ' ORDER BY n), '') FROM effects");
    }

    std::string url_ = shared_postgres().create_database();
    std::optional<Pg> db_;
};

}  // namespace outbox::test
