#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {

using namespace std::chrono_literals;
using nlohmann::json;

inline constexpr const char* kPostgres = "postgres";
inline constexpr const char* kSqlite = "sqlite";

// Routes of a real database, and mailboxes in others of its kind that they lead to.
class Routes : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        url_ = database("shop");
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    }

    bool on_sqlite() const { return GetParam() == std::string(kSqlite); }

    std::string database(const std::string& name) {
        if (on_sqlite()) return "sqlite://" + outbox_.file(name + ".db").string();
        return shared_postgres().create_database();
    }
    // One with a mailbox.
    std::string subscriber(const std::string& name) {
        const std::string url = database(name);
        EXPECT_EQ(outbox_.run({"migrate", "--db", url, "--only", "consumer"}).status.code, 0);
        return url;
    }

    // The first column of the rows, joined by blanks.
    std::string sql(const std::string& url, const std::string& statement) {
        if (!on_sqlite()) {
            std::string out;
            for (const Pg::Row& row : Pg(url).query(statement)) {
                if (!row.empty()) out += (out.empty() ? "" : " ") + row[0].value_or("");
            }
            return out;
        }
        const Finished done = run({{"sqlite3", "-cmd", ".timeout 60000",
                                    url.substr(std::string("sqlite://").size()), statement}});
        EXPECT_EQ(done.status.code, 0) << done.err;
        std::string out = done.out;
        while (!out.empty() && out.back() == '\n') out.pop_back();
        for (char& c : out) c = c == '\n' ? ' ' : c;
        return out;
    }
    std::string sql(const std::string& statement) { return sql(url_, statement); }

    void emit(const std::string& payload, const std::string& topic = "orders") {
        sql("INSERT INTO outbox_events (id, topic, key, event_type, payload) VALUES ('" +
            id(payload) + "', '" + topic + "', 'k" + payload + "', 'Made', '\"" + payload + "\"')");
    }
    static std::string id(const std::string& payload) {
        return "00000000-0000-7000-8000-0000000000" + payload;  // two digits
    }

    Process relay(const std::vector<std::string>& destinations,
                  const std::vector<std::string>& more = {}) {
        std::vector<std::string> arguments{"--from", url_, "--admin", "off"};
        for (const std::string& to : destinations) arguments.insert(arguments.end(), {"--to", to});
        arguments.insert(arguments.end(), more.begin(), more.end());
        return outbox_.start_relay(arguments);
    }
    // One that is refused.
    Finished run_on_relay(const std::vector<std::string>& destinations,
                          const std::vector<std::string>& more) {
        Process running = relay(destinations, more);
        const auto ended = running.wait(60s);
        EXPECT_TRUE(ended.has_value()) << running.stderr_text();
        return {ended.value_or(ExitStatus{0, 0}), running.stdout_text(), running.stderr_text()};
    }
    static std::string mailbox(const std::string& name, const std::string& url) {
        return name + "=mailbox+" + url;
    }
    // A route whose destination does not answer.
    std::string away(const std::string& name) {
        if (on_sqlite()) return name + "=mailbox+sqlite:///nowhere/at/all.db";
        return name + "=mailbox+postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    }

    std::string received(const std::string& url) {
        const std::string last = on_sqlite() ? "substr(id, -2)" : "right(id, 2)";
        return sql(url, "SELECT " + last + " FROM outbox_mailbox ORDER BY id");
    }

    Finished run_on(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url_});
        return outbox_.run(arguments);
    }
    json result(std::vector<std::string> arguments) {
        arguments.emplace_back("--json");
        const Finished ended = run_on(std::move(arguments));
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }
    json route(const std::string& name) {
        for (const json& one : result({"routes", "list"})) {
            if (one["name"] == name) return one;
        }
        return {};
    }

    // Two routes, of which one has finished everything and the other's destination is away.
    void let_one_finish(const std::string& url) {
        Process running = relay({mailbox("near", url), away("far")});
        ASSERT_TRUE(eventually(60s, "the near route has finished", [&] {
            return route("near")["unfinished"] == 0 && route("far")["unfinished"] == 2;
        }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    // A dead letter of a route, and nothing else of it left to do.
    void let_one_die(const std::string& name, const std::string& url, const std::string& payload) {
        emit(payload, "elsewhere");
        Process strict = relay({mailbox(name, url)}, {"--allowed-topic", "orders"});
        ASSERT_TRUE(eventually(60s, "the event is dead", [&] {
            return sql("SELECT count(*) FROM outbox_dead_letters WHERE route = '" + name + "'") ==
                       "1" &&
                   route(name)["unfinished"] == 0 &&
                   sql("SELECT dead_total FROM outbox_route_stats WHERE route = '" + name + "'") ==
                       "1";
        }));
        ASSERT_EQ(strict.stop(), (ExitStatus{0, 0}));
    }

    OutboxBinary outbox_;
    std::string url_;
};

}  // namespace outbox::test
