#include "webhook/event_filter.h"

#include <algorithm>

#include "core/utf8.h"

namespace outbox::webhook {
namespace {

constexpr std::string_view kBetween = ", \t\n";
constexpr std::size_t kMostPatterns = 100;
constexpr std::size_t kMostBytes = 255;
constexpr unsigned char kDelete = 0x7F;

ErrorInfo invalid(const std::string& why) {
    return {
        ErrorCode::kConfigInvalid, Advice::kStop, {}, "the filter of a webhook's events " + why};
}

bool is_printable(std::string_view pattern) {
    return is_utf8(pattern) && std::none_of(pattern.begin(), pattern.end(), [](unsigned char c) {
               return c < ' ' || c == kDelete;
           });
}

// Goes back to the last star alone, so that it takes no more steps than pattern times text.
bool fits(std::string_view pattern, std::string_view text) {
    constexpr auto kNone = std::string_view::npos;
    std::size_t at = 0;
    std::size_t star = kNone;
    std::size_t taken = 0;  // up to here the last star has taken the text
    for (std::size_t i = 0; i < text.size();) {
        if (at < pattern.size() && pattern[at] == '*') {
            star = at++;
            taken = i;
        } else if (at < pattern.size() && pattern[at] == text[i]) {
            ++at;
            ++i;
        } else if (star != kNone) {
            at = star + 1;
            i = ++taken;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', at) == kNone;
}

}  // namespace

Result<EventFilter> EventFilter::make(std::string_view text) {
    std::vector<std::string> patterns;
    for (std::size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string::npos;) {
        const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
        const std::string_view pattern = text.substr(at, end - at);
        at = end;
        if (!is_printable(pattern)) return invalid("has control characters or is not UTF-8");
        if (pattern.size() > kMostBytes) return invalid("has a pattern of more than 255 bytes");
        if (std::find(patterns.begin(), patterns.end(), pattern) != patterns.end()) continue;
        if (patterns.size() == kMostPatterns) return invalid("has more than 100 patterns");
        patterns.emplace_back(pattern);
    }
    EventFilter filter;
    if (!patterns.empty()) filter.patterns_ = std::move(patterns);
    return filter;
}

bool EventFilter::wants(std::string_view event_type) const {
    return std::any_of(patterns_.begin(), patterns_.end(),
                       [&](const std::string& pattern) { return fits(pattern, event_type); });
}

std::string EventFilter::text() const {
    std::string text;
    for (const std::string& pattern : patterns_) text += (text.empty() ? "" : ",") + pattern;
    return text;
}

}  // namespace outbox::webhook
