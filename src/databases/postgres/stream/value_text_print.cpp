#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "core/json_text.h"
#include "databases/postgres/source/decode.h"
#include "databases/postgres/stream/value_text.h"

namespace outbox::postgres {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

// Of a date or a time that PostgreSQL calls infinity; 0: it is finite.
template <typename T>
int infinity_of(std::int64_t value) {
    if (value == std::numeric_limits<T>::max()) return 1;
    return value == std::numeric_limits<T>::min() ? -1 : 0;
}

void append_clock(std::int64_t us, std::string& out) {
    std::array<char, 32> text{};
    const std::int64_t second = us / kSecondUs;
    std::snprintf(text.data(), text.size(), " %02d:%02d:%02d", static_cast<int>(second / 3600),
                  static_cast<int>(second / 60 % 60), static_cast<int>(second % 60));
    out += text.data();
    if (us % kSecondUs == 0) return;
    std::snprintf(text.data(), text.size(), ".%06d", static_cast<int>(us % kSecondUs));
    std::string_view fraction(text.data());
    fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
    out += fraction;
}

bool print_time(WireType type, std::string_view bytes, std::string& out) {
    using namespace std::chrono;
    constexpr sys_days kEpoch = sys_days(year(2000) / 1 / 1);
    std::int64_t value = 0;
    const bool is_date = type == WireType::kDate;
    if (!integer_of_value(is_date ? WireType::kInt4 : WireType::kInt8, bytes, value)) return false;
    const int infinity =
        is_date ? infinity_of<std::int32_t>(value) : infinity_of<std::int64_t>(value);
    if (infinity != 0) {
        out = infinity > 0 ? "infinity" : "-infinity";
        return true;
    }
    const auto since = is_date ? microseconds(days(value)) : microseconds(value);
    const auto whole_days = floor<days>(since);
    constexpr int kMostDays = 300'000 * 366;  // what the calendar below holds, and PostgreSQL too
    if (std::abs(whole_days.count()) > kMostDays) return false;
    // std::chrono ends with the year 32767; the calendar comes again after 400 years.
    constexpr int kCycleDays = 146'097;
    const int cycles = static_cast<int>(whole_days.count()) / kCycleDays;
    const year_month_day date{kEpoch + whole_days - days(cycles * kCycleDays)};
    const int year_count = static_cast<int>(date.year()) + 400 * cycles;
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%04d-%02u-%02u",
                  year_count > 0 ? year_count : 1 - year_count, static_cast<unsigned>(date.month()),
                  static_cast<unsigned>(date.day()));
    out = text.data();
    if (!is_date) append_clock((since - whole_days).count(), out);
    if (type == WireType::kTimestamptz) out += "+00";
    if (year_count <= 0) out += " BC";
    return true;
}

void print_bytes(std::string_view bytes, std::string& out) {
    constexpr const char* kDigits = "0123456789abcdef";
    out = "\\x";
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        out.append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
    }
}

}  // namespace

bool can_print(WireType type) {
    return has_text(type) || type == WireType::kBytea || type == WireType::kDate ||
           type == WireType::kTimestamp || type == WireType::kTimestamptz;
}

bool append_printed(WireType type, std::string_view bytes, std::string& out) {
    std::string buffer;
    std::string_view text = bytes;
    switch (type) {
        case WireType::kBlankPadded:  // here the blanks stay
            break;
        case WireType::kBool:
            if (bytes.size() != 1) return false;
            text = bytes[0] != 0 ? "t" : "f";
            break;
        case WireType::kBytea:
            print_bytes(bytes, buffer);
            text = buffer;
            break;
        case WireType::kDate:
        case WireType::kTimestamp:
        case WireType::kTimestamptz:
            if (!print_time(type, bytes, buffer)) return false;
            text = buffer;
            break;
        default:
            if (!has_text(type) || !text_of_value(type, bytes, buffer, text)) return false;
    }
    append_json_string(text, out);
    return true;
}

}  // namespace outbox::postgres
