#include <array>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

// A thread of a child of ours that goes no further, while the child's others do. Of one thread of
// ours.
class HungThread {
  public:
    HungThread(const Process& process, const std::string& name) {
        const auto tasks = std::filesystem::path("/proc") / std::to_string(process.pid()) / "task";
        for (const auto& task : std::filesystem::directory_iterator(tasks)) {
            if (read_file(task.path() / "comm") != name + "\n") continue;
            id_ = static_cast<pid_t>(std::stol(task.path().filename()));
        }
        int status = 0;
        hangs_ = id_ != 0 && ptrace(PTRACE_SEIZE, id_, nullptr, nullptr) == 0 &&
                 ptrace(PTRACE_INTERRUPT, id_, nullptr, nullptr) == 0 &&
                 waitpid(id_, &status, __WALL) == id_ && WIFSTOPPED(status);
    }
    ~HungThread() { ptrace(PTRACE_DETACH, id_, nullptr, nullptr); }
    HungThread(const HungThread&) = delete;
    HungThread& operator=(const HungThread&) = delete;

    [[nodiscard]] bool hangs() const { return hangs_; }
    // Its process has not ended before who holds it here has heard of that.
    void take_leave() const { waitpid(id_, nullptr, __WALL | WNOHANG); }

  private:
    pid_t id_ = 0;
    bool hangs_ = false;
};

class HangingRelay : public testing::Test {
  protected:
    struct Shop {
        std::string url = shared_postgres().create_database();
        std::unique_ptr<Pg> database = std::make_unique<Pg>(url);

        void emit() const { database->exec("SELECT outbox_emit(topic => 't', payload => '{}')"); }
        [[nodiscard]] std::int64_t arrived() const {
            return database->number("SELECT count(*) FROM outbox_mailbox");
        }
    };

    // That works.
    void begin(Shop& shop, const std::function<Process()>& start) {
        const Finished migrated = outbox_.run({"migrate", "--db", shop.url});
        ASSERT_EQ(migrated.status.code, 0) << migrated.err;
        shop.emit();
        running_.push_back(start());
        ASSERT_TRUE(eventually(60s, "the relay works", [&] { return shop.arrived() == 1; }));
    }

    static std::vector<std::string> options(const Shop& shop) {
        return {"--from",
                shop.url,
                "--to",
                "mailbox+postgresql" + shop.url.substr(shop.url.find(':')),
                "--admin",
                "off",
                "--shutdown-grace-s",
                "1"};
    }

    OutboxBinary outbox_;
    std::vector<Process> running_;
};

// Nobody reads what is written to it, and nothing more goes in.
class FullPipe {
  public:
    explicit FullPipe(std::filesystem::path path) : path_(std::move(path)) {
        mkfifo(path_.c_str(), 0600);
        descriptor_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    }
    ~FullPipe() { close(descriptor_); }
    FullPipe(const FullPipe&) = delete;
    FullPipe& operator=(const FullPipe&) = delete;

    void fill() const {
        for (const std::size_t size : {std::size_t{4096}, std::size_t{1}}) {
            const std::string text(size, '.');
            while (write(descriptor_, text.data(), text.size()) > 0) {
            }
        }
    }

  private:
    std::filesystem::path path_;
    int descriptor_;
};

TEST_F(HangingRelay, EndsByItselfAlsoWhereNobodyReadsItsLogAndLosesNothing) {
    const FullPipe log(outbox_.file("log"));
    Shop shop;
    Shop silent;
    ASSERT_NO_FATAL_FAILURE(begin(shop, [&] { return outbox_.start_relay(options(shop)); }));
    ASSERT_NO_FATAL_FAILURE(begin(silent, [&] {
        std::vector<std::string> command{
            "sh", "-c", "exec \"$0\" relay \"$@\" 2>" + outbox_.file("log").string(),
            OUTBOX_BINARY};
        for (const std::string& one : options(silent)) command.push_back(one);
        return Process({.command = command, .working_folder = outbox_.file("")});
    }));
    const HungThread first(running_[0], "route mailbox");
    const HungThread second(running_[1], "route mailbox");
    ASSERT_TRUE(first.hangs() && second.hangs());
    log.fill();
    shop.emit();
    // Three minutes for what passes for a hang, one beyond; and time for slow machines.
    std::optional<ExitStatus> ended;
    EXPECT_TRUE(eventually(8min, "it ends", [&] {
        first.take_leave();
        return (ended = running_[0].wait(0ms)).has_value();
    }));
    EXPECT_EQ(ended, (ExitStatus{1, 0}));
    EXPECT_THAT(running_[0].stderr_text(), HasSubstr("event=route_hangs route=mailbox"));
    EXPECT_THAT(running_[0].stderr_text(), HasSubstr("event=killed error=\"a thread"));
    ended.reset();
    EXPECT_TRUE(eventually(2min, "the other one ends", [&] {
        second.take_leave();
        return (ended = running_[1].wait(0ms)).has_value();
    }));
    EXPECT_EQ(ended, (ExitStatus{1, 0}));
    EXPECT_EQ(shop.arrived(), 1);
    Process next = outbox_.start_relay(options(shop));  // as a unit of systemd does
    EXPECT_TRUE(eventually(60s, "it goes on", [&] { return shop.arrived() == 2; }));
    EXPECT_EQ(next.stop(), (ExitStatus{0, 0}));
}

TEST_F(HangingRelay, EndsAfterTheGraceThatSigtermLeavesIt) {
    Shop shop;
    ASSERT_NO_FATAL_FAILURE(begin(shop, [&] { return outbox_.start_relay(options(shop)); }));
    const HungThread route(running_[0], "route mailbox");
    ASSERT_TRUE(route.hangs());
    running_[0].kill(SIGTERM);
    std::optional<ExitStatus> ended;
    EXPECT_TRUE(eventually(60s, "it ends", [&] {
        route.take_leave();
        return (ended = running_[0].wait(0ms)).has_value();
    }));
    EXPECT_EQ(ended, (ExitStatus{1, 0}));
    EXPECT_THAT(running_[0].stderr_text(), Not(HasSubstr("event=route_hangs")));
    EXPECT_THAT(running_[0].stderr_text(), HasSubstr("event=killed"));
}

}  // namespace
}  // namespace outbox::test
