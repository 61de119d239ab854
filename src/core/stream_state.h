#pragma once

#include <algorithm>
#include <cstdint>

namespace outbox::core {

/// Where a route takes its events from, and when it changes: the table while it is behind, the
/// stream of the log when it has caught up, with hysteresis. The table is the truth: a read of it
/// is right at any moment, whatever the stream does.
///
/// Pure; not thread-safe. Times are microseconds of a clock that never goes back.
class StreamState {
  public:
    /// So long after it caught up a route asks for the stream; after each time that it could not
    /// keep up twice as long, up to the second.
    static constexpr std::int64_t kCaughtUpUs = 100'000;
    static constexpr std::int64_t kMaxCaughtUpUs = 60'000'000;
    /// On the stream this long: what went wrong before is forgotten.
    static constexpr std::int64_t kProvenUs = 60'000'000;
    /// Reads of the table while the stream is on: with holes that may have to be closed, and
    /// without.
    static constexpr std::int64_t kHolesEveryUs = 1'000'000;
    static constexpr std::int64_t kNetEveryUs = 30'000'000;
    /// And while the stream stands still, as it does when the server decodes a large transaction:
    /// at once where the last read left something.
    static constexpr std::int64_t kStalledEveryUs = 100'000;

    enum class Path : std::uint8_t { kTable, kStream };
    [[nodiscard]] Path path() const { return path_; }

    /// The table was read. `complete`: nothing is left in it that was not returned.
    void table_read(std::int64_t now_us, bool complete) {
        read_us_ = now_us;
        complete_ = complete;
        if (!complete) {
            caught_up_us_ = kNot;
        } else if (caught_up_us_ == kNot) {
            caught_up_us_ = now_us;
        }
    }

    /// The table has to be read now.
    [[nodiscard]] bool table_due(std::int64_t now_us, bool holes, bool stalled) const {
        if (path_ == Path::kTable || (stalled && !complete_)) return true;
        return now_us - read_us_ >=
               (stalled ? kStalledEveryUs : (holes ? kHolesEveryUs : kNetEveryUs));
    }

    [[nodiscard]] bool wants_stream(std::int64_t now_us) const {
        return path_ == Path::kTable && caught_up_us_ != kNot &&
               now_us - caught_up_us_ >= patience_us_;
    }

    /// All that the stream will not bring has been read.
    void joined(std::int64_t now_us) {
        path_ = Path::kStream;
        joined_us_ = now_us;
        read_us_ = now_us;
        complete_ = true;
    }

    enum class Why : std::uint8_t {
        kBehind,  ///< The route cannot keep up.
        kLost,    ///< The stream ended.
    };
    /// Back to the table; also when a join found more to read than it may.
    void left(std::int64_t now_us, Why why) {
        if (path_ == Path::kStream && now_us - joined_us_ >= kProvenUs) patience_us_ = kCaughtUpUs;
        if (why == Why::kBehind) patience_us_ = std::min(patience_us_ * 2, kMaxCaughtUpUs);
        path_ = Path::kTable;
        caught_up_us_ = kNot;
    }

  private:
    static constexpr std::int64_t kNot = -1;

    Path path_ = Path::kTable;
    std::int64_t caught_up_us_ = kNot;  // since when
    std::int64_t patience_us_ = kCaughtUpUs;
    std::int64_t joined_us_ = 0;
    std::int64_t read_us_ = 0;
    bool complete_ = false;
};

}  // namespace outbox::core
