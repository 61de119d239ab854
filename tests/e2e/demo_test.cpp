#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/http_client.h"
#include "tests/support/process.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kProofs =
    "\nlost 0, ghosts 0, out of order 0, repeats applied 0, never applied 0, dead letters 1 ";

ProcessOptions demo(const TemporaryFolder& folder, const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> command{"/usr/bin/python3", "-B", DEMO, PROGRAMS};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return {.command = command, .environment = {{"TMPDIR", folder.path().string()}}};
}

// Command lines of the processes whose working folder is inside `folder`.
std::vector<std::string> processes_in(const std::filesystem::path& folder) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        std::error_code error;
        const auto cwd = std::filesystem::read_symlink(entry.path() / "cwd", error);
        if (!error && cwd.string().starts_with(folder.string()))
            found.push_back(read_file(entry.path() / "cmdline"));
    }
    return found;
}

bool handles(pid_t process, int signal_number) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("SigCgt:"))
            return (std::stoull(line.substr(7), nullptr, 16) >> (signal_number - 1) & 1) != 0;
    }
    return false;
}

TEST(Demo, ProvesThatNothingIsLostThoughTheRelayIsKilled) {
    const TemporaryFolder folder("demo");
    const Finished finished = run(demo(folder), 240s);
    EXPECT_EQ(finished.status, (ExitStatus{0, 0})) << finished.out << finished.err;
    const auto verdict = finished.out.rfind(kProofs);
    ASSERT_NE(verdict, std::string::npos) << finished.out;
    EXPECT_EQ(finished.out.find('\n', verdict + 1), finished.out.size() - 1) << finished.out;
    EXPECT_NE(finished.out.find("$ curl "), std::string::npos);
    EXPECT_NE(finished.out.find("\"status\":\"CREATED\""), std::string::npos);
    EXPECT_NE(finished.out.find("payment PROCESSED -> order CONFIRMED"), std::string::npos);
    EXPECT_NE(finished.out.find("payment REFUSED -> order CANCELLED -> stock RELEASED"),
              std::string::npos);
    EXPECT_NE(finished.out.find("0 without an outcome"), std::string::npos);
    EXPECT_NE(finished.out.find("dead letter: "), std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Demo, LeavesNothingBehindWhenInterrupted) {
    const TemporaryFolder folder("demo");
    Process process(demo(folder));
    ASSERT_TRUE(eventually(60s, "orders are taken", [&] {
        return process.stdout_text().find("CREATED") != std::string::npos;
    }));
    EXPECT_FALSE(processes_in(folder.path()).empty());
    process.kill(SIGINT);
    EXPECT_EQ(process.wait(60s), (ExitStatus{130, 0}));
    EXPECT_TRUE(processes_in(folder.path()).empty()) << processes_in(folder.path())[0];
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Demo, ThatKeepsRunningHasADashboardFromTheStartAndEndsWithItsProgramsEvenWhenItIsKilled) {
    const TemporaryFolder folder("demo");
    Process process(demo(folder, {"--keep-running"}));
    ASSERT_TRUE(eventually(60s, "orders are taken", [&] {
        return process.stdout_text().find("CREATED") != std::string::npos;
    }));
    const std::string said = process.stdout_text();
    const std::size_t address = said.find("Watch it in a browser: http://127.0.0.1:");
    ASSERT_NE(address, std::string::npos) << said;
    EXPECT_LT(address, said.find("1. Two orders"));
    const std::string port = said.substr(said.find_last_of(':', said.find(' ', address + 23)) + 1);
    EXPECT_EQ(http(std::stoi(port), "GET", "/").status, 200);
    process.kill(SIGKILL);
    process.wait(10s);
    EXPECT_TRUE(eventually(60s, "its programs are gone",
                           [&] { return processes_in(folder.path()).empty(); }));
}

TEST(Participant, EndsCleanlyHoweverOftenItIsTold) {
    const TemporaryFolder folder("participant");
    Process process(
        {.command = {std::string(PROGRAMS) + "/inventory-service"},
         .environment = {{"DATABASE_URL", "sqlite://" + (folder / "inventory.db").string()}}});
    ASSERT_TRUE(
        eventually(60s, "it handles SIGTERM", [&] { return handles(process.pid(), SIGTERM); }));
    while (process.running()) {
        process.kill(SIGTERM);
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(process.wait(30s), (ExitStatus{0, 0})) << process.stderr_text();
}

TEST(Participant, SaysWhatIsWrongAtTheStart) {
    const TemporaryFolder folder("participant");
    const std::string program = std::string(PROGRAMS) + "/inventory-service";
    for (const std::string& url : {std::string(), std::string("postgresql://localhost/x"),
                                   "sqlite://" + (folder / "no" / "such.db").string()}) {
        const Finished finished =
            run({.command = {program}, .environment = {{"DATABASE_URL", url}}}, 30s);
        EXPECT_EQ(finished.status, (ExitStatus{2, 0})) << url;
        EXPECT_TRUE(finished.err.starts_with("inventory-service: ")) << finished.err;
    }
}

}  // namespace
}  // namespace outbox::test
