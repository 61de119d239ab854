// What runs with what `outbox roles` gives and no more; and beside a role that may create in the
// schema and waits for someone with more rights. Each command: roles_of_commands_test.cpp.
#include "tests/cli/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_fence.h>

#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST_F(Roles, AnOperatorIsToldOfNumbersThatWereSetBackWithTheRightsThatArePrinted) {
    ASSERT_EQ(run({"migrate", "--db", as("owner")}).status.code, 0);
    grant();
    admin_.exec(
        "INSERT INTO outbox_routes (source, route) VALUES (outbox_source(), 'a'); INSERT INTO "
        "outbox_ledger (source, route, segment, done) VALUES (outbox_source(), 'a', 0, "
        "set_bit(B'0'::bit(65536), 9, 1))");
    const Finished told =
        run({"status", "--json", "--db", as("operator"), "--owner", "roles_owner"});
    EXPECT_THAT(told.out, HasSubstr("not the one that the ledgers of its routes were kept for"))
        << told.err;
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
            "('stock', 'old', '2024-01-01'), ('stock', 'young', now())");
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
    EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_inbox"), 1);
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
