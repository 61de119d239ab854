#include "webhook/retry_after.h"

#include <algorithm>
#include <charconv>

#include "net/http_date.h"

namespace outbox::webhook {
namespace {

using std::chrono::seconds;

bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

}  // namespace

std::optional<seconds> parse_retry_after(std::string_view value, std::int64_t now_s) {
    while (!value.empty() && is_blank(value.front())) value.remove_prefix(1);
    while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
    if (value.empty()) return std::nullopt;
    const auto bounded = [](seconds wait) { return std::clamp(wait, seconds(0), kMostRetryAfter); };
    if (value.find_first_not_of("0123456789") == std::string_view::npos) {
        std::int64_t number = 0;
        const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
        return read.ec == std::errc() ? bounded(seconds(number)) : kMostRetryAfter;
    }
    const std::chrono::sys_seconds now{seconds(now_s)};
    const auto at = net::parse_http_date(value, now);
    if (!at) return std::nullopt;
    return bounded(*at - now);
}

}  // namespace outbox::webhook
