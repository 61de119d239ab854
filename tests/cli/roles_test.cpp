// Each command as a role that has what `outbox roles` gives and no more; and beside a role that may
// create in the schema and waits for someone with more rights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_fence.h>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Roles : public testing::Test {
  protected:
    Roles() {
        for (const char* role : {"roles_writer", "roles_relay", "roles_consumer", "roles_operator",
                                 "roles_owner", "roles_mallory"}) {
            admin_.exec(std::string("DO $$ BEGIN CREATE ROLE ") + role +
                        " LOGIN PASSWORD 'test'; EXCEPTION WHEN duplicate_object THEN END $$");
        }
        admin_.exec("GRANT CREATE ON SCHEMA public TO roles_owner, roles_mallory");
    }

    std::string as(const std::string& role) const {
        std::string url = url_;
        return url.replace(url.find("postgres@"), 8, "roles_" + role);
    }
    std::string mailbox_as(const std::string& role) const {
        const std::string url = as(role);
        return "mailbox+postgresql" + url.substr(url.find(':'));
    }
    Finished run(std::vector<std::string> words) { return outbox_.run(std::move(words)); }
    void grant(std::vector<std::string> more = {}) {
        std::vector<std::string> words{
            "roles",       "--print",    "--writer",       "roles_writer", "--relay",
            "roles_relay", "--consumer", "roles_consumer", "--operator",   "roles_operator"};
        words.insert(words.end(), more.begin(), more.end());
        const Finished printed = run(words);
        ASSERT_EQ(printed.status.code, 0) << printed.err;
        Pg(as("owner")).exec(printed.out);
    }
    // Runs a command as the operator, who is told whose tables they are.
    void operate(std::vector<std::string> words) {
        words.insert(words.end(), {"--db", as("operator"), "--owner", "roles_owner"});
        const Finished ended = run(words);
        EXPECT_EQ(ended.status.code, 0)
            << words[0] << " " << words[1] << ": " << ended.out << ended.err;
        EXPECT_THAT(ended.err, Not(HasSubstr("permission denied"))) << words[0];
    }
    bool dead_letters_are(long long count) {
        return admin_.number("SELECT count(*) FROM outbox_dead_letters") == count;
    }

    OutboxBinary outbox_;
    std::string url_ = shared_postgres().create_database();
    Pg admin_{url_};
};

class RolesOfALayout : public Roles, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Layouts, RolesOfALayout, testing::Values("delete", "keep"),
                         [](const auto& layout) { return std::string(layout.param); });

TEST_P(RolesOfALayout, EachCommandRunsWithTheRightsThatArePrinted) {
    if (GetParam() == std::string("keep") && !rows_may_stay()) {
        GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
    }
    ASSERT_EQ(run({"migrate", "--db", as("owner"), "--after-publish", GetParam()}).status.code, 0);
    grant();
    Pg writer(as("writer"));
    writer.exec("INSERT INTO outbox_events (topic, payload) VALUES ('orders', '1')");
    writer.exec(
        "SELECT outbox_emit(topic => 'orders', payload => '2', key => 'k', lock_key => true)");
    writer.exec("SELECT outbox_emit(topic => 'orders', payload => '3', available_at => now())");
    writer.exec("SELECT outbox_emit(topic => 'secret', payload => '4', event_type => 'Odd')");
    writer.exec("SELECT outbox_emit(topic => 'secret', payload => '5', event_type => 'Odd')");
    EXPECT_THROW(writer.exec("INSERT INTO outbox_events (position, topic, payload) OVERRIDING "
                             "SYSTEM VALUE VALUES (9999, 'orders', '1')"),
                 std::runtime_error);
    EXPECT_THROW(writer.exec("SELECT * FROM outbox_events"), std::runtime_error);
    EXPECT_THROW(writer.exec("DELETE FROM outbox_events"), std::runtime_error);

    const Finished check =
        run({"relay", "--check", "--from", as("relay"), "--to",
             mailbox_as("relay") + "?owner=roles_owner", "--owner", "roles_owner"});
    EXPECT_EQ(check.status.code, 0) << check.out << check.err;
    Process relay = outbox_.start_relay(
        {"--from", as("relay"), "--to", mailbox_as("relay") + "?owner=roles_owner", "--owner",
         "roles_owner", "--allowed-topic", "orders", "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "all that may go is in the mailbox", [&] {
        return admin_.number("SELECT count(*) FROM outbox_mailbox") == 3 && dead_letters_are(2);
    })) << relay.stderr_text();
    EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_scheduled"), 0);

    operate({"status"});
    operate({"status", "--json"});
    operate({"dead", "list"});
    const std::string id = admin_.value("SELECT min(id) FROM outbox_dead_letters");
    operate({"dead", "show", id});
    operate({"explain", id, "--consumer-db", as("operator")});
    writer.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('orders', '6')");
    const Finished open = run({"explain", "00000000-0000-7000-8000-000000000099", "--db",
                               as("operator"), "--owner", "roles_owner"});
    writer.exec("ROLLBACK");
    EXPECT_EQ(open.status.code, 1) << open.err;
    EXPECT_THAT(open.out, HasSubstr("pg_read_all_stats")) << "of others' sessions";
    operate({"dead", "edit", id, "--key", "other"});
    operate({"dead", "export"});
    operate({"dead", "discard", id});
    operate({"scheduled", "list"});
    operate({"scheduled", "cancel", "--all"});
    EXPECT_THROW(Pg(as("operator")).exec("DELETE FROM outbox_audit"), std::runtime_error);
    operate({"dead", "retry", "--event-type", "Odd", "--dry-run"});
    operate({"dead", "retry", "--event-type", "Odd"});
    EXPECT_TRUE(eventually(60s, "the dead letter was tried again", [&] {
        return admin_.number(
                   "SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at "
                   "IS NULL") == 1;
    })) << relay.stderr_text();
    operate({"prune"});
    operate({"prune", "--dry-run"});
    const std::string journal = outbox_
                                    .write("journal", R"({"id":"1","key":"k","n":1,"applied":true})"
                                                      "\n")
                                    .string();
    operate({"verify", "--produced", journal, "--received", journal});
    const auto replay = [&](const std::string& command, std::vector<std::string> more) {
        more.insert(more.begin(), "replay");
        if (!command.empty()) more.insert(more.begin() + 1, command);
        more.insert(more.end(), {"--from", as("operator"), "--owner", "roles_owner"});
        const Finished ended = run(more);
        EXPECT_EQ(ended.status.code, 0) << command << ended.out << ended.err;
    };
    const std::string to = mailbox_as("relay") + "?owner=roles_owner";
    if (GetParam() == std::string("keep")) {
        ASSERT_TRUE(eventually(60s, "all is settled", [&] {
            return admin_.value(
                       "SELECT min(settled) = (SELECT max(position) FROM outbox_events) "
                       "FROM outbox_routes") == "t";
        }));
        replay("", {"--to", to, "--yes", "--reason", "r", "--consumer-db", as("operator")});
        EXPECT_EQ(admin_.value("SELECT role || ' ' || action FROM outbox_audit ORDER BY audit_id "
                               "DESC LIMIT 1"),
                  "roles_operator replay");
    } else {
        replay("", {"--to", to, "--yes", "--reason", "r", "--dead-letters", "--allowed-topic",
                    "orders", "--allowed-topic", "secret", "--dry-run"});
    }
    replay("list", {});
    operate({"routes", "list"});
    operate({"routes", "accept", "mailbox"});
    operate({"dead", "retry", "--event-type", "Odd", "--to", "mailbox", "--dry-run"});
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
    operate({"dead", "retry", "--event-type", "Odd", "--to", "mailbox"});
    operate({"routes", "rename", "mailbox", "other"});
    operate({"routes", "continue"});
    operate({"routes", "begin"});
    // Where rows stay the only one is not retired.
    if (GetParam() == std::string("delete")) operate({"routes", "retire", "other", "--yes"});
}

TEST_F(Roles, ARowThatSomebodyHoldsIsPassedOverWithTheRightsThatArePrinted) {
    ASSERT_EQ(run({"migrate", "--db", as("owner")}).status.code, 0);
    grant();
    Pg(as("writer"))
        .exec("SELECT outbox_emit('orders', '1', key => 'k' || i) FROM generate_series(1, 9) AS i");
    Pg holder(url_);
    holder.exec("BEGIN; SELECT FROM outbox_events WHERE key = 'k4' FOR UPDATE");
    Process relay = outbox_.start_relay(
        {"--from", as("relay"), "--to", "null:", "--owner", "roles_owner", "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "all others are removed", [&] {
        return admin_.number("SELECT count(*) FROM outbox_events") == 1;
    })) << relay.stderr_text();
    holder.exec("COMMIT");
    EXPECT_TRUE(eventually(60s, "it is removed", [&] {
        return admin_.number("SELECT count(*) FROM outbox_events") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
}

TEST_F(Roles, AConsumerRunsWithTheRightsThatArePrinted) {
    ASSERT_EQ(run({"migrate", "--db", as("owner")}).status.code, 0);
    grant();
    Pg(as("relay"))
        .exec(
            "INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES "
            "('a', 'orders', 'k', '{}', '1'), ('b', 'orders', 'k', '{}', '2')");
    Pg consumer(as("consumer"));
    consumer.exec("SELECT inbox_accept('stock', 'x', clock_timestamp() - interval '3 hours')");
    consumer.exec("SELECT idempotency_claim('me', 'k', 'f'), idempotency_prune()");
    consumer.exec("SELECT idempotency_complete('me', 'k', 1, 200)");
    consumer.exec("SELECT inbox_prune('30 days'), saga_prune('30 days')");
    consumer.exec("BEGIN");
    EXPECT_TRUE(accept_offset(consumer.handle(), "stock", "t", 0, std::nullopt, 1));
    EXPECT_TRUE(accept_offset(consumer.handle(), "stock", "t", 0, 1, 2));
    EXPECT_EQ(next_offset(consumer.handle(), "stock", "t", 0), 2);
    EXPECT_EQ(accept_sequence(consumer.handle(), "stock", "k", 1).what, SequenceResult::What::kNew);
    EXPECT_EQ(accept_sequence(consumer.handle(), "stock", "k", 2).what, SequenceResult::What::kNew);
    consumer.exec("COMMIT");

    MailboxOptions options;
    options.consumer = "stock";
    options.max_attempts = 1;
    options.connect_timeout_s = 60;
    auto member = libpq_mailbox_consumer(
        as("consumer"),
        [](PGconn* connection, const Message& message) {
            if (message.id == "b") throw std::runtime_error("no stock");
            Event event;
            event.topic = "stock";
            event.payload = "{}";
            emit(connection, event);
        },
        options);
    std::thread running([&] { member.run(); });
    const auto done = eventually(60s, "the mailbox is empty", [&] {
        return admin_.number("SELECT count(*) FROM outbox_mailbox") == 0;
    });
    member.stop();
    running.join();
    EXPECT_TRUE(done) << done.message();
    EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_events"), 1);
    operate({"status"});
    operate({"top", "--once"});
    operate({"dead", "list", "--consumer", "stock"});
    operate({"dead", "show", "b", "--consumer", "stock"});
    operate({"dead", "retry", "b", "--consumer", "stock"});
    operate({"dead", "discard", "b", "--consumer", "stock"});
    EXPECT_EQ(admin_.value("SELECT string_agg(concat_ws(' ', role, source, action, detail, events, "
                           "event_ids), '; ' ORDER BY audit_id) FROM outbox_audit"),
              "roles_operator consumer stock dead retry ids 1 1 {b}; "
              "roles_operator consumer stock dead discard ids 1 1 {b}");
    operate({"prune"});
    operate({"saga", "list"});

    // Who wrote asks whether it is applied.
    const std::string token =
        Pg(as("writer"))
            .value("SELECT outbox_fence(outbox_emit(topic => 'orders', payload => '1'))");
    consumer.exec("SELECT inbox_accept('stock', '" + fence_ids(token)[0] + "')");
    EXPECT_EQ(look_for(consumer.handle(), "stock", token).state, Fenced::kApplied);
    EXPECT_EQ(run({"wait", token, "--consumer", "stock", "--consumer-db", as("operator"), "--owner",
                   "roles_owner"})
                  .status.code,
              0);
}

TEST_F(Roles, WhoHasTheRightsOfOneSideIsShownAndPrunesThatOne) {
    ASSERT_EQ(run({"migrate", "--db", as("owner")}).status.code, 0);
    Pg(as("owner"))
        .exec(
            "INSERT INTO outbox_inbox_floor (consumer) VALUES ('stock');"
            "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES "
            "('stock', 'old', '2024-01-01')");
    const auto by = [&](std::vector<std::string> words) {
        words.insert(words.end(), {"--db", as("operator"), "--owner", "roles_owner"});
        return run(words);
    };
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"status"},
          {"webhook", "list"},
          {"dead", "list"},
          {"explain", "00000000-0000-7000-8000-000000000001"},
          {"top", "--once"}}) {
        const Finished refused = by(words);
        EXPECT_EQ(refused.status.code, 4) << words[0];
        EXPECT_THAT(refused.err, HasSubstr("outbox roles --print --operator")) << words[0];
        EXPECT_THAT(refused.err, Not(HasSubstr("a consumer needs"))) << words[0];
    }
    grant({"--only", "consumer"});
    Finished ended = by({"status"});
    EXPECT_EQ(ended.status.code, 0) << ended.err;
    EXPECT_THAT(ended.out, AllOf(HasSubstr("stock"), HasSubstr("not shown: "),
                                 Not(HasSubstr("backlog")), Not(HasSubstr("side only"))));
    EXPECT_EQ(by({"status", "--table", "outbox_events"}).status.code, 4);
    ended = by({"prune"});
    EXPECT_EQ(ended.status.code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("removed 1 ids"));
    EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_inbox"), 0);
    admin_.exec(
        "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM roles_operator;"
        "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM roles_operator");
    grant({"--only", "producer"});
    ended = by({"status"});
    EXPECT_EQ(ended.status.code, 0) << ended.err;
    EXPECT_THAT(ended.out,
                AllOf(HasSubstr("backlog"), HasSubstr("not shown: "), Not(HasSubstr("stock"))));
    ended = by({"prune"});
    EXPECT_EQ(ended.status.code, 0) << ended.err;
    EXPECT_THAT(ended.out, AllOf(HasSubstr("published rows"), Not(HasSubstr("ids older"))));
    EXPECT_THAT(ended.err, HasSubstr("inbox"));
    // What was forgotten is said by the exit code, too.
    admin_.exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO roles_operator");
    EXPECT_EQ(by({"prune"}).status.code, 4);
}

TEST_F(Roles, AMailboxIsTakenBySqlWithTheRightsThatArePrinted) {
    ASSERT_EQ(run({"migrate", "--only", "consumer", "--db", as("owner")}).status.code, 0);
    grant({"--only", "consumer"});
    const std::string old = "018f2d3c-0000-7000-8000-000000000001";  // of 2024
    Pg(as("relay"))
        .exec(
            "INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES "
            "('repeat', 'orders', 'r', '{}', '1'), ('good', 'orders', 'k', '{}', '2'), ('" +
            old + "', 'orders', 'o', '{}', '3'), ('bad', 'orders', 'b', '{}', '4')");
    admin_.exec("INSERT INTO outbox_inbox_floor (consumer, floor) VALUES ('stock', now())");
    // Figures of a session that is gone.
    admin_.exec(
        "INSERT INTO outbox_inbox_stats (consumer, member, applied, repeats, failed, dead, "
        "updated_at) VALUES ('stock', 'sql/0', 1, 0, 0, 0, '2024-01-01')");
    Pg consumer(as("consumer"));
    consumer.exec("SELECT inbox_accept('stock', 'repeat')");
    const std::string take = "SELECT string_agg(id, ' ') FROM outbox_mailbox_take('stock')";
    const auto done = [](const std::string& id) {
        return "SELECT outbox_mailbox_done('stock', 'default', position) FROM outbox_mailbox "
               "WHERE id = '" +
               id + "'";
    };
    consumer.exec("BEGIN");
    EXPECT_EQ(consumer.value(take), "good bad");
    consumer.exec(done("good") + "; COMMIT");
    consumer.exec(
        "SELECT outbox_mailbox_failed('stock', 'default', position, 'no stock', 1) "
        "FROM outbox_mailbox WHERE id = 'bad'");
    operate({"dead", "retry", "--all", "--consumer", "stock"});
    consumer.exec("BEGIN");
    EXPECT_EQ(consumer.value(take), old + " bad");
    const auto of_letter = [](const std::string& call, const std::string& id) {
        return "SELECT outbox_mailbox_" + call +
               " FROM outbox_inbox_dead_letters WHERE "
               "message_id = '" +
               id + "'";
    };
    consumer.exec(of_letter("done('stock', 'default', -letter)", "bad") + "; COMMIT");
    consumer.exec(of_letter("failed('stock', 'default', -letter, 'no')", old));
    EXPECT_EQ(admin_.value("SELECT concat_ws(' ', sum(applied), sum(repeats), sum(failed), "
                           "sum(dead)) FROM outbox_inbox_stats"),
              "3 1 2 3");
    operate({"dead", "discard", "--all", "--consumer", "stock"});
    EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_audit"), 2);
}

TEST_F(Roles, WhoLeadsSagasAndWhoMendsThemHaveTheRightsThatArePrinted) {
    ASSERT_EQ(run({"migrate", "--db", as("owner")}).status.code, 0);
    grant();
    Pg(as("consumer"))
        .exec(
            "INSERT INTO outbox_saga (saga_id, name, version, state, steps, data, topic, leader, "
            "timer) VALUES ('s1', 'order', 1, 'running', '[]', '{}', 'sagas', 'sagas', 0)");
    Pg(as("consumer")).exec("UPDATE outbox_saga SET timer = 1; DELETE FROM outbox_saga_steps");
    // A trigger of the owner, which relies on the search path of whoever updates.
    Pg(as("owner"))
        .exec(
            "CREATE TABLE noted (id text); GRANT INSERT ON noted TO roles_operator;"
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO noted VALUES (NEW.saga_id); RETURN NEW; END $$;"
            "CREATE TRIGGER note AFTER UPDATE ON outbox_saga FOR EACH ROW EXECUTE FUNCTION "
            "note()");
    operate({"saga", "list"});
    operate({"saga", "show", "s1"});
    operate({"saga", "resume", "s1", "--dry-run"});
    operate({"saga", "resume", "s1"});
    EXPECT_EQ(admin_.value("SELECT requested FROM outbox_saga"), "resume");
    EXPECT_EQ(admin_.value("SELECT id FROM noted"), "s1");
}

TEST_F(Roles, AnAdoptedTableIsRelayedWithTheRightsThatArePrinted) {
    Pg owner(as("owner"));
    owner.exec(
        "CREATE TABLE old_outbox (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, "
        "event_type text, payload jsonb, created_at timestamptz DEFAULT now(), published_at "
        "timestamptz, retry_count int DEFAULT 0, status text DEFAULT 'PENDING');"
        "CREATE TABLE audit (id uuid)");
    // A trigger of the owner, which relies on the search path of whoever updates.
    owner.exec(
        "GRANT INSERT ON audit TO roles_relay;"
        "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO audit VALUES (NEW.id); RETURN NEW; END $$;"
        "CREATE TRIGGER audit AFTER UPDATE ON old_outbox FOR EACH ROW EXECUTE FUNCTION audit()");
    const Finished sql = run({"migrate", "--db", as("owner"), "--only", "consumer"});
    ASSERT_EQ(sql.status.code, 0) << sql.err;
    {
        Process maker = outbox_.start_relay(
            {"--from", as("owner"), "--to", "null:", "--table", "old_outbox", "--admin", "off"});
        ASSERT_TRUE(eventually(60s, "the side tables are there", [&] {
            return !admin_.value("SELECT to_regclass('outbox_route_stats')").empty();
        })) << maker.stderr_text();
        EXPECT_EQ(maker.stop().code, 0) << maker.stderr_text();
    }
    grant({"--table", "old_outbox"});
    Pg(as("writer"))
        .exec(
            "INSERT INTO old_outbox (id, aggregate_type, event_type, payload) "
            "VALUES (gen_random_uuid(), 'Order', 'Made', '1')");
    Process relay = outbox_.start_relay({"--from", as("relay"), "--to", "null:", "--table",
                                         "old_outbox", "--owner", "roles_owner", "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "the row is marked", [&] {
        return admin_.number("SELECT count(*) FROM old_outbox WHERE status = 'PUBLISHED'") == 1;
    })) << relay.stderr_text();
    EXPECT_EQ(admin_.number("SELECT count(*) FROM audit"), 1);
    EXPECT_EQ(relay.stop().code, 0);
    operate({"status", "--table", "old_outbox"});
    const auto replay = [&] {
        return run({"replay", "--from", as("operator"), "--owner", "roles_owner", "--table",
                    "old_outbox", "--to", "null:", "--yes", "--reason", "r"});
    };
    // Who owns the schema makes its table, from what is printed.
    const Finished refused = replay();
    EXPECT_EQ(refused.status.code, 4) << refused.err;
    constexpr std::string_view kRun = "have an owner run:\n";
    ASSERT_NE(refused.err.find(kRun), std::string::npos) << refused.err;
    owner.exec(refused.err.substr(refused.err.find(kRun) + kRun.size()));
    grant({"--table", "old_outbox"});
    const Finished replayed = replay();
    EXPECT_EQ(replayed.status.code, 0) << replayed.err;
    operate({"prune", "--table", "old_outbox", "--retention", "1s"});
}

// In a schema of its own, in a database that nobody migrated.
TEST_F(Roles, AnAdoptedTableInAnotherSchemaIsRelayedWithTheRightsThatArePrinted) {
    admin_.exec("CREATE SCHEMA app AUTHORIZATION roles_owner");
    Pg(as("owner"))
        .exec(
            "CREATE SEQUENCE app.numbers; "
            "CREATE TABLE app.outbox (id bigserial PRIMARY KEY, event_type text, payload text, "
            "created_at timestamptz DEFAULT now(), published_at timestamptz, retry_count int "
            "DEFAULT 0, status text DEFAULT 'PENDING', number bigint DEFAULT "
            "nextval('app.numbers'))");
    {
        Process maker = outbox_.start_relay({"--from", as("owner"), "--to", "null:", "--table",
                                             "app.outbox", "--schema", "public", "--admin", "off"});
        ASSERT_TRUE(eventually(60s, "the side tables are there", [&] {
            return !admin_.value("SELECT to_regclass('public.outbox_route_stats')").empty();
        })) << maker.stderr_text();
        EXPECT_EQ(maker.stop().code, 0) << maker.stderr_text();
    }
    grant({"--table", "app.outbox", "--only", "producer"});
    Pg(as("writer")).exec("INSERT INTO app.outbox (event_type, payload) VALUES ('Made', '1')");
    Process relay =
        outbox_.start_relay({"--from", as("relay"), "--to", "null:", "--table", "app.outbox",
                             "--schema", "public", "--owner", "roles_owner", "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "the row is marked", [&] {
        return admin_.number("SELECT count(*) FROM app.outbox WHERE status = 'PUBLISHED'") == 1;
    })) << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
}

// What mallory made stands where ours belongs; the relay is a superuser.
class BesideMallory : public Roles {
  protected:
    BesideMallory() {
        admin_.exec("CREATE TABLE caught (who text); GRANT INSERT ON caught TO PUBLIC");
        Pg(as("mallory"))
            .exec(
                "CREATE FUNCTION caught() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "INSERT INTO public.caught VALUES (current_user); RETURN NEW; END $$");
    }
    void trap(const std::string& table) {
        Pg(as("mallory"))
            .exec(table + "; CREATE TRIGGER t BEFORE INSERT ON " +
                  table.substr(13, table.find(' ', 13) - 13) +
                  " FOR EACH ROW EXECUTE FUNCTION caught()");
    }
};

TEST_F(BesideMallory, ASideTableOfAnotherRoleIsRefusedWithItsOwner) {
    admin_.exec(
        "CREATE TABLE app_outbox (id bigint PRIMARY KEY, event_type text, payload text, "
        "created_at timestamptz)");
    trap(
        "CREATE TABLE outbox_lease (source text PRIMARY KEY, owner text, epoch bigint NOT NULL "
        "DEFAULT 0, acquired_at timestamptz, expires_at timestamptz, backend_pid integer, "
        "backend_start timestamptz)");
    const std::vector<std::vector<std::string>> commands{
        {"relay", "--from", url_, "--to", "null:", "--table", "app_outbox"},
        {"relay", "--check", "--from", url_, "--to", "null:", "--table", "app_outbox"},
        {"status", "--db", url_, "--table", "app_outbox"},
        {"dead", "list", "--db", url_, "--table", "app_outbox"},
        {"prune", "--db", url_, "--table", "app_outbox"}};
    for (const auto& command : commands) {
        const Finished ended = run(command);
        EXPECT_NE(ended.status.code, 0) << command[0];
        EXPECT_THAT(ended.err + ended.out,
                    AllOf(HasSubstr("table outbox_lease belongs to role roles_mallory"),
                          HasSubstr("--owner ROLE")))
            << command[0];
    }
    EXPECT_EQ(admin_.number("SELECT count(*) FROM caught"), 0);
}

TEST_F(BesideMallory, TheOwnerOfTheDatabaseIsTrustedButNotByASuperuser) {
    const std::string name = url_.substr(url_.rfind('/') + 1);
    admin_.exec("ALTER DATABASE " + name + " OWNER TO roles_owner");
    ASSERT_EQ(run({"migrate", "--db", as("owner")}).status.code, 0);
    grant();
    EXPECT_EQ(run({"status", "--db", as("operator")}).status.code, 0);
    const Finished refused = run({"status", "--db", url_});
    EXPECT_NE(refused.status.code, 0);
    EXPECT_THAT(refused.err, HasSubstr("belongs to role roles_owner"));
    EXPECT_EQ(run({"status", "--db", url_, "--owner", "roles_owner"}).status.code, 0);
}

TEST_F(BesideMallory, AMailboxOfAnotherRoleIsRefusedWithItsOwner) {
    ASSERT_EQ(run({"migrate", "--db", url_, "--only", "producer"}).status.code, 0);
    trap(
        "CREATE TABLE outbox_mailbox (position bigint GENERATED ALWAYS AS IDENTITY, mailbox text, "
        "id text, topic text, key text, headers json, payload bytea, UNIQUE (mailbox, id))");
    admin_.exec("SELECT outbox_emit('orders', '1')");
    const std::string mailbox = "mailbox+postgresql" + url_.substr(url_.find(':'));
    const Finished check = run({"relay", "--check", "--from", url_, "--to", mailbox});
    EXPECT_THAT(check.out, AllOf(HasSubstr("table outbox_mailbox belongs to role roles_mallory"),
                                 HasSubstr("?owner=ROLE")));
    EXPECT_EQ(admin_.number("SELECT count(*) FROM caught"), 0);
}

TEST_F(BesideMallory, TablesOfAConsumerOfAnotherRoleAreRefusedWithTheirOwner) {
    ASSERT_EQ(run({"migrate", "--only", "consumer", "--db", as("mallory")}).status.code, 0);
    Pg(as("mallory"))
        .exec(
            "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, headers, "
            "payload, attempts, error_code, error) VALUES ('c', 'a', 't', '{}', '', 1, 'E', 'e');"
            "CREATE TRIGGER t BEFORE UPDATE OR DELETE ON outbox_inbox_dead_letters FOR EACH ROW "
            "EXECUTE FUNCTION caught();"
            "CREATE FUNCTION spy(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO "
            "public.caught VALUES (current_user); RETURN $1; END $$;"
            "CREATE OR REPLACE FUNCTION inbox_prune(retention interval, max_rows integer DEFAULT "
            "10000, consumer text DEFAULT NULL) RETURNS bigint LANGUAGE sql AS "
            "$$ SELECT public.spy('')::bigint $$;"
            "ALTER TABLE outbox_saga RENAME TO sagas; CREATE VIEW outbox_saga AS SELECT saga_id, "
            "spy(name) AS name, version, state, steps, data, topic, timer, cause, trouble, "
            "requested, due_at, started_at, updated_at, finished_at FROM sagas;"
            "INSERT INTO sagas (saga_id, name, version, state, steps, data, topic, leader, timer) "
            "VALUES ('s1', 'order', 1, 'running', '[]', '{}', 'sagas', 'sagas', 0)");
    const std::string journal = outbox_
                                    .write("journal", R"({"id":"1","key":"k","n":1,"applied":true})"
                                                      "\n")
                                    .string();
    const std::vector<std::vector<std::string>> commands{
        {"status"},
        {"prune"},
        {"prune", "--dry-run"},
        {"dead", "list", "--consumer", "c"},
        {"dead", "retry", "a", "--consumer", "c"},
        {"dead", "discard", "a", "--consumer", "c"},
        {"saga", "list"},
        {"saga", "show", "s1"},
        {"saga", "resume", "s1"},
        {"verify", "--produced", journal, "--effect-query", "SELECT '1'", "--effect-db"}};
    for (std::vector<std::string> command : commands) {
        const std::string name = testing::PrintToString(command);
        if (command[0] != "verify") command.emplace_back("--db");
        command.push_back(url_);
        const Finished ended = run(command);
        EXPECT_EQ(ended.status.code, 4) << name << ended.out << ended.err;
        EXPECT_THAT(ended.err,
                    AllOf(HasSubstr("belongs to role roles_mallory"), HasSubstr("--owner ROLE")))
            << name;
        EXPECT_EQ(admin_.number("SELECT count(*) FROM caught"), 0) << name;
    }
    // Who is named may own them; who they belong to uses its own.
    EXPECT_EQ(run({"saga", "list", "--db", url_, "--owner", "roles_mallory"}).status.code, 0);
    EXPECT_GT(admin_.number("SELECT count(*) FROM caught"), 0);
    EXPECT_EQ(run({"dead", "list", "--consumer", "c", "--db", as("mallory")}).status.code, 0);
}

TEST_F(BesideMallory, FunctionsOfTheSchemaAreNotTakenForTheServersOwnInAConsumersDatabase) {
    ASSERT_EQ(run({"migrate", "--db", url_}).status.code, 0);
    admin_.exec(
        "INSERT INTO outbox_inbox_stats (consumer, member, applied, repeats, failed, dead, "
        "updated_at) VALUES ('c', 'm', 1, 0, 0, 0, now());"
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, headers, "
        "payload, attempts, error_code, error) VALUES ('c', 'a', 't', '{}', '', 1, 'E', 'e')");
    Pg(as("mallory"))
        .exec(
            "CREATE FUNCTION spy() RETURNS void LANGUAGE sql AS $$ INSERT INTO public.caught "
            "SELECT current_user WHERE current_user <> 'roles_mallory' $$;"
            "CREATE FUNCTION times(numeric, integer) RETURNS numeric LANGUAGE sql AS "
            "$$ SELECT spy(); SELECT $1 $$;"
            "CREATE OPERATOR * (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = times)");
    const std::vector<std::vector<std::string>> commands{
        {"status"},
        {"prune"},
        {"dead", "list", "--consumer", "c"},
        {"dead", "retry", "--all", "--consumer", "c"},
        {"saga", "list"}};
    for (std::vector<std::string> command : commands) {
        const std::string name = testing::PrintToString(command);
        command.insert(command.end(), {"--db", url_});
        const Finished ended = run(command);
        EXPECT_EQ(ended.status.code, 0) << name << ended.err;
        EXPECT_EQ(admin_.number("SELECT count(*) FROM caught"), 0) << name;
    }
}

TEST_F(BesideMallory, FunctionsOfTheSchemaAreNotTakenForTheServersOwn) {
    ASSERT_EQ(run({"migrate", "--db", url_}).status.code, 0);
    Pg(as("mallory"))
        .exec(
            "CREATE FUNCTION spy() RETURNS void LANGUAGE sql AS $$ INSERT INTO public.caught "
            "SELECT current_user WHERE current_user <> 'roles_mallory' $$;"
            "CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint LANGUAGE sql AS "
            "$$ SELECT spy(); SELECT 1::bigint $$;"
            "CREATE FUNCTION unnest(text[]) RETURNS SETOF text LANGUAGE sql AS "
            "$$ SELECT spy(); SELECT NULL::text WHERE false $$;"
            "CREATE FUNCTION left(text, bigint) RETURNS text LANGUAGE sql AS "
            "$$ SELECT spy(); SELECT $1 $$;"
            "CREATE FUNCTION quote_ident(name) RETURNS text LANGUAGE sql AS "
            "$$ SELECT spy(); SELECT $1::text $$;"
            "CREATE FUNCTION catname(name, text) RETURNS text LANGUAGE sql AS "
            "$$ SELECT spy(); SELECT $1::text $$;"
            "CREATE OPERATOR || (LEFTARG = name, RIGHTARG = text, FUNCTION = catname)");
    admin_.exec("SELECT outbox_emit('orders', to_jsonb(n)) FROM generate_series(1, 10) n");
    const std::string mailbox = "mailbox+postgresql" + url_.substr(url_.find(':'));
    Process relay = outbox_.start_relay({"--from", url_, "--to", mailbox, "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "all is delivered", [&] {
        return admin_.number("SELECT count(*) FROM outbox_mailbox") == 10;
    })) << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(run({"status", "--db", url_}).status.code, 0);
    EXPECT_EQ(admin_.number("SELECT count(*) FROM caught"), 0);
}

}  // namespace
}  // namespace outbox::test
