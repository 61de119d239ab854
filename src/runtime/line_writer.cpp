#include "runtime/line_writer.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <poll.h>
#include <unistd.h>

namespace outbox::runtime {

void LineWriter::write(std::string_view line) {
    if (lines_left_out_ > 0 && put(left_out_(lines_left_out_))) lines_left_out_ = 0;
    stalled_ = lines_left_out_ > 0 || !put(line);
    if (stalled_) ++lines_left_out_;
}

bool LineWriter::put(std::string_view text) {
    using std::chrono::steady_clock;
    const auto deadline =
        steady_clock::now() + (stalled_ ? std::chrono::milliseconds(0) : patience_);
    const auto put_all = [&](std::string_view some) {
        while (!some.empty()) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
            const auto wait_ms = std::max<std::int64_t>(0, left.count());
            if (!put_some(some, static_cast<int>(wait_ms))) return false;
            begun_ = !some.empty();
        }
        return true;
    };
    return (!begun_ || put_all("\n")) && put_all(text);
}

// What is known to fit, so that no write waits: a pipe that is ready takes as much.
bool LineWriter::put_some(std::string_view& text, int wait_ms) {
    pollfd ready{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    const int polled = ::poll(&ready, 1, wait_ms);
    if (polled < 0 && errno == EINTR) return wait_ms > 0 || put_some(text, wait_ms);
    if (polled <= 0) return false;
    const std::size_t most = std::min<std::size_t>(text.size(), PIPE_BUF);
    const ssize_t written = ::write(descriptor_, text.data(), most);
    if (written < 0) return (errno == EINTR || errno == EAGAIN) && wait_ms > 0;
    text.remove_prefix(static_cast<std::size_t>(written));
    return true;
}

}  // namespace outbox::runtime
