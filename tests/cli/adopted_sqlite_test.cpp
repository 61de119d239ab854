// Tables that teams brought along in SQLite, from their own INSERTs through the program to the
// destination and back into their own columns.

#include "tests/cli/adopted_table.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class AdoptedSqlite : public AdoptedTable {
  protected:
    void SetUp() override {
        ASSERT_EQ(outbox_.run({"migrate", "--db", "sqlite://" + mail_path_, "--only", "consumer"})
                      .status.code,
                  0);
        mail_ = std::make_unique<Sqlite>(mail_path_);
        mail_->exec(
            "CREATE TRIGGER refuse_poison BEFORE INSERT ON outbox_mailbox WHEN "
            "instr(CAST(NEW.payload AS text), 'poison') > 0 BEGIN SELECT RAISE(ABORT, 'this event "
            "is refused by the trigger of the mailbox'); END");
        exec("PRAGMA journal_mode = WAL");
    }
    std::string url() const override { return "sqlite://" + path_; }
    std::string mailbox() const override { return "mailbox+sqlite://" + mail_path_; }
    void heal() override { mail_->exec("DROP TRIGGER refuse_poison"); }
    void exec(const std::string& sql) override { db_.exec(sql); }
    std::string value(const std::string& sql) override { return db_.value(sql); }
    std::vector<std::string> arrived(const std::string& columns) override {
        std::vector<std::string> rows;
        for (const auto& row :
             mail_->query("SELECT " + columns + " FROM outbox_mailbox ORDER BY position")) {
            rows.push_back(row[0].value_or(""));
        }
        return rows;
    }
    std::string refusal(const std::string& table) {
        const Finished ended = outbox_.run(
            {"relay", "--from", url(), "--to", mailbox(), "--table", table, "--admin", "off"});
        EXPECT_NE(ended.status.code, 0);
        return ended.err;
    }

  private:
    std::string path_ = outbox_.file("shop.db").string();
    std::string mail_path_ = outbox_.file("mail.db").string();
    Sqlite db_{path_};
    std::unique_ptr<Sqlite> mail_;
};

constexpr const char* kBody = "CAST(payload AS text)";

// Shape 1, with times as SQLite's own functions write them.
class PendingPublishedSqlite : public AdoptedSqlite {
  protected:
    void SetUp() override {
        AdoptedSqlite::SetUp();
        exec(
            "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregate_type TEXT NOT NULL, aggregate_id "
            "TEXT NOT NULL, event_type TEXT NOT NULL, payload TEXT NOT NULL, created_at TEXT NOT "
            "NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), published_at TEXT, retry_count "
            "INTEGER NOT NULL DEFAULT 0, status TEXT NOT NULL DEFAULT 'PENDING'); "
            "CREATE INDEX outbox_status ON outbox (status)");
    }
    void insert(int n, const std::string& order, const std::string& what = "fine") {
        exec(
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('" +
            adopted_uuid(n) + "', 'Order', '" + order + "', 'OrderCreated', '{\"is\": \"" + what +
            "\"}')");
    }
    std::string states() {
        return value(
            "SELECT group_concat(substr(id, -1) || ',' || status || ',' || retry_count || ',' || "
            "(published_at IS NOT NULL), ' ') FROM (SELECT * FROM outbox ORDER BY id)");
    }
};

TEST_F(PendingPublishedSqlite, IsRelayedAndItsColumnsTellWhatBecameOfEachRow) {
    // Ids that fall while rows are written: what counts is the order of writing.
    insert(4, "o-1");
    insert(3, "o-2", "poison");
    insert(2, "o-2");
    insert(1, "o-1");
    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox WHERE status <> 'PENDING'", "4"));
    EXPECT_EQ(states(), "1,PUBLISHED,0,1 2,PUBLISHED,0,1 3,FAILED,5,0 4,PUBLISHED,0,1");
    EXPECT_THAT(
        arrived("substr(id, -1) || ' ' || topic || ' ' || key || ' ' || " + std::string(kBody) +
                " || ' ' || json_extract(headers, '$.type')"),
        testing::UnorderedElementsAre("4 order-events o-1 {\"is\": \"fine\"} OrderCreated",
                                      "2 order-events o-2 {\"is\": \"fine\"} OrderCreated",
                                      "1 order-events o-1 {\"is\": \"fine\"} OrderCreated"));
    const auto order = arrived("substr(id, -1)");
    EXPECT_LT(std::find(order.begin(), order.end(), "4"),
              std::find(order.begin(), order.end(), "1"));
    // In the form of the row's own time.
    EXPECT_EQ(value("SELECT length(published_at) || substr(published_at, 11, 1) FROM outbox "
                    "WHERE status = 'PUBLISHED' LIMIT 1"),
              "24T");
    EXPECT_EQ(value("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED' AND "
                    "julianday(published_at) - julianday(created_at) BETWEEN 0 AND 0.01"),
              "3");
    const json dead = result({"dead", "list", "--table", "outbox"});
    ASSERT_EQ(dead.size(), 1U);
    EXPECT_EQ(dead[0]["id"], adopted_uuid(3));
    EXPECT_EQ(dead[0]["attempts"], 5);
    insert(5, "o-3");
    EXPECT_TRUE(is("SELECT status FROM outbox WHERE id = '" + adopted_uuid(5) + "'", "PUBLISHED"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(PendingPublishedSqlite, DeliversARowThatItsOwnerSetsBackWithFreshAttempts) {
    insert(1, "o-1", "poison");
    expect_fresh_attempts_when_set_back();
}

TEST_F(PendingPublishedSqlite, IsDeadAsLongAsARouteHasADeadLetterAndNoLonger) {
    insert(1, "o-1", "poison");
    expect_dead_while_a_route_has_a_dead_letter();
}

TEST_F(PendingPublishedSqlite, HasItsDeadLettersRetriedByCommand) {
    insert(1, "o-1", "poison");
    expect_retried_by_command(adopted_uuid(1));
}

TEST_F(PendingPublishedSqlite, AnswersStatusCheckAndPruneAndLookingMakesNothing) {
    insert(1, "o-1");
    insert(2, "o-1");
    const json before = result({"status", "--table", "outbox"});
    EXPECT_EQ(before["source"], "outbox");
    EXPECT_EQ(before["backlog"], 2);
    EXPECT_EQ(before["lease"]["held"], false);
    EXPECT_EQ(result({"dead", "list", "--table", "outbox"}), json::array());
    EXPECT_EQ(result({"prune", "--table", "outbox"})["removed"], 0);
    EXPECT_THAT(check("outbox"), AllOf(HasSubstr("preset pending-published"), HasSubstr("marked"),
                                       HasSubstr("the read is served by an index"),
                                       HasSubstr("the relay makes them when it starts")));
    EXPECT_EQ(value("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name LIKE "
                    "'outbox_%'"),
              "0");
    exec("DROP INDEX outbox_status");
    EXPECT_THAT(check("outbox"),
                HasSubstr("CREATE INDEX \"outbox_unsent\" ON \"outbox\" (\"status\")"));

    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'", "2"));
    ASSERT_TRUE(eventually(kDeadline, "the figures are told", [&] {
        const json status = result({"status", "--table", "outbox"});
        return status["backlog"] == 0 && status["lease"]["held"] == true &&
               !status["routes"].empty() && status["routes"][0]["published_total"] == 2;
    }));
    // Killed, it leaves its lease behind; the lock that died with it tells.
    running.kill(SIGKILL);
    ASSERT_TRUE(running.wait(kDeadline));
    exec("UPDATE outbox_lease SET expires_at = expires_at + 3600000000");
    EXPECT_EQ(result({"status", "--table", "outbox"})["lease"]["held"], false);

    insert(3, "o-1");
    exec("UPDATE outbox SET created_at = '2020-01-01T00:00:00.000Z'");
    // The third was set back by an owner who left its time of publication.
    exec("UPDATE outbox SET published_at = '2020-01-02T00:00:00.000Z' WHERE id IN ('" +
         adopted_uuid(1) + "', '" + adopted_uuid(3) + "')");
    EXPECT_EQ(result({"prune", "--table", "outbox", "--dry-run"})["would_remove"], 1);
    EXPECT_EQ(result({"prune", "--table", "outbox"})["removed"], 1);
    EXPECT_EQ(states(), "2,PUBLISHED,0,1 3,PENDING,0,1");
}

// A column of the owner's that is called rowid, and is no number of a row.
TEST_F(AdoptedSqlite, AColumnNamedRowidIsNotWhatIsPrunedBy) {
    exec(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, created_at TEXT "
        "DEFAULT (datetime('now')), published_at TEXT, retry_count INTEGER DEFAULT 0, status TEXT "
        "DEFAULT 'PENDING', rowid INTEGER DEFAULT 7); INSERT INTO outbox (id, event_type, payload) "
        "VALUES ('old', 'Made', '1'), ('unsent', 'Made', '2'); UPDATE outbox SET status = "
        "'PUBLISHED', published_at = '2020-01-01 00:00:00' WHERE id = 'old'");
    EXPECT_EQ(result({"prune", "--table", "outbox"})["removed"], 1);
    EXPECT_EQ(value("SELECT group_concat(id) FROM outbox"), "unsent");
}

// What the owner's table says to a row concerns that row: an error, one that ends the transaction,
// or nothing.
class RefusingSqlite : public PendingPublishedSqlite,
                       public testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(, RefusingSqlite,
                         testing::Values("ABORT, 'the owner wants this row as it is'",
                                         "ROLLBACK, 'the owner wants all as it was'", "IGNORE"));

TEST_P(RefusingSqlite, WhatMayNotBePrunedKeepsNothingElse) {
    exec(
        "CREATE TRIGGER keep BEFORE DELETE ON outbox WHEN OLD.aggregate_id = 'o-0' BEGIN SELECT "
        "RAISE(" +
        GetParam() + "); END");
    for (int n = 1; n <= 9; ++n) insert(n, "o-" + std::to_string(n % 3));
    exec("UPDATE outbox SET status = 'PUBLISHED', published_at = '2020-01-01T00:00:00.000Z'");
    EXPECT_EQ(result({"prune", "--table", "outbox"})["removed"], 6);
    EXPECT_EQ(value("SELECT count(*) FROM outbox"), "3");
}

TEST_F(PendingPublishedSqlite, AStartThatAnotherWriterKeepsOutWaitsForIt) {
    const auto says = [&](Process& running, const std::string& event) {
        return eventually(kDeadline, event, [&] {
            return running.stderr_text().find("event=" + event) != std::string::npos;
        });
    };
    insert(1, "o-1");
    // The first start makes tables in the file.
    exec("BEGIN IMMEDIATE");
    {
        Process running = relay("outbox");
        Process asked_to_end = relay("outbox");
        ASSERT_TRUE(says(asked_to_end, "start_waits"));
        EXPECT_EQ(asked_to_end.stop(), (ExitStatus{0, 0}));
        ASSERT_TRUE(says(running, "start_waits"));
        EXPECT_THAT(running.stderr_text(), HasSubstr("holds the write lock"));
        exec("COMMIT");
        EXPECT_TRUE(is("SELECT status FROM outbox", "PUBLISHED"));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    // Later ones write the lease alone.
    exec("BEGIN IMMEDIATE");
    Process running = relay("outbox");
    ASSERT_TRUE(says(running, "database_away"));
    exec("COMMIT");
    EXPECT_TRUE(says(running, "lease_acquired"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(PendingPublishedSqlite, IsPrunedByTheRelayItself) {
    insert(1, "o-1");
    exec("UPDATE outbox SET status = 'PUBLISHED', published_at = '2020-01-01T00:00:00.000Z'");
    insert(2, "o-1");
    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT group_concat(substr(id, -1) || status) FROM outbox", "2PUBLISHED"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(PendingPublishedSqlite, IsRelayedOnceThoughVacuumGivesItsRowsNewNumbers) {
    Process running = relay("outbox", "600000");
    insert(1, "o-1");
    ASSERT_TRUE(is("SELECT status FROM outbox", "PUBLISHED"));
    insert(2, "o-2", "poison");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox_delivery", "1"));
    // The failing row keeps its place in the relay's memory while its number changes.
    exec("DELETE FROM outbox WHERE status = 'PUBLISHED'; VACUUM");
    for (int n = 3; n <= 6; ++n) insert(n, "o-3");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'", "4"));
    EXPECT_EQ(
        value("SELECT status || retry_count FROM outbox WHERE id = '" + adopted_uuid(2) + "'"),
        "PENDING1");
    EXPECT_THAT(arrived("substr(id, -1)"), ElementsAre("1", "3", "4", "5", "6"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// Shape 2, with times in milliseconds.
TEST_F(AdoptedSqlite, NewSentTableKeepsItsColumnsTrue) {
    exec(
        "CREATE TABLE events_out (id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, aggregate_type "
        "TEXT, aggregate_id TEXT, topic TEXT NOT NULL, occurred_at INTEGER NOT NULL, payload TEXT "
        "NOT NULL, event_metadata TEXT, event_type TEXT, status TEXT NOT NULL DEFAULT 'NEW' CHECK "
        "(status IN ('NEW', 'PUBLISHING', 'SENT', 'FAILED', 'DEAD')), retry_count INTEGER NOT NULL "
        "DEFAULT 0, retry_after INTEGER, error_message VARCHAR(30), created_at INTEGER NOT NULL "
        "DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))); "
        "CREATE INDEX events_out_status ON events_out (status)");
    const auto insert = [&](const std::string& id, const std::string& status,
                            const std::string& retry_after, const std::string& what) {
        exec(
            "INSERT INTO events_out (id, tenant_id, aggregate_type, aggregate_id, topic, "
            "occurred_at, payload, event_metadata, event_type, status, retry_after, created_at) "
            "VALUES ('" +
            id + "', 'acme', 'Order', '" + id + "', 'orders', unixepoch() * 1000, '{\"is\": \"" +
            what + "\"}', '{\"user\": \"u1\"}', 'Made', '" + status + "', " + retry_after +
            ", unixepoch() * 1000)");
    };
    insert("new", "NEW", "NULL", "fine");
    insert("publishing", "PUBLISHING", "NULL", "fine");
    insert("waited", "FAILED", "unixepoch() * 1000 - 60000", "fine");
    insert("bad", "NEW", "NULL", "poison");
    const auto state = [&](const std::string& id) {
        return "SELECT status || ',' || retry_count || ',' || coalesce(retry_after > unixepoch() * "
               "1000, '-') || ',' || coalesce(length(error_message), '-') FROM events_out WHERE id "
               "= '" +
               id + "'";
    };
    {
        Process slow = relay("events_out", "600000");
        ASSERT_TRUE(is(state("bad"), "FAILED,1,1,30"));
        EXPECT_EQ(value("SELECT retry_after < unixepoch() * 1000 + 700000 FROM events_out WHERE "
                        "id = 'bad'"),
                  "1");
        ASSERT_TRUE(is(state("waited"), "SENT,0,-,-"));
        EXPECT_EQ(slow.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_EQ(value(state("new")), "SENT,0,-,-");
    EXPECT_EQ(value(state("publishing")), "SENT,0,-,-");
    EXPECT_THAT(arrived("id || ' ' || topic || ' ' || json_extract(headers, '$.tenant_id') || ' ' "
                        "|| json_extract(headers, '$.event_metadata')"),
                ElementsAre("events_out:new orders acme {\"user\":\"u1\"}",
                            "events_out:publishing orders acme {\"user\":\"u1\"}",
                            "events_out:waited orders acme {\"user\":\"u1\"}"));
    Process running = relay("events_out");
    ASSERT_TRUE(is(state("bad"), "DEAD,5,-,30"));
    heal();
    exec(
        "UPDATE events_out SET status = 'NEW', retry_count = 0, error_message = NULL WHERE "
        "id = 'bad'");
    ASSERT_TRUE(is(state("bad"), "SENT,0,-,-"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_THAT(check("events_out"),
                AllOf(HasSubstr("preset new-sent"), HasSubstr("the read is served by an index")));
}

// Shape 3, with ids as blobs and times as SQLite's CURRENT_TIMESTAMP.
TEST_F(AdoptedSqlite, ProcessedAtTableIsRelayedAndMarked) {
    exec(
        "CREATE TABLE outbox_messages (id BLOB PRIMARY KEY, aggregate_id INTEGER, event_type TEXT "
        "NOT NULL, payload TEXT NOT NULL, created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, "
        "processed_at TEXT); CREATE INDEX unprocessed ON outbox_messages (processed_at) WHERE "
        "processed_at IS NULL; INSERT INTO outbox_messages (id, aggregate_id, event_type, payload) "
        "VALUES (x'018f2d3c000070008000000000000001', 7, 'Made', '{\"b\" :  1}'), "
        "(x'018f2d3c000070008000000000000002', 7, 'Made', 'poison')");
    const std::string unprocessed =
        "SELECT count(*) FROM outbox_messages WHERE processed_at IS NULL";
    {
        Process running = relay("outbox_messages");
        ASSERT_TRUE(is(unprocessed, "0"));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_THAT(arrived("id || ' ' || key || ' ' || " + std::string(kBody)),
                ElementsAre(adopted_uuid(1) + " 7 {\"b\" :  1}"));
    EXPECT_EQ(value("SELECT length(processed_at) FROM outbox_messages LIMIT 1"), "19");
    EXPECT_EQ(result({"dead", "list", "--table", "outbox_messages"})[0]["id"], adopted_uuid(2));
    const Finished estimate = outbox_.run({"replay", "--from", url(), "--table", "outbox_messages",
                                           "--to", mailbox(), "--dry-run", "--json"});
    EXPECT_EQ(json::parse(estimate.out)["estimate"]["events"], 1)
        << "the dead one was not published: " << estimate.err;
    // A dead row is kept however old it is, a processed one goes. A relay would prune by itself.
    exec("UPDATE outbox_messages SET processed_at = '2020-01-01 00:00:00'");
    EXPECT_EQ(result({"prune", "--table", "outbox_messages"})["removed"], 1);
    heal();
    exec("UPDATE outbox_messages SET processed_at = NULL");
    Process running = relay("outbox_messages");
    ASSERT_TRUE(is(unprocessed, "0"));
    EXPECT_EQ(arrived("id").back(), adopted_uuid(2));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_THAT(check("outbox_messages"), HasSubstr("the read is served by an index"));
}

// Shape 4.
TEST_F(AdoptedSqlite, DeleteWhenSentTableIsEmptiedAndItsDeadRowsLiveOn) {
    exec(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload BLOB, created_at REAL "
        "DEFAULT (julianday('now'))); INSERT INTO outbox (id, event_type, payload) VALUES ('" +
        adopted_uuid(1) + "', 'Made', 'not json'), ('" + adopted_uuid(2) + "', 'Made', 'poison')");
    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox", "0"));
    EXPECT_THAT(arrived("substr(id, -1) || ' ' || topic || ' ' || " + std::string(kBody)),
                ElementsAre("1 outbox not json"));
    EXPECT_EQ(result({"dead", "show", adopted_uuid(2), "--table", "outbox"})[0]["payload"],
              "poison");
    heal();
    EXPECT_EQ(result({"dead", "retry", "--all", "--table", "outbox"})["matched"], 1);
    ASSERT_TRUE(is("SELECT count(*) FROM outbox_dead_letters", "0"));
    EXPECT_EQ(arrived("id").size(), 2U);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_THAT(check("outbox"), AllOf(HasSubstr("preset delete-when-sent"), HasSubstr("deleted")));
}

// A column that nobody has mapped may be the one that says what was sent.
TEST_F(AdoptedSqlite, TableOfTheUsersOwnIsEmptiedOnlyWhereThatIsWrittenDown) {
    exec(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, created_at TEXT, "
        "sent_at TEXT); INSERT INTO outbox (id, event_type, payload) VALUES ('a', 'Made', '1')");
    EXPECT_THAT(refusal("outbox"), AllOf(HasSubstr("after_publish = "), HasSubstr("processed_at")));
    const Finished checked =
        outbox_.run({"relay", "--check", "--from", url(), "--to", mailbox(), "--table", "outbox"});
    EXPECT_EQ(checked.status.code, 1);
    EXPECT_THAT(checked.out, HasSubstr("problem  after publish: "));
    // Looking is not refused.
    EXPECT_EQ(result({"status", "--table", "outbox"})["backlog"], 1);
    Process running = outbox_.start_relay({"--from", url(), "--to", mailbox(), "--table", "outbox",
                                           "--admin", "off", "--after-publish", "delete"});
    ASSERT_TRUE(is("SELECT count(*) FROM outbox", "0"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// SQLite would give the number of a removed row to a new one, and consumers drop it as a repeat.
TEST_F(AdoptedSqlite, TablesWhoseIdsWouldComeAgainAreRefusedWithTheRemedy) {
    exec(
        "CREATE TABLE outbox (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT, created_at "
        "TEXT); CREATE TABLE loose (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, created_at "
        "TEXT) WITHOUT ROWID; CREATE VIEW seen AS SELECT * FROM outbox");
    EXPECT_THAT(refusal("outbox"), HasSubstr("INTEGER PRIMARY KEY AUTOINCREMENT"));
    EXPECT_THAT(refusal("loose"), HasSubstr("WITHOUT ROWID"));
    EXPECT_THAT(refusal("seen"), HasSubstr("is not a table"));
    EXPECT_THAT(refusal("no_such"), HasSubstr("OB_NO_SUCH_TABLE"));
    exec(
        "DROP TABLE outbox; CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, event_type "
        "TEXT, payload TEXT, created_at TEXT); INSERT INTO outbox (event_type, payload) VALUES "
        "('Made', '1')");
    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox", "0"));
    exec("INSERT INTO outbox (event_type, payload) VALUES ('Made', '2')");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox", "0"));
    EXPECT_THAT(arrived("id"), ElementsAre("outbox:1", "outbox:2"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// Shape 5, whose id is the rowid.
TEST_F(AdoptedSqlite, CamelCaseTableIsRelayedInTheOrderOfItsNumbersAndKeepsItsHighest) {
    exec(
        "CREATE TABLE \"OutboxMessages\" (\"Id\" INTEGER PRIMARY KEY, \"EventType\" TEXT NOT NULL, "
        "\"Payload\" TEXT NOT NULL, \"CreatedAt\" TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, "
        "\"Processed\" INTEGER NOT NULL DEFAULT 0); CREATE INDEX open ON \"OutboxMessages\" "
        "(\"Processed\") WHERE \"Processed\" = 0; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT "
        "i + 1 FROM n WHERE i < 12) INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") "
        "SELECT 'Made', iif(i = 5, 'poison', i) FROM n");
    {
        Process running = relay("OutboxMessages");
        ASSERT_TRUE(is("SELECT count(*) FROM \"OutboxMessages\" WHERE \"Processed\"", "12"));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    const auto ids = arrived("id");
    ASSERT_EQ(ids.size(), 11U);
    EXPECT_EQ(ids.front(), "OutboxMessages:1");
    EXPECT_EQ(ids.back(), "OutboxMessages:12");
    EXPECT_EQ(value("SELECT id FROM outbox_dead_letters"), "OutboxMessages:5");
    // By age all could go but the dead one; the highest stays so that its number is not given
    // again. A relay would prune by itself.
    exec("UPDATE \"OutboxMessages\" SET \"CreatedAt\" = '2020-01-01 00:00:00'");
    EXPECT_EQ(result({"prune", "--table", "OutboxMessages"})["removed"], 10);
    EXPECT_EQ(value("SELECT group_concat(\"Id\") FROM \"OutboxMessages\""), "5,12");
    heal();
    exec("UPDATE \"OutboxMessages\" SET \"Processed\" = 0 WHERE \"Id\" = 5");
    Process running = relay("OutboxMessages");
    ASSERT_TRUE(is("SELECT \"Processed\" FROM \"OutboxMessages\" WHERE \"Id\" = 5", "1"));
    EXPECT_EQ(arrived("id").back(), "OutboxMessages:5");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// Shape 6.
TEST_F(AdoptedSqlite, DebeziumTableIsRelayedAndEmptied) {
    exec(
        "CREATE TABLE outboxevent (id TEXT PRIMARY KEY, aggregatetype TEXT NOT NULL, aggregateid "
        "TEXT NOT NULL, type TEXT NOT NULL, payload TEXT); INSERT INTO outboxevent VALUES ('" +
        adopted_uuid(2) + "', 'Order', 'o-9', 'OrderCreated', '{}'), ('" + adopted_uuid(1) +
        "', 'Order', 'o-9', 'OrderPaid', NULL)");
    Process running = relay("outboxevent");
    ASSERT_TRUE(is("SELECT count(*) FROM outboxevent", "0"));
    EXPECT_THAT(
        arrived("substr(id, -1) || ' ' || topic || ' ' || key || ' ' || "
                "json_extract(headers, '$.type') || ' ' || coalesce(" +
                std::string(kBody) + ", 'null')"),
        ElementsAre("2 order-events o-9 OrderCreated {}", "1 order-events o-9 OrderPaid null"));
    EXPECT_THAT(arrived("json_type(headers, '$.occurred_at') IS NULL"), ElementsAre("1", "1"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// No known shape: the file says what is what.
TEST_F(AdoptedSqlite, TableOfNoKnownShapeIsMappedByTheFile) {
    exec(
        "CREATE TABLE \"Odd Box\" (nr INTEGER PRIMARY KEY, \"Kind\" TEXT, body BLOB, who TEXT, "
        "phase TEXT NOT NULL DEFAULT 'todo', tries INTEGER NOT NULL DEFAULT 0, why TEXT, trace "
        "TEXT); INSERT INTO \"Odd Box\" (\"Kind\", body, who, phase, trace) VALUES "
        "('A', 'first', 'w', 'todo', 't-1'), ('B', 'second', 'w', 'doing', NULL), "
        "('C', 'poison', 'v', 'todo', NULL)");
    write_mapping_of_odd_box();
    Process running = outbox_.start_relay(
        {"--to", mailbox(), "--admin", "off", "--retry-base-ms", "10", "--retry-max-ms", "50"});
    ASSERT_TRUE(
        is("SELECT group_concat(phase || ',' || tries || ',' || (why LIKE '%refused%'), "
           "' ') FROM (SELECT phase, tries, coalesce(why, '') AS why FROM \"Odd Box\" "
           "ORDER BY nr)",
           "done,0,0 done,0,0 broken,5,1"));
    EXPECT_THAT(arrived("id || ' ' || topic || ' ' || key || ' ' || " + std::string(kBody) +
                        " || ' ' || coalesce(json_extract(headers, '$.trace'), '-')"),
                ElementsAre("Odd Box:1 odd-A w first t-1", "Odd Box:2 odd-B w second -"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(PendingPublishedSqlite, ARowThatDiesAgainHasItsLastContentInItsLetter) {
    insert(1, "o-1", "poison");
    expect_the_last_content_in_the_letter();
    EXPECT_THAT(arrived(kBody), ElementsAre("{\"is\": \"poison, corrected\"}"));
}

TEST_P(RefusingSqlite, RowsThatItsOwnerRefusesToChangeAreOwedTheirMarkAndTheRestGoesOn) {
    exec(
        "CREATE TRIGGER refuse BEFORE UPDATE ON outbox WHEN OLD.aggregate_id = 'o-3' BEGIN "
        "SELECT RAISE(" +
        GetParam() + "); END");
    for (int n = 1; n <= 8; ++n)
        insert(n, "o-" + std::to_string(n % 4), n == 7 ? "poison" : "fine");
    const std::string published = "SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'";
    {
        Process running = relay("outbox");
        ASSERT_TRUE(is(published, "6"));
        ASSERT_TRUE(is("SELECT count(*) FROM outbox_route_done WHERE route = ''", "2"));
        ASSERT_TRUE(is("SELECT count(*) FROM outbox_dead_letters", "1"));
        ASSERT_TRUE(eventually(kDeadline, "it says so", [&] {
            return running.stderr_text().find("rows_refused") != std::string::npos;
        })) << running.stderr_text();
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
    }
    exec("DROP TRIGGER refuse");
    Process running = relay("outbox");
    insert(9, "o-1");
    ASSERT_TRUE(is(published, "8"));
    EXPECT_EQ(value("SELECT status FROM outbox WHERE id = '" + adopted_uuid(7) + "'"), "FAILED");
    EXPECT_EQ(value("SELECT count(*) FROM outbox_route_done"), "0");
    EXPECT_EQ(arrived("id").size(), 8U) << "none went again";
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

TEST_F(PendingPublishedSqlite, HostileValuesConcernTheirOwnRowsAlone) {
    const std::vector<std::string> hostile{"NULL",
                                           "''",
                                           "x'00ff'",
                                           "char(0)",
                                           "'a' || char(0) || 'b'",
                                           "CAST(x'fffe41' AS text)",
                                           "-5",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "1e308",
                                           "9e999",
                                           "'infinity'",
                                           "'9999-99-99'",
                                           "'not json'",
                                           "'{\"a\": \"\\u0000\"}'",
                                           "hex(zeroblob(5000))",
                                           "hex(zeroblob(1000000))"};
    int good = 0;
    for (const char* column : {"id", "aggregate_type", "aggregate_id", "event_type", "payload",
                               "created_at", "published_at", "retry_count", "status"}) {
        for (const std::string& value : hostile) {
            const std::string name = "h-" + std::to_string(++good);
            exec(
                "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES "
                "('" +
                name + "', 'Order', '" + name + "', 'Made', '{}')");
            try {
                exec("UPDATE outbox SET " + std::string(column) + " = " + value + " WHERE id = '" +
                     name + "'");
            } catch (const std::exception&) {
                continue;  // the table does not take it
            }
            exec(
                "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES "
                "('g-" +
                std::to_string(good) + "', 'Order', 'g', 'Made', '{}')");
        }
    }
    Process running = relay("outbox");
    const std::string all = value("SELECT count(*) FROM outbox WHERE id LIKE 'g-%'");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox WHERE id LIKE 'g-%' AND status = 'PUBLISHED'", all))
        << running.stderr_text();
    EXPECT_TRUE(is("SELECT count(*) FROM outbox WHERE id IS NOT NULL AND status = 'PENDING'", "0"))
        << running.stderr_text();
    EXPECT_EQ(value("SELECT count(*) FROM outbox_route_done"), "0");
    result({"dead", "list", "--table", "outbox"});
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

}  // namespace
}  // namespace outbox::test
