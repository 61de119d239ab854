// Another server, or another state of it, answers where the relay streams from.

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/stream/stream_relay.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

// A primary and its standby, both in the relay's URL, as its operator writes it.
class StreamFailover : public StreamRelay {
  protected:
    void SetUp() override {
        use(primary_);
        base_backup(primary_, folder_ / "standby");
        configure(folder_ / "standby",
                  "primary_conninfo = 'host=127.0.0.1 port=" + std::to_string(primary_.port()) +
                      " user=postgres passfile=" + (folder_ / "standby" / "pgpass").string() +
                      " application_name=standby'");
        touch(folder_ / "standby", "standby.signal");
        standby_.emplace(folder_ / "standby");
        database_ = url_.substr(url_.rfind('/') + 1);
        url_ = "postgresql://postgres@127.0.0.1:" + std::to_string(primary_.port()) +
               ",127.0.0.1:" + std::to_string(standby_->port()) + "/" + database_ +
               "?target_session_attrs=read-write";
        ASSERT_TRUE(standby_streams(1));
    }

    testing::AssertionResult standby_streams(long long count) {
        return eventually(kDeadline, "the standby is connected or not", [&] {
            return Pg(primary_.url())
                       .number(
                           "SELECT count(*) FROM pg_stat_replication WHERE state = "
                           "'streaming' AND application_name = 'standby'") == count;
        });
    }
    // What the primary has now is on the standby.
    testing::AssertionResult standby_has_all() {
        const std::string end = Pg(primary_.url()).value("SELECT pg_current_wal_lsn()");
        return eventually(kDeadline, "the standby has all", [&] {
            return Pg(standby_->url()).value("SELECT pg_last_wal_replay_lsn() >= '" + end + "'") ==
                   "t";
        });
    }
    void set(PostgresServer& server, const std::string& name, const std::string& value) {
        Pg pg(server.url());
        pg.exec("ALTER SYSTEM SET " + name + " = '" + value + "'");
        pg.exec("SELECT pg_reload_conf()");
    }
    void fail_over() {
        primary_.stop(PostgresServer::Stop::kImmediate);
        Pg(standby_->url()).exec("SELECT pg_promote()");
    }

    TemporaryFolder folder_{"standby"};
    PostgresServer primary_;
    std::optional<PostgresServer> standby_;
    std::string database_;
};

// What the standby had not got is lost by the database, and was published: ghosts. Their positions
// come again, for other events.
TEST_F(StreamFailover, AnAsynchronousStandbyThatIsPromotedIsJoinedAndItsNewEventsAreNotMistaken) {
    start();
    ASSERT_TRUE(joins());
    emit(1, 20);
    ASSERT_TRUE(delivers_all());
    ASSERT_TRUE(standby_has_all());
    set(*standby_, "primary_conninfo", "");
    ASSERT_TRUE(standby_streams(0));
    emit(21, 220);
    ASSERT_TRUE(delivers_all());
    fail_over();
    EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_events"), 0);
    emit(221, 420);
    ASSERT_TRUE(delivers_all());
    EXPECT_TRUE(tells("event=server_changed"));
    EXPECT_TRUE(tells("event=ghosts count=200"));
    EXPECT_GT(count_in_log("timeline"), 0);
    ASSERT_TRUE(joins());
    emit(421, 440);
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(440);
}

TEST_F(StreamFailover, ASynchronousStandbyThatIsPromotedUnderLoadLosesNothing) {
    set(primary_, "synchronous_standby_names", "standby");
    Load load(url_, 20);
    start();
    load.start(3);
    ASSERT_TRUE(joins());
    ASSERT_TRUE(commits(load, 200));
    fail_over();
    ASSERT_TRUE(commits(load, 100));
    ASSERT_TRUE(joins());
    ASSERT_TRUE(commits(load, 100));
    load.stop();
    ASSERT_TRUE(delivers_all());
    EXPECT_TRUE(tells("event=server_changed"));
    EXPECT_EQ(count_in_log("event=ghosts"), 0);
    stop_relay();
    expect_promises(load, kMaxUnrecorded);
}

class StreamRestore : public StreamRelay {
  protected:
    PostgresServer server_;
    TemporaryFolder folder_{"backup"};
};

TEST_F(StreamRestore, AServerRestoredFromABaseBackupIsJoinedAndItsNewEventsAreNotMistaken) {
    use(server_);
    start();
    ASSERT_TRUE(joins());
    emit(1, 20);
    ASSERT_TRUE(delivers_all());
    base_backup(server_, folder_ / "backup");
    emit(21, 220);
    ASSERT_TRUE(delivers_all());
    server_.stop(PostgresServer::Stop::kImmediate);
    configure(folder_ / "backup", "restore_command = 'false'");
    touch(folder_ / "backup", "recovery.signal");
    replace_data(server_, folder_ / "backup");
    server_.start();
    ASSERT_TRUE(eventually(kDeadline, "recovery has ended", [&] {
        return Pg(url_).value("SELECT NOT pg_is_in_recovery()") == "t";
    }));
    emit(221, 420);
    ASSERT_TRUE(delivers_all());
    EXPECT_TRUE(tells("event=server_changed"));
    ASSERT_TRUE(joins());
    emit(421, 440);
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(440);
}

TEST_F(StreamRestore, AnotherClusterBehindTheAddressStopsTheRelayAndLosesNothing) {
    use(server_);
    start();
    ASSERT_TRUE(joins());
    emit(1, 20);
    ASSERT_TRUE(delivers_all());
    const std::string here = url_;
    std::filesystem::path other;
    {
        PostgresServer server{PostgresServer::OwnIdentity{}};
        use(server);  // the database has the same name
        emit(21, 40);
        server.stop();
        other = folder_ / "other";
        ASSERT_EQ(std::system(("cp -a " + server.data().string() + " " + other.string()).c_str()),
                  0);
    }
    url_ = here;
    server_.stop();
    replace_data(server_, other);
    server_.start();
    EXPECT_EQ(ends(), (ExitStatus{5, 0}));
    EXPECT_THAT(relay().stderr_text(), HasSubstr("OB_WRONG_SERVER"));
    EXPECT_THAT(relay().stderr_text(), HasSubstr("check the address"));
    EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_events"), 20);
    // Where it was meant.
    start();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(40);
}

}  // namespace
}  // namespace outbox::test
