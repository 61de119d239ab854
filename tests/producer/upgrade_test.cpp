// Tables as each migration left them, with events under way, in the hands of this build.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>

#include "core/embedded_sql.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// What is on main is on somebody's server: a change is a new migration.
TEST(Migrations, AreWhatTheyWereWhenTheyWereReleased) {
    std::map<std::string, std::string> released;
    std::ifstream file(RELEASED_MIGRATIONS);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line.starts_with('#')) continue;
        std::istringstream words(line);
        std::string path;
        words >> path >> released[path];
    }
    ASSERT_GE(released.size(), 12U);
    const std::regex numbered(".*/[0-9]{4}_[a-z_]+\\.sql");
    for (const EmbeddedSql& one : embedded_sql()) {
        if (!std::regex_match(std::string(one.path), numbered)) continue;
        const auto known = released.find(std::string(one.path));
        ASSERT_NE(known, released.end()) << "add to released_migrations.txt:\n"
                                         << one.path << " " << one.sha256;
        EXPECT_EQ(known->second, one.sha256) << one.path;
        released.erase(known);
    }
    EXPECT_THAT(released, testing::IsEmpty());
}

struct Step {
    std::string side;
    int version = 0;
    std::string sql;
};

// `outbox migrate --print`, a transaction for each migration.
std::vector<Step> steps_of(const std::string& printed) {
    const std::regex row("VALUES \\('(producer|consumer)', ([0-9]+),");
    std::vector<Step> steps;
    std::string sql;
    std::istringstream lines(printed);
    for (std::string line; std::getline(lines, line);) {
        sql += line + "\n";
        if (line != "COMMIT;") continue;
        std::smatch found;
        if (std::regex_search(sql, found, row))
            steps.push_back({found[1], std::stoi(found[2]), sql});
        else
            steps.back().sql += sql;
        sql.clear();
    }
    return steps;
}

class Upgrade : public testing::TestWithParam<const char*> {
  protected:
    bool on_sqlite() const { return GetParam() == std::string("sqlite"); }
    void make_database(int number) {
        url_ = on_sqlite() ? "sqlite://" + path(number) : shared_postgres().create_database();
        if (on_sqlite())
            sqlite_ = std::make_unique<Sqlite>(path(number));
        else
            pg_ = std::make_unique<Pg>(url_);
    }
    std::string path(int number) const {
        return outbox_.file("shop" + std::to_string(number) + ".db").string();
    }
    void sql(const std::string& statement) {
        on_sqlite() ? sqlite_->exec(statement) : pg_->exec(statement);
    }
    std::string value(const std::string& statement) {
        return on_sqlite() ? sqlite_->value(statement) : pg_->value(statement);
    }
    static std::string insert(int n) {
        return "INSERT INTO outbox_events (id, topic, key, event_type, payload) VALUES "
               "('00000000-0000-7000-8000-" +
               std::to_string(100'000'000'000 + n) + "', 'orders', 'k" + std::to_string(n % 5) +
               "', 'Made', '{\"n\": " + std::to_string(n) + "}')";
    }

    // What stands in the consumer's tables as a migration left them: a message that waits in a
    // mailbox and one that was applied before, a letter given up on, sagas of both roles, and from
    // migration 2 on a delivery to an endpoint.
    void put_consumers_side(int version) {
        sql("INSERT INTO outbox_mailbox (id, topic, payload) VALUES ('seen', 'orders', '1'), "
            "('waits', 'orders', '1')");
        sql("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', 'seen'), ('stock', "
            "'given-up')");
        sql("INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, payload, "
            "attempts, "
            "error_code, error, mailbox) VALUES ('stock', 'given-up', 'orders', '1', 5, 'OB_X', "
            "'no', 'default')");
        sql("INSERT INTO outbox_saga (saga_id, name, version, state, steps, data, topic, leader, "
            "timer, step) VALUES ('s-1', 'order', 1, 'running', "
            "'[{\"step\":\"reserve\",\"state\":\"sent\",\"attempts\":1,\"late\":0,\"can_undo\":"
            "true}]', '{}', 'sagas', 'sagas', 0, 'reserve')");
        sql("INSERT INTO outbox_saga_steps (leader, saga_id, step, state) VALUES ('shop', 's-2', "
            "'pay', 'done')");
        if (version < 2) return;
        sql("INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) VALUES ('hook', "
            "'https://192.0.2.9/', 'sealed')");
        sql("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, payload) VALUES "
            "('hook', 'e-1', '1')");
    }
    json result(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url_, "--json"});
        const Finished done = outbox_.run(arguments);
        EXPECT_EQ(done.status.code, 0) << arguments[0] << done.err;
        return json::parse(done.out.empty() ? "null" : done.out);
    }
    // What this build's consumer applies.
    std::vector<std::string> applied(int number) {
        std::vector<std::string> ids;
        MailboxOptions options;
        options.consumer = "stock";
        const auto take = [&](auto*, const Message& message) { ids.emplace_back(message.id); };
        if (on_sqlite()) {
            sqlite_mailbox_consumer("sqlite://" + path(number), SqliteHandler(take), options)
                .drain();
        } else {
            libpq_mailbox_consumer(url_, LibpqHandler(take), options).drain();
        }
        return ids;
    }
    void expect_consumers_side(int number, int version) {
        EXPECT_EQ(applied(number), std::vector<std::string>{"waits"}) << "the other is a repeat";
        EXPECT_EQ(value("SELECT count(*) FROM outbox_mailbox"), "0");
        EXPECT_EQ(result({"dead", "retry", "given-up", "--consumer", "stock"})["matched"], 1);
        EXPECT_EQ(applied(number), std::vector<std::string>{"given-up"});
        EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters"), "0");
        EXPECT_EQ(result({"saga", "show", "s-1"})[0]["step"], "reserve");
        EXPECT_EQ(result({"saga", "resume", "s-1"})["asked"], 1);
        EXPECT_EQ(value("SELECT state FROM outbox_saga_steps WHERE saga_id = 's-2'"), "done");
        const json hooks = result({"webhook", "list"});
        ASSERT_EQ(hooks.size(), version < 2 ? 0U : 1U);
        if (version >= 2) EXPECT_EQ(hooks[0]["waiting"], 1);
    }

    OutboxBinary outbox_;
    std::string url_;
    std::unique_ptr<Pg> pg_;
    std::unique_ptr<Sqlite> sqlite_;
};

constexpr int kBefore = 40;
constexpr const char* kDead = "00000000-0000-7000-8000-00000000dead";
constexpr const char* kDue = "00000000-0000-7000-8000-0000000d0e00";

// Numbers of the events that came, by key, in the order they came.
std::map<std::string, std::vector<int>> by_key(const std::string& out) {
    std::map<std::string, std::vector<int>> came;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
        const json event = json::parse(line);
        const json payload = event["payload"].is_string()
                                 ? json::parse(event["payload"].get<std::string>())
                                 : event["payload"];
        auto& numbers = came[event["key"]];
        const int n = payload["n"];
        if (std::find(numbers.begin(), numbers.end(), n) == numbers.end()) numbers.push_back(n);
    }
    return came;
}

TEST_P(Upgrade, FromWhatEachMigrationLeftLosesNothingAndDeliversWhatWasUnderWay) {
    const std::string sample = on_sqlite() ? "sqlite:///x.db" : "postgresql://x@localhost/x";
    const auto steps = steps_of(outbox_.run({"migrate", "--print", "--db", sample}).out);
    ASSERT_GE(steps.size(), 5U);
    std::map<std::string, int> newest;
    for (const Step& step : steps) newest[step.side] = std::max(newest[step.side], step.version);

    // The sides move on their own, or together: each age of one beside the first of the other, and
    // beside the same of it.
    std::set<std::pair<int, int>> ages;
    for (int age = 1; age <= std::max(newest["producer"], newest["consumer"]); ++age) {
        const int producer = std::min(age, newest["producer"]);
        const int consumer = std::min(age, newest["consumer"]);
        ages.insert({{producer, 1}, {1, consumer}, {producer, consumer}});
    }
    int number = 0;
    for (const auto& [producer, consumer] : ages) {
        SCOPED_TRACE("producer " + std::to_string(producer) + ", consumer " +
                     std::to_string(consumer));
        make_database(++number);
        for (const Step& step : steps) {
            if (step.version <= (step.side == "producer" ? producer : consumer)) sql(step.sql);
        }
        // Under way: events nobody has sent, one that has failed three times, a delayed one, a
        // dead letter.
        for (int n = 0; n < kBefore; ++n) sql(insert(n));
        const std::string source = on_sqlite() ? "outbox_events" : "public.outbox_events";
        const std::string now = on_sqlite() ? "unixepoch() * 1000000" : "now()";
        sql("INSERT INTO outbox_delivery (source, route, event_id, position, key, attempts, "
            "next_attempt_at, first_failed_at, error_code, last_error) SELECT '" +
            source + "', 'out', id, position, key, 3, " + now + ", " + now +
            ", 'OB_SINK_UNAVAILABLE', 'was refused' FROM outbox_events WHERE key = 'k2' "
            "ORDER BY position LIMIT 1");
        sql("INSERT INTO outbox_scheduled (available_at, id, topic, key, event_type, payload) "
            "VALUES (" +
            now + ", '" + kDue + "', 'orders', 'due', 'Reminder', '{\"n\": 1}')");
        sql("INSERT INTO outbox_dead_letters (source, route, id, topic, key, payload, attempts, "
            "error_code, error, died_at) VALUES ('" +
            source + "', 'out', '" + kDead + "', 'orders', 'dead', '" +
            (on_sqlite() ? "{\"n\": 7}" : "\\x7b226e223a20377d") + "', 5, 'OB_X', 'refused', " +
            now + ")");
        put_consumers_side(consumer);

        // Writers go on while it is upgraded.
        std::atomic<int> written{kBefore};
        std::atomic<bool> stop{false};
        std::thread writer([&] {
            std::unique_ptr<Pg> pg = on_sqlite() ? nullptr : std::make_unique<Pg>(url_);
            std::unique_ptr<Sqlite> sqlite =
                on_sqlite() ? std::make_unique<Sqlite>(path(number)) : nullptr;
            if (sqlite) sqlite->exec("PRAGMA busy_timeout = 30000");
            while (!stop && written < 10'000) {
                pg ? pg->exec(insert(written)) : sqlite->exec(insert(written));
                ++written;
            }
        });
        const Finished migrated = outbox_.run({"migrate", "--db", url_});
        EXPECT_EQ(migrated.status.code, 0) << migrated.err;
        const int at_least = written + 5;
        EXPECT_TRUE(eventually(60s, "writers go on", [&] { return written >= at_least; }));
        stop = true;
        writer.join();
        EXPECT_EQ(value("SELECT count(*) FROM outbox_migrations"), std::to_string(steps.size()));

        Process relay =
            outbox_.start_relay({"--from", url_, "--to", "out=stdout:", "--admin", "off"});
        EXPECT_TRUE(eventually(60s, "the route is known",
                               [&] { return value("SELECT count(*) FROM outbox_routes") == "1"; }));
        const Finished retried = outbox_.run({"dead", "retry", kDead, "--db", url_});
        EXPECT_EQ(retried.status.code, 0) << retried.err;
        EXPECT_TRUE(eventually(60s, "all is delivered", [&] {
            return value(
                       "SELECT (SELECT count(*) FROM outbox_events) + (SELECT count(*) FROM "
                       "outbox_dead_letters) + (SELECT count(*) FROM outbox_scheduled) + (SELECT "
                       "count(*) FROM outbox_delivery)") == "0";
        })) << relay.stderr_text();
        EXPECT_EQ(relay.stop(), (ExitStatus{0, 0})) << relay.stderr_text();
        auto came = by_key(relay.stdout_text());
        EXPECT_EQ(came["dead"], std::vector<int>{7});
        EXPECT_EQ(came["due"], std::vector<int>{1});
        std::size_t all = 0;
        for (int key = 0; key < 5; ++key) {
            const auto& numbers = came["k" + std::to_string(key)];
            all += numbers.size();
            EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end())) << "key k" << key;
        }
        EXPECT_EQ(all, static_cast<std::size_t>(written));
        expect_consumers_side(number, consumer);
    }
}

INSTANTIATE_TEST_SUITE_P(Databases, Upgrade, testing::Values("postgres", "sqlite"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace outbox::test
