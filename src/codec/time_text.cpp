#include "codec/time_text.h"

#include <chrono>
#include <cstdio>
#include <cstring>

namespace outbox::codec {
namespace {

constexpr std::int64_t kMicrosPerSecond = 1'000'000;
// RFC 3339 has years of four digits.
constexpr std::int64_t kFirstUs = -62'167'219'200 * kMicrosPerSecond;
constexpr std::int64_t kEndUs = 253'402'300'800 * kMicrosPerSecond;
constexpr std::size_t kSecondChars = 20;  // "2026-01-31T23:59:59."
constexpr std::size_t kTimeChars = kSecondChars + 7;

}  // namespace

std::string_view TimeText::of(std::int64_t time_us, spi::EventBatch& arena) {
    using namespace std::chrono;
    if (time_us < kFirstUs || time_us >= kEndUs) return {};
    const sys_time<microseconds> time{microseconds{time_us}};
    const auto second = floor<seconds>(time);
    // The calendar is worked out once for each second.
    if (second.time_since_epoch().count() != second_) {
        second_ = second.time_since_epoch().count();
        const auto day = floor<days>(second);
        const year_month_day date{day};
        const hh_mm_ss clock{second - day};
        std::snprintf(text_, sizeof text_, "%04d-%02u-%02uT%02d:%02d:%02d.",
                      static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                      static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                      static_cast<int>(clock.minutes().count()),
                      static_cast<int>(clock.seconds().count()));
    }
    char* room = arena.allocate(kTimeChars);
    std::memcpy(room, text_, kSecondChars);
    std::int64_t micros = time_us - second_ * kMicrosPerSecond;
    for (std::size_t i = kTimeChars - 2; i >= kSecondChars; --i) {
        room[i] = static_cast<char>('0' + micros % 10);
        micros /= 10;
    }
    room[kTimeChars - 1] = 'Z';
    return {room, kTimeChars};
}

}  // namespace outbox::codec
