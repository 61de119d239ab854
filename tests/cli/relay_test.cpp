#include <filesystem>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "tests/support/eventually.h"
#include "tests/support/http_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/still_sessions.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class RelayCommand : public testing::Test {
  protected:
    void SetUp() override { use(shared_postgres()); }

    void use(PostgresServer& server) {
        url_ = server.create_database();
        database_ = std::make_unique<Pg>(url_);
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
        port_ = free_port();
    }

    void emit() {
        database_->exec("SELECT outbox_emit(topic => 'orders', key => 'k', payload => '{}')");
    }

    Process relay(const std::string& to, std::vector<std::string> more = {}) {
        std::vector<std::string> arguments{
            "--from", url_, "--to", to, "--admin", "127.0.0.1:" + std::to_string(port_)};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return outbox_.start_relay(arguments);
    }

    // 0 while nobody listens.
    int status_of(const std::string& path) const {
        try {
            return http(port_, "GET", path).status;
        } catch (const std::exception&) {
            return 0;
        }
    }

    std::string mailbox() const { return "mailbox+postgresql" + url_.substr(url_.find(':')); }

    OutboxBinary outbox_;
    std::string url_;
    std::unique_ptr<Pg> database_;
    int port_ = 0;
};

TEST_F(RelayCommand, ServesHealthAndMetricsAndHandsOverOnSigterm) {
    Process running = relay(mailbox(), {"--log-format", "json"});
    emit();
    ASSERT_TRUE(eventually(60s, "the event is in the mailbox", [&] {
        return database_->number("SELECT count(*) FROM outbox_mailbox") == 1;
    }));
    EXPECT_EQ(status_of("/health/live"), 200);
    EXPECT_EQ(status_of("/health/ready"), 200);
    // The row is there before the relay has the mailbox's answer.
    EXPECT_TRUE(eventually(60s, "the event is counted", [&] {
        return http(port_, "GET", "/metrics")
                   .body.find(
                       "outbox_published_total{source=\"public.outbox_events\","
                       "route=\"mailbox\"} 1\n") != std::string::npos;
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(database_->value("SELECT owner IS NULL FROM outbox_lease"), "t");
    EXPECT_EQ(running.stdout_text(), "");
    std::istringstream lines(running.stderr_text());
    std::string events;
    for (std::string line; std::getline(lines, line);) {
        events += json::parse(line)["event"].get<std::string>() + " ";
    }
    EXPECT_THAT(events, HasSubstr("started lease_acquired"));
    EXPECT_THAT(events, HasSubstr("stop_requested stopping stopped"));
}

TEST_F(RelayCommand, StaysUpAndReadyWhileADestinationIsAwayAndNamesIt) {
    const std::string nowhere =
        "mailbox+postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    emit();
    Process running = relay(nowhere);
    ASSERT_TRUE(eventually(60s, "the open circuit is named", [&] {
        return status_of("/health/ready") == 200 &&
               json::parse(http(port_, "GET", "/health/ready").body)["open_circuits"] ==
                   json::array({"mailbox"});
    }));
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_events"), 1);
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_delivery"), 0);
    EXPECT_TRUE(running.running());
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(RelayCommand, IsNotReadyWhileTheDatabaseIsAwayAndRecovers) {
    PostgresServer server;
    use(server);
    Process running = relay(mailbox());
    ASSERT_TRUE(eventually(60s, "ready", [&] { return status_of("/health/ready") == 200; }));
    server.stop(PostgresServer::Stop::kImmediate);
    EXPECT_TRUE(eventually(60s, "not ready", [&] { return status_of("/health/ready") == 503; }));
    EXPECT_EQ(status_of("/health/live"), 200);
    server.start();
    EXPECT_TRUE(eventually(60s, "ready again", [&] { return status_of("/health/ready") == 200; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_THAT(running.stderr_text(), HasSubstr("event=database_away"));
    EXPECT_THAT(running.stderr_text(), HasSubstr("event=database_back"));
}

TEST_F(RelayCommand, RunsWithoutTheDefaultAdminAddressWhereItIsTaken) {
    const TakenPort taken(9464);
    Process running = outbox_.start_relay({"--from", url_, "--to", mailbox()});
    emit();
    EXPECT_TRUE(eventually(60s, "the event is in the mailbox", [&] {
        return database_->number("SELECT count(*) FROM outbox_mailbox") == 1;
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_THAT(running.stderr_text(), HasSubstr("event=admin_off"));
}

TEST_F(RelayCommand, RunsRoutesOfTheFile) {
    outbox_.write("outbox.toml", "[source]\nurl = \"" + url_ + "\"\n" +
                                     "[[route]]\nname = \"orders\"\nto = \"" + mailbox() +
                                     "?mailbox=orders\"\naggregate_type = \"Order\"\n"
                                     "topic_template = \"{aggregate_type}.{event_type}\"\n"
                                     "[[route]]\nname = \"all\"\nto = \"" +
                                     mailbox() + "?mailbox=all\"\n");
    Process running = outbox_.start_relay({"--admin", "off"});
    database_->exec(
        "SELECT outbox_emit(aggregate_type => t, aggregate_id => '1', event_type => "
        "'Made', payload => '{}') FROM unnest(ARRAY['Order', 'User']) t");
    EXPECT_TRUE(eventually(60s, "each event is where its routes go", [&] {
        return database_->value(
                   "SELECT string_agg(mailbox || ':' || topic, ' ' ORDER BY 1) FROM "
                   "(SELECT mailbox, topic FROM outbox_mailbox ORDER BY 1, 2) m") ==
               "all:order-events all:user-events orders:Order.Made";
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(RelayCommand, ReadsItsFileAnewOnSighupAndKeepsWhatItHasWhereThatIsWrong) {
    const auto write = [&](const std::string& name) {
        outbox_.write("outbox.toml", "to = \"" + mailbox() + "\"\ntopic_template = \"" + name +
                                         "\"\n[source]\nurl = \"" + url_ + "\"\n");
    };
    const auto arrived = [&](const std::string& name) {
        database_->exec("SELECT outbox_emit(aggregate_type => 'o', payload => '{}')");
        return eventually(60s, "it is in " + name, [&] {
            return database_->number("SELECT count(*) FROM outbox_events") == 0 &&
                   database_->number("SELECT count(*) FROM outbox_mailbox WHERE topic = '" + name +
                                     "'") > 0;
        });
    };
    write("first");
    Process running = outbox_.start_relay({"--admin", "127.0.0.1:" + std::to_string(port_)});
    ASSERT_TRUE(arrived("first"));
    outbox_.write("outbox.toml", "to = [\n");
    running.kill(SIGHUP);
    ASSERT_TRUE(eventually(60s, "the file is refused", [&] {
        return running.stderr_text().find("event=reload_refused") != std::string::npos;
    }));
    EXPECT_TRUE(arrived("first"));
    write("second");
    running.kill(SIGHUP);
    ASSERT_TRUE(eventually(60s, "it goes on with the new file", [&] {
        return running.stderr_text().find("event=reloaded") != std::string::npos;
    }));
    EXPECT_TRUE(arrived("second"));
    EXPECT_TRUE(eventually(60s, "ready", [&] { return status_of("/health/ready") == 200; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(RelayCommand, ItsPageThatWaitsForOneSessionHoldsUpNeitherSighupNorTheEnd) {
    const std::string token = outbox_.write("token", "a token that nobody guesses\n").string();
    chmod(token.c_str(), 0600);
    outbox_.write("outbox.toml", "to = \"" + mailbox() + "\"\n[source]\nurl = \"" + url_ + "\"\n");
    Process running = outbox_.start_relay(
        {"--admin", "127.0.0.1:" + std::to_string(port_), "--admin-token-file", token});
    const auto arrive = [&](int count) {
        emit();
        return eventually(60s, "the event is there", [&] {
            return database_->number("SELECT count(*) FROM outbox_mailbox") == count;
        });
    };
    ASSERT_TRUE(arrive(1)) << running.stderr_text();
    ASSERT_EQ(status_of("/api/overview"), 200);
    StillSessions still(url_, "outbox consumer", "outbox_inbox, outbox_inbox_dead_letters");
    std::future<void> asked;
    ASSERT_TRUE(eventually(60s, "a request waits for a session that stands still", [&] {
        return still.keep_waiting([&] { status_of("/api/overview"); }, asked);
    }));
    EXPECT_EQ(status_of("/health/live"), 200);
    running.kill(SIGHUP);
    EXPECT_TRUE(eventually(60s, "it begins anew", [&] {
        return running.stderr_text().find("event=reloaded") != std::string::npos;
    }));
    EXPECT_TRUE(arrive(2)) << running.stderr_text();
    EXPECT_TRUE(eventually(60s, "ready", [&] { return status_of("/health/ready") == 200; }));
    running.kill(SIGTERM);
    // 5 s later, without: whoever it waits for is not sure to answer ever.
    EXPECT_EQ(running.wait(60s), (ExitStatus{1, 0})) << running.stderr_text();
    EXPECT_THAT(running.stderr_text(), HasSubstr("event=killed"));
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_lease WHERE expires_at > now()"), 0);
}

TEST_F(RelayCommand, LeaderAndStandbyOutliveTheRotationOfTheirPassword) {
    PostgresServer server;
    use(server);
    const auto write_password = [&](const std::string& password) {
        const auto file = outbox_.write("pgpass", "*:*:*:clerk:" + password + "\n");
        std::filesystem::permissions(
            file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    };
    database_->exec("CREATE ROLE clerk LOGIN SUPERUSER PASSWORD 'old'");
    write_password("old");
    const std::string from = "postgresql://clerk@127.0.0.1:" + std::to_string(server.port()) +
                             url_.substr(url_.rfind('/')) +
                             "?passfile=" + outbox_.file("pgpass").string();
    Process leader = outbox_.start_relay({"--from", from, "--to", mailbox(), "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "it leads", [&] {
        return database_->number("SELECT count(*) FROM outbox_lease WHERE owner IS NOT NULL") == 1;
    }));
    Process standby = outbox_.start_relay({"--from", from, "--to", mailbox(), "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "the other one waits", [&] {
        return standby.stderr_text().find("event=standby") != std::string::npos;
    }));
    database_->exec("ALTER ROLE clerk PASSWORD 'new'");
    database_->exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'");
    for (Process* relay : {&leader, &standby}) {
        ASSERT_TRUE(eventually(60s, "it is refused and waits", [&] {
            return relay->stderr_text().find("OB_AUTH_FAILED") != std::string::npos;
        }));
    }
    write_password("new");
    emit();
    EXPECT_TRUE(eventually(60s, "they go on", [&] {
        return database_->number("SELECT count(*) FROM outbox_events") == 0;
    }));
    EXPECT_EQ(standby.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(leader.stop(), (ExitStatus{0, 0}));
}

TEST_F(RelayCommand, CheckTellsWhatItFoundAndRelaysNothing) {
    emit();
    const Finished good = outbox_.run({"relay", "--check", "--from", url_, "--to", mailbox()});
    EXPECT_EQ(good.status.code, 0) << good.err;
    EXPECT_THAT(good.out, HasSubstr("ok       source public.outbox_events"));
    EXPECT_THAT(good.out, Not(HasSubstr("problem")));
    const Finished bad =
        outbox_.run({"relay", "--check", "--from", url_, "--to",
                     "mailbox+postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x"});
    EXPECT_EQ(bad.status.code, 1);
    EXPECT_THAT(bad.out, HasSubstr("problem  route mailbox"));
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_events"), 1);
}

TEST_F(RelayCommand, SecondRelayWaitsAndTakesOverWhenTheFirstIsKilled) {
    Process first = relay(mailbox());
    ASSERT_TRUE(eventually(60s, "the first has the lease", [&] {
        return database_->number("SELECT count(*) FROM outbox_lease WHERE epoch = 1") == 1;
    }));
    Process second = outbox_.start_relay({"--from", url_, "--to", mailbox(), "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "the second waits", [&] {
        return second.stderr_text().find("event=standby") != std::string::npos;
    }));
    first.kill(SIGKILL);
    EXPECT_TRUE(eventually(60s, "the second has the lease", [&] {
        return database_->number("SELECT epoch FROM outbox_lease") == 2;
    }));
    EXPECT_EQ(second.stop(), (ExitStatus{0, 0}));
}

TEST_F(RelayCommand, PasswordsAppearInNoLogLine) {
    const std::string port = std::to_string(free_port());
    Process running = outbox_.start_relay({"--from", url_, "--to",
                                           "mailbox+postgresql://a:s3cret@127.0.0.1:" + port + "/x",
                                           "--admin", "off"});
    emit();
    ASSERT_TRUE(eventually(60s, "the circuit opens", [&] {
        return running.stderr_text().find("event=circuit_open") != std::string::npos;
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_THAT(running.stderr_text(), Not(HasSubstr("s3cret")));
}

}  // namespace
}  // namespace outbox::test
