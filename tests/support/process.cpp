#include "tests/support/process.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "tests/support/files.h"
#include "tests/support/logs.h"

namespace outbox::test {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(2);

std::vector<std::string> environment_with(const std::map<std::string, std::string>& added) {
    std::vector<std::string> result;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        if (!added.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
    }
    for (const auto& [name, value] : added) result.push_back(name + "=" + value);
    return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (auto& text : strings) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
}

struct Descriptors {
    int in;
    int out;
    int err;
    int failure;  // closed by a successful exec, else it carries errno
};

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const ProcessOptions& options, pid_t parent, const Descriptors& files,
                         char* const* arguments, char* const* environment) {
    const auto fail = [&] {
        const int error = errno;
        const auto written = write(files.failure, &error, sizeof error);
        _exit(written > 0 ? 127 : 126);
    };
    if (prctl(PR_SET_PDEATHSIG, options.death_signal) != 0) fail();
    if (getppid() != parent) _exit(125);
    if (!options.working_folder.empty() && chdir(options.working_folder.c_str()) != 0) fail();
    dup2(files.in, STDIN_FILENO);
    dup2(files.out, STDOUT_FILENO);
    dup2(files.err, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);  // sockets of libraries and the like
    execvpe(arguments[0], arguments, environment);
    fail();
    _exit(127);
}

int open_or_throw(const std::filesystem::path& path, int flags) {
    const int file = open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (file < 0) throw std::runtime_error("cannot open " + path.string() + ": " + strerror(errno));
    return file;
}

}  // namespace

Process::Process(ProcessOptions options) {
    if (options.command.empty()) throw std::runtime_error("Process: no command");
    auto folder = options.output_folder;
    if (folder.empty()) {
        own_folder_ = std::make_unique<TemporaryFolder>("process");
        folder = own_folder_->path();
    }
    stdout_path_ = folder / "stdout";
    stderr_path_ = folder / "stderr";
    auto input_path = std::filesystem::path("/dev/null");
    if (!options.input.empty()) {
        input_path = folder / "stdin";
        std::ofstream(input_path, std::ios::binary) << options.input;
    }

    auto environment = environment_with(options.environment);
    const auto argument_pointers = pointers(options.command);
    const auto environment_pointers = pointers(environment);
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    const Descriptors files{open_or_throw(input_path, O_RDONLY),
                            open_or_throw(stdout_path_, O_WRONLY | O_CREAT | O_TRUNC),
                            open_or_throw(stderr_path_, O_WRONLY | O_CREAT | O_TRUNC), failure[1]};
    const pid_t parent = getpid();
    // Not fork: the page tables of a program under AddressSanitizer take long to copy.
    // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork,bugprone-unsafe-functions)
    pid_ = vfork();
    if (pid_ == 0) {
        become(options, parent, files, argument_pointers.data(), environment_pointers.data());
    }
    for (const int file : {files.in, files.out, files.err, files.failure}) close(file);
    int error = 0;
    const bool failed = pid_ < 0 || read(failure[0], &error, sizeof error) > 0;
    if (pid_ < 0) error = errno;
    close(failure[0]);
    if (failed) {
        if (pid_ > 0) waitpid(pid_, nullptr, 0);
        throw std::runtime_error("cannot start " + options.command[0] + ": " + strerror(error));
    }
    log_registration_ = register_log(options.command[0] + " (stderr)", stderr_path_);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      ended_(other.ended_),
      stdout_path_(std::move(other.stdout_path_)),
      stderr_path_(std::move(other.stderr_path_)),
      own_folder_(std::move(other.own_folder_)),
      log_registration_(std::exchange(other.log_registration_, 0)) {}

Process::~Process() {
    if (pid_ > 0 && !ended_) {
        ::kill(pid_, SIGKILL);
        reap(0);
    }
    unregister_log(log_registration_);
}

bool Process::reap(int flags) {
    if (ended_) return true;
    int status = 0;
    pid_t result;
    do {
        result = waitpid(pid_, &status, flags);
    } while (result < 0 && errno == EINTR);
    if (result == 0) return false;
    ended_ =
        WIFSIGNALED(status) ? ExitStatus{-1, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0};
    return true;
}

bool Process::running() {
    return !reap(WNOHANG);
}

void Process::kill(int signal_number) {
    if (!running()) return;
    ::kill(pid_, signal_number);
    if (signal_number != SIGSTOP) return;
    // Until one of its threads is given a processor for it, the others go on.
    siginfo_t stopped{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::optional<ExitStatus> Process::wait(std::chrono::milliseconds deadline) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!reap(WNOHANG)) {
        if (std::chrono::steady_clock::now() >= end) return std::nullopt;
        std::this_thread::sleep_for(kPollInterval);
    }
    return ended_;
}

ExitStatus Process::stop(std::chrono::milliseconds deadline) {
    kill(SIGTERM);
    if (const auto ended = wait(deadline)) return *ended;
    kill(SIGKILL);
    reap(0);
    return *ended_;
}

std::string Process::stdout_text() const {
    return read_file(stdout_path_);
}
std::string Process::stderr_text() const {
    return read_file(stderr_path_);
}

Finished run(ProcessOptions options, std::chrono::milliseconds deadline) {
    Process process(std::move(options));
    auto status = process.wait(deadline);
    if (!status) {
        process.kill(SIGKILL);
        status = process.wait(std::chrono::seconds(10));
    }
    return {status.value_or(ExitStatus{-1, SIGKILL}), process.stdout_text(), process.stderr_text()};
}

void pause_process(pid_t pid) {
    ::kill(pid, SIGSTOP);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (true) {
        const std::string status = read_file("/proc/" + std::to_string(pid) + "/stat");
        const auto state = status.rfind(") ");
        if (state == std::string::npos) return;
        if (std::string_view("TtZX").find(status[state + 2]) != std::string_view::npos) return;
        if (std::chrono::steady_clock::now() >= end) {
            throw std::runtime_error("process " + std::to_string(pid) + " does not stand still");
        }
        std::this_thread::sleep_for(kPollInterval);
    }
}

}  // namespace outbox::test
