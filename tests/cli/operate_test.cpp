#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class Operate : public testing::Test {
  protected:
    void SetUp() override {
        url_ = shared_postgres().create_database();
        database_ = std::make_unique<Pg>(url_);
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    }

    std::string emit(const std::string& topic, const std::string& key) {
        return database_->value("SELECT outbox_emit(topic => '" + topic + "', key => '" + key +
                                "', payload => '{\"a\":1}', event_type => 'Made')");
    }

    Process relay(std::vector<std::string> more = {}) {
        std::vector<std::string> arguments{"--from", url_, "--to", mailbox(), "--admin", "off"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return outbox_.start_relay(arguments);
    }

    std::string mailbox() { return "mailbox+postgresql" + url_.substr(url_.find(':')); }

    json result(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url_, "--json"});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out);
    }

    bool dead_letters_are(std::size_t count) {
        return static_cast<std::size_t>(
                   database_->number("SELECT count(*) FROM outbox_dead_letters")) == count;
    }

    OutboxBinary outbox_;
    std::string url_;
    std::unique_ptr<Pg> database_;
};

TEST_F(Operate, MigrateIsDoneOnceAndPrintsWithoutConnecting) {
    const Finished again = outbox_.run({"migrate", "--db", url_});
    EXPECT_EQ(again.status.code, 0);
    EXPECT_THAT(again.out, HasSubstr("nothing to do"));
    const Finished printed =
        outbox_.run({"migrate", "--db", "postgresql://nowhere.invalid/x", "--print"});
    EXPECT_EQ(printed.status.code, 0) << printed.err;
    EXPECT_THAT(printed.out, HasSubstr("CREATE TABLE public.outbox_events"));
}

TEST_F(Operate, ARelayOnANewerDatabaseRefusesToStart) {
    const std::string file = outbox_.file("shop.db");
    ASSERT_EQ(outbox_.run({"migrate", "--db", "sqlite://" + file}).status.code, 0);
    Sqlite lite(file);
    const std::vector<std::string> urls{url_, "sqlite://" + file};
    for (const std::string& url : urls) {
        const auto start = [&](std::vector<std::string> more) {
            more.insert(more.begin(),
                        {"relay", "--from", url, "--to", "stdout:", "--admin", "off"});
            return outbox_.run(std::move(more));
        };
        EXPECT_EQ(start({"--check"}).status.code, 0);
        const char* later =
            "INSERT INTO outbox_migrations (side, version, name, checksum) VALUES ('producer', "
            "999, 'later', 'x'), ('consumer', 999, 'later', 'x')";
        if (url == url_)
            database_->exec(later);
        else
            lite.exec(later);
        for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--check"}}) {
            const Finished refused = start(more);
            EXPECT_EQ(refused.status.code, 4) << refused.err;
            EXPECT_THAT(refused.err, HasSubstr("OB_MIGRATION_REFUSED"));
            EXPECT_THAT(refused.err, HasSubstr("have migration 999"));
            EXPECT_THAT(refused.err, HasSubstr("newer build of the relay"));
        }
    }
}

TEST_F(Operate, UninstallRemovesWhatMigrateMade) {
    emit("orders", "k1");
    const Finished refused = outbox_.run({"migrate", "--db", url_, "--uninstall"});
    EXPECT_EQ(refused.status.code, 4);
    EXPECT_THAT(refused.err, HasSubstr("1 events"));
    const Finished printed = outbox_.run({"migrate", "--db", url_, "--uninstall", "--print"});
    EXPECT_THAT(printed.out, HasSubstr("DROP VIEW IF EXISTS public.outbox_status"));
    database_->exec("DELETE FROM outbox_events");
    const Finished removed = outbox_.run({"migrate", "--db", url_, "--uninstall"});
    EXPECT_EQ(removed.status.code, 0) << removed.err;
    EXPECT_THAT(removed.out, HasSubstr("removed outbox_events\n"));
    EXPECT_EQ(database_->value("SELECT to_regclass('outbox_events')"), "");
}

TEST_F(Operate, StatusTellsBacklogAndThatNobodyRelays) {
    emit("orders", "k1");
    emit("orders", "k2");
    const json status = result({"status"});
    EXPECT_EQ(status["source"], "public.outbox_events");
    EXPECT_EQ(status["backlog"], 2);
    EXPECT_GE(status["oldest_age_s"], 0.0);
    EXPECT_EQ(status["lease"]["held"], false);
    EXPECT_EQ(status["routes"], json::array());
    const Finished text = outbox_.run({"status", "--db", url_});
    EXPECT_THAT(text.out, HasSubstr("backlog     2, oldest"));
    EXPECT_THAT(text.out, HasSubstr("none is running"));
    EXPECT_EQ(text.out.find('\033'), std::string::npos) << "colours outside a terminal";
}

TEST_F(Operate, StatusTellsWhoRelaysAndHowEachRouteFares) {
    emit("orders", "k1");
    Process running = relay({"--mode", "stream"});
    ASSERT_TRUE(eventually(60s, "the route's figures are in the database", [&] {
        const json status = result({"status"});
        return status["lease"]["held"] == true && !status["routes"].empty() &&
               status["routes"][0]["published_total"] == 1;
    }));
    const json status = result({"status"});
    EXPECT_EQ(status["backlog"], 0);
    EXPECT_EQ(status["lease"]["epoch"], 1);
    EXPECT_THAT(status["lease"]["owner"].get<std::string>(),
                HasSubstr(":" + std::to_string(running.pid())));
    EXPECT_EQ(status["routes"][0]["name"], "mailbox");
    EXPECT_EQ(status["routes"][0]["circuit"], "closed");
    EXPECT_TRUE(eventually(60s, "the route reads by the stream",
                           [&] { return result({"status"})["routes"][0]["path"] == "stream"; }));
    EXPECT_EQ(result({"status"})["routes"][0]["path_reason"], "");
    EXPECT_THAT(outbox_.run({"status", "--db", url_}).out, HasSubstr("stream"));
    running.kill(SIGKILL);
    ASSERT_TRUE(running.wait(60s));
    EXPECT_TRUE(eventually(60s, "status shows that the relay is gone",
                           [&] { return result({"status"})["lease"]["held"] == false; }));
}

TEST_F(Operate, StatusTellsWhyARoutePolls) {
    database_->exec("ALTER PUBLICATION outbox SET (publish = 'insert, delete')");
    Process running = relay({"--to", "null:", "--to", "second=null:"});
    EXPECT_TRUE(eventually(60s, "the reason is in the database", [&] {
        const json status = result({"status"});
        return !status["routes"].empty() && status["routes"][0]["path"] == "polling" &&
               status["routes"][0]["path_reason"].get<std::string>().find(
                   "ALTER PUBLICATION \"outbox\" SET (publish = 'insert')") != std::string::npos;
    }));
    EXPECT_THAT(outbox_.run({"status", "--db", url_}).out,
                HasSubstr("route mailbox reads by polling: "));
}

TEST_F(Operate, DeadLettersAreListedShownRetriedAndDiscarded) {
    const std::string wrong = emit("elsewhere", "k1");
    const std::string other = emit("elsewhere", "k2");
    {
        Process strict = relay({"--allowed-topic", "orders"});
        ASSERT_TRUE(eventually(60s, "both are dead", [&] { return dead_letters_are(2); }));
        EXPECT_EQ(strict.stop(), (ExitStatus{0, 0}));
    }
    const json list = result({"dead", "list"});
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["id"], wrong);
    EXPECT_EQ(list[0]["error_code"], "OB_TOPIC_INVALID");
    EXPECT_EQ(result({"dead", "list", "--key", "k2"})[0]["id"], other);
    EXPECT_EQ(result({"dead", "list", "--limit", "1"}).size(), 1U);
    EXPECT_EQ(result({"dead", "list", "--route", "none"}), json::array());
    for (const char* change : {"retry", "discard"}) {
        const Finished said = outbox_.run({"dead", change, "--route", "none", "--db", url_});
        EXPECT_EQ(said.status.code, 1) << change;
        EXPECT_THAT(said.err, HasSubstr("the table has no route 'none'")) << change;
    }
    EXPECT_EQ(result({"dead", "show", wrong})[0]["payload"], json({{"a", 1}}));
    EXPECT_EQ(result({"status"})["dead"], 2);

    EXPECT_EQ(result({"dead", "retry", "--key", "k1", "--dry-run"})["matched"], 1);
    EXPECT_EQ(result({"dead", "list"})[0]["retry_requested_at"], json());
    EXPECT_EQ(result({"dead", "retry", wrong})["matched"], 1);
    EXPECT_NE(result({"dead", "list"})[0]["retry_requested_at"], json());

    EXPECT_EQ(result({"dead", "discard", "--key", "k2", "--dry-run"})["matched"], 1);
    EXPECT_TRUE(dead_letters_are(2));
    EXPECT_EQ(result({"dead", "discard", "--key", "k2"})["matched"], 1);
    EXPECT_TRUE(dead_letters_are(1));

    Process lenient = relay();
    ASSERT_TRUE(eventually(60s, "the retried one is delivered", [&] {
        return dead_letters_are(0) &&
               database_->value("SELECT string_agg(id, ',') FROM outbox_mailbox") == wrong;
    }));
}

TEST_F(Operate, ChangingDeadLettersNeedsToSayWhich) {
    for (const char* command : {"retry", "discard"}) {
        EXPECT_EQ(outbox_.run({"dead", command, "--db", url_}).status.code, 2);
        EXPECT_EQ(outbox_.run({"dead", command, "--all", "x", "--db", url_}).status.code, 2);
        const Finished missing = outbox_.run({"dead", command, "no-such-id", "--db", url_});
        EXPECT_EQ(missing.status.code, 1);
        EXPECT_THAT(missing.err, HasSubstr("no such dead letter"));
    }
    EXPECT_EQ(outbox_.run({"dead", "show", "no-such-id", "--db", url_}).status.code, 1);
    EXPECT_EQ(outbox_.run({"dead", "show", "--db", url_}).status.code, 2);
}

TEST_F(Operate, PruneRemovesOldPublishedRowsAndNoOthers) {
    database_->exec(
        "CREATE TABLE orders_outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, "
        "aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL, "
        "created_at timestamptz NOT NULL, published_at timestamptz, retry_count int NOT NULL "
        "DEFAULT 0, status text NOT NULL);"
        "INSERT INTO orders_outbox SELECT gen_random_uuid(), 'Order', n::text, 'Made', '{}', "
        "now() - interval '9 days', CASE WHEN s = 'PUBLISHED' THEN now() - age END, 0, s "
        "FROM generate_series(1, 1200) n, (VALUES ('PENDING', interval '0'), "
        "('FAILED', interval '0'), ('PUBLISHED', interval '8 days'), "
        "('PUBLISHED', interval '1 day')) AS states(s, age)");
    const auto count = [&](const std::string& condition) {
        return database_->number("SELECT count(*) FROM orders_outbox WHERE " + condition);
    };
    EXPECT_EQ(result({"prune", "--table", "orders_outbox"})["removed"], 1200);
    EXPECT_EQ(count("status = 'PENDING'"), 1200);
    EXPECT_EQ(count("status = 'FAILED'"), 1200);
    EXPECT_EQ(count("status = 'PUBLISHED'"), 1200);
    EXPECT_EQ(result({"prune", "--table", "orders_outbox", "--retention", "1h"})["removed"], 1200);
    EXPECT_EQ(count("status = 'PUBLISHED'"), 0);
}

// Whatever is there to be removed, and whatever else the role may prune.
TEST_F(Operate, PruneByARoleThatMayNotRemoveSaysWhichRightIsMissing) {
    url_ = shared_postgres().create_database();
    Pg admin(url_);
    admin.exec(
        "CREATE TABLE orders_outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, "
        "aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL, "
        "created_at timestamptz NOT NULL, published_at timestamptz, retry_count int NOT NULL "
        "DEFAULT 0, status text NOT NULL);"
        "DO $$ BEGIN CREATE ROLE prune_looker LOGIN PASSWORD 'test'; EXCEPTION WHEN "
        "duplicate_object THEN END $$; GRANT SELECT ON orders_outbox TO prune_looker");
    std::string url = url_;
    url.replace(url.find("postgres@"), 8, "prune_looker:test");
    const auto expect_refused = [&](const json& removed) {
        const Finished ended = outbox_.run(
            {"prune", "--db", url, "--table", "orders_outbox", "--json", "--owner", "postgres"});
        EXPECT_EQ(ended.status.code, 4) << ended.out << ended.err;
        EXPECT_THAT(ended.err, HasSubstr("GRANT DELETE ON \"public\".\"orders_outbox\" TO "
                                         "prune_looker"));
        EXPECT_EQ(ended.out.empty() ? json("nothing") : json::parse(ended.out)["removed"], removed);
    };
    expect_refused("nothing");
    admin.exec(
        "INSERT INTO orders_outbox SELECT gen_random_uuid(), 'Order', 'o', 'Made', '{}', now(), "
        "now() - interval '9 days', 0, 'PUBLISHED'");
    expect_refused("nothing");
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_, "--only", "consumer"}).status.code, 0);
    admin.exec(
        outbox_.run({"roles", "--print", "--only", "consumer", "--operator", "prune_looker"}).out);
    expect_refused(nullptr);
    EXPECT_EQ(admin.number("SELECT count(*) FROM orders_outbox"), 1);
    admin.exec("GRANT DELETE ON orders_outbox TO prune_looker");
    EXPECT_EQ(result({"prune", "--table", "orders_outbox"})["removed"], 1);
}

TEST(OperateSqlite, AnswersTheSameQuestions) {
    OutboxBinary outbox;
    const std::string url = "sqlite://" + outbox.file("shop.db").string();
    const auto result = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url, "--json"});
        const Finished ended = outbox.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out);
    };
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    const Finished inserted = run(
        {{"sqlite3", outbox.file("shop.db").string(),
          "INSERT INTO outbox_events (id, topic, key, event_type, payload) VALUES "
          "('e1', 'orders', 'k1', 'Made', '{}'), ('e2', 'elsewhere', 'k2', 'Made', '{\"a\":1}'),"
          "('e3', 'elsewhere', 'k3', 'Made', '{}')"}});
    ASSERT_EQ(inserted.status.code, 0) << inserted.err;
    EXPECT_EQ(result({"status"})["backlog"], 3);
    Process running = outbox.start_relay(
        {"--from", url, "--to", "stdout:", "--admin", "off", "--allowed-topic", "orders"});
    ASSERT_TRUE(eventually(60s, "figures of the route", [&] {
        const json status = result({"status"});
        return status["dead"] == 2 && !status["routes"].empty() &&
               status["routes"][0]["published_total"] == 1;
    }));
    EXPECT_EQ(result({"status"})["lease"]["held"], true);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(json::parse(running.stdout_text())["id"], "e1");
    EXPECT_EQ(result({"status"})["lease"]["held"], false);

    EXPECT_EQ(result({"dead", "list"}).size(), 2U);
    const json shown = result({"dead", "show", "e2"})[0];
    EXPECT_EQ(shown["payload"], json({{"a", 1}}));
    EXPECT_EQ(shown["error_code"], "OB_TOPIC_INVALID");
    EXPECT_THAT(shown["error"].get<std::string>(), Not(HasSubstr("OB_TOPIC_INVALID")));
    EXPECT_EQ(result({"dead", "retry", "--event-type", "Made", "--key", "k3"})["matched"], 1);
    EXPECT_EQ(result({"dead", "discard", "e2"})["matched"], 1);
    const json left = result({"dead", "list"});
    ASSERT_EQ(left.size(), 1U);
    EXPECT_NE(left[0]["retry_requested_at"], json());
    Process lenient = outbox.start_relay({"--from", url, "--to", "stdout:", "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "the retried one is delivered",
                           [&] { return result({"dead", "list"}).empty(); }));
    EXPECT_EQ(lenient.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(json::parse(lenient.stdout_text())["id"], "e3");
}

}  // namespace
}  // namespace outbox::test
