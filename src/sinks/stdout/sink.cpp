#include "sinks/stdout/sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <poll.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "sinks/stdout/line.h"

namespace outbox::sinks::stdout_ {

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

StdoutSink::StdoutSink(int fd) : fd_(fd), may_block_(!is_regular_file(fd)) {}

const spi::SinkCapabilities& StdoutSink::capabilities() const {
    static const spi::SinkCapabilities kCapabilities{"stdout", spi::Guarantee::kAtLeastOnce,
                                                     /*fail_stop_order=*/true, /*durable=*/false};
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
    if (buffer_.empty() && last_written_ != '\n') buffer_ += '\n';
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
    auto wait_ms = static_cast<int>(std::min<std::int64_t>(max_wait.count(), INT_MAX));
    while (offset_ < buffer_.size() && wait_writable(wait_ms)) {
        wait_ms = 0;  // later pieces go only as far as they go at once
        if (const Status written = write_some(); !written.ok()) {
            acknowledge(out);
            fail_all(written.error(), out);
            return;
        }
    }
    acknowledge(out);
}

bool StdoutSink::wait_writable(int wait_ms) const {
    if (!may_block_) return true;
    pollfd entry{fd_, POLLOUT, 0};
    // Errors count as writable: the write then tells which.
    return ::poll(&entry, 1, wait_ms) > 0;
}

Status StdoutSink::write_some() {
    const std::size_t chunk = may_block_ ? kPipeChunkBytes : kFileChunkBytes;
    const std::size_t size = std::min(chunk, buffer_.size() - offset_);
    const ssize_t count = ::write(fd_, buffer_.data() + offset_, size);
    if (count < 0) {
        if (errno == EINTR || errno == EAGAIN) return {};
        return write_error(errno);
    }
    offset_ += static_cast<std::size_t>(count);
    written_ += static_cast<std::uint64_t>(count);
    if (count > 0) last_written_ = buffer_[offset_ - 1];
    return {};
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
    for (const Line& line : lines_) out.failed.push_back({line.token, error, false});
    lines_.clear();
    buffer_.clear();
    offset_ = 0;
    end_ = written_;
}

}  // namespace outbox::sinks::stdout_
