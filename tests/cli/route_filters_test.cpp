#include <fstream>

#include "tests/cli/routes.h"

namespace outbox::test {
namespace {

struct Route {
    std::string name;
    std::string to;
    std::string event_types;  // as TOML has them
};

// Filters that change while a route lags: what a route passed over is not finished.
class RouteFilters : public Routes {
  protected:
    void SetUp() override {
        Routes::SetUp();
        near_ = subscriber("near");
        const std::string far = away("far");
        nowhere_ = far.substr(far.find('=') + 1);
    }

    void emit_of_type(const std::string& payload, const std::string& type) {
        sql("INSERT INTO outbox_events (id, topic, key, event_type, payload) VALUES ('" +
            id(payload) + "', 'orders', 'k" + payload + "', '" + type + "', '1')");
    }
    Process relay_of(const std::vector<Route>& routes) {
        const std::string file = outbox_.file("outbox.toml");
        std::ofstream toml(file);
        toml << "[source]\nurl = \"" << url_ << "\"\n";
        for (const Route& route : routes) {
            toml << "[[route]]\nname = \"" << route.name << "\"\nto = \"" << route.to
                 << "\"\nevent_type = " << route.event_types << "\n";
        }
        toml.close();
        return outbox_.start_relay({"--config", file, "--admin", "off"});
    }
    std::string near_url() const { return "mailbox+" + near_; }

    std::string near_;
    std::string nowhere_;
};

TEST_P(RouteFilters, WidenedBringWhatTheRoutePassedOver) {
    emit_of_type("01", "Made");
    emit_of_type("02", "Paid");
    {
        Process running =
            relay_of({{"near", near_url(), "['Made']"}, {"far", nowhere_, "['Made', 'Paid']"}});
        ASSERT_TRUE(eventually(60s, "the near route has finished",
                               [&] { return route("near")["unfinished"] == 0; }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_EQ(received(near_), "01");
    Process running =
        relay_of({{"near", near_url(), "['Made', 'Paid']"}, {"far", nowhere_, "['Made', 'Paid']"}});
    EXPECT_TRUE(
        eventually(60s, "what it passed over is sent", [&] { return received(near_) == "01 02"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(RouteFilters, OfTheDefaultTenantTakeEventsThatNameNone) {
    sql("CREATE TABLE mine (id text PRIMARY KEY, aggregate_type text, event_type text, payload "
        "text, tenant_id text, created_at timestamp DEFAULT CURRENT_TIMESTAMP, processed_at "
        "timestamp)");
    sql("INSERT INTO mine (id, aggregate_type, event_type, payload, tenant_id) VALUES "
        "('01', 'a', 't', '1', NULL), ('02', 'b', 't', '1', 'acme'), ('03', 'c', 't', '1', 'x')");
    const std::string file = outbox_.file("outbox.toml");
    std::ofstream(file) << "[source]\nurl = \"" << url_
                        << "\"\ndefault_tenant = \"acme\"\n[[route]]\nname = "
                           "\"near\"\nto = \""
                        << near_url() << "\"\ntenant = ['acme']\n";
    Process running = outbox_.start_relay({"--config", file, "--table", "mine", "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "all that it takes is sent", [&] {
        return sql("SELECT count(*) FROM mine WHERE processed_at IS NULL") == "0" &&
               received(near_) == "01 02";
    })) << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(sql("SELECT tenant_id FROM outbox_dead_letters"), "x");
}

TEST_P(RouteFilters, OfAnotherRouteChangedLeaveNoEventThatNobodyAnswersFor) {
    emit_of_type("01", "Made");
    emit_of_type("02", "Paid");
    {
        Process running =
            relay_of({{"near", near_url(), "['Made']"}, {"far", nowhere_, "['Paid']"}});
        ASSERT_TRUE(eventually(60s, "the near route has finished",
                               [&] { return route("near")["unfinished"] == 0; }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    Process running = relay_of({{"near", near_url(), "['Made']"}, {"far", nowhere_, "['Sent']"}});
    EXPECT_TRUE(eventually(60s, "it is a dead letter", [&] {
        return sql("SELECT count(*) FROM outbox_dead_letters WHERE id = '" + id("02") + "'") == "1";
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(near_), "01");
}

TEST_P(RouteFilters, InAnotherOrderLeaveNoEventThatNobodyAnswersFor) {
    emit_of_type("01", "Made");
    emit_of_type("02", "Lost");
    {
        Process running =
            relay_of({{"far", nowhere_, "['Paid']"}, {"near", near_url(), "['Made']"}});
        ASSERT_TRUE(eventually(60s, "the near route has finished",
                               [&] { return route("near")["unfinished"] == 0; }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    ASSERT_EQ(sql("SELECT count(*) FROM outbox_dead_letters"), "0");
    Process running = relay_of({{"near", near_url(), "['Made']"}, {"far", nowhere_, "['Paid']"}});
    EXPECT_TRUE(eventually(60s, "it is a dead letter", [&] {
        return sql("SELECT count(*) FROM outbox_dead_letters WHERE id = '" + id("02") + "'") == "1";
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(near_), "01");
}

INSTANTIATE_TEST_SUITE_P(Databases, RouteFilters, testing::Values(kPostgres, kSqlite),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace outbox::test
