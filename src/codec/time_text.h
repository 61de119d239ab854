#pragma once

#include <cstdint>
#include <string_view>

#include <outbox/spi/event_batch.h>

namespace outbox::codec {

/// Writes times as "2026-01-31T23:59:59.123456Z" (RFC 3339, UTC, microseconds). Remembers the last
/// second, which neighbours mostly share.
class TimeText {
  public:
    /// The text lives as long as the arena. `time_us`: since the Unix epoch. No text (no data) for
    /// what is outside of the years 0000 to 9999, which RFC 3339 cannot say.
    std::string_view of(std::int64_t time_us, spi::EventBatch& arena);

  private:
    std::int64_t second_ = INT64_MIN;  // the second that `text_` shows
    char text_[32] = {};
};

}  // namespace outbox::codec
