#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <poll.h>
#include <pty.h>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <vector>

#include "tests/support/process.h"

namespace outbox::test {

// What a terminal shows of what was written to it: the sequences that `outbox top` uses, and a
// failure for every other.
class TerminalPicture {
  public:
    void resize(std::size_t columns, std::size_t rows) {
        columns_ = columns;
        lines_.assign(rows, {});
        row_ = column_ = 0;
    }
    void take(std::string_view bytes) {
        for (const char c : bytes) {
            pending_ += c;
            if (digest()) pending_.clear();
        }
    }
    bool on_alternate() const { return alternate_; }
    bool cursor_is_shown() const { return cursor_; }
    const std::string& strange() const { return strange_; }
    // A line was longer than the terminal is wide.
    bool overflowed() const { return overflowed_; }
    std::string text() const {
        std::string out;
        for (const auto& line : lines_) {
            std::string whole;
            for (const std::string& cell : line) whole += cell.empty() ? " " : cell;
            whole.erase(whole.find_last_not_of(' ') + 1);
            out += whole + "\n";
        }
        return out;
    }

  private:
    // Whether `pending_` was whole.
    bool digest() {
        const auto first = static_cast<unsigned char>(pending_[0]);
        if (pending_[0] == '\033') {
            if (pending_.size() < 3) return false;
            if (pending_[1] != '[') return note_strange();
            if (std::isalpha(static_cast<unsigned char>(pending_.back())) == 0) return false;
            return obey(pending_.substr(2, pending_.size() - 3), pending_.back());
        }
        if (pending_[0] == '\r') {
            column_ = 0;
        } else if (pending_[0] == '\n') {
            row_ = std::min(row_ + 1, lines_.size() - 1);
        } else if (first < 0x20 || first == 0x7f) {
            return note_strange();
        } else {
            const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
            if (pending_.size() < size) return false;
            put(pending_);
        }
        return true;
    }
    bool note_strange() {
        strange_ += pending_;
        return true;
    }
    bool obey(const std::string& parameters, char command) {
        if (command == 'H' && parameters.empty()) {
            row_ = column_ = 0;
        } else if (command == 'K') {
            lines_[row_].resize(std::min(lines_[row_].size(), column_));
        } else if (command == 'J') {
            if (parameters == "2") lines_.assign(lines_.size(), {});
            lines_[row_].resize(std::min(lines_[row_].size(), column_));
            for (std::size_t i = row_ + 1; i < lines_.size(); ++i) lines_[i].clear();
        } else if (parameters == "?1049") {
            alternate_ = command == 'h';
        } else if (parameters == "?25") {
            cursor_ = command == 'h';
        } else if (parameters == "?7") {
            wraps_ = command == 'h';
        } else if (command != 'm') {
            return note_strange();
        }
        return true;
    }
    void put(const std::string& character) {
        if (column_ >= columns_) {
            overflowed_ = overflowed_ || alternate_;
            if (wraps_) {
                column_ = 0;
                row_ = std::min(row_ + 1, lines_.size() - 1);
            } else {
                column_ = columns_ - 1;
            }
        }
        lines_[row_].resize(std::max(lines_[row_].size(), column_ + 1));
        lines_[row_][column_++] = character;
    }

    std::size_t columns_ = 80;
    std::vector<std::vector<std::string>> lines_ = std::vector<std::vector<std::string>>(24);
    std::size_t row_ = 0;
    std::size_t column_ = 0;
    std::string pending_;
    std::string strange_;
    bool alternate_ = false;
    bool cursor_ = true;
    bool wraps_ = true;
    bool overflowed_ = false;
};

// A process whose standard input, output and error are a terminal.
class PtyProcess {
  public:
    PtyProcess(std::vector<std::string> command, const std::string& folder,
               const std::map<std::string, std::string>& environment, unsigned short columns,
               unsigned short rows) {
        winsize size{rows, columns, 0, 0};
        picture_.resize(columns, rows);
        std::vector<char*> words;
        for (std::string& word : command) words.push_back(word.data());
        words.push_back(nullptr);
        pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
        if (pid_ < 0) throw std::runtime_error(std::strerror(errno));
        if (pid_ == 0) {
            for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
            if (chdir(folder.c_str()) == 0) execv(words[0], words.data());
            _exit(127);
        }
    }
    PtyProcess(const PtyProcess&) = delete;
    PtyProcess& operator=(const PtyProcess&) = delete;
    ~PtyProcess() {
        if (!ended_) {
            ::kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(terminal_);
    }
    pid_t pid() const { return pid_; }
    void type(const std::string& keys) {
        if (write(terminal_, keys.data(), keys.size()) < 0) throw std::runtime_error("type");
    }
    void resize(unsigned short columns, unsigned short rows) {
        look();
        picture_.resize(columns, rows);
        winsize size{rows, columns, 0, 0};
        ioctl(terminal_, TIOCSWINSZ, &size);
    }
    // What is on the screen by now.
    const TerminalPicture& look() {
        std::array<char, 4096> bytes{};
        pollfd ready{terminal_, POLLIN, 0};
        while (poll(&ready, 1, 10) > 0 && (ready.revents & POLLIN) != 0) {
            const ssize_t count = read(terminal_, bytes.data(), bytes.size());
            if (count <= 0) break;
            const std::string_view chunk(bytes.data(), static_cast<std::size_t>(count));
            all_ += chunk;
            picture_.take(chunk);
        }
        return picture_;
    }
    std::string text() { return look().text(); }
    const std::string& all() const { return all_; }
    // Line by line and with an echo, as a shell wants it.
    bool is_cooked() const {
        termios now{};
        return tcgetattr(terminal_, &now) == 0 && (now.c_lflag & ICANON) != 0 &&
               (now.c_lflag & ECHO) != 0;
    }
    // How it ended; nothing: it has not.
    std::optional<ExitStatus> ended() {
        look();
        int status = 0;
        if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
            ended_ = WIFEXITED(status) ? ExitStatus{WEXITSTATUS(status), 0}
                                       : ExitStatus{-1, WTERMSIG(status)};
            look();
        }
        return ended_;
    }

  private:
    pid_t pid_ = -1;
    int terminal_ = -1;
    TerminalPicture picture_;
    std::string all_;
    std::optional<ExitStatus> ended_;
};

}  // namespace outbox::test
