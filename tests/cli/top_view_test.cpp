// What `outbox top` shows, at each width.
#include "apps/outbox/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace outbox::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kNow = 1'785'000'000'000'000;  // 2026-07-25T17:20:00Z
constexpr std::int64_t kSecond = 1'000'000;

TopState a_state() {
    TopState state;
    state.now_us = kNow;
    TopSample& sample = state.sample;
    sample.source = "public.outbox_events";
    sample.leases = {{.owner = "host-a:4711", .epoch = 3, .held = true}};
    sample.standbys = {"host-b:12"};
    sample.backlog = 12'345;
    sample.oldest_age_s = 83.2;
    sample.scheduled = 7;
    sample.routes = {{.name = "billing",
                      .published_total = 1'234'567,
                      .failing = 3,
                      .dead = 1,
                      .circuit = "closed",
                      .rate_per_s = 512.4},
                     {.name = "search-index-of-the-shop",
                      .published_total = 88,
                      .circuit = "open",
                      .last_error = "OB_SINK_UNAVAILABLE: connection refused by 10.0.0.7:9092",
                      .last_error_at_us = kNow - 65 * kSecond}};
    sample.keys = {{.route = "billing",
                    .id = "01939d3e-7c00-7aaa-8000-000000000001",
                    .key = "order-4711",
                    .attempts = 4,
                    .first_failed_at_us = kNow - 200 * kSecond,
                    .next_attempt_at_us = kNow + 3 * kSecond,
                    .error_code = "OB_RECORD_REFUSED",
                    .error = "the topic takes no more than 1 MB"}};
    return state;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string out = "\n";
    for (const std::string& line : lines) out += line + "\n";
    return out;
}

std::size_t longest(const std::vector<std::string>& lines) {
    std::size_t most = 0;
    for (const std::string& line : lines) {
        most = std::max(
            most, static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
                return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
            })));
    }
    return most;
}

TEST(TopView, ATerminalOf20Columns) {
    EXPECT_EQ(joined(top_screen(a_state(), 20, 30, false)),
              "\n"
              "public.outbox_events\n"
              "relay host-a:4711\n"
              "1 standby\n"
              "backlog 12,345\n"
              "oldest 83.2 s  512/s\n"
              "failing 3  dead 1\n"
              "scheduled 7\n"
              "\n"
              "ROUTE   PER S CIRCU…\n"
              "billing   512 closed\n"
              "search…     0 open\n"
              "  65.0 s ago: OB_SI…\n"
              "\n"
              "KEY        FAILS FOR\n"
              "order-4711     3 min\n");
}

TEST(TopView, ATerminalOf40Columns) {
    EXPECT_EQ(joined(top_screen(a_state(), 40, 30, false)),
              "\n"
              "public.outbox_events           17:20:00Z\n"
              "relay host-a:4711  1 standby\n"
              "backlog 12,345  oldest 83.2 s  512/s\n"
              "failing 3  dead 1  scheduled 7\n"
              "\n"
              "ROUTE               PER S  CIRCUIT  DEAD\n"
              "billing               512  closed      1\n"
              "search-index-of-t…      0  open        0\n"
              "  65.0 s ago: OB_SINK_UNAVAILABLE: conn…\n"
              "\n"
              "KEY         FAILS FOR  TRIES  ERROR\n"
              "order-4711      3 min      4  OB_RECORD…\n");
}

TEST(TopView, ATerminalOf80Columns) {
    EXPECT_EQ(joined(top_screen(a_state(), 80, 24, false)),
              "\n"
              "public.outbox_events                                                   17:20:00Z\n"
              "relay host-a:4711  1 standby  backlog 12,345  oldest 83.2 s  512/s  failing 3\n"
              "dead 1  scheduled 7\n"
              "\n"
              "ROUTE                     PER S  CIRCUIT  PUBLISHED  FAILING  DEAD\n"
              "billing                     512  closed   1,234,567        3     1\n"
              "search-index-of-the-shop      0  open            88        0     0\n"
              "  65.0 s ago: OB_SINK_UNAVAILABLE: connection refused by 10.0.0.7:9092\n"
              "\n"
              "KEY         FAILS FOR  TRIES   NEXT  ROUTE    ERROR\n"
              "order-4711      3 min      4  3.0 s  billing  OB_RECORD_REFUSED: the topic take…\n");
}

TEST(TopView, ATerminalOf120Columns) {
    EXPECT_EQ(joined(top_screen(a_state(), 120, 24, false)),
              "\n"
              "public.outbox_events                                                                "
              "                           17:20:00Z\n"
              "relay host-a:4711  1 standby  backlog 12,345  oldest 83.2 s  512/s  failing 3  dead "
              "1  scheduled 7\n"
              "\n"
              "ROUTE                     PER S  CIRCUIT  PUBLISHED  FAILING  DEAD  LAST ERROR\n"
              "billing                     512  closed   1,234,567        3     1\n"
              "search-index-of-the-shop      0  open            88        0     0  65.0 s ago: "
              "OB_SINK_UNAVAILABLE: connection refused…\n"
              "\n"
              "KEY         FAILS FOR  TRIES   NEXT  ROUTE    ERROR\n"
              "order-4711      3 min      4  3.0 s  billing  OB_RECORD_REFUSED: the topic takes no "
              "more than 1 MB\n");
}

TEST(TopView, ADatabaseThatIsAwayIsSaidToBeWithTheAgeOfTheFigures) {
    TopState state = a_state();
    state.away = "OB_CONNECTION_LOST: the server closed the connection";
    state.age_s = 12;
    const auto lines = top_screen(state, 20, 30, false);
    EXPECT_EQ(lines[1], "AWAY: OB_CONNECTION…");
    EXPECT_EQ(lines[2], "figures 12.0 s old");
    EXPECT_THAT(joined(lines), HasSubstr("backlog 12,345"));
    EXPECT_THAT(top_lines(state),
                ElementsAre("time=2026-07-25T17:20:00Z source=public.outbox_events age_s=12 "
                            "error=\"OB_CONNECTION_LOST: the server closed the connection\""));
    EXPECT_EQ(nlohmann::json::parse(top_json(state))["away"], state.away);
}

TEST(TopView, AnotherTableThanThatOfTheLedgersIsRemarked) {
    TopState state = a_state();
    state.sample.remark = "the table is not the one";
    EXPECT_EQ(top_screen(state, 80, 30, false)[1],
              "the ledgers are of another table: outbox status");
    EXPECT_THAT(top_lines(state)[0], HasSubstr(" remark=\"the table is not the one\" last_error"));
    EXPECT_EQ(nlohmann::json::parse(top_json(state))["remark"], state.sample.remark);
}

TEST(TopView, WithoutARelayNothingElseIsSaid) {
    TopState state;
    state.now_us = kNow;
    state.sample.source = "public.outbox_events";
    EXPECT_THAT(top_screen(state, 80, 24, false),
                ElementsAre("public.outbox_events" + std::string(51, ' ') + "17:20:00Z",
                            "no relay leads  backlog 0  0/s  failing 0  dead 0"));
    EXPECT_THAT(top_lines(state),
                ElementsAre("time=2026-07-25T17:20:00Z source=public.outbox_events route=\"\" "
                            "backlog=0 oldest_s=0.0 leader=\"\" tenants_paused=0"));
}

TEST(TopView, LinesForProgramsHaveOneOrder) {
    EXPECT_THAT(
        top_lines(a_state()),
        ElementsAre(
            "time=2026-07-25T17:20:00Z source=public.outbox_events route=billing rate_per_s=512.4 "
            "published_total=1234567 failing=3 dead=1 circuit=closed backlog=12345 oldest_s=83.2 "
            "leader=host-a:4711 tenants_paused=0 last_error=\"\"",
            "time=2026-07-25T17:20:00Z source=public.outbox_events route=search-index-of-the-shop "
            "rate_per_s=0.0 published_total=88 failing=0 dead=0 circuit=open backlog=12345 "
            "oldest_s=83.2 leader=host-a:4711 tenants_paused=0 last_error=\"OB_SINK_UNAVAILABLE: "
            "connection refused by 10.0.0.7:9092\""));
}

// Keys, errors, names and owners are other people's.
TEST(TopView, NothingInTheDataReachesTheTerminalAsACommand) {
    using namespace std::string_literals;
    const std::string evil =
        "\033[2J\033]0;owned\007\r\n\xc2\x9b"
        "31m \xe2\x80\xae"
        "drowssap \xff\x00 \xe6\xbc\xa2\xe5\xad\x97"s;
    TopState state = a_state();
    state.sample.source = evil;
    state.sample.leases.front().owner = evil;
    for (RouteInfo& route : state.sample.routes) {
        route.name = evil;
        route.circuit = evil;
        route.last_error = evil;
    }
    for (WaitingEvent& key : state.sample.keys) {
        key.key = key.route = key.error = key.error_code = key.id = evil;
    }
    state.away = evil;
    for (const std::size_t columns : {1U, 5U, 20U, 39U, 80U, 200U}) {
        for (const std::string& line : top_screen(state, columns, 24, false)) {
            EXPECT_EQ(std::count_if(line.begin(), line.end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x20U; }),
                      0)
                << columns;
            for (const char* sign : {"\xc2\x9b", "\xe2\x80\xae", "\xff", "\x7f"}) {
                EXPECT_EQ(line.find(sign), std::string::npos) << columns << " " << line;
            }
        }
    }
    state.away.clear();
    for (const std::string& line : top_lines(state)) {
        EXPECT_EQ(line.find_first_of(std::string_view("\033\n\r\0", 4)), std::string::npos);
    }
    EXPECT_EQ(top_json(state).find_first_of(std::string_view("\033\n\r\0", 4)), std::string::npos);
}

TEST(TopView, NoLineIsWiderAndNoScreenHigherThanTheTerminal) {
    TopState state = a_state();
    for (int n = 0; n < 60; ++n) {
        state.sample.routes.push_back(state.sample.routes[static_cast<std::size_t>(n % 2)]);
        state.sample.keys.push_back(state.sample.keys[0]);
    }
    for (const std::size_t columns :
         {1U, 2U, 3U, 7U, 12U, 20U, 31U, 39U, 40U, 61U, 80U, 119U, 160U}) {
        for (const std::size_t rows : {1U, 2U, 5U, 10U, 24U, 50U}) {
            for (const bool away : {false, true}) {
                state.away = away ? "gone" : "";
                const auto lines = top_screen(state, columns, rows, false);
                EXPECT_LE(lines.size(), rows) << columns;
                EXPECT_LE(longest(lines), columns) << rows;
            }
        }
    }
    const std::string text = joined(top_screen(state, 80, 24, false));
    EXPECT_THAT(text, HasSubstr("more lines"));
    EXPECT_THAT(text, HasSubstr("order-4711"));
}

TEST(TopView, ColoursAreOnlyThereWhereTheyAreWanted) {
    EXPECT_THAT(joined(top_screen(a_state(), 80, 24, true)), HasSubstr("\033[31mopen\033[0m"));
    EXPECT_EQ(joined(top_screen(a_state(), 80, 24, false)).find('\033'), std::string::npos);
}

double rate_of(TopRates& rates, double at_s, std::int64_t total, double reported = 7) {
    std::vector<RouteInfo> routes{{.name = "r", .published_total = total, .rate_per_s = reported}};
    rates.measure(at_s, routes);
    return routes[0].rate_per_s;
}

TEST(TopTenants, ThoseThatArePausedComeFirstThenThoseOfWhomMostWaits) {
    const std::vector<PausedTenant> paused{{"quiet", "moved", "user ann", kNow - 90 * kSecond},
                                           {"loud", "their topic", "user bob", kNow - kSecond}};
    TenantBacklogs backlogs =
        most_of_each({{{"loud", 7}, {"acme", 9}, {"globex", 3}}, {{"loud", 8}, {"default", 4}}});
    EXPECT_FALSE(backlogs.more);
    const auto tenants = top_tenants(paused, backlogs, "default");
    std::string shown;
    for (const TopTenant& one : tenants)
        shown += one.name + " " + std::to_string(one.waiting) + " ";
    EXPECT_EQ(shown, "loud 8 quiet 0 acme 9 default 4 globex 3 ");
    TopState state = a_state();
    state.sample.tenants = tenants;
    state.sample.paused = 2;
    EXPECT_THAT(joined(top_screen(state, 80, 24, false)),
                HasSubstr("\n"
                          "\n"
                          "TENANT   WAITING  PAUSED FOR  BY, AND WHY\n"
                          "loud           8       1.0 s  user bob: their topic\n"
                          "quiet          0      90.0 s  user ann: moved\n"
                          "acme           9\n"));
    EXPECT_THAT(top_lines(state)[0], HasSubstr(" tenants_paused=2 "));
    const auto json = nlohmann::json::parse(top_json(state));
    EXPECT_EQ(json["tenants"][1]["paused"], true);
    EXPECT_EQ(json["tenants"][2]["who"], nullptr);
}

TEST(TopTenants, AreBoundedAndNoneWhereNobodyHasAny) {
    std::map<std::string, std::int64_t> many;
    std::vector<PausedTenant> paused;
    for (std::int64_t i = 0; i < 100; ++i) {
        many["t" + std::to_string(i)] = 200;
        paused.push_back({"p" + std::to_string(i), "r", "w", kNow});
    }
    EXPECT_TRUE(most_of_each({many}).more) << "as many as are counted";
    EXPECT_EQ(top_tenants(paused, most_of_each({many}), "default").size(), 2 * kMaxTopTenants);
    EXPECT_TRUE(top_tenants({}, most_of_each({{{"default", 5}}}), "default").empty());
    EXPECT_EQ(top_tenants({}, most_of_each({{{"default", 5}}}), "other").size(), 1U);
}

TEST(TopRates, AreThoseOfTheCounterOverTheLastSeconds) {
    TopRates rates;
    EXPECT_EQ(rate_of(rates, 100, 1'000), 7) << "the relay's own word, at first";
    EXPECT_EQ(rate_of(rates, 101, 1'100), 100);
    EXPECT_EQ(rate_of(rates, 102, 1'100), 50);
    for (int s = 103; s < 110; ++s) rate_of(rates, s, 1'100);
    EXPECT_EQ(rate_of(rates, 110, 1'100), 0) << "what is long ago does not count";
    EXPECT_EQ(rate_of(rates, 120, 2'100), 100) << "a gap is averaged over";
}

TEST(TopRates, ACounterThatBeginsAnewIsNoNegativeRate) {
    TopRates rates;
    rate_of(rates, 100, 1'000);
    EXPECT_EQ(rate_of(rates, 101, 1'100), 100);
    EXPECT_EQ(rate_of(rates, 102, 10), 7)
        << "until there are two looks again, the relay's own word";
    EXPECT_EQ(rate_of(rates, 103, 30), 20);
}

}  // namespace
}  // namespace outbox::app
