#include "brokers/stdout/sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <poll.h>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "brokers/stdout/line.h"
#include "core/mutex.h"

namespace outbox::stdout_ {

namespace {

constexpr std::size_t kMaxBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kFileChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kPipeChunkBytes = PIPE_BUF;  // never blocks once the pipe is writable

// Writing to a closed pipe raises SIGPIPE, which would end a process that does not ignore it.
// Held back for this thread and this write only: the process's own setting is not ours to change.
class NoSigpipe {
  public:
    NoSigpipe() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;
    ~NoSigpipe() {
        const int error = errno;
        if (!was_pending_) {
            const timespec at_once{};
            while (sigtimedwait(&pipe_, nullptr, &at_once) == -1 && errno == EINTR) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

  private:
    sigset_t pipe_{};
    sigset_t before_{};
    bool was_pending_ = false;
};

ErrorInfo write_error(int error) {
    const std::string text = std::strerror(error);
    switch (error) {
        case EPIPE:
        case EBADF:
            return {ErrorCode::kSinkClosed, Advice::kStop, std::to_string(error),
                    "standard output is closed (" + text +
                        "); start the relay again with a reader that stays"};
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return {ErrorCode::kDiskFull, Advice::kRetryDestination, std::to_string(error),
                    "the file behind standard output cannot grow (" + text + "); make room"};
        default:
            return {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, std::to_string(error),
                    "writing to standard output failed: " + text};
    }
}

bool is_regular_file(int fd) {
    struct stat status{};
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

// Who may write to a descriptor: one sink at a time, until its line is whole. Thread-safe.
class Turn {
  public:
    static std::shared_ptr<Turn> of(int fd) {
        static core::Mutex mutex;
        static std::map<int, std::weak_ptr<Turn>> turns OUTBOX_GUARDED_BY(mutex);
        const core::Lock lock(mutex);
        std::shared_ptr<Turn> turn = turns[fd].lock();
        if (!turn) turns[fd] = turn = std::make_shared<Turn>();
        return turn;
    }

    // Holds it while it lives, which is more than the analysis follows. Not ok: another sink was in
    // the middle of a line for the whole wait.
    class Hold {
      public:
        Hold(Turn& turn, const StdoutSink* sink, std::chrono::milliseconds wait) OUTBOX_UNCHECKED
            : turn_(turn),
              lock_(turn.mutex_),
              sink_(sink) {
            ok_ = turn_.changed_.wait_for(turn_.mutex_, wait, [&]() OUTBOX_UNCHECKED {
                return turn_.in_line_ == nullptr || turn_.in_line_ == sink_;
            });
        }
        [[nodiscard]] bool ok() const { return ok_; }
        // A write failed in mid-line: the next line starts with a line feed, so that only this one
        // is unreadable.
        [[nodiscard]] bool line_was_cut() const OUTBOX_UNCHECKED { return turn_.cut_; }
        void line_ended() OUTBOX_UNCHECKED { turn_.cut_ = false; }
        void wrote(bool whole_lines) OUTBOX_UNCHECKED {
            turn_.in_line_ = whole_lines ? nullptr : sink_;
            if (whole_lines) turn_.changed_.notify_all();
        }

      private:
        Turn& turn_;
        core::Lock lock_;
        const StdoutSink* sink_;
        bool ok_ = false;
    };

    // The sink writes no more of its line.
    void give_up(const StdoutSink* sink) {
        const core::Lock lock(mutex_);
        if (in_line_ != sink) return;
        in_line_ = nullptr;
        cut_ = true;
        changed_.notify_all();
    }

  private:
    core::Mutex mutex_;
    core::Condition changed_;
    const StdoutSink* in_line_ OUTBOX_GUARDED_BY(mutex_) = nullptr;
    bool cut_ OUTBOX_GUARDED_BY(mutex_) = false;
};

StdoutSink::StdoutSink(int fd) : fd_(fd), may_block_(!is_regular_file(fd)), turn_(Turn::of(fd)) {}

StdoutSink::~StdoutSink() {
    turn_->give_up(this);
}

const spi::SinkCapabilities& StdoutSink::capabilities() const {
    return kCapabilities;
}

Status StdoutSink::check() {
    struct stat status{};
    if (fstat(fd_, &status) != 0) return write_error(errno);
    pollfd entry{fd_, POLLOUT, 0};
    if (::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLERR | POLLHUP)) != 0) {
        return write_error(EPIPE);
    }
    return {};
}

bool StdoutSink::publish(const spi::Record& record) {
    if (buffer_.size() - offset_ >= kMaxBufferBytes) return false;
    const std::size_t before = buffer_.size();
    append_line(record, buffer_);
    end_ += buffer_.size() - before;
    lines_.push_back({record.token, end_});
    return true;
}

void StdoutSink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    if (lines_.empty()) {
        std::this_thread::sleep_for(max_wait);  // the caller paces itself by it
        return;
    }
    const NoSigpipe guard;
    while (offset_ < buffer_.size() &&
           is_writable(static_cast<int>(std::min<std::int64_t>(max_wait.count(), INT_MAX)))) {
        const Result<Wrote> wrote = write_some(max_wait);
        max_wait = {};  // later pieces go only as far as they go at once
        if (!wrote.ok()) {
            acknowledge(out);
            fail_all(wrote.error(), out);
            return;
        }
        if (*wrote == Wrote::kNothing) break;
    }
    acknowledge(out);
}

bool StdoutSink::is_writable(int wait_ms) const {
    if (!may_block_) return true;
    pollfd entry{fd_, POLLOUT, 0};
    // Errors count as writable: the write then tells which.
    return ::poll(&entry, 1, wait_ms) > 0;
}

// As many whole lines as fit, or a piece of one that fits nowhere.
std::size_t StdoutSink::next_chunk() const {
    const std::size_t limit = may_block_ ? kPipeChunkBytes : kFileChunkBytes;
    const std::string_view rest = std::string_view(buffer_).substr(offset_);
    if (rest.size() <= limit) return rest.size();
    const std::size_t end = rest.substr(0, limit).rfind('\n');
    return end == std::string_view::npos ? limit : end + 1;
}

Result<StdoutSink::Wrote> StdoutSink::write_some(std::chrono::milliseconds wait) {
    Turn::Hold hold(*turn_, this, wait);
    // Another sink may have filled the pipe since it was writable.
    if (!hold.ok() || !is_writable(0)) return Wrote::kNothing;
    const bool ends_cut_line = hold.line_was_cut();
    const ssize_t count = ends_cut_line ? ::write(fd_, "\n", 1)
                                        : ::write(fd_, buffer_.data() + offset_, next_chunk());
    if (count < 0) {
        if (errno == EINTR || errno == EAGAIN) return Wrote::kNothing;
        return write_error(errno);
    }
    if (ends_cut_line) {
        hold.line_ended();
        return Wrote::kSome;
    }
    offset_ += static_cast<std::size_t>(count);
    written_ += static_cast<std::uint64_t>(count);
    if (count > 0) hold.wrote(buffer_[offset_ - 1] == '\n');
    return Wrote::kSome;
}

void StdoutSink::acknowledge(spi::Completions& out) {
    while (!lines_.empty() && lines_.front().end <= written_) {
        out.acknowledged.push_back(lines_.front().token);
        lines_.pop_front();
    }
    if (offset_ == buffer_.size()) {
        buffer_.clear();
        offset_ = 0;
    } else if (offset_ >= kMaxBufferBytes) {
        buffer_.erase(0, offset_);
        offset_ = 0;
    }
}

void StdoutSink::fail_all(const ErrorInfo& error, spi::Completions& out) {
    turn_->give_up(this);
    for (const Line& line : lines_) out.failed.push_back({line.token, error, false});
    lines_.clear();
    buffer_.clear();
    offset_ = 0;
    end_ = written_;
}

}  // namespace outbox::stdout_
