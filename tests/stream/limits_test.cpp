// The stream at its limits: large transactions, a slow destination, a quiet database, a server that
// says nothing. Long runs.

#include <chrono>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/stream/stream_relay.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitizer.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr auto kLongDeadline = 250s;

// What the relay may take while it drains. AddressSanitizer has its own share of each allocation.
constexpr long long kMaxMegabytes = OUTBOX_ADDRESS_SANITIZER != 0 ? 160 : 64;

long long peak_megabytes(const Process& process) {
    const std::string status = read_file("/proc/" + std::to_string(process.pid()) + "/status");
    return std::stoll(status.substr(status.find("VmHWM:") + 6)) / 1024;
}

// A process that stands still for as long as this lives.
class Paused {
  public:
    explicit Paused(pid_t pid) : pid_(pid) { ::kill(pid_, SIGSTOP); }
    ~Paused() { ::kill(pid_, SIGCONT); }
    Paused(const Paused&) = delete;
    Paused& operator=(const Paused&) = delete;

  private:
    pid_t pid_;
};

class StreamLimits : public StreamRelay {
  protected:
    void SetUp() override {
        use(server_);
        database_.emplace(url_);
    }

    void start_to(const std::string& to, const std::vector<std::string>& more = {}) {
        std::vector<std::string> command = {OUTBOX, "relay",  "--from", url_,      "--to",
                                            to,     "--mode", "stream", "--admin", "off"};
        command.insert(command.end(), more.begin(), more.end());
        // Freed memory that AddressSanitizer would keep for a while is not the relay's.
        relay_.emplace(ProcessOptions{
            .command = command,
            .environment = {{"ASAN_OPTIONS", "quarantine_size_mb=1:malloc_context_size=0"}}});
    }
    testing::AssertionResult streams() {
        return eventually(kLongDeadline, "the stream is joined", [&] {
            const std::string log = relay_->stderr_text();
            const auto last = log.rfind("event=reads_by");
            return last != std::string::npos && log.find("path=stream", last) != std::string::npos;
        });
    }
    // The large transaction lies behind the stream, which goes on with what comes next.
    void expect_stream_behind_it(long long published_so_far) {
        const std::string end = database_->value("SELECT pg_current_wal_lsn()");
        ASSERT_TRUE(streams());
        ASSERT_TRUE(eventually(kLongDeadline, "the slot is behind the transaction", [&] {
            return holds("EXISTS (SELECT FROM pg_replication_slots WHERE confirmed_flush_lsn >= '" +
                         end + "')");
        }));
        ASSERT_TRUE(streams());
        emit(1, 1);
        ASSERT_TRUE(publishes(published_so_far + 1));
    }
    long long published() {
        return database_->number(
            "SELECT coalesce(sum(published_total), 0) FROM outbox_route_stats");
    }
    testing::AssertionResult publishes(long long events) {
        return eventually(kLongDeadline, "all is published", [&] {
            return published() >= events &&
                   database_->value("SELECT NOT EXISTS (SELECT FROM outbox_events)") == "t";
        });
    }
    // Nothing came twice, and it fitted into memory.
    void expect_done(long long events) {
        EXPECT_EQ(published(), events);
        EXPECT_LE(peak_megabytes(*relay_), kMaxMegabytes);
        RecordProperty("peak_mb", std::to_string(peak_megabytes(*relay_)));
        EXPECT_EQ(relay_->stop(), (ExitStatus{0, 0}));
    }
    Pg::Row slot() {
        return database_
            ->query(
                "SELECT confirmed_flush_lsn, restart_lsn, active_pid, reply_time, now() FROM "
                "pg_replication_slots s JOIN pg_stat_replication r ON pid = active_pid WHERE "
                "slot_type = 'logical'")
            .at(0);
    }
    // Of the first line of the relay's log that holds the text.
    std::string time_of(const std::string& text) {
        const std::string log = relay_->stderr_text();
        const auto start = log.find("time=", log.rfind('\n', log.find(text)) + 1) + 5;
        return log.substr(start, log.find(' ', start) - start);
    }
    bool holds(const std::string& condition) {
        return database_->value("SELECT " + condition) == "t";
    }

    PostgresServer server_;
    std::optional<Pg> database_;
    std::optional<Process> relay_;
};

TEST_F(StreamLimits, AMillionEventsOfOneTransactionTakeBoundedMemory) {
    start_to("null:");
    ASSERT_TRUE(streams());
    database_->exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k' || n % 1000, "
        "jsonb_build_object('n', n, 'fill', repeat('x', 100)) FROM generate_series(1, 1000000) n");
    ASSERT_TRUE(publishes(1'000'000));
    expect_stream_behind_it(1'000'000);
    expect_done(1'000'001);
}

TEST_F(StreamLimits, AGigabyteInOneTransactionTakesBoundedMemory) {
    start_to("null:");
    ASSERT_TRUE(streams());
    database_->exec("ALTER TABLE outbox_events ALTER payload SET STORAGE EXTERNAL");
    database_->exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k' || n % 100, "
        "to_jsonb(repeat('x', 100000)) FROM generate_series(1, 10737) n");
    ASSERT_TRUE(publishes(10'737));
    expect_stream_behind_it(10'737);
    expect_done(10'738);
}

// Longer than the sender would wait for an answer.
TEST_F(StreamLimits, TheServerIsAnsweredWhileTheDestinationTakesNothing) {
    const std::string mail = server_.create_database();
    start_to("mailbox+" + mail);
    ASSERT_TRUE(streams());
    const std::string insert =
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k' || n, '{}' FROM "
        "generate_series(1, 1000) n";
    database_->exec(insert);
    ASSERT_TRUE(publishes(1'000));
    Pg locker(mail);
    locker.exec("BEGIN; LOCK TABLE outbox_mailbox");
    database_->exec(insert);
    const Pg::Row before = slot();
    const std::string written = database_->value("SELECT pg_current_wal_lsn()");
    ASSERT_TRUE(eventually(kDeadline, "the sender has been answered for twice its timeout", [&] {
        return holds("EXISTS (SELECT FROM pg_stat_replication WHERE pid = " + *before[2] +
                     " AND reply_time > '" + *before[4] + "'::timestamptz + interval '20 s')");
    }));
    EXPECT_TRUE(holds("EXISTS (SELECT FROM pg_replication_slots WHERE confirmed_flush_lsn >= '" +
                      written + "')"));
    EXPECT_EQ(published(), 1'000);
    locker.exec("COMMIT");
    ASSERT_TRUE(publishes(2'000));
    EXPECT_EQ(slot()[2], before[2]);
    EXPECT_THAT(relay_->stderr_text(), testing::Not(HasSubstr("database_away")));
    expect_done(2'000);
}

TEST_F(StreamLimits, AQuietDatabaseHoldsNoLogOfABusyOneBack) {
    start_to("null:");
    ASSERT_TRUE(streams());
    Pg busy(server_.create_database());
    busy.exec("CREATE TABLE work AS SELECT n, repeat('x', 500) FROM generate_series(1, 20000) n");
    const std::string written = busy.value("SELECT pg_current_wal_lsn()");
    ASSERT_TRUE(eventually(kDeadline, "the slot's confirmed position passes the work", [&] {
        return holds("'" + *slot()[0] + "'::pg_lsn >= '" + written + "'");
    }));
    ASSERT_TRUE(eventually(kDeadline, "what the slot retains begins behind the work", [&] {
        busy.exec("CHECKPOINT");
        return holds("'" + *slot()[1] + "'::pg_lsn >= '" + written + "'");
    }));
    emit(1, 1);
    ASSERT_TRUE(publishes(1));
    expect_done(1);
}

TEST_F(StreamLimits, ASenderThatIsSilentIsReplacedAndMeanwhileTheTableIsRead) {
    database_->exec(
        "CREATE TABLE removed (at timestamptz); CREATE FUNCTION note() RETURNS trigger LANGUAGE "
        "plpgsql AS $$ BEGIN INSERT INTO public.removed VALUES (clock_timestamp()); RETURN NULL; "
        "END $$; CREATE TRIGGER note AFTER DELETE ON outbox_events FOR EACH ROW EXECUTE FUNCTION "
        "note()");
    start_to("null:");
    ASSERT_TRUE(streams());
    const std::string sender = *slot()[2];
    {
        const Paused paused(static_cast<pid_t>(std::stol(sender)));
        emit(1, 1);
        ASSERT_TRUE(publishes(1));
        ASSERT_TRUE(eventually(kDeadline, "the sender is given up", [&] {
            return relay_->stderr_text().find("the server sent nothing") != std::string::npos;
        }));
        EXPECT_TRUE(
            holds("(SELECT max(at) FROM removed) < '" + time_of("the server sent nothing") + "'"))
            << "the event had to wait for another stream";
        ASSERT_TRUE(streams());
    }
    EXPECT_TRUE(eventually(kDeadline, "only the new slot is left", [&] {
        return database_->number("SELECT count(*) FROM pg_replication_slots") == 1;
    }));
    EXPECT_NE(*slot()[2], sender);
    emit(1, 1);
    ASSERT_TRUE(publishes(2));
    expect_done(2);
}

TEST_F(StreamLimits, AServerThatHangsIsWaitedForAndItsStreamGoesOnOrIsJoinedAnew) {
    start_to("null:");
    ASSERT_TRUE(streams());
    Pg writer(url_);
    for (int round = 1; round <= 2; ++round) {
        server_.pause();
        ASSERT_TRUE(eventually(kDeadline, "the relay no longer leads", [&] {
            return relay_->stderr_text().find("event=lease_lost") != std::string::npos ||
                   relay_->stderr_text().find("event=database_away") != std::string::npos;
        }));
        server_.resume();
        writer.exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '{}')");
        ASSERT_TRUE(publishes(round));
    }
    expect_done(2);
}

TEST_F(StreamLimits, ARelayBeforeAServerThatHangsEndsWhenItIsTold) {
    start_to("null:", {"--shutdown-grace-s", "1"});
    ASSERT_TRUE(streams());
    server_.pause();
    const ExitStatus ended = relay_->stop(60s);
    server_.resume();
    EXPECT_EQ(ended, (ExitStatus{1, 0}));
    EXPECT_THAT(relay_->stderr_text(), HasSubstr("event=killed"));
}

}  // namespace
}  // namespace outbox::test
