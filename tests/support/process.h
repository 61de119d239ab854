#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "tests/support/files.h"

namespace outbox::test {

struct ExitStatus {
    int code = -1;   // the exit code, or -1 if a signal ended it
    int signal = 0;  // the signal that ended it, or 0
    bool operator==(const ExitStatus&) const = default;
};

struct ProcessOptions {
    std::vector<std::string> command;                     // program and arguments; PATH is searched
    std::map<std::string, std::string> environment = {};  // added to ours
    std::filesystem::path working_folder = {};            // empty: ours
    std::filesystem::path output_folder = {};  // of `stdout` and `stderr`; empty: a new one
    std::string input = {};                    // what it reads on stdin
    int death_signal = SIGKILL;                // what it gets when this process dies
};

// A child process that never outlives its owner: the destructor kills and reaps it, and the kernel
// sends it `death_signal` when this process dies. That signal is bound to the thread that
// started the child, so start children from threads that live as long as they do.
// Throws std::runtime_error if the program cannot be started. One thread at a time.
class Process {
  public:
    explicit Process(ProcessOptions options);
    ~Process();
    Process(Process&& other) noexcept;
    Process& operator=(Process&&) = delete;
    Process(const Process&) = delete;

    pid_t pid() const { return pid_; }
    bool running();

    // Sends a signal, and waits until all of it stands still where that is SIGSTOP; does nothing
    // once the process has ended.
    void kill(int signal_number);

    // Waits until it has ended; nullopt when the deadline comes first.
    std::optional<ExitStatus> wait(std::chrono::milliseconds deadline);

    // SIGTERM, then SIGKILL at the deadline. How it ended.
    ExitStatus stop(std::chrono::milliseconds deadline = std::chrono::seconds(60));

    const std::filesystem::path& stdout_path() const { return stdout_path_; }
    const std::filesystem::path& stderr_path() const { return stderr_path_; }
    std::string stdout_text() const;
    std::string stderr_text() const;

  private:
    bool reap(int flags);

    pid_t pid_ = -1;
    std::optional<ExitStatus> ended_;
    std::filesystem::path stdout_path_;
    std::filesystem::path stderr_path_;
    std::unique_ptr<TemporaryFolder> own_folder_;
    int log_registration_ = 0;
};

// Runs a command to its end and returns how it ended and what it wrote. At the deadline the
// command is killed and the result has signal SIGKILL.
struct Finished {
    ExitStatus status;
    std::string out;
    std::string err;
};
Finished run(ProcessOptions options,
             std::chrono::milliseconds deadline = std::chrono::seconds(120));

// SIGSTOP to a process that need not be a child of ours: it stands still when this returns, or has
// ended.
void pause_process(pid_t pid);

}  // namespace outbox::test
