#include <arpa/inet.h>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

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
using testing::ContainsRegex;
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
    // It may find the database's log just then.
    EXPECT_THAT(events, ContainsRegex("stop_requested (reads_by )*stopping (reads_by )*stopped"));
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

// Which passes: nobody has to ask again.
TEST_F(RelayCommand, LooksAgainAtWhatSighupAsksForWhereALockWasInTheWay) {
    const auto write = [&](const std::string& name) {
        outbox_.write("outbox.toml", "to = \"" + mailbox() + "\"\ntopic_template = \"" + name +
                                         "\"\nadmin = \"127.0.0.1:" + std::to_string(port_) +
                                         "\"\n[source]\nurl = \"" + url_ + "\"\n");
    };
    write("first");
    Process running = outbox_.start_relay({});
    const auto says = [&](const std::string& event) {
        return running.stderr_text().find("event=" + event) != std::string::npos;
    };
    ASSERT_TRUE(eventually(60s, "ready", [&] { return status_of("/health/ready") == 200; }));
    Pg holder(url_);
    holder.exec("BEGIN; LOCK TABLE outbox_migrations IN ACCESS EXCLUSIVE MODE");
    write("second");
    running.kill(SIGHUP);
    EXPECT_TRUE(eventually(60s, "it waits", [&] { return says("reload_waits"); }));
    EXPECT_FALSE(says("stop_requested"));
    holder.exec("COMMIT");
    EXPECT_TRUE(eventually(60s, "it goes on with the file", [&] { return says("reloaded"); }));
    EXPECT_FALSE(says("reload_refused"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// A relay whose mailbox, in a database of its own, is locked: what it stops for waits for that.
class ReloadedRelay : public RelayCommand {
  protected:
    void SetUp() override {
        use(source_);
        holder_ = std::make_unique<Pg>(destination_);
        ASSERT_EQ(outbox_.run({"migrate", "--only", "consumer", "--db", destination_}).status.code,
                  0);
        write("first");
    }

    void write(const std::string& topic) {
        outbox_.write("outbox.toml", "to = \"mailbox+postgresql" +
                                         destination_.substr(destination_.find(':')) +
                                         "\"\ntopic_template = \"" + topic +
                                         "\"\nadmin = \"off\"\n[source]\nurl = \"" + url_ + "\"\n");
    }

    void emit_by_template() {
        Pg(url_).exec("SELECT outbox_emit(aggregate_type => 'o', key => 'k', payload => '{}')");
    }

    // SIGHUP, while an event is on its way that does not arrive before `let_go`.
    void reload_while_one_waits(Process& running) {
        holder_->exec("BEGIN; LOCK TABLE outbox_mailbox IN EXCLUSIVE MODE");
        emit_by_template();
        Pg look(destination_);
        ASSERT_TRUE(eventually(60s, "it waits for the mailbox", [&] {
            return look.number(
                       "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = "
                       "'outbox_mailbox'::regclass") == 1;
        })) << running.stderr_text();
        running.kill(SIGHUP);
        ASSERT_TRUE(eventually(60s, "it stops for what its file says now", [&] {
            return running.stderr_text().find("event=stopping") != std::string::npos;
        })) << running.stderr_text();
    }
    void let_go() { holder_->exec("COMMIT"); }

    std::string box(const std::string& name) const {
        return "mailbox+postgresql" + destination_.substr(destination_.find(':')) +
               "?mailbox=" + name;
    }
    static std::string route(const std::string& name, const std::string& to) {
        return "[[route]]\nname = \"" + name + "\"\nto = \"" + to + "\"\ntopic_template = \"t\"\n";
    }
    void write_routes(const std::string& url, const std::vector<std::string>& routes) {
        std::string text = "admin = \"off\"\n[source]\nurl = \"" + url + "\"\n";
        for (const std::string& one : routes) text += one;
        outbox_.write("outbox.toml", text);
    }

    // The source as a role sees it that may do all.
    std::string with_role(const std::string& role) {
        database_->exec("CREATE ROLE " + role +
                        " LOGIN PASSWORD 'test'; GRANT ALL ON ALL TABLES IN "
                        "SCHEMA public TO " +
                        role + "; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO " + role);
        return std::string(url_).replace(url_.find("postgres@"), 8, role + ":test");
    }

    static std::size_t count_of(const Process& process, const std::string& event) {
        const std::string log = process.stderr_text();
        const std::string line = "event=" + event;
        std::size_t count = 0;
        for (auto at = log.find(line); at != std::string::npos; at = log.find(line, at + 1))
            ++count;
        return count;
    }
    static bool says(const Process& process, const std::string& event) {
        return count_of(process, event) > 0;
    }

    bool arrived(const std::string& topics) {
        return eventually(60s, "these arrived: " + topics, [&] {
            return holder_->value(
                       "SELECT string_agg(topic, ' ' ORDER BY position) FROM "
                       "outbox_mailbox") == topics;
        });
    }

    PostgresServer source_;
    std::string destination_ = shared_postgres().create_database();
    std::unique_ptr<Pg> holder_;
};

TEST_F(ReloadedRelay, GoesOnWithWhatItsFileSaidLastWhereSighupComesAgainWhileItStops) {
    Process running = outbox_.start_relay({});
    ASSERT_NO_FATAL_FAILURE(reload_while_one_waits(running));
    write("second");
    running.kill(SIGHUP);
    ASSERT_TRUE(eventually(60s, "the signal was taken", [&] {
        return read_file("/proc/" + std::to_string(running.pid()) + "/status")
                   .find("ShdPnd:\t0000000000000000") != std::string::npos;
    }));
    let_go();
    EXPECT_TRUE(eventually(60s, "it begins anew", [&] {
        return running.stderr_text().find("event=reloaded") != std::string::npos;
    }));
    emit_by_template();
    EXPECT_TRUE(arrived("first second")) << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(ReloadedRelay, WaitsForADatabaseThatGoesAwayWhileItStops) {
    Process running = outbox_.start_relay({"--shutdown-grace-s", "1"});
    ASSERT_NO_FATAL_FAILURE(reload_while_one_waits(running));
    source_.stop(PostgresServer::Stop::kImmediate);
    let_go();
    EXPECT_TRUE(eventually(60s, "it begins anew, without its database", [&] {
        const std::string log = running.stderr_text();
        const auto anew = log.find("event=reloaded");
        return anew != std::string::npos &&
               log.find("event=database_away", anew) != std::string::npos;
    })) << running.stderr_text();
    source_.start();
    emit_by_template();
    EXPECT_TRUE(arrived("first first")) << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(ReloadedRelay, WaitsForAServerThatHangsWhileItStops) {
    Process running = outbox_.start_relay({"--shutdown-grace-s", "1"});
    ASSERT_NO_FATAL_FAILURE(reload_while_one_waits(running));
    source_.pause();
    let_go();
    EXPECT_TRUE(eventually(60s, "the grace is over", [&] {
        return running.stderr_text().find("event=reload_waits") != std::string::npos;
    })) << running.stderr_text();
    source_.resume();
    EXPECT_TRUE(eventually(60s, "it begins anew", [&] {
        return running.stderr_text().find("event=reloaded") != std::string::npos;
    })) << running.stderr_text();
    emit_by_template();
    EXPECT_TRUE(arrived("first first")) << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// Whoever looks before it stops the relay sees a route without events, which has one later.
TEST_F(ReloadedRelay, GoesOnAsItLedWhereARouteThatIsGoneGotAnEventMeanwhile) {
    const std::vector<std::string> both{route("a", box("a")), route("b", box("b"))};
    write_routes(url_, both);
    Process leader = outbox_.start_relay({});
    ASSERT_TRUE(eventually(60s, "the first leads", [&] { return says(leader, "lease_acquired"); }));
    emit_by_template();
    ASSERT_TRUE(arrived("t t"));
    Process standby = outbox_.start_relay({});
    ASSERT_TRUE(eventually(60s, "the second stands by", [&] { return says(standby, "standby"); }));
    write_routes(url_, {both[0]});
    ASSERT_TRUE(eventually(60s, "nothing is left to do", [&] {
        return Pg(url_).number("SELECT count(*) FROM outbox_events") == 0;
    }));
    // Twice: what it goes back to is no file that it never led with.
    for (const std::size_t times : {1, 2}) {
        standby.kill(SIGHUP);
        ASSERT_TRUE(eventually(60s, "the second took the file without b", [&] {
            return count_of(standby, "reloaded") == times;
        })) << standby.stderr_text();
    }
    holder_->exec("BEGIN; LOCK TABLE outbox_mailbox IN EXCLUSIVE MODE");
    emit_by_template();
    leader.kill(SIGKILL);
    EXPECT_TRUE(eventually(60s, "it refuses the file after all", [&] {
        return says(standby, "reload_refused");
    })) << standby.stderr_text();
    let_go();
    EXPECT_TRUE(arrived("t t t t")) << standby.stderr_text();
    EXPECT_EQ(standby.stop(), (ExitStatus{0, 0}));
}

TEST_F(ReloadedRelay, IsNotStoppedForAFileWhoseRoleLacksARight) {
    Process running = outbox_.start_relay({});
    ASSERT_TRUE(eventually(60s, "it leads", [&] { return says(running, "lease_acquired"); }));
    const std::string good = std::exchange(url_, with_role("poor"));
    write("second");
    url_ = good;
    std::size_t refused = 0;
    for (const std::string right :
         {"DELETE ON outbox_events", "ALL ON outbox_route_stats", "SELECT ON outbox_delivery"}) {
        database_->exec("REVOKE " + right + " FROM poor");
        running.kill(SIGHUP);
        ++refused;
        EXPECT_TRUE(eventually(60s, "it refuses the file",
                               [&] { return count_of(running, "reload_refused") == refused; }))
            << right << running.stderr_text();
        database_->exec("GRANT " + right + " TO poor");
    }
    EXPECT_FALSE(says(running, "stop_requested")) << running.stderr_text();
    emit_by_template();
    EXPECT_TRUE(arrived("first")) << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// The relay that goes on meets no route of the one that could not, and sends nothing again: the
// ledger of its own is still there.
TEST_F(ReloadedRelay, LeavesTheLedgerAsItWasWhereARightIsGoneSinceTheLook) {
    const std::string up_to_date = route("r", box("r"));
    const std::string away =
        route("n", "mailbox+postgresql://postgres@127.0.0.1:" + std::to_string(free_port()) + "/n");
    write_routes(url_, {up_to_date, away});
    Process leader = outbox_.start_relay({});
    ASSERT_TRUE(eventually(60s, "the first leads", [&] { return says(leader, "lease_acquired"); }));
    emit_by_template();
    ASSERT_TRUE(arrived("t"));
    ASSERT_TRUE(eventually(60s, "it is recorded", [&] {
        return database_->number("SELECT count(*) FROM outbox_ledger WHERE route = 'r'") == 1;
    }));
    Process standby = outbox_.start_relay({});
    ASSERT_TRUE(eventually(60s, "the second stands by", [&] { return says(standby, "standby"); }));
    write_routes(with_role("poor"), {away, route("added", box("added"))});
    standby.kill(SIGHUP);
    ASSERT_TRUE(eventually(60s, "it took the file", [&] { return says(standby, "reloaded"); }))
        << standby.stderr_text();
    const auto ledger = [this] {
        return database_->value(
            "SELECT string_agg(route || ' since ' || since, ', ' ORDER BY route) FROM "
            "outbox_routes");
    };
    const std::string before = ledger();
    database_->exec("REVOKE ALL ON outbox_route_stats FROM poor");
    leader.kill(SIGKILL);
    EXPECT_TRUE(eventually(60s, "it refuses the file after all", [&] {
        return says(standby, "reload_refused");
    })) << standby.stderr_text();
    emit_by_template();
    EXPECT_TRUE(arrived("t t")) << standby.stderr_text();
    EXPECT_EQ(ledger(), before);
    EXPECT_EQ(standby.stop(), (ExitStatus{0, 0}));
}

// A file that takes time to be read: one end of a pipe.
TEST_F(RelayCommand, IsNotEndedBySighupWhileItBegins) {
    const std::string file = outbox_.file("slow.toml");
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    Process running = outbox_.start_relay({"--config", file});
    const auto write = [&](bool asks_for_it_anew) {
        const int end = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
        EXPECT_TRUE(eventually(60s, "it reads", [&] {
            const auto fds = "/proc/" + std::to_string(running.pid()) + "/fd";
            std::error_code gone;
            for (const auto& fd : std::filesystem::directory_iterator(fds, gone)) {
                if (std::filesystem::read_symlink(fd, gone) == file) return true;
            }
            return false;
        }));
        if (asks_for_it_anew) running.kill(SIGHUP);
        const std::string text =
            "to = \"" + mailbox() + "\"\nadmin = \"off\"\n[source]\nurl = \"" + url_ + "\"\n";
        EXPECT_EQ(::write(end, text.data(), text.size()), std::ssize(text));
        ::close(end);
    };
    write(true);
    EXPECT_TRUE(eventually(60s, "it begins", [&] {
        return running.stderr_text().find("event=started") != std::string::npos;
    })) << running.stderr_text();
    write(false);
    EXPECT_TRUE(eventually(60s, "it was asked to read the file anew", [&] {
        return running.stderr_text().find("event=reloaded") != std::string::npos;
    })) << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_F(RelayCommand, KeepsWhatItHasWhereSighupNamesAnAddressThatIsNotToBeHad) {
    const TakenPort taken(0);
    const auto write = [&](const std::string& admin) {
        outbox_.write("outbox.toml", "to = \"" + mailbox() + "\"\nadmin = \"" + admin +
                                         "\"\n[source]\nurl = \"" + url_ + "\"\n");
    };
    const auto port = [](int number) { return ":" + std::to_string(number); };
    const auto count = [](const std::string& log, const std::string& what) {
        std::size_t found = 0;
        for (auto at = log.find(what); at != std::string::npos; at = log.find(what, at + 1)) {
            ++found;
        }
        return found;
    };
    write("127.0.0.1" + port(port_));
    Process running = outbox_.start_relay({});
    ASSERT_TRUE(eventually(60s, "ready", [&] { return status_of("/health/ready") == 200; }));
    std::size_t refused = 0;
    for (const std::string& address :
         {taken.address(), "no.such.host.invalid" + port(port_), "192.0.2.1" + port(port_)}) {
        write(address);
        running.kill(SIGHUP);
        ++refused;
        EXPECT_TRUE(eventually(60s, address + " is refused", [&] {
            return count(running.stderr_text(), "event=reload_refused") == refused;
        })) << running.stderr_text();
        EXPECT_EQ(status_of("/health/ready"), 200);
    }
    EXPECT_THAT(running.stderr_text(), Not(HasSubstr("event=stop_requested")));
    // Its own port on another address, and another port.
    std::size_t reloaded = 0;
    for (const std::string& address :
         {"127.0.0.2" + port(port_), "0.0.0.0" + port(port_), "127.0.0.1" + port(free_port())}) {
        write(address);
        running.kill(SIGHUP);
        ++reloaded;
        ASSERT_TRUE(eventually(60s, "it listens on " + address, [&] {
            const std::string log = running.stderr_text();
            return count(log, "event=reloaded") == reloaded &&
                   log.find("event=admin_listening address=" + address + "\n") != std::string::npos;
        })) << running.stderr_text();
    }
    EXPECT_EQ(status_of("/health/ready"), 0);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// A server that takes connections and never says a word.
class SilentServer {
  public:
    SilentServer() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        auto* generic = reinterpret_cast<sockaddr*>(&address);
        if (bind(socket_, generic, size) == 0 && listen(socket_, 16) == 0 &&
            getsockname(socket_, generic, &size) == 0) {
            url_ = "postgresql://app@127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/x";
        }
    }
    ~SilentServer() { close(socket_); }
    SilentServer(const SilentServer&) = delete;
    SilentServer& operator=(const SilentServer&) = delete;

    const std::string& url() const { return url_; }
    bool is_asked() const {
        pollfd asked{.fd = socket_, .events = POLLIN, .revents = 0};
        return eventually(60s, "it is asked", [&] { return poll(&asked, 1, 0) == 1; });
    }

  private:
    int socket_;
    std::string url_;
};

TEST_F(RelayCommand, EndsOnSignalsWhileItsStartWaitsForAServerThatIsSilent) {
    const SilentServer silent;
    Process running = outbox_.start_relay(
        {"--from", silent.url(), "--to", "null:", "--admin", "off", "--connect-timeout-s", "300"});
    ASSERT_TRUE(silent.is_asked());
    running.kill(SIGTERM);
    running.kill(SIGINT);
    EXPECT_EQ(running.wait(60s), (ExitStatus{1, 0})) << running.stderr_text();
    EXPECT_THAT(running.stderr_text(), HasSubstr("event=killed"));
}

TEST_F(RelayCommand, EndsOnSignalsWhileSighupWaitsForAServerThatIsSilent) {
    const SilentServer silent;
    const auto write = [&](const std::string& from) {
        outbox_.write("outbox.toml",
                      "to = \"null:\"\nadmin = \"off\"\n[source]\nurl = \"" + from + "\"\n");
    };
    const auto is_led = [&](bool led) {
        return eventually(60s, led ? "it leads" : "it lets its lease go", [&] {
            return database_->number("SELECT count(owner) FROM outbox_lease") == (led ? 1 : 0);
        });
    };
    write(url_);
    Process running = outbox_.start_relay({"--connect-timeout-s", "300"});
    ASSERT_TRUE(is_led(true)) << running.stderr_text();
    write(silent.url());
    running.kill(SIGHUP);
    ASSERT_TRUE(silent.is_asked());
    running.kill(SIGTERM);
    EXPECT_TRUE(is_led(false)) << running.stderr_text();
    running.kill(SIGINT);
    EXPECT_EQ(running.wait(60s), (ExitStatus{1, 0})) << running.stderr_text();
    EXPECT_THAT(running.stderr_text(), HasSubstr("event=killed"));
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
