// `outbox top`, on a terminal and without one.
#include <gmock/gmock.h>

#include "tests/cli/pty.h"
#include "tests/cli/routes.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Top : public Routes {
  protected:
    PtyProcess on_terminal(unsigned short columns = 80, unsigned short rows = 24,
                           const std::vector<std::string>& more = {},
                           const std::map<std::string, std::string>& environment = {}) {
        std::vector<std::string> command{OUTBOX_BINARY, "top", "--db", url_};
        command.insert(command.end(), more.begin(), more.end());
        return {command, outbox_.file(".").string(), environment, columns, rows};
    }
    static testing::AssertionResult shows(PtyProcess& top, const std::string& text) {
        const auto shown = eventually(60s, "the screen shows '" + text + "'",
                                      [&] { return top.text().find(text) != std::string::npos; });
        return shown ? shown : testing::AssertionFailure() << shown.message() << top.text();
    }
    static void expect_restored(PtyProcess& top, ExitStatus status) {
        ASSERT_TRUE(eventually(60s, "top ends", [&] { return top.ended().has_value(); }));
        EXPECT_EQ(top.ended(), status) << top.all();
        EXPECT_FALSE(top.look().on_alternate());
        EXPECT_TRUE(top.look().cursor_is_shown());
        EXPECT_TRUE(top.is_cooked());
        EXPECT_EQ(top.look().strange(), "");
    }
    std::vector<std::string> lines_of(std::vector<std::string> more) {
        more.insert(more.begin(), "top");
        const Finished ended = run_on(std::move(more));
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        std::istringstream text(ended.out);
        std::vector<std::string> lines;
        for (std::string line; std::getline(text, line);) lines.push_back(line);
        return lines;
    }
};

INSTANTIATE_TEST_SUITE_P(Databases, Top, testing::Values(kPostgres, kSqlite));

TEST_P(Top, ShowsRoutesKeysAndWhoLeadsUntilItIsLeft) {
    const std::string box = subscriber("box");
    emit("01");
    Process running = relay({mailbox("near", box), away("far")});
    PtyProcess top = on_terminal();
    EXPECT_TRUE(shows(top, "near"));
    EXPECT_TRUE(shows(top, "open"));
    EXPECT_TRUE(shows(top, "relay "));
    EXPECT_TRUE(shows(top, "backlog 1"));
    EXPECT_FALSE(top.is_cooked());
    EXPECT_TRUE(top.look().on_alternate());
    for (int n = 10; n < 20; ++n) emit(std::to_string(n));
    EXPECT_TRUE(shows(top, "backlog 11"));
    EXPECT_THAT(top.text(), HasSubstr("LAST ERROR"));
    EXPECT_FALSE(top.look().overflowed());
    // The picture, for who reads the log.
    std::cout << top.text();
    top.type("q");
    expect_restored(top, {0, 0});
}

TEST_P(Top, FailingKeysAreShownWithTheirErrorAndControlCharactersAreNot) {
    const std::string sign = on_sqlite() ? "char" : "chr";
    sql("INSERT INTO outbox_delivery (source, route, event_id, position, key, attempts, "
        "next_attempt_at, error_code, last_error, first_failed_at) VALUES ('" +
        std::string(on_sqlite() ? "outbox_events" : "public.outbox_events") + "', 'box', '" +
        id("01") + "', 1, 'k-1' || " + sign + "(27) || '[31mx', 3, " +
        (on_sqlite() ? "9000000000000000" : "now() + interval '1 hour'") +
        ", 'OB_RECORD_REFUSED', 'too' || " + sign + "(13) || 'large', " +
        (on_sqlite() ? "0" : "now() - interval '90 seconds'") + ")");
    PtyProcess top = on_terminal(100, 24);
    EXPECT_TRUE(shows(top, "k-1?[31mx"));
    EXPECT_TRUE(shows(top, "OB_RECORD_REFUSED: too?large"));
    EXPECT_TRUE(shows(top, "FAILS FOR"));
    EXPECT_EQ(top.look().strange(), "");
    const json keys = json::parse(lines_of({"--once", "--json"}).at(0))["failing_keys"];
    EXPECT_EQ(keys.at(0)["attempts"], 3);
    EXPECT_EQ(keys.at(0)["route"], "box");
}

TEST_P(Top, ATerminalOf20ColumnsIsReadableAndItsSizeIsFollowed) {
    const std::string box = subscriber("box");
    emit("01");
    Process running = relay({mailbox("a-route-with-a-long-name", box), away("far")});
    PtyProcess top = on_terminal(120, 24);
    EXPECT_TRUE(shows(top, "a-route-with-a-long-name"));
    EXPECT_TRUE(shows(top, "open"));
    top.resize(20, 12);
    EXPECT_TRUE(shows(top, "backlog 1\n"));
    EXPECT_TRUE(shows(top, "…"));
    EXPECT_THAT(top.text(), HasSubstr("PER S"));
    std::cout << top.text();
    top.resize(100, 30);
    EXPECT_TRUE(shows(top, "a-route-with-a-long-name"));
    EXPECT_FALSE(top.look().overflowed());
    top.type("\003");
    expect_restored(top, {0, 0});
}

TEST_P(Top, HoweverItEndsTheTerminalIsAsBefore) {
    for (const int signal : {SIGTERM, SIGHUP, SIGINT}) {
        PtyProcess top = on_terminal();
        EXPECT_TRUE(shows(top, "no relay leads"));
        kill(top.pid(), signal);
        expect_restored(top, {0, 0});
    }
    for (const int signal : {SIGABRT, SIGSEGV, SIGQUIT}) {
        PtyProcess top = on_terminal();
        EXPECT_TRUE(shows(top, "no relay leads"));
        kill(top.pid(), signal);
        expect_restored(top, {-1, signal});
    }
    PtyProcess counted = on_terminal(80, 24, {"--count", "2"});
    expect_restored(counted, {0, 0});
    PtyProcess stopped = on_terminal();
    EXPECT_TRUE(shows(stopped, "no relay leads"));
    kill(stopped.pid(), SIGTSTP);
    ASSERT_TRUE(eventually(60s, "it gives the screen back",
                           [&] { return !stopped.look().on_alternate() && stopped.is_cooked(); }));
    kill(stopped.pid(), SIGCONT);
    ASSERT_TRUE(eventually(60s, "it has it again",
                           [&] { return stopped.look().on_alternate() && !stopped.is_cooked(); }));
    EXPECT_TRUE(shows(stopped, "no relay leads"));
}

TEST_P(Top, ColoursAreLeftOutWhereNobodyWantsThem) {
    PtyProcess top = on_terminal(80, 24, {}, {{"NO_COLOR", "1"}});
    EXPECT_TRUE(shows(top, "no relay leads"));
    EXPECT_THAT(top.all(), Not(HasSubstr("[33m")));
    PtyProcess coloured = on_terminal();
    EXPECT_TRUE(shows(coloured, "no relay leads"));
    EXPECT_THAT(coloured.all(), HasSubstr("[33mno relay leads"));
}

TEST_P(Top, WithoutATerminalThereIsALineForEachRouteAndLook) {
    EXPECT_THAT(lines_of({"--once"}).at(0), HasSubstr(" route=\"\" backlog=0 "));
    const std::string box = subscriber("box");
    emit("01");
    {
        Process running = relay({mailbox("near", box), away("far")});
        ASSERT_TRUE(eventually(60s, "the near route has finished", [&] {
            return route("near")["unfinished"] == 0 && route("far")["unfinished"] == 1 &&
                   sql("SELECT published_total FROM outbox_route_stats WHERE route = 'near'") ==
                       "1";
        }));
    }
    const auto lines = lines_of({"--count", "2", "--interval", "1s"});
    ASSERT_EQ(lines.size(), 4U);
    for (const std::size_t at : {0U, 2U}) {
        EXPECT_THAT(lines[at], AllOf(StartsWith("time=20"), HasSubstr(" route=far "),
                                     HasSubstr(" published_total=0 "), HasSubstr(" backlog=1 ")));
        EXPECT_THAT(lines[at + 1], AllOf(HasSubstr(" route=near "), HasSubstr(" rate_per_s="),
                                         HasSubstr(" published_total=1 ")));
    }
    const json once = json::parse(lines_of({"--json", "--once"}).at(0));
    EXPECT_EQ(once["routes"].size(), 2U);
    EXPECT_EQ(once["backlog"], 1);
    EXPECT_TRUE(once["away"].is_null());
}

TEST_P(Top, WhatCannotBeIsRefused) {
    EXPECT_EQ(run_on({"top", "--interval", "0s"}).status.code, 2);
    EXPECT_EQ(run_on({"top", "--count", "0"}).status.code, 2);
    EXPECT_EQ(run_on({"top", "--once", "--count", "2"}).status.code, 2);
    const std::string nowhere =
        on_sqlite() ? "sqlite:///nowhere/at/all.db"
                    : "postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    EXPECT_EQ(outbox_.run({"top", "--db", nowhere}).status.code, 3);
    url_ = nowhere;
    PtyProcess top = on_terminal();
    expect_restored(top, {3, 0});
    EXPECT_THAT(top.all(), HasSubstr("OB_CONNECT_FAILED"));
}

class TopOnPostgres : public Top {};
INSTANTIATE_TEST_SUITE_P(Databases, TopOnPostgres, testing::Values(kPostgres));

TEST_P(TopOnPostgres, ADatabaseThatGoesAwayIsSaidToBeAndComesBack) {
    emit("01");
    PtyProcess top = on_terminal();
    EXPECT_TRUE(shows(top, "backlog 1"));
    const std::string name = url_.substr(url_.rfind('/') + 1);
    Pg admin(url_.substr(0, url_.rfind('/')) + "/postgres");
    const auto end_sessions = [&] {
        admin.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" +
                   name + "'");
    };
    admin.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false");
    end_sessions();
    EXPECT_TRUE(shows(top, "AWAY: "));
    EXPECT_TRUE(shows(top, " old"));
    EXPECT_THAT(top.text(), HasSubstr("backlog 1"));
    std::cout << top.text();
    admin.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true");
    emit("02");
    EXPECT_TRUE(shows(top, "backlog 2"));
    EXPECT_THAT(top.text(), Not(HasSubstr("AWAY")));
    // One that does not answer: the table is locked.
    Pg holder(url_);
    holder.exec("BEGIN; LOCK TABLE outbox_route_stats, outbox_lease IN ACCESS EXCLUSIVE MODE");
    EXPECT_TRUE(shows(top, "AWAY: the database does not answer"));
    top.type("q");
    expect_restored(top, {0, 0});
}

}  // namespace
}  // namespace outbox::test
