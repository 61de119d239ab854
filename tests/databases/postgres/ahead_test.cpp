#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <optional>

#include <outbox/producer/migrate.h>

#include "tests/databases/postgres/support.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

// Commits wait for a standby that is away: the log has their rows, the table does not show them.
class Ahead : public testing::TestWithParam<TableLayoutKind> {
  protected:
    void SetUp() override {
        migrate_to(url_, GetParam());
        if (IsSkipped()) return;
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = postgres::Mode::kStream;
        relay_ = std::make_unique<Relay>(config);
        ASSERT_TRUE(eventually(60s, "the route is on the stream", [&] {
            relay_->read();
            const auto path = relay_->reader().new_path();
            return path && path->path == "stream";
        }));
        pg_.exec("CREATE TABLE probe (n integer)");
        wait_for_standby("nobody");
        ASSERT_TRUE(eventually(60s, "commits wait", [&] { return a_commit_waits(); }));
    }
    void TearDown() override {
        wait_for_standby("");
        drain(writer_);
    }

    void wait_for_standby(const std::string& name) {
        pg_.exec("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'");
        pg_.exec("SELECT pg_reload_conf()");
        ASSERT_TRUE(eventually(60s, "the setting is in force", [&] {
            return Pg(url_).value("SHOW synchronous_standby_names") == name;
        }));
    }
    static void drain(Pg& pg) {
        while (PGresult* result = PQgetResult(pg.handle())) PQclear(result);
    }
    // The checkpointer puts the setting into force for commits, whenever it hears of it.
    bool a_commit_waits() {
        Pg probe(url_);
        PQsendQuery(probe.handle(), "INSERT INTO probe VALUES (1)");
        const std::string pid = std::to_string(PQbackendPID(probe.handle()));
        bool waits = false;
        EXPECT_TRUE(eventually(60s, "the commit ends or waits", [&] {
            waits = pg_.number(
                        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = "
                        "'SyncRep' AND pid = " +
                        pid) == 1;
            PQconsumeInput(probe.handle());
            return waits || PQisBusy(probe.handle()) == 0;
        }));
        if (waits) pg_.exec("SELECT pg_cancel_backend(" + pid + ")");
        drain(probe);
        return waits;
    }
    // Begins an insert whose commit hangs; the position of its event.
    spi::Position hanging_event() {
        PQsendQuery(writer_.handle(),
                    "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '1')");
        EXPECT_TRUE(eventually(60s, "the commit waits for the standby", [&] {
            return pg_.number(
                       "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND "
                       "pid = " +
                       std::to_string(PQbackendPID(writer_.handle()))) == 1;
        }));
        EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_events"), 0);
        return pg_.number("SELECT last_value FROM outbox_events_position_seq");
    }
    // What comes within this time.
    std::vector<spi::Position> read_for(std::chrono::milliseconds time) {
        std::vector<spi::Position> out;
        const auto end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) {
            for (const spi::EventView& event : relay_->read()) out.push_back(event.position);
        }
        return out;
    }

    PostgresServer server_;
    std::string url_ = server_.url();
    Pg pg_{url_};
    Pg writer_{url_};
    std::unique_ptr<Relay> relay_;
};

// Who gets the event may ask its sender about it at once.
TEST_P(Ahead, TheStreamBringsAnEventWhenItCanBeSeen) {
    const spi::Position position = hanging_event();
    EXPECT_THAT(read_for(300ms), testing::IsEmpty());
    wait_for_standby("");
    std::vector<spi::Position> read;
    EXPECT_TRUE(eventually(60s, "the event comes", [&] {
        for (const spi::EventView& event : relay_->read()) {
            read.push_back(event.position);
            EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_events"), 1);
        }
        return !read.empty();
    }));
    EXPECT_THAT(read, testing::ElementsAre(position));
}

TEST_P(Ahead, ACommitThatIsNotSeenForLongHoldsNoOtherEventBack) {
    hanging_event();
    pg_.exec(
        "SET synchronous_commit = local; "
        "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'other', '1')");
    std::vector<spi::Position> read;
    std::optional<spi::ReadPath> path;
    // From the table, which may be read before the stream is left.
    EXPECT_TRUE(eventually(60s, "the other event comes, and the stream is left", [&] {
        for (const spi::EventView& event : relay_->read()) read.push_back(event.position);
        if (auto now = relay_->reader().new_path()) path = std::move(now);
        return !read.empty() && path;
    }));
    EXPECT_THAT(read, testing::ElementsAre(2));
    ASSERT_TRUE(path);
    EXPECT_EQ(path->path, "polling");
    EXPECT_THAT(path->reason, testing::HasSubstr("does it wait for a synchronous standby"));
}

// A new slot is made in two phases, each of which waits for the transactions it finds. One that
// commits by the log in the second is shown by the snapshot, whether or not it has ended. (The
// newest minor releases wait for it themselves.)
TEST_P(Ahead, ASnapshotIsNotReadBeforeAllThatItShowsHasEnded) {
    const auto is_waited_for = [&](const std::string& xid) {
        return eventually(60s, "the new slot waits for " + xid, [&] {
            relay_->read();
            return Pg(url_).value(
                       "SELECT count(*) FROM pg_locks WHERE NOT granted AND "
                       "transactionid::text = '" +
                       xid + "'") == "1";
        });
    };
    Pg first_phase(url_);
    Pg second_phase(url_);
    first_phase.exec("BEGIN");
    const std::string first_xid = first_phase.value("SELECT pg_current_xact_id()");
    pg_.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
    ASSERT_TRUE(is_waited_for(first_xid));
    second_phase.exec("BEGIN");
    const std::string second_xid = second_phase.value("SELECT pg_current_xact_id()");
    first_phase.exec("ROLLBACK");
    ASSERT_TRUE(is_waited_for(second_xid));
    const spi::Position position = hanging_event();
    second_phase.exec("ROLLBACK");
    EXPECT_THAT(read_for(1'500ms), testing::IsEmpty());
    wait_for_standby("");
    std::vector<spi::Position> read;
    EXPECT_TRUE(eventually(60s, "the event comes", [&] {
        for (const spi::EventView& event : relay_->read()) read.push_back(event.position);
        return !read.empty();
    }));
    EXPECT_THAT(read, testing::ElementsAre(position));
}

TEST_P(Ahead, ARowIsRemovedOnceItIsVisible) {
    if (GetParam() == TableLayoutKind::kKeep) GTEST_SKIP() << "rows stay";
    wait_for_standby("");
    writer_.exec("BEGIN; INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '1')");
    // As if the log had told of it before others can see it.
    relay_->publish(
        {pg_.number("SELECT pg_sequence_last_value(pg_get_serial_sequence("
                    "'outbox_events', 'position'))")});
    EXPECT_EQ(relay_->remove(), 1U);
    // Its writer lives, so that looking in vain proves nothing.
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(20ms);
        EXPECT_EQ(relay_->remove(), 1U);
    }
    writer_.exec("COMMIT");
    EXPECT_TRUE(eventually(60s, "the row is removed", [&] { return relay_->remove() == 0; }));
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_events"), 0);
}

// What the stream brings has been visible: a waiting event whose row is missing was given up by an
// operator, whoever else is at work.
TEST_P(Ahead, AWaitingRowThatWasDeletedIsNotWaitedFor) {
    wait_for_standby("");
    pg_.exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '1')");
    std::vector<spi::Position> read;
    ASSERT_TRUE(eventually(60s, "the event comes", [&] {
        for (const spi::EventView& event : relay_->read()) read.push_back(event.position);
        return !read.empty();
    }));
    pg_.exec("DELETE FROM outbox_events");
    writer_.exec("BEGIN; INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '2')");
    spi::EventBatch batch;
    EXPECT_TRUE(relay_->reader().fetch(read, batch).ok());
    EXPECT_TRUE(batch.empty());
    writer_.exec("ROLLBACK");
}

TEST_P(Ahead, ARowThatIsGoneIsProvedGone) {
    wait_for_standby("");
    const auto gone = [&](spi::Position position) {
        spi::EventBatch batch;
        const Status status = relay_->reader().fetch({&position, 1}, batch);
        EXPECT_TRUE(batch.empty());
        return status.ok();
    };
    pg_.exec(
        "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '1'); "
        "DELETE FROM outbox_events");
    EXPECT_TRUE(gone(1));
    relay_->publish({1});
    EXPECT_TRUE(eventually(60s, "the removal is given up", [&] { return relay_->remove() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Ahead, kEachLayout, name_of_layout);

}  // namespace
}  // namespace outbox::test
