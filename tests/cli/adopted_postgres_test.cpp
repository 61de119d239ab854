// Tables that teams brought along, from their own INSERTs through the program to the destination
// and back into their own columns.

#include <sstream>

#include "tests/cli/adopted_table.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<json> lines_of(const std::string& text) {
    std::vector<json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
}

class AdoptedPostgres : public AdoptedTable {
  protected:
    void SetUp() override {
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_, "--only", "consumer"}).status.code, 0);
        exec(
            "CREATE FUNCTION refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF position('poison' IN convert_from(NEW.payload, 'UTF8')) > 0 THEN "
            "RAISE EXCEPTION 'this event is refused by the trigger of the mailbox'; END IF; "
            "RETURN NEW; END $$; CREATE TRIGGER refuse_poison BEFORE INSERT ON outbox_mailbox "
            "FOR EACH ROW EXECUTE FUNCTION refuse_poison()");
    }
    std::string url() const override { return url_; }
    std::string mailbox() const override {
        return "mailbox+postgresql" + url_.substr(url_.find(':'));
    }
    void heal() override { exec("DROP TRIGGER refuse_poison ON outbox_mailbox"); }
    void exec(const std::string& sql) override { pg_.exec(sql); }
    std::string value(const std::string& sql) override { return pg_.value(sql); }
    std::vector<std::string> arrived(const std::string& columns) override {
        std::vector<std::string> rows;
        for (const auto& row : pg_.query("SELECT concat_ws(' ', " + columns +
                                         ") FROM outbox_mailbox ORDER BY position")) {
            rows.push_back(row[0].value_or(""));
        }
        return rows;
    }

  private:
    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

// Shape 1.
class PendingPublishedTable : public AdoptedPostgres {
  protected:
    void SetUp() override {
        AdoptedPostgres::SetUp();
        exec(kPendingPublishedTable);
    }
    void insert(int n, const std::string& order, const std::string& what = "fine") {
        exec(
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('" +
            adopted_uuid(n) + "', 'Order', '" + order + "', 'OrderCreated', '{\"is\": \"" + what +
            "\"}')");
    }
    std::string states() {
        return value(
            "SELECT string_agg(concat_ws(',', right(id::text, 1), status, retry_count, "
            "published_at IS NOT NULL), ' ' ORDER BY id) FROM outbox");
    }
};

TEST_F(PendingPublishedTable, IsRelayedAndItsColumnsTellWhatBecameOfEachRow) {
    insert(1, "o-1");
    insert(2, "o-2", "poison");
    insert(3, "o-2");
    insert(4, "o-1");
    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox WHERE status <> 'PENDING'", "4"));
    EXPECT_EQ(states(), "1,PUBLISHED,0,t 2,FAILED,5,f 3,PUBLISHED,0,t 4,PUBLISHED,0,t");
    EXPECT_THAT(
        arrived("right(id, 1), topic, key, convert_from(payload, 'UTF8'), "
                "headers ->> 'type', headers ->> 'aggregate_type'"),
        testing::UnorderedElementsAre("1 order-events o-1 {\"is\": \"fine\"} OrderCreated Order",
                                      "3 order-events o-2 {\"is\": \"fine\"} OrderCreated Order",
                                      "4 order-events o-1 {\"is\": \"fine\"} OrderCreated Order"));
    const json dead = result({"dead", "list", "--table", "outbox"});
    ASSERT_EQ(dead.size(), 1U);
    EXPECT_EQ(dead[0]["id"], adopted_uuid(2));
    EXPECT_EQ(dead[0]["attempts"], 5);
    EXPECT_EQ(dead[0]["error_code"], "OB_RECORD_REFUSED");
    // Rows that are written while it runs.
    insert(5, "o-3");
    EXPECT_TRUE(is("SELECT status FROM outbox WHERE id = '" + adopted_uuid(5) + "'", "PUBLISHED"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(PendingPublishedTable, DeliversARowThatItsOwnerSetsBackWithFreshAttempts) {
    insert(1, "o-1", "poison");
    expect_fresh_attempts_when_set_back();
}

TEST_F(PendingPublishedTable, IsDeadAsLongAsARouteHasADeadLetterAndNoLonger) {
    insert(1, "o-1", "poison");
    expect_dead_while_a_route_has_a_dead_letter();
}

TEST_F(PendingPublishedTable, ARowThatDiesAgainHasItsLastContentInItsLetter) {
    insert(1, "o-1", "poison");
    expect_the_last_content_in_the_letter();
    EXPECT_THAT(arrived("convert_from(payload, 'UTF8')"),
                ElementsAre("{\"is\": \"poison, corrected\"}"));
}

TEST_F(PendingPublishedTable, HasItsDeadLettersRetriedByCommand) {
    insert(1, "o-1", "poison");
    expect_retried_by_command(adopted_uuid(1));
}

TEST_F(PendingPublishedTable, AnswersStatusCheckAndPrune) {
    insert(1, "o-1");
    insert(2, "o-1");
    // Looking makes nothing.
    const json before = result({"status", "--table", "outbox"});
    EXPECT_EQ(before["source"], "public.outbox");
    EXPECT_EQ(before["backlog"], 2);
    EXPECT_EQ(before["lease"]["held"], false);
    EXPECT_EQ(result({"dead", "list", "--table", "outbox"}), json::array());
    EXPECT_EQ(result({"prune", "--table", "outbox"})["removed"], 0);
    const std::string checked = check("outbox");
    EXPECT_THAT(checked, AllOf(HasSubstr("preset pending-published"),
                               HasSubstr("the read is served by an index"),
                               HasSubstr("order inside one transaction is not promised")));
    EXPECT_EQ(value("SELECT to_regclass('outbox_lease') IS NULL"), "t");
    exec("DROP INDEX outbox_pending");
    EXPECT_THAT(check("outbox"),
                HasSubstr("CREATE INDEX CONCURRENTLY ON \"public\".\"outbox\" (\"created_at\", "
                          "\"id\") WHERE \"status\" = 'PENDING'"));

    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'", "2"));
    ASSERT_TRUE(eventually(kDeadline, "the figures are told", [&] {
        const json status = result({"status", "--table", "outbox"});
        return status["backlog"] == 0 && status["lease"]["held"] == true &&
               !status["routes"].empty() && status["routes"][0]["published_total"] == 2;
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));

    exec("UPDATE outbox SET published_at = now() - interval '8 days' WHERE id = '" +
         adopted_uuid(1) + "'");
    insert(3, "o-1");
    exec("UPDATE outbox SET created_at = now() - interval '80 days'");
    EXPECT_EQ(result({"prune", "--table", "outbox", "--dry-run"})["would_remove"], 1);
    EXPECT_EQ(value("SELECT count(*) FROM outbox"), "3");
    EXPECT_EQ(result({"prune", "--table", "outbox"})["removed"], 1);
    EXPECT_EQ(states(), "2,PUBLISHED,0,t 3,PENDING,0,f");
}

// What is older than the retention and cannot be removed stays, and holds nothing up.
class PruningThatFails : public PendingPublishedTable {
  protected:
    void SetUp() override {
        PendingPublishedTable::SetUp();
        insert(1, "o-1");
        exec(
            "UPDATE outbox SET status = 'PUBLISHED', published_at = clock_timestamp() - interval "
            "'8 days'");
    }
    void expect_a_warning_and_delivery(Process running, const std::string& remedy) {
        ASSERT_TRUE(eventually(kDeadline, "the failure is told", [&] {
            return running.stderr_text().find("prune_failed") != std::string::npos;
        }));
        EXPECT_THAT(running.stderr_text(), HasSubstr(remedy));
        for (int n = 2; n < 5; ++n) {
            insert(n, "o-2");
            ASSERT_TRUE(
                is("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'", std::to_string(n)));
        }
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
        const std::string log = running.stderr_text();
        EXPECT_EQ(log.find("prune_failed"), log.rfind("prune_failed")) << "told once\n" << log;
    }
};

TEST_F(PruningThatFails, ForWantOfTheRightToDeleteIsAWarningWithItsRemedy) {
    Process maker = relay("outbox", "10", "null:");  // makes the side tables
    ASSERT_TRUE(is("SELECT count(*) FROM outbox", "0"));
    ASSERT_EQ(maker.stop(), (ExitStatus{0, 0}));
    insert(1, "o-1");
    exec(
        "UPDATE outbox SET status = 'PUBLISHED', published_at = clock_timestamp() - interval "
        "'8 days'; DO $$ BEGIN CREATE ROLE prunes_nothing LOGIN PASSWORD 'test'; EXCEPTION WHEN "
        "duplicate_object "
        "THEN END $$");
    const Finished rights =
        outbox_.run({"roles", "--print", "--relay", "prunes_nothing", "--table", "outbox"});
    ASSERT_EQ(rights.status.code, 0) << rights.err;
    exec(rights.out + "REVOKE DELETE ON outbox FROM prunes_nothing");
    std::string from = url();
    from.replace(from.find("postgres@"), 8, "prunes_nothing");
    const std::vector<std::string> words{"--from",  from,     "--to",    mailbox(),
                                         "--table", "outbox", "--owner", "postgres"};
    std::vector<std::string> check{"relay", "--check"};
    check.insert(check.end(), words.begin(), words.end());
    const Finished checked = outbox_.run(check);
    EXPECT_EQ(checked.status.code, 0) << checked.err;
    EXPECT_THAT(checked.out, HasSubstr("GRANT DELETE ON \"public\".\"outbox\""));
    std::vector<std::string> with_admin = words;
    with_admin.insert(with_admin.end(), {"--admin", "off"});
    expect_a_warning_and_delivery(outbox_.start_relay(with_admin), "GRANT DELETE ON");
}

TEST_F(PruningThatFails, ForAnOldRowThatAnotherTableRefersToIsAWarningWithItsRemedy) {
    exec(
        "CREATE TABLE invoices (event uuid REFERENCES outbox); INSERT INTO invoices SELECT id "
        "FROM outbox");
    expect_a_warning_and_delivery(relay("outbox"), "ON DELETE CASCADE");
}

// More rows than are removed at once; of the kept ones some are refused and some are held.
TEST_F(PendingPublishedTable, WhatMayNotBePrunedKeepsNothingElse) {
    exec(
        "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status, "
        "published_at) SELECT gen_random_uuid(), 'Order', 'o-' || n, 'Made', '{}', 'PUBLISHED', "
        "now() - interval '8 days' FROM generate_series(1, 2500) n; CREATE TABLE invoices (event "
        "uuid REFERENCES outbox); INSERT INTO invoices SELECT id FROM outbox WHERE aggregate_id IN "
        "('o-1', 'o-1200', 'o-2500')");
    exec(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
        "CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW WHEN (OLD.aggregate_id IN "
        "('o-7', 'o-8')) EXECUTE FUNCTION keep()");
    EXPECT_EQ(result({"prune", "--table", "outbox"})["removed"], 2495);
    EXPECT_EQ(value("SELECT count(*) FROM outbox"), "5");
}

// Shape 2.
class NewSentTable : public AdoptedPostgres {
  protected:
    void SetUp() override {
        AdoptedPostgres::SetUp();
        exec(kNewSentTable);
    }
    void insert(const std::string& id, const std::string& what = "fine",
                const std::string& status = "NEW", int retries = 0,
                const std::string& retry_after = "NULL") {
        exec(
            "INSERT INTO events_out (id, tenant_id, aggregate_type, aggregate_id, topic, payload, "
            "event_metadata, routing_key, schema_id, schema_version, status, retry_count, "
            "retry_after, event_type) VALUES ('" +
            id + "', 'acme', 'Order', '" + id + "', 'orders', '{\"is\": \"" + what +
            "\"}', '{\"user\": \"u1\"}', 'eu', 's1', '2', '" + status + "', " +
            std::to_string(retries) + ", " + retry_after + ", 'Made')");
    }
    std::string state(const std::string& id) {
        return value(
            "SELECT concat_ws(',', status, retry_count, retry_after > now(), "
            "coalesce(error_message, '-')) FROM events_out WHERE id = '" +
            id + "'");
    }
    testing::AssertionResult is_in(const std::string& id, const std::string& status) {
        return is("SELECT status FROM events_out WHERE id = '" + id + "'", status);
    }
};

TEST_F(NewSentTable, IsRelayedWithWhatAFormerWorkerLeft) {
    insert("new");
    insert("publishing", "fine", "PUBLISHING", 1);
    insert("waited", "fine", "FAILED", 3, "now() - interval '1 minute'");
    insert("dead", "fine", "DEAD", 5);
    insert("sent", "fine", "SENT");
    Process running = relay("events_out");
    ASSERT_TRUE(is("SELECT count(*) FROM events_out WHERE status = 'SENT'", "4"));
    EXPECT_THAT(arrived("id"), ElementsAre("public.events_out:new", "public.events_out:publishing",
                                           "public.events_out:waited"));
    EXPECT_THAT(arrived("topic, key, headers ->> 'tenant_id', headers ->> 'schema_id', "
                        "headers ->> 'schema_version', headers ->> 'event_metadata'")[0],
                "orders new acme s1 2 {\"user\": \"u1\"}");
    EXPECT_EQ(state("new"), "SENT,0,-");
    EXPECT_EQ(state("waited"), "SENT,3,-");
    EXPECT_EQ(state("dead"), "DEAD,5,-");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(NewSentTable, KeepsAFailingRowsColumnsTrueFromTheFirstFailureToTheLast) {
    insert("bad", "poison");
    {
        // So that the first failure can be looked at.
        Process slow = relay("events_out", "600000");
        ASSERT_TRUE(is_in("bad", "FAILED"));
        EXPECT_THAT(state("bad"), testing::MatchesRegex("FAILED,1,t,.{30}"));
        EXPECT_EQ(slow.stop(), (ExitStatus{0, 0}));
    }
    Process running = relay("events_out");
    ASSERT_TRUE(is_in("bad", "DEAD"));
    EXPECT_THAT(state("bad"), testing::MatchesRegex("DEAD,5,.{30}"));
    heal();
    exec("UPDATE events_out SET status = 'NEW', retry_count = 0, error_message = NULL");
    ASSERT_TRUE(is_in("bad", "SENT"));
    EXPECT_EQ(state("bad"), "SENT,0,-");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(NewSentTable, IsServedByTheOwnersIndexInEveryState) {
    EXPECT_THAT(check("events_out"), HasSubstr("the read is served by an index"));
}

// Shape 3.
TEST_F(AdoptedPostgres, ProcessedAtTableIsRelayedAndMarked) {
    exec(kProcessedAtTable);
    for (int n = 1; n <= 3; ++n) {
        exec(
            "INSERT INTO outbox_messages (id, aggregate_type, aggregate_id, event_type, payload) "
            "VALUES ('" +
            adopted_uuid(n) + "', 'Order', 'o-1', 'Made', '{\"n\" :  " + std::to_string(n) +
            (n == 2 ? ", \"is\": \"poison\"" : "") + "}')");
    }
    const std::string unprocessed =
        "SELECT count(*) FROM outbox_messages WHERE processed_at IS NULL";
    {
        Process running = relay("outbox_messages");
        ASSERT_TRUE(is(unprocessed, "0"));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_THAT(arrived("right(id, 1), topic, key, convert_from(payload, 'UTF8')"),
                ElementsAre("1 order-events o-1 {\"n\" :  1}", "3 order-events o-1 {\"n\" :  3}"));
    EXPECT_EQ(result({"dead", "list", "--table", "outbox_messages"})[0]["id"], adopted_uuid(2));
    // A dead row is kept however old it is, a processed one goes. A relay would prune by itself.
    exec("UPDATE outbox_messages SET processed_at = processed_at - interval '30 days'");
    EXPECT_EQ(result({"prune", "--table", "outbox_messages"})["removed"], 2);
    heal();
    exec("UPDATE outbox_messages SET processed_at = NULL");
    Process running = relay("outbox_messages");
    ASSERT_TRUE(is(unprocessed, "0"));
    EXPECT_EQ(arrived("right(id, 1)").back(), "2");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// Shape 4.
TEST_F(AdoptedPostgres, DeleteWhenSentTableIsEmptiedAndItsDeadRowsLiveOn) {
    exec(kDeleteWhenSentTable);
    exec("INSERT INTO outbox (id, event_type, payload) VALUES ('" + adopted_uuid(1) +
         "', 'Made', 'not json'), ('" + adopted_uuid(2) + "', 'Made', 'poison')");
    Process running = relay("outbox");
    ASSERT_TRUE(is("SELECT count(*) FROM outbox", "0"));
    EXPECT_THAT(arrived("right(id, 1), topic, convert_from(payload, 'UTF8'), key"),
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

// Shape 5.
TEST_F(AdoptedPostgres, CamelCaseTableIsRelayedInTheOrderOfItsNumbers) {
    exec(kCamelCaseTable);
    // Their times say the contrary, as those of transactions do that began early and wrote late.
    exec(
        "INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\", \"CreatedAt\") "
        "SELECT 'Made', '{\"n\":' || n || '}', now() - n * interval '1 second' FROM "
        "generate_series(1, 12) n");
    Process running = relay("OutboxMessages", "10", "stdout:");
    ASSERT_TRUE(is("SELECT count(*) FROM \"OutboxMessages\" WHERE \"Processed\"", "12"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    const std::vector<json> lines = lines_of(running.stdout_text());
    ASSERT_EQ(lines.size(), 12U);
    for (int n = 1; n <= 12; ++n) {
        const json& line = lines[static_cast<std::size_t>(n - 1)];
        EXPECT_EQ(line["id"], "public.OutboxMessages:" + std::to_string(n));
        EXPECT_EQ(line["topic"], "OutboxMessages");
        EXPECT_EQ(line["key"], json());
        EXPECT_EQ(line["payload"], json({{"n", n}}));
        EXPECT_EQ(line["headers"]["type"], "Made");
    }
    EXPECT_EQ(result({"status", "--table", "OutboxMessages"})["backlog"], 0);
    EXPECT_THAT(check("OutboxMessages"), HasSubstr("preset camel-case"));
}

TEST_F(AdoptedPostgres, CamelCaseTableMarksItsPoisonRowAndDeliversItWhenSetBack) {
    exec(kCamelCaseTable);
    exec("INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") VALUES ('Made', 'poison')");
    Process running = relay("OutboxMessages");
    ASSERT_TRUE(is("SELECT \"Processed\" FROM \"OutboxMessages\"", "t"));
    EXPECT_EQ(value("SELECT id FROM outbox_dead_letters"), "public.OutboxMessages:1");
    heal();
    exec("UPDATE \"OutboxMessages\" SET \"Processed\" = false");
    ASSERT_TRUE(is("SELECT \"Processed\" FROM \"OutboxMessages\"", "t"));
    EXPECT_THAT(arrived("id"), ElementsAre("public.OutboxMessages:1"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// Shape 6.
TEST_F(AdoptedPostgres, DebeziumTableIsRelayedAndEmptied) {
    exec(kDebeziumTable);
    for (int n = 1; n <= 3; ++n) {
        exec("INSERT INTO shop.outboxevent VALUES ('" + adopted_uuid(n) +
             "', 'Order', 'o-9', 'OrderCreated', '{\"is\": \"" + (n == 2 ? "poison" : "fine") +
             "\"}')");
    }
    Process running = relay("shop.outboxevent");
    ASSERT_TRUE(is("SELECT count(*) FROM shop.outboxevent", "0"));
    EXPECT_THAT(arrived("right(id, 1), topic, key, headers ->> 'type'"),
                ElementsAre("1 order-events o-9 OrderCreated", "3 order-events o-9 OrderCreated"));
    EXPECT_THAT(arrived("(headers ->> 'occurred_at') IS NULL"), ElementsAre("t", "t"))
        << "it has no time";
    EXPECT_EQ(result({"dead", "list", "--table", "shop.outboxevent"})[0]["id"], adopted_uuid(2));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// No known shape: the file says what is what.
TEST_F(AdoptedPostgres, TableOfNoKnownShapeIsMappedByTheFile) {
    exec(
        "CREATE TYPE phase AS ENUM ('todo', 'doing', 'later', 'done', 'broken'); "
        "CREATE TABLE \"Odd Box\" (nr bigserial PRIMARY KEY, \"Kind\" text, body bytea, who text, "
        "phase phase NOT NULL DEFAULT 'todo', tries smallint NOT NULL DEFAULT 0, why varchar(12), "
        "trace text)");
    write_mapping_of_odd_box();
    exec(
        "INSERT INTO \"Odd Box\" (\"Kind\", body, who, phase, trace) VALUES "
        "('A', 'first', 'w', 'todo', 't-1'), ('B', 'second', 'w', 'doing', NULL), "
        "('C', 'poison', 'v', 'todo', NULL)");
    EXPECT_EQ(result({"status"})["backlog"], 3);
    Process running = outbox_.start_relay(
        {"--to", mailbox(), "--admin", "off", "--retry-base-ms", "10", "--retry-max-ms", "50"});
    ASSERT_TRUE(
        is("SELECT string_agg(concat_ws(',', phase, tries, length(why)), ' ' ORDER BY nr) "
           "FROM \"Odd Box\"",
           "done,0 done,0 broken,5,12"));
    EXPECT_THAT(
        arrived("id, topic, key, convert_from(payload, 'UTF8'), headers ->> 'type', "
                "headers ->> 'trace'"),
        ElementsAre("public.Odd Box:1 odd-A w first A t-1", "public.Odd Box:2 odd-B w second B"));
    EXPECT_EQ(result({"dead", "list"})[0]["id"], "public.Odd Box:3");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(AdoptedPostgres, AMappingThatDoesNotFitIsRefusedWithThePlaceToMendIt) {
    exec("CREATE TABLE box (nr bigserial PRIMARY KEY, body text, state text)");
    const auto refused = [&](const std::string& mapping) {
        outbox_.write("outbox.toml", "[source]\nurl = \"" + url() +
                                         "\"\n[source.table]\nname = \"box\"\n" + mapping);
        const Finished ended = outbox_.run({"relay", "--to", mailbox(), "--admin", "off"});
        EXPECT_NE(ended.status.code, 0);
        EXPECT_EQ(ended.out, "");
        return ended.err;
    };
    EXPECT_THAT(refused(""), HasSubstr("[source.table] in outbox.toml"));
    EXPECT_THAT(refused("[source.table.columns]\nid = \"nr\"\npayload = \"bdoy\"\n"),
                HasSubstr("maps payload to column 'bdoy'"));
    EXPECT_THAT(refused("[source.table.columns]\nid = \"nr\"\npayload = \"body\"\n"
                        "status = \"state\"\n"),
                HasSubstr("pending"));
}

}  // namespace
}  // namespace outbox::test
