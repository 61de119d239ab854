#include "codec/debezium/value_forms.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "core/ascii.h"

namespace outbox::codec::debezium {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;
constexpr std::int64_t kDayUs = 86'400 * kSecondUs;

// Takes a number of digits from the front.
bool take_number(std::string_view& text, std::int64_t& out) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
    if (read.ec != std::errc() || !is_digit(text.front())) return false;
    text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
    return true;
}

bool take_char(std::string_view& text, char wanted) {
    if (!text.starts_with(wanted)) return false;
    text.remove_prefix(1);
    return true;
}

bool take_clock(std::string_view& text, std::int64_t& us) {
    std::int64_t hour = 0;
    std::int64_t minute = 0;
    std::int64_t second = 0;
    if (text.empty() || !take_number(text, hour) || !take_char(text, ':') || text.empty() ||
        !take_number(text, minute)) {
        return false;
    }
    if (take_char(text, ':') && (text.empty() || !take_number(text, second))) return false;
    us = ((hour * 60 + minute) * 60 + second) * kSecondUs;
    if (!take_char(text, '.')) return true;
    std::int64_t unit = kSecondUs / 10;
    for (; !text.empty() && is_digit(text.front()); unit /= 10) {
        us += (text.front() - '0') * unit;
        text.remove_prefix(1);
    }
    return true;
}

// "+02", "-02:30", "+02:30:15", "Z"; what is left must be nothing.
bool take_zone(std::string_view text, std::int64_t& us) {
    us = 0;
    if (text.empty() || text == "Z") return true;
    const bool behind = text.front() == '-';
    if (!behind && text.front() != '+') return false;
    text.remove_prefix(1);
    std::int64_t unit = 3600 * kSecondUs;
    while (!text.empty() && unit >= kSecondUs) {
        std::int64_t part = 0;
        if (!take_number(text, part)) return false;
        us += part * unit;
        unit /= 60;
        if (text.empty()) break;
        if (!take_char(text, ':') || text.empty()) return false;
    }
    if (behind) us = -us;
    return text.empty();
}

constexpr std::int64_t kDayMs = 86'400'000;

struct Day {
    std::int64_t year = 0;
    unsigned month = 0;
    unsigned day = 0;
};

Day gregorian_day(std::int64_t days) {
    using namespace std::chrono;
    constexpr std::int64_t kCycleDays = 146'097;  // after which the calendar comes again
    const std::int64_t cycles = days / kCycleDays - (days % kCycleDays < 0 ? 1 : 0);
    const year_month_day date{sys_days(std::chrono::days(days - cycles * kCycleDays))};
    return {static_cast<int>(date.year()) + 400 * cycles, static_cast<unsigned>(date.month()),
            static_cast<unsigned>(date.day())};
}

// From 0001-01-01 of the Julian calendar, in years that begin with March.
Day julian_day(std::int64_t days) {
    constexpr std::int64_t kFromMarch0 = 719'470;  // 0000-03-01 to 1970-01-01
    constexpr std::int64_t kCycleDays = 1461;      // four years, the leap day their last
    const std::int64_t since = days + kFromMarch0;
    const std::int64_t cycle = since / kCycleDays;
    const std::int64_t left = since % kCycleDays;
    const std::int64_t year = std::min<std::int64_t>(left / 365, 3);
    const std::int64_t day = left - 365 * year;
    const std::int64_t month = (5 * day + 2) / 153;  // of March and those behind it
    return {4 * cycle + year + (month >= 10 ? 1 : 0),
            static_cast<unsigned>(month < 10 ? month + 3 : month - 9),
            static_cast<unsigned>(day - (153 * month + 2) / 5 + 1)};
}

std::string clock_text(std::int64_t second) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%02d:%02d:%02d", static_cast<int>(second / 3600),
                  static_cast<int>(second / 60 % 60), static_cast<int>(second % 60));
    return text.data();
}

std::string two_digits(unsigned number) {
    return (number < 10 ? "0" : "") + std::to_string(number);
}

}  // namespace

std::optional<PrintedTime> read_timestamp(std::string_view text) {
    constexpr std::string_view kBeforeChrist = " BC";
    const bool before_christ = text.ends_with(kBeforeChrist);
    if (before_christ) text.remove_suffix(kBeforeChrist.size());
    std::int64_t year = 0;
    std::int64_t month = 0;
    std::int64_t day = 0;
    if (text.empty() || !take_number(text, year) || !take_char(text, '-') || text.empty() ||
        !take_number(text, month) || !take_char(text, '-') || text.empty() ||
        !take_number(text, day)) {
        return std::nullopt;
    }
    using namespace std::chrono;
    // The calendar of std::chrono ends with the year 32767; it comes again after 400 years.
    constexpr std::int64_t kCycleDays = 146'097;
    if (before_christ) year = 1 - year;  // ISO 8601 has a year 0
    const std::int64_t cycles = year / 400 - (year % 400 < 0 ? 1 : 0);
    const year_month_day date{std::chrono::year(static_cast<int>(year - 400 * cycles)),
                              std::chrono::month(static_cast<unsigned>(month)),
                              std::chrono::day(static_cast<unsigned>(day))};
    if (!date.ok()) return std::nullopt;
    PrintedTime out;
    out.days = sys_days(date).time_since_epoch().count() + cycles * kCycleDays;
    if (text.empty()) return out;
    std::int64_t zone_us = 0;
    if ((!take_char(text, ' ') && !take_char(text, 'T')) || !take_clock(text, out.us) ||
        !take_zone(text, zone_us)) {
        return std::nullopt;
    }
    const std::int64_t us = out.us - zone_us;
    const std::int64_t moved = us < 0 ? -1 : us / kDayUs;
    out.days += moved;
    out.us = us - moved * kDayUs;
    return out;
}

std::optional<PrintedTime> read_time(std::string_view text) {
    PrintedTime out;
    if (!take_clock(text, out.us) || !text.empty()) return std::nullopt;
    return out;
}

std::string zoned_text(const PrintedTime& time, int digits) {
    const Day date = gregorian_day(time.days);
    std::array<char, 64> text{};
    const std::int64_t second = time.us / kSecondUs;
    const char* const sign = date.year > 9999 ? "+" : date.year < 0 ? "-" : "";
    std::snprintf(text.data(), text.size(), "%s%04lld-%02u-%02uT", sign,
                  static_cast<long long>(std::abs(date.year)), date.month, date.day);
    std::string out = text.data() + clock_text(second);
    if (digits > 0) {
        std::snprintf(text.data(), text.size(), ".%06d", static_cast<int>(time.us % kSecondUs));
        out.append(text.data(), static_cast<std::size_t>(std::min(digits, 6)) + 1);
        if (digits > 6) out.append(static_cast<std::size_t>(digits) - 6, '0');
    }
    return out + "Z";
}

std::string java_date_text(std::int64_t ms) {
    constexpr std::array kWeek{"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
    constexpr std::array kYear{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                               "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    constexpr std::int64_t kGregorian = -141'427;  // 1582-10-15
    const std::int64_t of_day = (ms % kDayMs + kDayMs) % kDayMs;
    const std::int64_t days = (ms - of_day) / kDayMs;
    const Day date = days < kGregorian ? julian_day(days) : gregorian_day(days);
    std::string out = kWeek[static_cast<std::size_t>((days % 7 + 7) % 7)];
    out.append(" ").append(kYear[date.month - 1]).append(" ").append(two_digits(date.day));
    out.append(" ").append(clock_text(of_day / 1000));
    return out + " UTC " + std::to_string(date.year);
}

std::string header_date_text(std::int64_t ms) {
    const std::int64_t of_day = (ms % kDayMs + kDayMs) % kDayMs;
    std::string clock = std::to_string(1000 + of_day % 1000);
    clock = clock_text(of_day / 1000) + "." + clock.substr(1) + "Z";
    if (ms < kDayMs) return clock;
    const Day date = gregorian_day(ms / kDayMs);
    const std::string out =
        std::to_string(date.year) + "-" + two_digits(date.month) + "-" + two_digits(date.day);
    return of_day == 0 ? out : out + "T" + clock;
}

std::optional<DecimalText> read_decimal(std::string_view text) {
    DecimalText out;
    if (text.starts_with('-') || text.starts_with('+')) {
        out.negative = text.front() == '-';
        text.remove_prefix(1);
    }
    bool behind_point = false;
    bool any = false;
    for (const char c : text) {
        if (c == '.' && !behind_point) {
            behind_point = true;
            continue;
        }
        if (!is_digit(c)) return std::nullopt;
        any = true;
        if (behind_point) ++out.scale;
        if (!out.digits.empty() || c != '0') out.digits += c;
    }
    if (!any) return std::nullopt;
    if (out.digits.empty()) {
        out.digits = "0";
        out.negative = false;
    }
    return out;
}

std::optional<DecimalText> with_scale(DecimalText number, int scale) {
    while (number.scale > scale) {
        if (number.digits.back() != '0') return std::nullopt;
        if (number.digits.size() > 1) number.digits.pop_back();
        --number.scale;
    }
    if (number.digits != "0") {
        number.digits.append(static_cast<std::size_t>(scale - number.scale), '0');
    }
    number.scale = scale;
    return number;
}

DecimalText without_zeros(DecimalText number) {
    if (number.digits == "0") number.scale = 0;
    while (number.scale > 0 && number.digits.back() == '0') {
        number.digits.pop_back();
        --number.scale;
    }
    return number;
}

std::string unscaled_bytes(const DecimalText& number) {
    std::string low_first;  // of the absolute value
    for (const char digit : number.digits) {
        unsigned carry = static_cast<unsigned>(digit - '0');
        for (char& byte : low_first) {
            const unsigned value = static_cast<unsigned char>(byte) * 10U + carry;
            byte = static_cast<char>(value & 0xFFU);
            carry = value >> 8U;
        }
        if (carry != 0) low_first += static_cast<char>(carry);
    }
    if (low_first.empty()) low_first += '\0';
    if (number.negative) {
        unsigned carry = 1;
        for (char& byte : low_first) {
            const unsigned value =
                (~static_cast<unsigned>(static_cast<unsigned char>(byte)) & 0xFFU) + carry;
            byte = static_cast<char>(value & 0xFFU);
            carry = value >> 8U;
        }
    }
    const bool looks_negative = (static_cast<unsigned char>(low_first.back()) & 0x80U) != 0;
    if (looks_negative != number.negative) low_first += number.negative ? '\xFF' : '\0';
    return {low_first.rbegin(), low_first.rend()};
}

std::string plain_text(const DecimalText& number) {
    std::string out = number.negative ? "-" : "";
    std::string digits = number.digits;
    const auto scale = static_cast<std::size_t>(number.scale);
    if (digits.size() <= scale) digits.insert(0, scale + 1 - digits.size(), '0');
    out += digits.substr(0, digits.size() - scale);
    if (scale > 0) out.append(".").append(digits.substr(digits.size() - scale));
    return out;
}

std::optional<std::string> read_bytea(std::string_view text) {
    if (!text.starts_with("\\x") || text.size() % 2 != 0) return std::nullopt;
    std::string out;
    for (std::size_t i = 2; i < text.size(); i += 2) {
        unsigned byte = 0;
        const auto read = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
        if (read.ec != std::errc() || read.ptr != text.data() + i + 2) return std::nullopt;
        out += static_cast<char>(byte);
    }
    return out;
}

}  // namespace outbox::codec::debezium
