// What happens to the stream, and what becomes of it: each case with the program itself before a
// real server that stays the same one. See failover_test.cpp for those that do not.

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/stream/stream_relay.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

class StreamHealing : public StreamRelay {};

TEST_F(StreamHealing, AWalsenderThatIsTerminatedCostsNoEventAndNoRepeat) {
    use(shared_postgres());
    Load load(url_, 20);
    start();
    ASSERT_TRUE(joins());
    load.start(3);
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(commits(load, 50));
        terminate_walsender();
        ASSERT_TRUE(joins());
    }
    load.stop();
    ASSERT_TRUE(delivers_all());
    EXPECT_GE(count_in_log("terminating connection"), 3);
    stop_relay();
    EXPECT_TRUE(loses_its_slot());
    expect_promises(load, 0);
}

// A transaction that is open for long holds the slot's place in the log back.
TEST_F(StreamHealing, ASlotThatTheServerInvalidatesIsReplacedAndMeanwhileTheTableIsRead) {
    PostgresServer server;
    use(server);
    Load load(url_, 20);
    start();
    ASSERT_TRUE(joins());
    Pg open(server.url());
    // One that has written nothing does not hold the slot back.
    open.exec("BEGIN; SELECT pg_logical_emit_message(true, 'of this test', '')");
    const int polled = count_in_log("path=polling");
    Pg pg(server.url());
    pg.exec("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'");
    pg.exec("SELECT pg_reload_conf()");
    load.start(2);
    ASSERT_TRUE(eventually(kDeadline, "the log moves on and the slot is lost", [&] {
        pg.exec("SELECT pg_switch_wal()");
        pg.exec("CHECKPOINT");
        return count_in_log("path=polling") > polled;
    }));
    // The next one has to wait for the transaction.
    const long long rest = load.committed();
    ASSERT_TRUE(commits(load, 100));
    ASSERT_TRUE(eventually(kDeadline, "the table is read",
                           [&] { return static_cast<long long>(numbers().size()) > rest; }));
    open.exec("COMMIT");
    ASSERT_TRUE(joins());
    load.stop();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_promises(load, 0);
}

TEST_F(StreamHealing, SlotsThatRunOutLeaveItToTheTableUntilOneIsFree) {
    PostgresServer server;
    use(server);
    Load load(url_, 20);
    start();
    ASSERT_TRUE(joins());
    load.start(2);
    Pg pg(server.url());
    long long taken = 0;
    const auto take_all = [&] {
        try {
            for (;;) {
                pg.exec("SELECT pg_create_physical_replication_slot('taken_" +
                        std::to_string(taken) + "')");
                ++taken;
            }
        } catch (const std::runtime_error& error) {
            EXPECT_THAT(error.what(), HasSubstr("all replication slots are in use"));
        }
    };
    const long long all = pg.number("SHOW max_replication_slots");
    ASSERT_TRUE(eventually(kDeadline, "the relay's slot is taken, too", [&] {
        terminate_walsender();
        take_all();
        return taken == all;
    }));
    ASSERT_TRUE(tells("no replication slot is free"));
    ASSERT_TRUE(commits(load, 100));
    pg.exec("SELECT pg_drop_replication_slot('taken_0')");
    ASSERT_TRUE(joins());
    load.stop();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_promises(load, 0);
}

TEST_F(StreamHealing, AServerWhoseWalLevelIsLoweredIsPolledUntilItIsRaised) {
    PostgresServer server;
    use(server);
    Load load(url_, 20);
    start();
    ASSERT_TRUE(joins());
    load.start(2);
    ASSERT_TRUE(commits(load, 50));
    Pg(server.url()).exec("ALTER SYSTEM SET wal_level = 'replica'");
    server.stop();
    server.start();
    ASSERT_TRUE(tells("wal_level is replica"));
    ASSERT_TRUE(commits(load, 50));
    EXPECT_EQ(slots(), 0);
    const Finished refused = run({.command = {OUTBOX, "relay", "--from", url_, "--to",
                                              "null:", "--mode", "stream", "--admin", "off"}});
    EXPECT_EQ(refused.status.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("ALTER SYSTEM SET wal_level = logical"));
    Pg(server.url()).exec("ALTER SYSTEM RESET wal_level");
    server.stop();
    server.start();
    ASSERT_TRUE(joins());
    load.stop();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_promises(load, 2LL * kMaxUnrecorded);
}

TEST_F(StreamHealing, ACrashedServerIsWaitedForAndItsStreamJoinedAnew) {
    PostgresServer server;
    use(server);
    Load load(url_, 20);
    start();
    load.start(3);
    constexpr int kRounds = 3;
    for (int round = 0; round < kRounds; ++round) {
        ASSERT_TRUE(joins());
        ASSERT_TRUE(commits(load, 50));
        server.stop(PostgresServer::Stop::kImmediate);
        server.start();
    }
    ASSERT_TRUE(joins());
    load.stop();
    ASSERT_TRUE(delivers_all());
    EXPECT_TRUE(tells("event=server_changed"));
    stop_relay();
    expect_promises(load, static_cast<long long>(kRounds) * kMaxUnrecorded);
}

TEST_F(StreamHealing, AKilledRelayLeavesNoSlotAndTheServerKeepsNoLogForIt) {
    PostgresServer server;
    use(server);
    Load load(url_, 20);
    load.start(3);
    constexpr int kRounds = 3;
    for (int round = 0; round < kRounds; ++round) {
        start();
        ASSERT_TRUE(joins());
        ASSERT_TRUE(commits(load, 50));
        kill_relay();
        EXPECT_TRUE(loses_its_slot());
        Pg pg(server.url());
        const std::string file = pg.value("SELECT pg_walfile_name(pg_current_wal_lsn())");
        EXPECT_TRUE(eventually(kDeadline, "the log of its death is removed", [&] {
            pg.exec("SELECT pg_switch_wal()");
            pg.exec("CHECKPOINT");
            return pg.value("SELECT NOT EXISTS (SELECT FROM pg_ls_waldir() WHERE name = '" + file +
                            "')") == "t";
        }));
    }
    load.stop();
    start();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_promises(load, static_cast<long long>(kRounds) * kMaxUnrecorded);
}

TEST_F(StreamHealing, TheSlotOfARelayThatHangsIsGoneAfterTheSendersTimeout) {
    use(shared_postgres());
    Load load(url_, 20);
    start();
    ASSERT_TRUE(joins());
    load.start(2);
    ASSERT_TRUE(commits(load, 50));
    relay().kill(SIGSTOP);
    EXPECT_TRUE(loses_its_slot());
    relay().kill(SIGCONT);
    ASSERT_TRUE(joins());
    load.stop();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_promises(load, kMaxUnrecorded);
}

// The slot is made after that; wal_sender_timeout does not count before the stream begins.
TEST_F(StreamHealing, TheSlotOfARelayThatHangsWhileItJoinsIsGone) {
    use(shared_postgres());
    Pg open(url_);
    open.exec("BEGIN; SELECT pg_current_xact_id()");
    start();
    ASSERT_TRUE(eventually(kDeadline, "a slot is being made", [&] { return slots() == 1; }));
    relay().kill(SIGSTOP);
    open.exec("COMMIT");
    EXPECT_TRUE(loses_its_slot());
    relay().kill(SIGCONT);
    EXPECT_TRUE(joins());
    emit(1, 10);
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(10, 0);
}

TEST_F(StreamHealing, ATableWhosePositionsBeginAnewStopsTheRelayWithTheRemedy) {
    use(shared_postgres());
    start();
    ASSERT_TRUE(joins());
    emit(1, 100);
    ASSERT_TRUE(delivers_all());
    Pg(url_).exec("TRUNCATE outbox_events RESTART IDENTITY");
    emit(101, 150);
    EXPECT_EQ(ends(), (ExitStatus{5, 0}));
    EXPECT_THAT(relay().stderr_text(), HasSubstr("OB_TABLE_RESET"));
    EXPECT_THAT(relay().stderr_text(), HasSubstr("start the relay again"));
    EXPECT_TRUE(loses_its_slot());
    // The remedy.
    start();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(150, 50);
}

TEST_F(StreamHealing, ATableThatIsReplacedStopsTheRelayWithTheRemedy) {
    use(shared_postgres());
    start();
    ASSERT_TRUE(joins());
    emit(1, 100);
    ASSERT_TRUE(delivers_all());
    Pg(url_).exec(
        "BEGIN; ALTER TABLE outbox_events RENAME TO old; "
        "CREATE TABLE outbox_events (LIKE old INCLUDING ALL); COMMIT");
    emit(101, 150);
    EXPECT_EQ(ends(), (ExitStatus{5, 0}));
    EXPECT_THAT(relay().stderr_text(), HasSubstr("OB_TABLE_RESET"));
    EXPECT_THAT(relay().stderr_text(), HasSubstr("replaced"));
    EXPECT_TRUE(loses_its_slot());
    start({}, "auto");
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(150, 50);
}

}  // namespace
}  // namespace outbox::test
