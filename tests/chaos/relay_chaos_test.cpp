// The relay's promises on real servers while processes are killed, paused and restarted. Events go
// to a mailbox table, whose order of arrival is the order that is checked.

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <string>
#include <thread>

#include "tests/chaos/load.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 60s;

struct Way {
    const char* mode;
    const char* after_publish;
};

// By each mode and layout.
class RelayChaos : public testing::TestWithParam<Way> {
  protected:
    RelayChaos() : url_(shared_postgres().create_database()) {}
    void SetUp() override {
        if (GetParam().after_publish == std::string("keep") && !rows_may_stay()) {
            GTEST_SKIP() << "rows stay on PostgreSQL 15 or newer";
        }
        const Finished migrated = run({.command = {OUTBOX, "migrate", "--db", url_,
                                                   "--after-publish", GetParam().after_publish}});
        ASSERT_EQ(migrated.status.code, 0) << migrated.err;
    }

    Process relay(const std::string& to = "", std::vector<std::string> more = {}) {
        std::vector<std::string> command{
            OUTBOX,          "relay",   "--from", url_,   "--mode",
            GetParam().mode, "--admin", "off",    "--to", to.empty() ? mailbox() : to};
        command.insert(command.end(), more.begin(), more.end());
        return Process({.command = command});
    }
    std::string mailbox() const { return "mailbox+" + url_; }

    long long epoch() {
        return Pg(url_).number("SELECT coalesce(max(epoch), 0) FROM outbox_lease");
    }
    bool delivered_all() {
        return Pg(url_).value(
                   "SELECT NOT EXISTS (SELECT FROM outbox_status WHERE status IN ('PENDING', "
                   "'RETRYING'))") == "t";
    }

    // Nothing lost, no ghost, order per key: committed events against the mailbox.
    void verify(const Load& load) {
        core::Verifier verifier;
        for (const core::JournalLine& line : load.produced()) {
            ASSERT_TRUE(verifier.produced(line).ok());
        }
        ASSERT_TRUE(verifier.begin_received("mailbox").ok());
        for (const Pg::Row& row : Pg(url_).query(
                 "SELECT id, key, convert_from(payload, 'UTF8')::jsonb ->> 'n' FROM outbox_mailbox "
                 "ORDER BY position")) {
            core::JournalLine line;
            line.id = *row[0];
            line.key = *row[1];
            line.n = std::stoll(*row[2]);
            ASSERT_TRUE(verifier.received(line).ok());
        }
        const Result<core::Verdict> verdict = verifier.finish();
        ASSERT_TRUE(verdict.ok());
        EXPECT_EQ(verdict->lost, 0);
        EXPECT_EQ(verdict->ghosts, 0);
        EXPECT_EQ(verdict->out_of_order, 0);
        EXPECT_GT(verdict->produced, 0);
    }

    std::string url_;
};

TEST_P(RelayChaos, KilledAgainAndAgainTheRelayLosesNothingAndKeepsOrder) {
    Load load(url_, 20);
    load.start(6);
    std::mt19937 random(1);
    for (int round = 0; round < 12; ++round) {
        const long long before = epoch();
        Process relay = this->relay();
        ASSERT_TRUE(
            eventually(kDeadline, "the relay has the lease", [&] { return epoch() > before; }));
        const long long target = load.committed() + 20 + static_cast<long long>(random() % 200);
        ASSERT_TRUE(eventually(kDeadline, "more events are committed",
                               [&] { return load.committed() >= target; }));
        relay.kill(SIGKILL);
        ASSERT_TRUE(relay.wait(kDeadline));
    }
    load.stop();
    Process relay = this->relay();
    ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }));
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
    verify(load);
}

// Segments go while relays die, transactions roll back and commit late, and a reader holds them.
TEST_P(RelayChaos, SegmentsAreEmptiedUnderLoadAndNothingIsLost) {
    if (std::string(GetParam().after_publish) != "keep") GTEST_SKIP() << "no segments";
    Load load(url_, 20);
    load.start(4);
    std::atomic<bool> stop{false};
    std::thread prune([&] {
        while (!stop) {
            const Finished pruned =
                run({.command = {OUTBOX, "prune", "--db", url_, "--retention", "1s"}});
            EXPECT_EQ(pruned.status.code, 0) << pruned.err;
        }
    });
    std::thread reader([&] {
        Pg pg(url_);
        while (!stop) {
            pg.exec("BEGIN; SELECT count(*) FROM outbox_events; SELECT pg_sleep(0.2); COMMIT");
            std::this_thread::sleep_for(200ms);
        }
    });
    for (int round = 0; round < 5; ++round) {
        const long long before = epoch();
        Process relay = this->relay();
        EXPECT_TRUE(
            eventually(kDeadline, "the relay has the lease", [&] { return epoch() > before; }));
        const long long there =
            Pg(url_).number("SELECT coalesce(min(position), 0) FROM outbox_events");
        EXPECT_TRUE(eventually(kDeadline, "a segment is emptied", [&] {
            return Pg(url_).number("SELECT min(position) FROM outbox_events") > there;
        }));
        relay.kill(SIGKILL);
        ASSERT_TRUE(relay.wait(kDeadline));
    }
    load.stop();
    Process relay = this->relay();
    EXPECT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }));
    EXPECT_TRUE(eventually(kDeadline, "everything has gone but for the last segment", [&] {
        return Pg(url_).number("SELECT count(DISTINCT segment) FROM outbox_events") <= 1;
    }));
    stop = true;
    prune.join();
    reader.join();
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
    EXPECT_LE(Pg(url_).number("SELECT count(*) FROM outbox_segments"), 64);
    verify(load);
}

TEST_P(RelayChaos, AStandbyTakesOverFromAKilledRelayBeforeTheLeaseExpires) {
    Load load(url_, 20);
    load.start(4);
    Process first = relay();
    ASSERT_TRUE(eventually(kDeadline, "the first relay leads", [&] { return epoch() >= 1; }));
    Process second = relay();
    ASSERT_TRUE(eventually(kDeadline, "the second relay stands by", [&] {
        return second.stderr_text().find("standby") != std::string::npos;
    }));
    const std::string expires =
        Pg(url_).value("SELECT expires_at + interval '1 hour' FROM outbox_lease");
    // Far in the future, so that only the owner's vanished backend can free the lease.
    Pg(url_).exec("UPDATE outbox_lease SET expires_at = '" + expires + "'");
    first.kill(SIGKILL);
    ASSERT_TRUE(eventually(kDeadline, "the second relay leads", [&] { return epoch() >= 2; }));
    load.stop();
    ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }));
    second.stop();
    verify(load);
}

TEST_P(RelayChaos, ARelayPausedPastItsLeaseDoesNoHarmWhenItWakes) {
    Load load(url_, 10);
    load.start(4);
    Process first = relay();
    ASSERT_TRUE(eventually(kDeadline, "the first relay leads", [&] { return epoch() >= 1; }));
    Process second = relay();
    for (int round = 0; round < 2; ++round) {
        const long long before = epoch();
        Process& owner = round == 0 ? first : second;
        const long long delivered = Pg(url_).number("SELECT count(*) FROM outbox_mailbox");
        ASSERT_TRUE(eventually(kDeadline, "events flow", [&] {
            return Pg(url_).number("SELECT count(*) FROM outbox_mailbox") > delivered + 20;
        }));
        owner.kill(SIGSTOP);
        ASSERT_TRUE(
            eventually(kDeadline, "the other relay leads", [&] { return epoch() > before; }));
        const long long target = load.committed() + 50;
        ASSERT_TRUE(eventually(kDeadline, "more events are committed",
                               [&] { return load.committed() >= target; }));
        owner.kill(SIGCONT);
        ASSERT_TRUE(eventually(kDeadline, "the woken relay stands by", [&] {
            const std::string log = owner.stderr_text();
            const auto lost = log.rfind("lease_lost");
            return lost != std::string::npos && log.find("standby", lost) != std::string::npos;
        }));
    }
    load.stop();
    ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }));
    EXPECT_EQ(first.stop().code, 0);
    EXPECT_EQ(second.stop().code, 0);
    verify(load);
}

TEST_P(RelayChaos, SigtermHandsOverAtOnce) {
    Load load(url_, 10);
    load.start(4);
    Process first = relay();
    ASSERT_TRUE(eventually(kDeadline, "the first relay leads", [&] { return epoch() >= 1; }));
    Process second = relay();
    EXPECT_EQ(first.stop().code, 0) << first.stderr_text();
    // Released, not expired: the row says so, or the second relay has it already.
    EXPECT_EQ(Pg(url_).value("SELECT owner IS NULL OR epoch > 1 FROM outbox_lease"), "t");
    ASSERT_TRUE(eventually(kDeadline, "the second relay leads", [&] { return epoch() >= 2; }));
    load.stop();
    ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }));
    second.stop();
    verify(load);
}

TEST_P(RelayChaos, DeliveryGoesOnWhenTheDatabaseCrashesAndReturns) {
    PostgresServer server;
    url_ = server.create_database();
    ASSERT_EQ(run({.command = {OUTBOX, "migrate", "--db", url_}}).status.code, 0);
    Load load(url_, 10);
    load.start(4);
    Process relay = this->relay();
    // At its start it would not wait for a server, but say that there is none.
    ASSERT_TRUE(eventually(kDeadline, "the relay leads", [&] { return epoch() >= 1; }));
    for (int round = 0; round < 3; ++round) {
        const long long target = load.committed() + 100;
        ASSERT_TRUE(eventually(kDeadline, "events are committed",
                               [&] { return load.committed() >= target; }));
        server.stop(PostgresServer::Stop::kImmediate);
        server.start();
    }
    load.stop();
    ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }))
        << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
    verify(load);
}

TEST_P(RelayChaos, APoisonEventGoesToDeadLettersAndDelaysNoOther) {
    Pg pg(url_);
    pg.exec(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'poison'; END $$; CREATE TRIGGER refuse BEFORE INSERT ON outbox_mailbox FOR EACH ROW WHEN "
        "(convert_from(NEW.payload, 'UTF8')::jsonb ? 'poison') EXECUTE FUNCTION refuse()");
    const std::string insert =
        "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, topic) "
        "VALUES ('Order', ";
    pg.exec(insert +
            "'o-1', 'First', '{\"poison\": 1}', 'orders'), ('Order', 'o-1', 'Second', '{}', "
            "'orders'), ('Order', 'o-2', 'Other', '{}', 'orders')");
    const auto attempts = [&] {
        return pg.number("SELECT coalesce(max(attempts), 0) FROM outbox_delivery");
    };
    const auto arrived = [&] { return pg.number("SELECT count(*) FROM outbox_mailbox"); };
    const auto relay_for = [&](int most) {
        return this->relay("", {"--max-attempts", std::to_string(most), "--retry-max-ms", "500"});
    };
    Process patient = relay_for(1000);
    ASSERT_TRUE(eventually(kDeadline, "it is tried again", [&] { return attempts() > 1; }));
    // While it is, others arrive, of its own batch and later ones, and nothing behind it on its
    // key.
    pg.exec(insert + "'o-3', 'Late', '{}', 'orders')");
    ASSERT_TRUE(eventually(kDeadline, "the others arrive", [&] { return arrived() == 2; }));
    const long long so_far = attempts();
    ASSERT_TRUE(eventually(kDeadline, "it is still tried", [&] { return attempts() > so_far; }));
    EXPECT_EQ(arrived(), 2);
    EXPECT_EQ(pg.number("SELECT count(*) FROM outbox_dead_letters"), 0);
    patient.stop();

    Process relay = relay_for(1);
    ASSERT_TRUE(eventually(kDeadline, "all is settled", [&] { return delivered_all(); }));
    EXPECT_EQ(arrived(), 3);
    EXPECT_EQ(pg.number("SELECT count(*) FROM outbox_dead_letters"), 1);

    // The cause is mended; an operator has it delivered again.
    pg.exec("DROP TRIGGER refuse ON outbox_mailbox");
    const std::string id = pg.value("SELECT id FROM outbox_dead_letters");
    const Finished retried = run({.command = {OUTBOX, "dead", "retry", id, "--db", url_}});
    EXPECT_EQ(retried.status.code, 0) << retried.err;
    ASSERT_TRUE(eventually(kDeadline, "the dead letter is delivered", [&] {
        return arrived() == 4 && pg.number("SELECT count(*) FROM outbox_dead_letters") == 0;
    }));
    relay.stop();
}

TEST_P(RelayChaos, ARouteWhoseDestinationIsAwayDoesNotHoldTheOthers) {
    const std::string away =
        "away=mailbox+postgresql://postgres@127.0.0.1:" + std::to_string(free_port()) + "/postgres";
    Load load(url_, 10);
    load.start(2);
    Process relay = this->relay("", {"--to", away});
    ASSERT_TRUE(eventually(kDeadline, "events flow", [&] {
        return Pg(url_).number("SELECT count(*) FROM outbox_mailbox") > 200;
    }));
    load.stop();
    ASSERT_TRUE(eventually(kDeadline, "the good route delivers everything", [&] {
        return Pg(url_).number("SELECT count(*) FROM outbox_mailbox") == load.committed();
    }));
    // Kept for the other route, and no attempt was counted by its outage.
    EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_events"), load.committed());
    EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_delivery"), 0);
    EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_dead_letters"), 0);
    relay.kill(SIGKILL);
    relay.wait(kDeadline);

    // The ledger remembers what the good route has finished: no repeats beyond the limit, and with
    // the mailbox no second row.
    Process again = this->relay("", {"--to", away});
    Pg(url_).exec(
        "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES "
        "('Load', 'last', 'Changed', '{\"n\": 1}')");
    ASSERT_TRUE(eventually(kDeadline, "the last event arrives", [&] {
        return Pg(url_).number("SELECT count(*) FROM outbox_mailbox WHERE key = 'last'") == 1;
    }));
    EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_mailbox"), load.committed() + 1);
    again.stop();
}

INSTANTIATE_TEST_SUITE_P(
    Modes, RelayChaos,
    testing::ValuesIn(and_in_full<Way>({{"stream", "delete"}, {"stream", "keep"}},
                                       {{"polling", "delete"}, {"polling", "keep"}})),
    [](const auto& way) { return std::string(way.param.mode) + "_" + way.param.after_publish; });

}  // namespace
}  // namespace outbox::test
