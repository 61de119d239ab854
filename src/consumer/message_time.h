#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/consumer/inbox.h>
#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

namespace outbox::consumer {

/// The time inside a UUIDv7 (RFC 9562, section 5.7) in microseconds since the Unix epoch; none for
/// any other id. A hash in a UUID's form has the version's digit one time in 16, so the variant's
/// is looked at, too, as SQL's outbox_message_time does.
[[nodiscard]] inline std::optional<std::int64_t> uuidv7_time_us(std::string_view id) {
    constexpr std::string_view kForm = "xxxxxxxx-xxxx-7xxx-yxxx-xxxxxxxxxxxx";
    constexpr std::string_view kVariant = "89abAB";
    constexpr std::size_t kTimeEnd = 13;
    if (id.size() != kForm.size()) return std::nullopt;
    std::int64_t milliseconds = 0;
    for (std::size_t i = 0; i < kForm.size(); ++i) {
        const char c = id[i];
        if (kForm[i] == '-' || kForm[i] == '7') {
            if (c != kForm[i]) return std::nullopt;
            continue;
        }
        if (kForm[i] == 'y' && kVariant.find(c) == std::string_view::npos) return std::nullopt;
        int digit = 0;
        if (c >= '0' && c <= '9') {
            digit = c - '0';
        } else if (c >= 'a' && c <= 'f') {
            digit = c - 'a' + 10;
        } else if (c >= 'A' && c <= 'F') {
            digit = c - 'A' + 10;
        } else {
            return std::nullopt;
        }
        if (i < kTimeEnd) milliseconds = milliseconds * 16 + digit;
    }
    return milliseconds * 1000;
}

/// "2026-01-31T23:59:59.123456Z" in microseconds since the Unix epoch; none for any other text.
[[nodiscard]] std::optional<std::int64_t> utc_text_us(std::string_view text);

/// A time of RFC 3339, of any zone and any number of digits, in the form that `utc_text_us` reads;
/// what it reads, and any other text, as it is.
[[nodiscard]] std::string in_utc_text(std::string_view text);

/// The event's own time, as `outbox::message_time`.
[[nodiscard]] std::optional<std::int64_t> message_time_us(const spi::EventView& message);

/// False: by any clock near ours the message is neither old enough to lie before a floor (two hours
/// back or more) nor ahead of its time.
[[nodiscard]] bool may_be_quarantined(std::optional<std::int64_t> time_us, std::int64_t now_us);

constexpr std::int64_t kNoFloorUs = -9'223'372'036'854'775'807;

/// kQuarantined for a message from before the floor or more than a day ahead.
Status quarantine_unless(std::string_view message_id, std::string_view consumer,
                         std::int64_t time_us, std::int64_t floor_us, std::int64_t now_us);

[[nodiscard]] std::optional<std::int64_t> microseconds(const MessageTime& time);

constexpr std::size_t kMaxIdBytes = 255;

/// Throws `Error` kInvalidEvent for what is no id: nothing, a NUL in it, more than `kMaxIdBytes`.
void require_id(std::string_view message_id);

}  // namespace outbox::consumer
