#include "runtime/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "core/suggest.h"
#include "core/url.h"
#include "core/utf8.h"
#include "runtime/route_names.h"

namespace outbox::runtime {
namespace {

constexpr std::string_view kTrueWords[] = {"true", "1", "yes", "on"};
constexpr std::string_view kFalseWords[] = {"false", "0", "no", "off", ""};

template <typename Words>
bool is_one_of(std::string_view text, const Words& words) {
    return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const auto end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

bool parse_integer(std::string_view text, std::int64_t& out) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
    return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

std::string range_text(const OptionSpec& spec) {
    std::string text = "from " + std::to_string(spec.min) + " to " + std::to_string(spec.max);
    if (!spec.unit.empty()) text += " (" + std::string(spec.unit) + ")";
    return text;
}

Status check_integer(const OptionSpec& spec, const std::string& text, std::string_view where) {
    std::int64_t number = 0;
    if (!parse_integer(text, number)) {
        return config_error(where,
                            "'" + text + "' is not a whole number; give one " + range_text(spec));
    }
    if (number < spec.min || number > spec.max) {
        return config_error(where, text + " is out of range; give a number " + range_text(spec));
    }
    return {};
}

Status check_choice(const OptionSpec& spec, const std::string& text, std::string_view where) {
    const auto choices = split(spec.choices, '|');
    if (is_one_of(text, choices)) return {};
    if (spec.name == "mode" && text == "wal") {
        return config_error(where,
                            "'wal' is not available in this version; use auto, stream or polling");
    }
    std::string allowed;
    for (const auto choice : choices) {
        allowed += (allowed.empty() ? "" : ", ") + std::string(choice);
    }
    return config_error(where, "'" + text + "' is not known; use " +
                                   (choices.size() > 1 ? "one of " : "") + allowed +
                                   did_you_mean(text, choices));
}

Status check_duration(const OptionSpec& spec, const std::string& text, std::string_view where) {
    const auto duration = parse_duration(text);
    if (!duration.ok()) return config_error(where, duration.error().message);
    if (duration->count() < spec.min || duration->count() > spec.max) {
        return config_error(where, "'" + text + "' is out of range; give a time from " +
                                       std::to_string(spec.min) + "s to " +
                                       std::to_string(spec.max / 86'400) + "d");
    }
    return {};
}

Status check_url(const std::string& text, std::string_view where) {
    const auto url = parse_url(text);
    if (!url.ok()) return config_error(where, url.error().message);
    // One of two values would be passed over without a word.
    std::set<std::string> seen;
    for (const auto& [name, value] : url->query) {
        if (!seen.insert(name).second) {
            return config_error(
                where, "the URL gives '" + to_printable(name) + "' twice; leave one of them out");
        }
    }
    return {};
}

Status check_destination(const std::string& text, std::string_view where) {
    const Destination destination = split_destination(text);
    if (destination.named) {
        Status status = check_route_name(destination.name, where);
        if (!status.ok()) return status;
    }
    return check_url(destination.url, where);
}

Status check_value(const OptionSpec& spec, const std::string& text, std::string_view where) {
    switch (spec.type) {
        case OptionType::kFlag:
            if (is_one_of(text, kTrueWords) || is_one_of(text, kFalseWords)) return {};
            return config_error(where, "'" + text + "' is neither true nor false");
        case OptionType::kInteger:
            return check_integer(spec, text, where);
        case OptionType::kChoice:
            return check_choice(spec, text, where);
        case OptionType::kDuration:
            return check_duration(spec, text, where);
        case OptionType::kUrl:
            return check_url(text, where);
        case OptionType::kDestination:
            return check_destination(text, where);
        case OptionType::kText:
        case OptionType::kPath:
            if (text.empty() && !spec.may_be_empty) {
                return config_error(where, "must not be empty");
            }
            return {};
    }
    return {};
}

const OptionSpec& spec_of(std::string_view name, OptionType type) {
    const OptionSpec* spec = find_option(name);
    if (spec == nullptr || spec->type != type) std::abort();
    return *spec;
}

}  // namespace

Status OptionValues::set(const OptionSpec& spec, OptionValue value) {
    if (!spec.repeatable && value.texts.size() > 1) {
        return config_error(value.where, "may be given only once");
    }
    for (const std::string& text : value.texts) {
        Status status = check_value(spec, text, value.where);
        if (!status.ok()) return status;
    }
    const auto present = values_.find(spec.name);
    if (present == values_.end()) {
        values_.emplace(std::string(spec.name), std::move(value));
    } else if (present->second.origin < value.origin) {
        present->second = std::move(value);
    }
    return {};
}

bool OptionValues::given(std::string_view name) const {
    if (find_option(name) == nullptr) std::abort();
    return values_.find(name) != values_.end();
}

Origin OptionValues::origin(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? Origin::kDefault : found->second.origin;
}

std::string OptionValues::where(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "--" + std::string(name) : found->second.where;
}

bool OptionValues::flag(std::string_view name) const {
    spec_of(name, OptionType::kFlag);
    const auto found = values_.find(name);
    return found != values_.end() && is_one_of(found->second.texts.front(), kTrueWords);
}

std::int64_t OptionValues::integer(std::string_view name) const {
    std::int64_t number = 0;
    spec_of(name, OptionType::kInteger);
    if (!parse_integer(text(name), number)) std::abort();
    return number;
}

std::string OptionValues::text(std::string_view name) const {
    const OptionSpec* spec = find_option(name);
    if (spec == nullptr) std::abort();
    const auto found = values_.find(name);
    return found == values_.end() ? std::string(spec->fallback) : found->second.texts.front();
}

std::vector<std::string> OptionValues::list(std::string_view name) const {
    const OptionSpec* spec = find_option(name);
    if (spec == nullptr || !spec->repeatable) std::abort();
    const auto found = values_.find(name);
    return found == values_.end() ? std::vector<std::string>() : found->second.texts;
}

std::chrono::seconds OptionValues::duration(std::string_view name) const {
    spec_of(name, OptionType::kDuration);
    return parse_duration(text(name)).value();
}

std::string environment_name(std::string_view option) {
    std::string name = "OUTBOX_";
    for (const char c : option) {
        name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return name;
}

ErrorInfo config_error(std::string_view where, std::string_view what) {
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     std::string(where) + ": " + redact(what)};
}

Result<std::chrono::seconds> parse_duration(std::string_view text) {
    const auto wrong = [&] {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                         "'" + std::string(text) +
                             "' is not a time; give a number and a unit, for example 30s, 15m, "
                             "12h or 7d"};
    };
    std::int64_t number = 0;
    if (text.size() < 2 || !parse_integer(text.substr(0, text.size() - 1), number)) return wrong();
    std::int64_t unit_s = 0;
    switch (text.back()) {
        case 's':
            unit_s = 1;
            break;
        case 'm':
            unit_s = 60;
            break;
        case 'h':
            unit_s = 3600;
            break;
        case 'd':
            unit_s = 86'400;
            break;
        default:
            return wrong();
    }
    if (number < 0 || number > std::numeric_limits<std::int64_t>::max() / unit_s) return wrong();
    return std::chrono::seconds(number * unit_s);
}

namespace {

// Reads `digits` of them, and moves on; -1: there are none.
int take_digits(std::string_view& text, std::size_t digits) {
    if (text.size() < digits) return -1;
    int number = 0;
    for (std::size_t i = 0; i < digits; ++i) {
        if (text[i] < '0' || text[i] > '9') return -1;
        number = number * 10 + (text[i] - '0');
    }
    text.remove_prefix(digits);
    return number;
}

bool take_char(std::string_view& text, char c) {
    if (text.empty() || text.front() != c) return false;
    text.remove_prefix(1);
    return true;
}

// "Z" or "+02:00", in seconds.
std::optional<std::int64_t> take_offset(std::string_view text) {
    if (text == "Z") return 0;
    const bool behind = take_char(text, '-');
    if (!behind && !take_char(text, '+')) return std::nullopt;
    const int hours = take_digits(text, 2);
    if (!take_char(text, ':')) return std::nullopt;
    const int minutes = take_digits(text, 2);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59 || !text.empty()) {
        return std::nullopt;
    }
    return (behind ? -1 : 1) * (std::int64_t{hours} * 3600 + std::int64_t{minutes} * 60);
}

std::optional<std::int64_t> parse_instant(std::string_view text) {
    using namespace std::chrono;
    const int year_number = take_digits(text, 4);
    if (!take_char(text, '-')) return std::nullopt;
    const int month_number = take_digits(text, 2);
    if (!take_char(text, '-')) return std::nullopt;
    const int day_number = take_digits(text, 2);
    const year_month_day date{year{year_number}, month{static_cast<unsigned>(month_number)},
                              day{static_cast<unsigned>(day_number)}};
    if (year_number < 1970 || !date.ok()) return std::nullopt;
    std::int64_t time_us = duration_cast<microseconds>(sys_days(date).time_since_epoch()).count();
    if (text.empty()) return time_us;
    if (!take_char(text, 'T') && !take_char(text, ' ')) return std::nullopt;
    const int hour = take_digits(text, 2);
    if (!take_char(text, ':')) return std::nullopt;
    const int minute = take_digits(text, 2);
    if (!take_char(text, ':')) return std::nullopt;
    const int second = take_digits(text, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
        return std::nullopt;
    }
    time_us += (std::int64_t{hour} * 3600 + std::int64_t{minute} * 60 + second) * 1'000'000;
    if (take_char(text, '.')) {
        std::int64_t unit_us = 100'000;
        bool some = false;
        for (int digit = take_digits(text, 1); digit >= 0; digit = take_digits(text, 1)) {
            time_us += digit * unit_us;
            unit_us /= 10;
            some = true;
        }
        if (!some) return std::nullopt;
    }
    const auto offset_s = take_offset(text);
    if (!offset_s) return std::nullopt;
    return time_us - *offset_s * 1'000'000;
}

}  // namespace

Result<std::int64_t> parse_time(std::string_view text, std::int64_t now_us) {
    constexpr std::chrono::hours kLongest{24 * 365 * 200};
    if (const auto ago = parse_duration(text); ago.ok() && *ago <= kLongest) {
        return now_us - std::chrono::microseconds(*ago).count();
    }
    if (const auto instant = parse_instant(text)) return *instant;
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     "'" + std::string(text) +
                         "' is not a time; give 2026-01-31T08:15:00Z, 2026-01-31T10:15:00+02:00, "
                         "2026-01-31, or how long ago: 30s, 90m, 2h, 7d"};
}

}  // namespace outbox::runtime
