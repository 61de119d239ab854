#include "net/http_date.h"

#include <array>

namespace outbox::net {
namespace {

using std::chrono::sys_seconds;

constexpr std::array<std::string_view, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<std::string_view, 7> kDays{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
constexpr std::array<std::string_view, 7> kLongDays{"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                    "Friday", "Saturday", "Sunday"};
constexpr int kCentury = 100;
constexpr int kPivot = 50;  // a year of two digits is not farther ahead than this

// Takes a date apart from left to right; once something does not fit, nothing does.
class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    void literal(std::string_view expected) {
        good_ = good_ && text_.starts_with(expected);
        if (good_) text_.remove_prefix(expected.size());
    }
    int number(std::size_t digits) {
        int value = 0;
        good_ = good_ && text_.size() >= digits;
        if (!good_) return 0;
        for (const char c : text_.substr(0, digits)) {
            good_ = good_ && c >= '0' && c <= '9';
            value = value * 10 + (c - '0');
        }
        text_.remove_prefix(digits);
        return value;
    }
    // "06", or " 6" where asctime writes it.
    int padded_day() {
        if (!text_.starts_with(' ')) return number(2);
        literal(" ");
        return number(1);
    }
    template <std::size_t Count>
    unsigned one_of(const std::array<std::string_view, Count>& words) {
        for (unsigned i = 0; good_ && i < Count; ++i) {
            if (!text_.starts_with(words[i])) continue;
            text_.remove_prefix(words[i].size());
            return i;
        }
        good_ = false;
        return 0;
    }
    [[nodiscard]] bool done() const { return good_ && text_.empty(); }

  private:
    std::string_view text_;
    bool good_ = true;
};

struct Date {
    int year = 0;
    unsigned month = 0;  // from 0
    int day = 0;
    int hour = 0;
    int minute = 0;
    int second = 0;
};

void read_time(Reader& reader, Date& date) {
    date.hour = reader.number(2);
    reader.literal(":");
    date.minute = reader.number(2);
    reader.literal(":");
    date.second = reader.number(2);
}

// "Sun, 06 Nov 1994 08:49:37 GMT"
bool read_fixed(std::string_view text, Date& date) {
    Reader reader(text);
    reader.one_of(kDays);
    reader.literal(", ");
    date.day = reader.number(2);
    reader.literal(" ");
    date.month = reader.one_of(kMonths);
    reader.literal(" ");
    date.year = reader.number(4);
    reader.literal(" ");
    read_time(reader, date);
    reader.literal(" GMT");
    return reader.done();
}

// "Sunday, 06-Nov-94 08:49:37 GMT"
bool read_rfc850(std::string_view text, int this_year, Date& date) {
    Reader reader(text);
    reader.one_of(kLongDays);
    reader.literal(", ");
    date.day = reader.number(2);
    reader.literal("-");
    date.month = reader.one_of(kMonths);
    reader.literal("-");
    date.year = this_year - this_year % kCentury + reader.number(2);
    if (date.year > this_year + kPivot) date.year -= kCentury;
    reader.literal(" ");
    read_time(reader, date);
    reader.literal(" GMT");
    return reader.done();
}

// "Sun Nov  6 08:49:37 1994"
bool read_asctime(std::string_view text, Date& date) {
    Reader reader(text);
    reader.one_of(kDays);
    reader.literal(" ");
    date.month = reader.one_of(kMonths);
    reader.literal(" ");
    date.day = reader.padded_day();
    reader.literal(" ");
    read_time(reader, date);
    reader.literal(" ");
    date.year = reader.number(4);
    return reader.done();
}

// In whole seconds: four digits of a year do not fit into nanoseconds.
std::optional<sys_seconds> time_of(const Date& date) {
    const std::chrono::year_month_day day{std::chrono::year(date.year),
                                          std::chrono::month(date.month + 1),
                                          std::chrono::day(static_cast<unsigned>(date.day))};
    constexpr int kLeapSecond = 60;
    if (!day.ok() || date.hour > 23 || date.minute > 59 || date.second > kLeapSecond) {
        return std::nullopt;
    }
    return std::chrono::sys_days(day) + std::chrono::hours(date.hour) +
           std::chrono::minutes(date.minute) + std::chrono::seconds(date.second);
}

int year_of(sys_seconds time) {
    const auto day = std::chrono::floor<std::chrono::days>(time);
    return static_cast<int>(std::chrono::year_month_day(day).year());
}

}  // namespace

std::optional<sys_seconds> parse_http_date(std::string_view text, sys_seconds now) {
    Date date;
    if (!read_fixed(text, date) && !read_rfc850(text, year_of(now), date) &&
        !read_asctime(text, date)) {
        return std::nullopt;
    }
    return time_of(date);
}

}  // namespace outbox::net
