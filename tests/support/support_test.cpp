#include <cstdlib>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

TEST(Process, HandsOverInputOutputAndExitCode) {
    const auto finished = run({.command = {"sh", "-c", "cat; echo $GREETING >&2; exit 7"},
                               .environment = {{"GREETING", "hello"}},
                               .input = "in"});
    EXPECT_EQ(finished.status, (ExitStatus{7, 0}));
    EXPECT_EQ(finished.out, "in");
    EXPECT_EQ(finished.err, "hello\n");
}

TEST(Process, NamesAProgramThatCannotBeStarted) {
    try {
        run({.command = {"/no/such/program"}});
        FAIL() << "it started";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "cannot start /no/such/program: No such file or directory");
    }
}

TEST(Process, EndsWithTheProcessThatStartedIt) {
    const TemporaryFolder output;
    int grandchild_pid[2];
    ASSERT_EQ(pipe(grandchild_pid), 0);
    const pid_t child = fork();
    if (child == 0) {
        Process sleeper({.command = {"sleep", "600"}, .output_folder = output.path()});
        const pid_t pid = sleeper.pid();
        if (write(grandchild_pid[1], &pid, sizeof pid) != sizeof pid) _exit(1);
        pause();
        _exit(0);
    }
    pid_t sleeper = 0;
    ASSERT_EQ(read(grandchild_pid[0], &sleeper, sizeof sleeper), sizeof sleeper);
    ASSERT_EQ(::kill(sleeper, 0), 0);
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(eventually(60s, "the grandchild is gone or a zombie", [&] {
        const auto status = read_file("/proc/" + std::to_string(sleeper) + "/stat");
        return status.empty() || status.find(") Z ") != std::string::npos;
    }));
}

// Whether nobody holds the other end of the pipe. Waits a minute: a program that was just started
// may not have closed all that it does not inherit when its start is known.
bool has_ended(int read_end) {
    constexpr int kDeadlineMs = 60'000;
    pollfd waiting{read_end, POLLIN, 0};
    return poll(&waiting, 1, kDeadlineMs) == 1 && (waiting.revents & POLLHUP) != 0;
}

TEST(Process, InheritsNothingButItsInputAndOutput) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    Process sleeper({.command = {"sleep", "600"}});
    close(ends[1]);
    EXPECT_TRUE(has_ended(ends[0]));
    close(ends[0]);
}

TEST(ServerScript, StartsAServerThatHoldsNothingOfItsCallers) {
    const TemporaryFolder folder("server");
    const std::string script = std::string(OUTBOX_SOURCE_DIR) + "/script/servers/redis";
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    // Not `run`, from which nothing is inherited.
    const int started =
        std::system((script + " start --dir " + folder.path().string() + " >/dev/null").c_str());
    close(ends[1]);
    EXPECT_EQ(started, 0);
    EXPECT_TRUE(has_ended(ends[0]));
    close(ends[0]);
    EXPECT_EQ(run({.command = {script, "wipe", "--dir", folder.path()}}, 60s).status,
              (ExitStatus{0, 0}));
}

TEST(Eventually, FailsWithWhatWasAwaitedAndTheLogs) {
    Process talker({.command = {"sh", "-c", "echo last words >&2"}});
    ASSERT_EQ(talker.wait(60s), (ExitStatus{0, 0}));
    const auto result = eventually(5ms, "the impossible", [] { return false; });
    EXPECT_FALSE(result);
    EXPECT_NE(std::string(result.message()).find("the impossible"), std::string::npos);
    EXPECT_NE(std::string(result.message()).find("last words"), std::string::npos);
}

TEST(PostgresServer, KeepsCommittedRowsThroughAnImmediateStop) {
    PostgresServer server;
    const auto url = server.create_database();
    Pg(url).exec("CREATE TABLE t (n int); INSERT INTO t VALUES (42)");
    server.stop(PostgresServer::Stop::kImmediate);
    EXPECT_FALSE(server.running());
    EXPECT_THROW(Pg{url}, std::runtime_error);
    server.start();
    EXPECT_EQ(Pg(url).number("SELECT n FROM t"), 42);
    EXPECT_EQ(Pg(url).value("SHOW wal_level"), "logical");
    EXPECT_EQ(Pg(url).value("SHOW fsync"), "on");
}

TEST(PostgresServer, GivesEachTestAnEmptyDatabase) {
    auto& server = shared_postgres();
    const auto first = server.create_database();
    const auto second = server.create_database();
    Pg(first).exec("CREATE TABLE only_in_first ()");
    EXPECT_EQ(Pg(second).value("SELECT to_regclass('only_in_first')"), "");
}

TEST(PostgresServer, HangsWhilePausedAndAnswersAfterwards) {
    auto& server = shared_postgres();
    server.pause();
    const auto paused_url = server.url() + "?connect_timeout=2";
    EXPECT_EQ(PQping(paused_url.c_str()), PQPING_NO_RESPONSE);
    server.resume();
    EXPECT_EQ(Pg(server.url()).number("SELECT 1"), 1);
}

TEST(KafkaServer, KeepsARecordThroughARestart) {
    KafkaServer server;
    create_topic(server.bootstrap(), "letters", 3);
    produce(server.bootstrap(), "letters", "k", "v");
    server.restart();
    KafkaReader reader(server.bootstrap(), "letters");
    const auto& records = reader.read(1, 60s);
    ASSERT_EQ(records.size(), 1u) << server.log_tail();
    EXPECT_EQ(records[0].key, "k");
    EXPECT_EQ(records[0].value, "v");
    server.kill();
    EXPECT_FALSE(server.running());
}

}  // namespace
}  // namespace outbox::test
