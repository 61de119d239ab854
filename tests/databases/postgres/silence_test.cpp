#include <array>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "databases/postgres/connection.h"
#include "databases/postgres/hosts.h"
#include "databases/postgres/replication.h"
#include "databases/postgres/watch.h"
#include "tests/databases/postgres/support.h"
#include "tests/support/eventually.h"
#include "tests/support/silent_proxy.h"
#include "tests/support/two_addresses.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using postgres::Connection;
using testing::HasSubstr;

// A server that hangs: its sockets still take what is sent.
class SilentServer : public testing::Test {
  protected:
    void expect_silence(const Status& status) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kConnectionLost);
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        EXPECT_THAT(status.error().message, HasSubstr("gave no answer within"));
    }
    // The server hangs from now on, and is not waited for. Before, it may be as slow as it is.
    void pause() {
        server_.pause();
        connection_.limit_waits(1s);
    }

    PostgresServer server_;
    Connection connection_ = value_of(Connection::open(server_.url(), 60));
};

TEST_F(SilentServer, EndsAQueryAndTheConnectionAfterTheLimit) {
    ASSERT_TRUE(connection_.query("SELECT 1").ok());
    pause();
    expect_silence(connection_.query("SELECT 1").status());
    EXPECT_FALSE(connection_.usable());
    expect_silence(connection_.execute("SELECT 1"));
}

TEST_F(SilentServer, EndsACopyBetweenTwoRows) {
    // The last row does not come before the server hangs; the first has left its buffers by then.
    require(connection_.start_copy(
        "SELECT i, repeat('x', 20000) || pg_sleep(CASE WHEN i = 3 THEN 600 ELSE 0 END)::text "
        "FROM generate_series(1, 3) i"));
    std::array<postgres::Field, 2> row;
    Status status;
    ASSERT_TRUE(connection_.next(row, status));
    pause();
    while (connection_.next(row, status)) {
    }
    expect_silence(status);
    EXPECT_FALSE(connection_.usable());
}

TEST_F(SilentServer, EndsAPipelineAfterTheLimit) {
    const std::vector<Connection::Statement> statements{{"SELECT 1", {}}, {"SELECT 2", {}}};
    require(connection_.run_pipeline(statements));
    pause();
    expect_silence(connection_.run_pipeline(statements));
}

TEST_F(SilentServer, EndsAQueryThatItDoesNotTakeInAfterTheLimit) {
    constexpr std::size_t kMoreThanSocketsHold = std::size_t{64} << 20;
    const std::string text(kMoreThanSocketsHold, 'x');
    const auto length = [&] {
        return connection_.query("SELECT length($1)", postgres::Params().text(text));
    };
    EXPECT_EQ(value_of(length()).integer(0, 0), static_cast<std::int64_t>(text.size()));
    pause();
    expect_silence(length().status());
}

TEST_F(SilentServer, IsNotWaitedForOnceAStopIsAskedFor) {
    postgres::Client client;
    require(client.connect(server_.url(), 60s, {}));
    ASSERT_TRUE(client.sound()) << client.message();
    std::stop_source stop;
    client.limit_waits({.stop = stop.get_token()});
    ASSERT_TRUE(client.answer_to("SELECT 1").succeeded());
    server_.pause();
    stop.request_stop();
    EXPECT_FALSE(client.answer_to("SELECT 1").succeeded());
    EXPECT_TRUE(client.silent());
    EXPECT_FALSE(client.sound());
}

TEST_F(SilentServer, IsNotWaitedForOnceTheDescriptorRings) {
    postgres::Wakeup stop;
    connection_.limit_waits(60min, stop.descriptor());
    ASSERT_TRUE(connection_.query("SELECT 1").ok());
    server_.pause();
    stop.ring();
    EXPECT_FALSE(connection_.query("SELECT 1").ok());
    EXPECT_FALSE(connection_.usable());
}

// Which would pass for one that hangs.
TEST_F(SilentServer, HoldsARoutesThreadForSecondsWhateverTheTimeoutOfTheStart) {
    const std::string url = server_.create_database();
    migrate_to(url, TableLayoutKind::kDelete);
    postgres::PostgresSourceConfig config;
    config.url = url;
    config.connect_timeout_s = 300;
    config.mode = postgres::Mode::kPolling;
    Relay relay(config);
    const auto read = [&] {
        spi::EventBatch batch;
        return relay.reader().read(kAll, batch).ok();
    };
    ASSERT_TRUE(read());
    Pg(url).exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outbox' "
        "AND datname = current_database()");
    server_.pause_postmaster();
    // The first finds its connection broken.
    auto reads = std::async(std::launch::async, [&] { return read() || read(); });
    EXPECT_EQ(reads.wait_for(120s), std::future_status::ready);
    server_.resume();
    EXPECT_FALSE(reads.get());
}

// The typical end of a primary: its machine lives, its disk does not.
TEST_F(SilentServer, ThatAcceptsConnectionsLeavesTimeForTheNextHostOfTheUrl) {
    constexpr const char* kRefuses = "127.0.0.1:1";
    const std::string here = "127.0.0.1:" + std::to_string(server_.port());
    const std::string there = "127.0.0.1:" + std::to_string(shared_postgres().port());
    std::string whole = shared_postgres().with_password(shared_postgres().url());
    const auto url = [&](const std::string& hosts) {
        return std::string(whole).replace(whole.find(there), there.size(), hosts);
    };
    server_.pause();
    const std::string list = url(here + "," + kRefuses + "," + there);
    EXPECT_EQ(postgres::hosts_of(list).front().port, std::to_string(server_.port()));
    for (int i = 0; i < 2; ++i) {
        const auto connection = Connection::open(list, 8);
        ASSERT_TRUE(connection.ok()) << describe(connection.error());
        // Which is not asked first again.
        EXPECT_EQ(postgres::hosts_of(list).back().port, std::to_string(server_.port()));
    }
    const auto refused = Connection::open(url(here + "," + kRefuses), 2);
    EXPECT_FALSE(refused.ok());
}

// Two clusters made of one backup have one system identifier, and a pooler tells them apart by
// these.
TEST(AddressOfAUrl, HasAllThatAPoolerChoosesAClusterBy) {
    const std::string shop = postgres::address_of("postgresql://app@pooler:6432/shop");
    EXPECT_EQ(postgres::address_of("postgresql://app:secret@pooler:6432/shop?application_name=x"),
              shop);
    for (const char* other :
         {"postgresql://app@pooler:6432/copy", "postgresql://app.copy@pooler:6432/shop",
          "postgresql://app@pooler:6433/shop",
          "postgresql://app@pooler:6432/shop?options=reference%3Dcopy"}) {
        EXPECT_NE(postgres::address_of(other), shop) << other;
    }
}

TEST(HostsOfAUrl, AreTakenAsLibpqTakesThem) {
    const auto named = [](const std::string& url) {
        std::vector<std::string> names;
        for (const postgres::Host& host : postgres::hosts_of(url)) {
            names.push_back(host.host + "/" + host.hostaddr + "/" + host.port);
        }
        return names;
    };
    using testing::ElementsAre;
    using testing::IsEmpty;
    EXPECT_THAT(named("postgresql://u@a,b:2,c/d"), ElementsAre("a//5432", "b//2", "c//5432"));
    EXPECT_THAT(named("host=a,b port=7"), ElementsAre("a//7", "b//7"));
    EXPECT_THAT(named("host=a,b hostaddr=1.2.3.4,5.6.7.8 port=1,2"),
                ElementsAre("a/1.2.3.4/1", "b/5.6.7.8/2"));
    EXPECT_THAT(named("hostaddr=1.2.3.4,5.6.7.8"), ElementsAre("/1.2.3.4/5432", "/5.6.7.8/5432"));
    EXPECT_THAT(named("host=a,b,c port=1,2"), IsEmpty());  // libpq refuses it
    EXPECT_THAT(named("host=a,,c"), IsEmpty());            // an empty one is the machine's socket
    EXPECT_THAT(named("postgresql://u@a/d"), IsEmpty());
    EXPECT_THAT(named("postgresql://u@a,b/d?target_session_attrs=prefer-standby"), IsEmpty());
}

TEST(HostsOfAUrl, AreReachedWhereItNamesNoPorts) {
    PostgresServer server;
    ASSERT_EQ(setenv("PGPORT", std::to_string(server.port()).c_str(), 1), 0);
    const auto connection = Connection::open(
        "postgresql://postgres@127.0.0.1,127.0.0.1/postgres?target_session_attrs=read-write", 60);
    unsetenv("PGPORT");
    EXPECT_TRUE(connection.ok()) << describe(connection.error());
}

// As a node behind a firewall, or one that has lost its power.
class SilentAddress : public testing::Test {
  protected:
    // The silent one has half of it; the other one, which is to answer, the rest.
    static constexpr int kTimeoutS = 8;

    static std::string url(const std::string& host) {
        std::string whole = shared_postgres().with_password(shared_postgres().url());
        return whole.replace(whole.find("127.0.0.1"), 9, host);
    }
    static std::string port() { return std::to_string(shared_postgres().port()); }
};

TEST_F(SilentAddress, OfAHostLeavesTimeForItsNextOne) {
    const TwoAddresses two(shared_postgres().port());
    const auto connection = Connection::open(url("localhost"), kTimeoutS);
    EXPECT_TRUE(connection.ok()) << describe(connection.error());
}

TEST_F(SilentAddress, LeavesTimeForTheNextHostOfTheUrl) {
    const TwoAddresses two(shared_postgres().port());
    const auto connection = Connection::open(url("127.0.0.2:" + port() + ",127.0.0.1"), kTimeoutS);
    EXPECT_TRUE(connection.ok()) << describe(connection.error());
}

TEST_F(SilentAddress, ThatIsTheOnlyOneIsSaidToGiveNoAnswer) {
    const TwoAddresses two(shared_postgres().port());
    const auto connection = Connection::open(url("127.0.0.2"), 2);
    ASSERT_FALSE(connection.ok());
    EXPECT_THAT(connection.error().message, HasSubstr("no answer within 2 s"));
}

// Another connection is answered: what it says of the session that is not.
class SilentSession : public testing::Test {
  protected:
    using Verdict = postgres::Verdict;
    const postgres::SeenBackend session_{"42", "1", "cluster", "server", true};

    [[nodiscard]] Verdict sees(const postgres::SeenBackend& now) const {
        return postgres::judge(session_, now);
    }
};

TEST_F(SilentSession, IsThereUnlessItsBackendIsGoneOrHasLongHadNothingToDo) {
    auto now = session_;
    EXPECT_EQ(sees(now), Verdict::kThere);
    now.has_nothing_to_do = true;
    EXPECT_EQ(sees(now), Verdict::kHasNothingToDo);
    now.awaits_the_rest = true;
    EXPECT_EQ(sees(now), Verdict::kHasNothingToDo);
    now.has_nothing_to_do = false;
    EXPECT_EQ(sees(now), Verdict::kAwaitsTheRest);
    now.began = "2";
    EXPECT_EQ(sees(now), Verdict::kGone) << "the number is another one's now";
    now.began = "";
    now.awaits_the_rest = false;
    EXPECT_EQ(sees(now), Verdict::kThere) << "this role may not see it";
    now.pid = "";
    EXPECT_EQ(sees(now), Verdict::kGone);
}

TEST_F(SilentSession, IsGoneWhereAnotherPrimaryHasTakenThePlaceOfItsServer) {
    auto now = session_;
    now.server_began = "another server";
    EXPECT_EQ(sees(now), Verdict::kGone);
    now.is_primary = false;
    EXPECT_EQ(sees(now), Verdict::kThere) << "a standby is beside the primary";
    auto of_a_standby = session_;
    of_a_standby.is_primary = false;
    now.is_primary = true;
    EXPECT_EQ(postgres::judge(of_a_standby, now), Verdict::kThere);
    now.system = "another cluster";
    EXPECT_EQ(sees(now), Verdict::kThere);
}

TEST_F(SilentSession, BehindAPoolerHasNoBackendOfItsOwn) {
    auto pooled = session_;
    pooled.pid = "";
    auto now = session_;
    now.pid = "43";
    now.has_nothing_to_do = true;
    EXPECT_EQ(postgres::judge(pooled, now), Verdict::kThere);
    now.server_began = "another server";
    EXPECT_EQ(postgres::judge(pooled, now), Verdict::kGone);
}

// In a statement that waits for a lock of ours. Its server is asked through the proxy, one
// connection for each look.
class WatchedSession : public testing::Test {
  protected:
    static constexpr const char* kLock = "SELECT pg_advisory_lock(7)";

    WatchedSession() { db_.exec(kLock); }

    void open(const std::string& url, std::chrono::seconds timeout) {
        require(client_.connect(url, 60s, {}));
        ASSERT_TRUE(client_.sound()) << client_.message();
        watch_.emplace(url, timeout, "watch");
        require(watch_->follow(client_.handle()));
        watch_->identify(client_);
    }
    void start(const std::string& url, const char* statement = kLock,
               std::chrono::seconds timeout = 60s) {
        open(url, timeout);
        watch_->busy();
        ends_ = std::async(std::launch::async,
                           [&, statement] { return client_.answer_to(statement).succeeded(); });
    }
    void expect_that_it_goes_on_after(int connections) {
        EXPECT_TRUE(eventually(60s, "its server was asked",
                               [&] { return proxy_.accepted() >= connections; }));
        db_.exec("SELECT pg_advisory_unlock_all()");
        EXPECT_TRUE(ends_.get());
    }
    // Its server has begun, and waits.
    void send_without_its_end() {
        PQenterPipelineMode(client_.handle());
        PQsendQueryParams(client_.handle(), "SELECT pg_advisory_lock(8)", 0, nullptr, nullptr,
                          nullptr, nullptr, 0);
        PQflush(client_.handle());
        ASSERT_TRUE(eventually(60s, "its server has begun with it", [&] {
            return db_.number(
                       "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 8 "
                       "AND granted") == 1;
        }));
    }
    void expect_that_it_ends() {
        EXPECT_EQ(ends_.wait_for(60s), std::future_status::ready);
        watch_->break_off();
        EXPECT_FALSE(ends_.get());
    }

    std::string url_ = shared_postgres().create_database();
    Pg db_{url_};
    SilentProxy proxy_{shared_postgres().port()};
    std::string through_ = proxy_.through(url_) + "?sslmode=disable";
    postgres::Client client_;
    std::optional<postgres::Watch> watch_;
    std::future<bool> ends_;
};

TEST_F(WatchedSession, IsLetAloneWhereItsServerRefusesOthersAndAnotherHostIsAway) {
    const std::string role = "limited_" + url_.substr(url_.rfind('/') + 1);
    db_.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'one' CONNECTION LIMIT 1");
    std::string url = through_ + "&target_session_attrs=read-write";
    url.replace(url.find("postgres@"), 9, role + ":one@");
    url.insert(url.rfind('/'), ",127.0.0.1:1");
    start(url);
    expect_that_it_goes_on_after(4);
    client_.close();
    EXPECT_TRUE(eventually(60s, "it is gone", [&] {
        return db_.number("SELECT count(*) FROM pg_stat_activity WHERE usename = '" + role + "'") ==
               0;
    }));
    db_.exec("DROP ROLE " + role);
}

TEST_F(WatchedSession, IsLetAloneWhereItsServerIsSilentOnce) {
    start(through_);
    proxy_.drop(2);  // libpq's, and the one that asks whether it was the server's fault
    expect_that_it_goes_on_after(5);
}

TEST_F(WatchedSession, EndsWhereItsServerIsSilentTwice) {
    start(through_);
    proxy_.drop(1000);
    expect_that_it_ends();
}

TEST_F(WatchedSession, EndsWhereItsServerHangsThoughAnotherHostOfItsUrlAnswers) {
    PostgresServer own;
    PostgresServer other{PostgresServer::OwnIdentity()};
    std::string url = own.url();
    url.insert(url.rfind('/'), ",127.0.0.1:" + std::to_string(other.port()));
    start(url, "SELECT pg_sleep(600)", 2s);
    own.pause();
    expect_that_it_ends();
}

TEST_F(WatchedSession, IsLetAloneWhereWeHaveNoSocketToAskWith) {
    start(through_, "SELECT pg_sleep(17)");
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{3, before.rlim_max};  // which are in use; poll needs as many
    ::setrlimit(RLIMIT_NOFILE, &none);
    const bool succeeded = ends_.get();
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_TRUE(succeeded);
}

TEST_F(WatchedSession, IsLetAloneWhileItIsAnsweredThoughNobodyElseIs) {
    PostgresServer own;
    open(own.url(), 1s);
    own.pause_postmaster();
    watch_->lent();
    for (int i = 0; i < 17; ++i) {
        ASSERT_TRUE(client_.answer_to("SELECT pg_sleep(1)").succeeded()) << i;
    }
}

// As behind a proxy that has lost the end of it.
TEST_F(WatchedSession, EndsWhereTheRestOfAStatementOfOursDoesNotArrive) {
    open(through_, 60s);
    send_without_its_end();
    watch_->busy();
    ends_ = std::async(std::launch::async, [&] { return client_.next_result().succeeded(); });
    expect_that_it_ends();
    EXPECT_TRUE(eventually(60s, "its backend is gone, and what it held", [&] {
        return db_.number(
                   "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = "
                   "8") == 0;
    }));
}

// It may be busy with what it sends next.
TEST_F(WatchedSession, IsLetAloneWhereAHandlerPausesInAStatementOfItsOwn) {
    open(through_, 60s);
    send_without_its_end();
    watch_->lent();
    EXPECT_TRUE(eventually(60s, "its server was asked about it after its time", [&] {
        return proxy_.accepted() >= 5 &&
               db_.number(
                   "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientRead' "
                   "AND state = 'active' AND state_change < clock_timestamp() - interval "
                   "'20 s'") == 1;
    }));
    PQpipelineSync(client_.handle());
    EXPECT_TRUE(client_.next_result().succeeded());
}

TEST_F(WatchedSession, LeavesAFileAloneThatHasTheNumberOfItsClosedSocket) {
    open(through_, 60s);
    watch_->lent();
    const int number = PQsocket(client_.handle());
    EXPECT_FALSE(client_.answer_to("SELECT pg_terminate_backend(pg_backend_pid())").succeeded());
    ASSERT_LT(PQsocket(client_.handle()), 0);
    std::array<int, 2> pair{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    EXPECT_TRUE(pair[0] == number || pair[1] == number);
    watch_->break_off();
    EXPECT_EQ(::send(pair[0], "x", 1, MSG_NOSIGNAL), 1);
    for (const int socket : pair) ::close(socket);
}

}  // namespace
}  // namespace outbox::test
