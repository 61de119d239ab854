// Who may send a run: one process at a time, by the lease in its row.
#include "replay/runs.h"

#include <barrier>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "databases/postgres/source/history.h"
#include "databases/sqlite/source/history.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using replay::Runs;
using testing::HasSubstr;

constexpr const char* kPostgres = "postgres";
constexpr const char* kSqlite = "sqlite";
constexpr std::int64_t kLongMs = 600'000;

replay::Progress sent(std::int64_t count) {
    replay::Progress progress;
    progress.sent = count;
    return progress;
}

// A process that runs a replay, as far as the table of runs knows it.
struct Member {
    std::unique_ptr<replay::History> history;
    std::unique_ptr<Runs> runs;
};

class RunsOfReplay : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        url_ = on_sqlite() ? "sqlite://" + outbox_.file("shop.db").string()
                           : shared_postgres().create_database();
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
        exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '{}')");
        Process relay =
            outbox_.start_relay({"--from", url_, "--to", "out=null:", "--admin", "off"});
        ASSERT_TRUE(eventually(60s, "a relay has served the table", [&] {
            return value("SELECT count(*) FROM outbox_events") == "0";
        })) << relay.stderr_text();
        ASSERT_EQ(relay.stop(), (ExitStatus{0, 0}));
        run_.id = "0b6dff1c-6d6c-4f6e-9d3e-0a4a5a0f2d11";
        run_.selection.route = "out";
        run_.rate = 100;
        run_.reason = "a test";
        run_.expected = 10;
        ASSERT_TRUE(member().runs->begin(run_).ok());
    }
    static bool on_sqlite() { return GetParam() == std::string(kSqlite); }

    Member member() const {
        Member made;
        if (on_sqlite()) {
            sqlite::SqliteSourceConfig config;
            config.url = url_;
            made.history = std::move(*sqlite::open_history(config));
        } else {
            postgres::PostgresSourceConfig config;
            config.url = url_;
            made.history = std::move(*postgres::open_history(config));
        }
        made.runs = std::make_unique<Runs>(*made.history, made.history->table_name(), "ann");
        return made;
    }
    std::string value(const std::string& sql) {
        return on_sqlite() ? Sqlite(outbox_.file("shop.db")).value(sql) : Pg(url_).value(sql);
    }
    // As long after its last word as a lease holds.
    void let_the_lease_lapse() {
        const std::string sql =
            std::string("UPDATE outbox_replays SET runner_until = ") +
            (on_sqlite() ? "runner_until - 600000000" : "runner_until - interval '600 s'");
        exec(sql);
    }
    void exec(const std::string& sql) {
        if (on_sqlite()) {
            Sqlite(outbox_.file("shop.db")).exec(sql);
        } else {
            Pg(url_).exec(sql);
        }
    }
    replay::Run found(Member& by) { return by.runs->find(run_.id)->value(); }

    OutboxBinary outbox_;
    std::string url_;
    replay::Run run_;
};

INSTANTIATE_TEST_SUITE_P(Databases, RunsOfReplay, testing::Values(kPostgres, kSqlite),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RunsOfReplay, OneThatWasKilledIsTakenOverOnceItsLeaseIsOverAndNotBefore) {
    Member killed = member();
    Member next = member();
    const auto first = killed.runs->take(run_, "host-a:1", kLongMs, {});
    ASSERT_TRUE(first.ok() && *first);
    EXPECT_EQ(*next.runs->take(run_, "host-b:2", kLongMs, {}), std::nullopt) << "it is alive";
    EXPECT_EQ(found(next).runner, "host-a:1");
    // Its word makes the lease last longer.
    let_the_lease_lapse();
    ASSERT_TRUE(killed.runs->record(run_, **first, sent(3), kLongMs).ok());
    EXPECT_EQ(*next.runs->take(run_, "host-b:2", kLongMs, {}), std::nullopt);
    EXPECT_GT(found(next).lease_ms, 0);

    let_the_lease_lapse();
    EXPECT_EQ(found(next).lease_ms, 0);
    const auto second = next.runs->take(run_, "host-b:2", kLongMs, "after the kill");
    ASSERT_TRUE(second.ok() && *second);
    EXPECT_GT(**second, **first);
    EXPECT_EQ(found(next).sent, 3) << "it goes on where the other one was";
    EXPECT_EQ(*killed.runs->take(run_, "host-a:1", kLongMs, {}), std::nullopt);
}

TEST_P(RunsOfReplay, OneWhoseLeaseIsLongerThanAnyWasLeftBeforeTheClockWasSetBack) {
    Member killed = member();
    Member next = member();
    ASSERT_TRUE(*killed.runs->take(run_, "host-a:1", kLongMs, {}));
    exec(std::string("UPDATE outbox_replays SET runner_until = ") +
         (on_sqlite() ? "runner_until + 3600000000" : "runner_until + interval '1 hour'"));
    EXPECT_TRUE(*next.runs->take(run_, "host-b:2", kLongMs, {}));
    EXPECT_EQ(*killed.runs->take(run_, "host-a:1", kLongMs, {}), std::nullopt);
}

TEST_P(RunsOfReplay, OneThatWasTakenOverIsWrittenByItsNewRunnerAlone) {
    Member paused = member();
    Member next = member();
    const auto first = paused.runs->take(run_, "host-a:1", kLongMs, {});
    let_the_lease_lapse();
    const auto second = next.runs->take(run_, "host-b:2", kLongMs, {});
    ASSERT_TRUE(second.ok() && *second);
    ASSERT_TRUE(next.runs->record(run_, **second, sent(5), kLongMs).ok());

    const auto late = paused.runs->record(run_, **first, sent(9), kLongMs);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::kLeaseLost);
    EXPECT_THAT(late.error().message, HasSubstr("another process goes on"));
    ASSERT_TRUE(paused.runs->leave(run_, **first, "finished", {}).ok());
    const replay::Run now = found(next);
    EXPECT_EQ(now.sent, 5);
    EXPECT_EQ(now.state, "running");
    EXPECT_EQ(now.runner, "host-b:2");
    EXPECT_GT(now.lease_ms, 0);
}

TEST_P(RunsOfReplay, OneThatTheDatabaseHasForgottenIsNotSaidToBeAnothersRun) {
    Member runner = member();
    const auto epoch = runner.runs->take(run_, "host-a:1", kLongMs, {});
    ASSERT_TRUE(epoch.ok() && *epoch);
    // As after a failover that lost the newest changes: who took the run, and then the run.
    exec("UPDATE outbox_replays SET epoch = 0, runner = '', runner_until = NULL");
    const auto not_taken = runner.runs->record(run_, **epoch, sent(3), kLongMs);
    ASSERT_FALSE(not_taken.ok());
    EXPECT_EQ(not_taken.error().code, ErrorCode::kLeaseLost);
    EXPECT_THAT(not_taken.error().message, HasSubstr("`outbox replay resume` goes on"));

    exec("DELETE FROM outbox_replays");
    const auto gone = runner.runs->record(run_, **epoch, sent(3), kLongMs);
    ASSERT_FALSE(gone.ok());
    EXPECT_EQ(gone.error().code, ErrorCode::kLeaseLost);
    EXPECT_THAT(gone.error().message, HasSubstr("is not in outbox_replays any more"));
    EXPECT_THAT(gone.error().message, HasSubstr("a new run sends these again"));
}

TEST_P(RunsOfReplay, OfManyThatTakeOneAtOnceOneHasIt) {
    constexpr int kMembers = 4;
    constexpr int kRounds = 10;
    std::vector<Member> members;
    for (int i = 0; i < kMembers; ++i) members.push_back(member());
    for (int round = 0; round < kRounds; ++round) {
        std::barrier start(kMembers);
        std::vector<std::string> taken(kMembers);
        std::vector<std::thread> threads;
        for (int i = 0; i < kMembers; ++i) {
            threads.emplace_back([&, i] {
                start.arrive_and_wait();
                const auto epoch = members[static_cast<std::size_t>(i)].runs->take(
                    run_, "host:" + std::to_string(i), kLongMs, "a race");
                taken[static_cast<std::size_t>(i)] = !epoch.ok() ? describe(epoch.error())
                                                     : *epoch    ? "taken"
                                                                 : "not taken";
            });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(std::count(taken.begin(), taken.end(), "taken"), 1);
        EXPECT_EQ(std::count(taken.begin(), taken.end(), "not taken"), kMembers - 1)
            << testing::PrintToString(taken);
        let_the_lease_lapse();
    }
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit WHERE action = 'replay resume'"),
              std::to_string(kRounds));
}

}  // namespace
}  // namespace outbox::test
