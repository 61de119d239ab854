#include "consumer/message_time.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include <outbox/error.h>

#include "core/ascii.h"

namespace outbox {

MessageTime message_time(std::string_view message_id, std::string_view occurred_at) {
    auto time_us = consumer::uuidv7_time_us(message_id);
    if (!time_us) time_us = consumer::utc_text_us(occurred_at);
    if (!time_us) return std::nullopt;
    return std::chrono::system_clock::time_point(std::chrono::microseconds(*time_us));
}

namespace consumer {
namespace {

constexpr std::int64_t kMicroseconds = 1'000'000;
constexpr std::int64_t kOldUs = std::int64_t{30} * 60 * kMicroseconds;
constexpr std::int64_t kAheadUs = std::int64_t{5} * 60 * kMicroseconds;

std::optional<int> number_at(std::string_view text, std::size_t at, std::size_t digits) {
    int value = 0;
    const char* first = text.data() + at;
    const auto [end, error] = std::from_chars(first, first + digits, value);
    // Not "-0" either.
    if (error != std::errc() || end != first + digits || !is_digit(*first)) return std::nullopt;
    return value;
}

// "Z", "z", "+02:30".
std::optional<std::int64_t> offset_us(std::string_view zone) {
    constexpr std::size_t kSize = 6;
    if (zone == "Z" || zone == "z") return 0;
    if (zone.size() != kSize || (zone[0] != '+' && zone[0] != '-') || zone[3] != ':') return {};
    const auto hour = number_at(zone, 1, 2);
    const auto minute = number_at(zone, 4, 2);
    if (!hour || !minute || *hour > 23 || *minute > 59) return std::nullopt;
    const std::int64_t us = (*hour * 60 + *minute) * 60 * kMicroseconds;
    return zone[0] == '-' ? -us : us;
}

std::string printed(std::int64_t time_us) {
    using std::chrono::sys_time;
    const sys_time<std::chrono::microseconds> time{std::chrono::microseconds(time_us)};
    const auto day = std::chrono::floor<std::chrono::days>(time);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss<std::chrono::microseconds> clock(time - day);
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ",
                  static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                  static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                  static_cast<int>(clock.minutes().count()),
                  static_cast<int>(clock.seconds().count()),
                  static_cast<int>(clock.subseconds().count()));
    return text.data();
}

}  // namespace

std::optional<std::int64_t> utc_text_us(std::string_view text) {
    constexpr std::string_view kForm = "0000-00-00T00:00:00";
    constexpr std::size_t kMaxFraction = 6;
    if (text.size() <= kForm.size() || text.back() != 'Z') return std::nullopt;
    for (const std::size_t at : {4U, 7U, 10U, 13U, 16U}) {
        if (text[at] != kForm[at]) return std::nullopt;
    }
    const auto year = number_at(text, 0, 4);
    const auto month = number_at(text, 5, 2);
    const auto day = number_at(text, 8, 2);
    const auto hour = number_at(text, 11, 2);
    const auto minute = number_at(text, 14, 2);
    const auto second = number_at(text, 17, 2);
    if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
    const std::chrono::year_month_day date{std::chrono::year(*year),
                                           std::chrono::month(static_cast<unsigned>(*month)),
                                           std::chrono::day(static_cast<unsigned>(*day))};
    if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
    std::int64_t fraction = 0;
    const std::string_view rest = text.substr(kForm.size(), text.size() - kForm.size() - 1);
    if (!rest.empty()) {
        const std::size_t digits = rest.size() - 1;
        if (rest[0] != '.' || digits == 0 || digits > kMaxFraction) return std::nullopt;
        const auto value = number_at(rest, 1, digits);
        if (!value) return std::nullopt;
        fraction = *value;
        for (std::size_t i = digits; i < kMaxFraction; ++i) fraction *= 10;
    }
    const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
    return ((days * 24 + *hour) * 3600 + *minute * 60 + *second) * kMicroseconds + fraction;
}

std::string in_utc_text(std::string_view text) {
    constexpr std::size_t kDate = 10;
    constexpr std::size_t kSeconds = 19;
    constexpr std::size_t kMaxFraction = 6;
    std::string same(text);
    if (text.size() <= kSeconds || utc_text_us(text)) return same;
    std::string utc(text.substr(0, kSeconds));
    if (utc[kDate] == 't' || utc[kDate] == ' ') utc[kDate] = 'T';
    std::string_view rest = text.substr(kSeconds);
    if (rest.front() == '.') {
        std::size_t digits = 0;
        while (digits + 1 < rest.size() && is_digit(rest[digits + 1])) ++digits;
        utc += rest.substr(0, std::min(digits, kMaxFraction) + 1);
        rest.remove_prefix(digits + 1);
    }
    const auto ahead = offset_us(rest);
    const auto time = utc_text_us(utc + "Z");
    if (!ahead || !time) return same;
    constexpr std::int64_t kYear0Us = -62'167'219'200 * kMicroseconds;
    constexpr std::int64_t kYear10000Us = 253'402'300'800 * kMicroseconds;
    const std::int64_t us = *time - *ahead;
    return us < kYear0Us || us >= kYear10000Us ? same : printed(us);
}

std::optional<std::int64_t> message_time_us(const spi::EventView& message) {
    if (const auto inside = uuidv7_time_us(message.id)) return inside;
    // Most messages have no such header: look before parsing.
    if (message.headers.find("occurred_at") == std::string_view::npos) return std::nullopt;
    const auto headers = nlohmann::json::parse(message.headers, nullptr, false);
    if (!headers.is_object()) return std::nullopt;
    const auto found = headers.find("occurred_at");
    if (found == headers.end() || !found->is_string()) return std::nullopt;
    return utc_text_us(found->get_ref<const std::string&>());
}

bool may_be_quarantined(std::optional<std::int64_t> time_us, std::int64_t now_us) {
    return time_us && (*time_us < now_us - kOldUs || *time_us > now_us + kAheadUs);
}

std::optional<std::int64_t> microseconds(const MessageTime& time) {
    if (!time) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::microseconds>(time->time_since_epoch()).count();
}

Status quarantine_unless(std::string_view message_id, std::string_view consumer,
                         std::int64_t time_us, std::int64_t floor_us, std::int64_t now_us) {
    constexpr std::int64_t kDayUs = std::int64_t{86'400} * kMicroseconds;
    const bool ahead = time_us > now_us + kDayUs;
    if (!ahead && time_us >= floor_us) return {};
    return {ErrorCode::kQuarantined, Advice::kDeadLetter,
            "message " + std::string(message_id) + " of consumer " + std::string(consumer) +
                (ahead ? " has a time more than a day ahead of the clock"
                       : " is from before the consumer's floor: its id may have been pruned, so it "
                         "cannot be known as new") +
                "; find out whether it was applied before it is retried"};
}

void require_id(std::string_view message_id) {
    constexpr char kNul = '\0';
    if (message_id.find(kNul) != std::string_view::npos) {
        throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                    "the message's id holds a NUL, which no database stores");
    }
    if (message_id.size() > kMaxIdBytes) {
        throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                    "the message's id has " + std::to_string(message_id.size()) +
                        " bytes; an id has at most 255");
    }
    if (!message_id.empty()) return;
    throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                "the message has no id, so a repeat could not be told from a new one");
}

}  // namespace consumer
}  // namespace outbox
