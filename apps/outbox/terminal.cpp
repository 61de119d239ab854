#include "terminal.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <string_view>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace outbox::app {
namespace {

// Alternate screen, no cursor, and lines that are too long are cut by the terminal, not wrapped.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[?7l\033[2J";
constexpr std::string_view kLeave = "\033[?7h\033[?25h\033[0m\033[?1049l";
constexpr char kControlC = 3;

constexpr std::array kWatched{SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};
constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT};

// What the handlers read and write.
volatile std::sig_atomic_t quit_asked = 0;
volatile std::sig_atomic_t resized = 0;
volatile std::sig_atomic_t stop_asked = 0;
volatile std::sig_atomic_t on_screen = 0;
bool has_saved = false;
termios saved{};
sigset_t before{};
std::array<struct sigaction, kWatched.size()> former_watched{};
std::array<struct sigaction, kCrashes.size()> former_crashes{};

bool write_whole(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
        text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
    return true;
}

// Also within a signal handler: nothing here allocates or locks.
void leave_screen() {
    if (on_screen == 0) return;
    on_screen = 0;
    static_cast<void>(write_whole(kLeave));
    if (has_saved) tcsetattr(STDIN_FILENO, TCSANOW, &saved);
}

void enter_screen() {
    if (has_saved) {
        termios raw = saved;
        raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    on_screen = 1;
    static_cast<void>(write_whole(kEnter));
}

void note_signal(int number) {
    if (number == SIGWINCH) {
        resized = 1;
    } else if (number == SIGTSTP) {
        stop_asked = 1;
    } else {
        quit_asked = 1;
    }
}

// By whichever thread crashed; the signal goes on to end the process.
void restore_and_crash(int number) {
    const int error = errno;
    leave_screen();
    std::signal(number, SIG_DFL);
    raise(number);
    errno = error;
}

}  // namespace

Screen::Screen() {
    has_saved = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &saved) == 0;
    reads_keys_ = has_saved;
    quit_asked = 0;
    sigset_t mine;
    sigemptyset(&mine);
    struct sigaction action{};
    sigemptyset(&action.sa_mask);
    action.sa_handler = note_signal;
    for (std::size_t i = 0; i < kWatched.size(); ++i) {
        sigaddset(&mine, kWatched[i]);
        sigaction(kWatched[i], &action, &former_watched[i]);
    }
    // Of this thread and of those that it makes from here on; `wait` lets them through.
    pthread_sigmask(SIG_BLOCK, &mine, &before);
    action.sa_handler = restore_and_crash;
    for (std::size_t i = 0; i < kCrashes.size(); ++i) {
        sigaction(kCrashes[i], &action, &former_crashes[i]);
    }
    enter_screen();
}

Screen::~Screen() {
    leave_screen();
    for (std::size_t i = 0; i < kCrashes.size(); ++i) {
        sigaction(kCrashes[i], &former_crashes[i], nullptr);
    }
    for (std::size_t i = 0; i < kWatched.size(); ++i) {
        sigaction(kWatched[i], &former_watched[i], nullptr);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Screen::Size Screen::size() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
        return {};
    }
    return {size.ws_col, size.ws_row};
}

void Screen::draw(const std::vector<std::string>& lines) {
    std::string frame = "\033[H";
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) frame += "\r\n";
        frame += lines[i] + "\033[K";
    }
    frame += "\033[J";
    if (!write_whole(frame)) gone_ = true;
}

Screen::Event Screen::read_keys() {
    std::array<char, 64> keys{};
    const ssize_t count = ::read(STDIN_FILENO, keys.data(), keys.size());
    if (count == 0) reads_keys_ = false;  // its other end is closed
    for (ssize_t i = 0; i < count; ++i) {
        const char key = keys[static_cast<std::size_t>(i)];
        if (key == 'q' || key == 'Q' || key == kControlC) return Event::kQuit;
    }
    return Event::kNothing;
}

Screen::Event Screen::wait(int descriptor, std::chrono::milliseconds timeout) {
    if (quit_asked != 0 || gone_) return Event::kQuit;
    std::array<pollfd, 2> watched{{{descriptor, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
    const timespec limit{seconds.count(), std::chrono::nanoseconds(timeout - seconds).count()};
    ppoll(watched.data(), reads_keys_ ? 2 : 1, &limit, &before);
    if (stop_asked != 0) {
        stop_asked = 0;
        leave_screen();
        raise(SIGSTOP);
        enter_screen();
        return Event::kResized;
    }
    if (quit_asked != 0) return Event::kQuit;
    if (resized != 0) {
        resized = 0;
        return Event::kResized;
    }
    if (reads_keys_ && (watched[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        return (watched[1].revents & POLLIN) != 0 ? read_keys() : Event::kQuit;
    }
    return (watched[0].revents & POLLIN) != 0 ? Event::kReady : Event::kNothing;
}

}  // namespace outbox::app
