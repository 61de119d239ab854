// Each command of the program as a role that has what `outbox roles` gives it and no more.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/roles.h"
#include "tests/support/eventually.h"
#include "tests/support/http_client.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

constexpr const char* kToken = "a token that nobody guesses";
constexpr const char* kEndpoint = "shop-7";

// Those that ask no database, and the one that makes the tables.
const std::set<std::string> kOfNoRole{"migrate", "roles", "sinks", "import debezium", "version"};

class RolesOfCommands : public Roles {
  protected:
    std::string mailbox() const { return mailbox_as("relay") + "?owner=roles_owner"; }

    // Runs it as a role, whose URL is among the words, and notes the command.
    Finished by_role(Words words, int code = 0) {
        note(words);
        words.insert(words.end(), {"--owner", "roles_owner"});
        Finished ended = run(words);
        EXPECT_EQ(ended.status.code, code)
            << testing::PrintToString(words) << ended.out << ended.err;
        EXPECT_THAT(ended.err, Not(HasSubstr("permission denied"))) << words[0];
        return ended;
    }
    Finished operate(Words words, int code = 0) {
        words.insert(words.end(), {"--db", as("operator")});
        return by_role(std::move(words), code);
    }
    void note(const Words& words) {
        const std::string two = words[0] + (words.size() > 1 ? " " + words[1] : "");
        ran_.insert(commands_.contains(two) ? two : words[0]);
    }
    // As --help lists them.
    std::set<std::string> commands() {
        std::istringstream lines(run({"--help"}).out);
        std::set<std::string> names;
        bool listed = false;
        for (std::string line; std::getline(lines, line) && !(listed && line.empty());) {
            if (listed) names.insert(line.substr(2, line.find("  ", 2) - 2));
            listed = listed || line == "Commands:";
        }
        return names;
    }
    std::string token_file() {
        const auto path = outbox_.write("token", std::string(kToken) + "\n");
        std::filesystem::permissions(path, std::filesystem::perms::owner_read);
        return path.string();
    }
    static HttpAnswer retry_by_page(int port, const std::string& id) {
        const json body{{"actor", "Ann"},
                        {"reason", "mended"},
                        {"ids", {id}},
                        {"expected", 1},
                        {"up_to", 1'000'000}};
        return http(port, "POST", "/api/letters/retry", body.dump(),
                    "Content-Type: application/json\r\nAuthorization: Bearer " +
                        std::string(kToken) + "\r\n");
    }
    std::string last_audit() {
        return admin_.value(
            "SELECT role || ' ' || os_user || ' ' || action FROM outbox_audit ORDER BY audit_id "
            "DESC LIMIT 1");
    }

    const std::set<std::string> commands_ = commands();
    std::set<std::string> ran_;
};

class RolesOfALayout : public RolesOfCommands, public testing::WithParamInterface<const char*> {
  protected:
    bool keeps() const { return GetParam() == std::string("keep"); }

    void write_events() {
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
    }
    // A consumer has applied one, and leads two sagas.
    void consume() {
        Pg consumer(as("consumer"));
        consumer.exec("SELECT inbox_accept('stock', '" + id_ + "')");
        consumer.exec(
            "INSERT INTO outbox_saga (saga_id, name, version, state, steps, data, topic, leader, "
            "timer, step) SELECT s, 'order', 1, 'running', "
            "'[{\"step\":\"reserve\",\"state\":\"sent\",\"attempts\":1,\"late\":0,\"can_undo\":"
            "true}]', "
            "'{}', 'sagas', 'sagas', 0, 'reserve' FROM unnest('{s1,s2}'::text[]) s");
    }

    void look_before_a_deploy() {
        const Finished check =
            by_role({"relay", "--check", "--from", as("relay"), "--to", mailbox()});
        EXPECT_THAT(check.out, HasSubstr("has all it needs"));
        const Finished seen = by_role(
            {"doctor", "--from", as("relay"), "--to", mailbox(), "--consumer-db", as("operator")});
        EXPECT_THAT(seen.out, HasSubstr("0 problems, 0 warnings"));
    }
    void look_at_letters(Process& relay) {
        operate({"dead", "list"});
        const std::string id = admin_.value("SELECT min(id) FROM outbox_dead_letters");
        operate({"dead", "show", id});
        operate({"explain", id, "--consumer-db", as("operator")});
        Pg writer(as("writer"));
        writer.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('orders', '6')");
        const Finished open = operate({"explain", "00000000-0000-7000-8000-000000000099"}, 1);
        writer.exec("ROLLBACK");
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
    }
    void look_at_tenants() {
        operate({"tenant", "pause", "acme", "--reason", "moves"});
        EXPECT_THAT(operate({"tenant", "list"}).out, HasSubstr("acme"));
        operate({"tenant", "resume", "acme", "--reason", "moved"});
        operate({"tenant", "drain", "globex", "--reason", "moves"});
        operate({"tenant", "resume", "globex", "--reason", "moved"});
        EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_paused_tenants"), 0);
    }
    void look_at_consumers() {
        const std::string token =
            Pg(as("writer")).value("SELECT outbox_fence('" + id_ + "'::uuid)");
        by_role({"wait", token, "--consumer", "stock", "--consumer-db", as("operator")});
        operate({"saga", "list"});
        operate({"saga", "show", "s1"});
        operate({"saga", "resume", "s1", "--dry-run"});
        operate({"saga", "resume", "s1"});
        operate({"saga", "abort", "s2", "--dry-run"});
        operate({"saga", "abort", "s2"});
        EXPECT_EQ(admin_.value("SELECT string_agg(requested, ' ' ORDER BY saga_id) FROM "
                               "outbox_saga"),
                  "resume abort");
        const std::string journal =
            outbox_
                .write("journal", R"({"id":"1","key":"k","n":1,"applied":true})"
                                  "\n")
                .string();
        operate({"verify", "--produced", journal, "--received", journal, "--effect-query",
                 "SELECT '1'", "--effect-db", as("operator")});
    }
    void look_at_webhooks() {
        const auto path =
            outbox_.write("webhook.key", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n");
        std::filesystem::permissions(path, std::filesystem::perms::owner_read);
        const Words keyed{"--key-file", path.string()};
        const auto with = [](Words words, const Words& more) {
            words.insert(words.end(), more.begin(), more.end());
            return words;
        };
        const Words here{"--allow", "127.0.0.1", "--allow-http"};
        const std::string nobody = "http://127.0.0.1:" + std::to_string(free_port()) + "/hook";
        operate(with(with({"webhook", "add", nobody, "--id", kEndpoint}, keyed), here));
        EXPECT_THAT(operate({"webhook", "list"}).out, HasSubstr(kEndpoint));
        operate({"status"});
        operate(with({"webhook", "rotate", kEndpoint}, keyed));
        const Finished tried = operate(with(with({"webhook", "test", kEndpoint}, keyed), here), 1);
        EXPECT_THAT(tried.out, HasSubstr("127.0.0.1")) << "the receiver is what is missing";
        operate({"webhook", "disable", kEndpoint});
        operate({"webhook", "enable", kEndpoint});
        operate({"webhook", "delete", kEndpoint});
    }
    // Every view, and a change.
    void look_at_the_page() {
        Words words{"dashboard",    "--from",
                    as("operator"), "--owner",
                    "roles_owner",  "--listen",
                    "127.0.0.1:0",  "--consumer-db",
                    as("operator"), "--connect-timeout-s",
                    "60",           "--admin-token-file",
                    token_file()};
        note(words);
        words.insert(words.begin(), OUTBOX_BINARY);
        Process page({.command = words, .working_folder = outbox_.file("")});
        int port = 0;
        ASSERT_TRUE(eventually(60s, "it listens", [&] {
            const std::string said = page.stdout_text();
            if (said.find("/\n") == std::string::npos) return !page.running();
            port = std::stoi(said.substr(said.find("1:") + 2));
            return true;
        })) << page.stderr_text();
        ASSERT_GT(port, 0) << page.stderr_text();
        const std::string id = admin_.value("SELECT min(id) FROM outbox_dead_letters");
        const std::string dead_id =
            admin_.value("SELECT dead_id FROM outbox_dead_letters WHERE id = '" + id + "'");
        for (const std::string& view :
             {std::string("overview"), std::string("held"), std::string("letters"),
              std::string("letters/count"), "letter?dead_id=" + dead_id + "&id=" + id,
              "explain?id=" + id, std::string("explain?key=k"), std::string("sagas"),
              std::string("saga?id=s1"), std::string("consumers"), std::string("replays"),
              std::string("tenants"), std::string("audit")}) {
            const HttpAnswer answer = http(port, "GET", "/api/" + view);
            EXPECT_EQ(answer.status, 200) << view << ": " << answer.body;
            EXPECT_THAT(answer.body, Not(HasSubstr("OB_NO_RIGHTS"))) << view;
        }
        const HttpAnswer retried = retry_by_page(port, id);
        EXPECT_EQ(retried.status, 200) << retried.body;
        EXPECT_EQ(last_audit(), "roles_operator Ann (dashboard) dead retry");
        EXPECT_EQ(page.stop(), (ExitStatus{0, 0})) << page.stderr_text();
    }
    // A run of letters that is stopped, gone on with and cancelled.
    void replay_letters() {
        admin_.exec(
            "INSERT INTO outbox_dead_letters (source, route, position, id, key, event_type, topic, "
            "payload, attempts, error_code, error) SELECT source, 'mailbox', 1000 + i, "
            "gen_random_uuid()::text, 'k', 'Slow', 'orders', '1', 5, 'OB_RECORD_REFUSED', 'no' "
            "FROM generate_series(1, 100) i, (SELECT min(source) AS source FROM outbox_routes) r");
        const Words from{"--from", as("operator"), "--owner", "roles_owner"};
        const auto start = [&](Words words) {
            note(words);
            words.insert(words.begin(), OUTBOX_BINARY);
            words.insert(words.end(), from.begin(), from.end());
            return Process({.command = words, .working_folder = outbox_.file("")});
        };
        const auto sent = [&] {
            return admin_.value(
                "SELECT coalesce(max(sent), 0) FROM outbox_replays WHERE state = "
                "'running'");
        };
        Process first = start({"replay", "--to", mailbox(), "--dead-letters", "--event-type",
                               "Slow", "--rate", "1/s", "--yes", "--reason", "r"});
        ASSERT_TRUE(eventually(60s, "some are sent", [&] { return sent() != "0"; }))
            << first.stderr_text();
        EXPECT_EQ(first.stop().code, 1) << first.stderr_text();
        const std::string until = sent();
        const std::string run = admin_.value(
            "SELECT run FROM outbox_replays WHERE state = "
            "'running'");
        Process second = start({"replay", "resume", run, "--to", mailbox()});
        EXPECT_TRUE(eventually(60s, "it goes on", [&] { return sent() != until; }))
            << second.stderr_text();
        EXPECT_THAT(by_role({"replay", "list", "--from", as("operator")}).out, HasSubstr(run));
        by_role({"replay", "cancel", run, "--from", as("operator"), "--reason", "enough"});
        const auto ended = second.wait(60s);
        ASSERT_TRUE(ended.has_value());
        EXPECT_EQ(ended->code, 1);
        EXPECT_THAT(first.stderr_text() + second.stderr_text(),
                    Not(HasSubstr("permission denied")));
        EXPECT_EQ(admin_.value("SELECT state FROM outbox_replays WHERE run = '" + run + "'"),
                  "cancelled");
        admin_.exec("DELETE FROM outbox_dead_letters WHERE event_type = 'Slow'");
    }
    void replay_history() {
        const Words replay{"replay",  "--from", as("operator"), "--to",
                           mailbox(), "--yes",  "--reason",     "r"};
        const auto with = [&](Words more) {
            more.insert(more.begin(), replay.begin(), replay.end());
            return by_role(more);
        };
        if (!keeps()) {
            with({"--dead-letters", "--allowed-topic", "orders", "--allowed-topic", "secret",
                  "--dry-run"});
            return;
        }
        ASSERT_TRUE(eventually(60s, "all is settled", [&] {
            return admin_.value(
                       "SELECT min(settled) = (SELECT max(position) FROM outbox_events) "
                       "FROM outbox_routes") == "t";
        }));
        with({"--consumer-db", as("operator")});
        EXPECT_EQ(admin_.value("SELECT role || ' ' || action FROM outbox_audit ORDER BY audit_id "
                               "DESC LIMIT 1"),
                  "roles_operator replay");
    }

    const std::string id_ = "018f2d3c-0000-7000-8000-000000000001";
};

INSTANTIATE_TEST_SUITE_P(Layouts, RolesOfALayout, testing::Values("delete", "keep"),
                         [](const auto& layout) { return std::string(layout.param); });

TEST_P(RolesOfALayout, EachCommandRunsWithTheRightsThatArePrinted) {
    if (keeps() && !rows_may_stay()) GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
    ASSERT_EQ(run({"migrate", "--db", as("owner"), "--after-publish", GetParam()}).status.code, 0);
    grant();
    write_events();
    consume();
    look_before_a_deploy();
    note({"relay"});
    Process relay =
        outbox_.start_relay({"--from", as("relay"), "--to", mailbox(), "--owner", "roles_owner",
                             "--allowed-topic", "orders", "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "all that may go is in the mailbox", [&] {
        return admin_.number("SELECT count(*) FROM outbox_mailbox") == 3 && dead_letters_are(2);
    })) << relay.stderr_text();
    EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_scheduled"), 0);

    operate({"status"});
    operate({"status", "--json"});
    operate({"top", "--once"});
    look_at_letters(relay);
    look_at_tenants();
    look_at_consumers();
    look_at_webhooks();
    operate({"prune"});
    operate({"prune", "--dry-run"});
    replay_history();
    replay_letters();
    operate({"routes", "list"});
    operate({"routes", "accept", "mailbox"});
    operate({"dead", "retry", "--event-type", "Odd", "--to", "mailbox", "--dry-run"});
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
    look_at_the_page();
    operate({"dead", "retry", "--event-type", "Odd", "--to", "mailbox"});
    operate({"routes", "rename", "mailbox", "other"});
    operate({"routes", "continue"});
    operate({"routes", "begin"});
    // Where rows stay the only one is not retired.
    if (keeps())
        note({"routes", "retire"});
    else
        operate({"routes", "retire", "other", "--yes"});

    EXPECT_GT(commands_.size(), 40U);
    for (const std::string& name : commands_) {
        EXPECT_NE(ran_.contains(name), kOfNoRole.contains(name))
            << "outbox " << name << " belongs either here, as a role, or to kOfNoRole";
    }
}

// The page of a relay changes something with a right that `outbox roles` does not give it.
TEST_F(RolesOfCommands, ARelaysOwnPageNeedsTheAuditToChangeSomething) {
    ASSERT_EQ(run({"migrate", "--db", as("owner")}).status.code, 0);
    grant();
    const int port = free_port();
    Process relay = outbox_.start_relay({"--from", as("relay"), "--to", mailbox(), "--owner",
                                         "roles_owner", "--allowed-topic", "orders", "--admin",
                                         "127.0.0.1:" + std::to_string(port), "--admin-token-file",
                                         token_file()});
    Pg(as("writer")).exec("SELECT outbox_emit(topic => 'secret', payload => '1')");
    ASSERT_TRUE(eventually(60s, "one is dead", [&] { return dead_letters_are(1); }))
        << relay.stderr_text();
    const std::string id = admin_.value("SELECT id FROM outbox_dead_letters");
    const HttpAnswer refused = retry_by_page(port, id);
    EXPECT_EQ(refused.status, 403) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("outbox_audit"));
    EXPECT_EQ(admin_.number("SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at IS "
                            "NOT NULL"),
              0);
    admin_.exec("GRANT SELECT, INSERT ON outbox_audit TO roles_relay");
    const HttpAnswer retried = retry_by_page(port, id);
    EXPECT_EQ(retried.status, 200) << retried.body;
    EXPECT_EQ(last_audit(), "roles_relay Ann (dashboard) dead retry");
    const HttpAnswer audit = http(port, "GET", "/api/audit");
    EXPECT_THAT(audit.body, HasSubstr("reason: mended"));
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
}

}  // namespace
}  // namespace outbox::test
