#include "desk_change.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "letters.h"
#include "print.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxActorBytes = 64;
constexpr std::size_t kMinReasonBytes = 3;
constexpr std::size_t kMaxReasonBytes = 500;
constexpr const char* kNoneMatches = "no dead letter matches: nothing was changed";
constexpr const char* kAreRetried =
    "they are being retried, and may be on the way: nothing was changed. Wait until they are "
    "delivered or dead again";

ErrorInfo conflict(const std::string& what) {
    return {ErrorCode::kConflict, Advice::kStop, {}, what};
}

// A text on one line, as the audit keeps it.
bool is_line(const std::string& text, std::size_t least, std::size_t most) {
    return text.size() >= least && text.size() <= most && plain_prefix(text) == text.size() &&
           text.find_first_not_of(' ') != std::string::npos;
}

// Who counted before somebody else had them retried meant those, too.
Result<std::int64_t> discard(Operations& operations, const Change& change) {
    const auto idle = operations.count_dead(change.filter.of_idle());
    if (!idle.ok()) return idle.error();
    if (*idle == 0) return conflict(kAreRetried);
    const std::int64_t retrying = change.expected - *idle;
    if (retrying > change.retrying) {
        return conflict(with_commas(retrying) + " of them are being retried by now, and " +
                        with_commas(change.retrying) +
                        " were: nothing was changed. Look again, and decide anew");
    }
    auto count = operations.discard_dead(change.filter);
    if (!count.ok() || *count > 0) return count;
    // Another operator was faster.
    const auto left = operations.count_dead(change.filter);
    if (!left.ok()) return left.error();
    return conflict(*left > 0 ? kAreRetried : kNoneMatches);
}

}  // namespace

ErrorInfo wrong(const std::string& what) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, what};
}

bool is_storable(const std::string& text) {
    return is_utf8(text) && text.find('\0') == std::string::npos;
}

// A field that is not known, or of another type, might have been meant to restrict it; so might
// the first of two.
Result<Change> change_of(const std::string& body) {
    std::set<std::string> names;
    std::string twice;
    const auto json = ordered_json::parse(
        body,
        [&](int depth, ordered_json::parse_event_t event, const ordered_json& parsed) {
            if (event == ordered_json::parse_event_t::key && depth == 1 &&
                !names.insert(parsed.get<std::string>()).second) {
                twice = parsed.get<std::string>();
            }
            return true;
        },
        false);
    if (!json.is_object()) return wrong("the body is no JSON object");
    if (!twice.empty()) return wrong("'" + to_printable(twice) + "' is given twice");
    Change change;
    bool all = false;
    bool counted = false;
    std::int64_t up_to = 0;
    for (const auto& [name, value] : json.items()) {
        std::string* text = name == "actor"        ? &change.actor
                            : name == "reason"     ? &change.reason
                            : name == "route"      ? &change.filter.route
                            : name == "event_type" ? &change.filter.event_type
                            : name == "key"        ? &change.filter.key
                            : name == "error_code" ? &change.filter.error_code
                            : name == "tenant"     ? &change.filter.tenant
                                                   : nullptr;
        if (text != nullptr && value.is_string()) {
            *text = value.get<std::string>();
        } else if (name == "ids" && value.is_array() && !value.empty() &&
                   std::all_of(value.begin(), value.end(), [](const ordered_json& id) {
                       return id.is_string() && !id.get_ref<const std::string&>().empty();
                   })) {
            change.filter.ids = value.get<std::vector<std::string>>();
        } else if (name == "all" && value.is_boolean()) {
            all = value.get<bool>();
        } else if (name == "expected" && value.is_number_unsigned()) {
            change.expected = value.get<std::int64_t>();
            counted = true;
        } else if (name == "retrying" && value.is_number_unsigned()) {
            change.retrying = value.get<std::int64_t>();
        } else if (name == "up_to" && value.is_number_unsigned()) {
            up_to = value.get<std::int64_t>();
        } else {
            return wrong("'" + to_printable(name) + "' is not known here, or of another type");
        }
    }
    std::vector<std::string> texts = change.filter.ids;
    texts.insert(texts.end(), {change.filter.route, change.filter.event_type, change.filter.key,
                               change.filter.error_code, change.filter.tenant});
    if (!std::all_of(texts.begin(), texts.end(), is_storable)) return wrong("a text has a NUL");
    if (!is_line(change.actor, 1, kMaxActorBytes)) {
        return wrong("who does it? `actor` is a name of at most " + std::to_string(kMaxActorBytes) +
                     " bytes, on one line");
    }
    if (!is_line(change.reason, kMinReasonBytes, kMaxReasonBytes)) {
        return wrong("why? `reason` has " + std::to_string(kMinReasonBytes) + " to " +
                     std::to_string(kMaxReasonBytes) + " bytes, on one line");
    }
    if (change.filter.empty() != all) {
        return wrong(all ? "give either all or what restricts it, not both"
                         : "which ones? Give ids, what restricts it, or all");
    }
    if (!counted) return wrong("how many? `expected` is what the dry run counted");
    if (up_to <= 0) return wrong("of which? `up_to` is what the dry run gave with the count");
    change.filter.up_to = up_to;
    return change;
}

Result<ordered_json> change_letters(Operations& operations, const Change& change, bool retry) {
    operations.act_for(change.actor + " (dashboard)", change.reason);
    if (retry) {
        if (Status status = check_routes(operations, change.filter, {}); !status.ok()) {
            return status;
        }
    }
    const auto matched = operations.count_dead(change.filter);
    if (!matched.ok()) return matched.error();
    if (*matched == 0) return conflict(kNoneMatches);
    if (*matched != change.expected) {
        return conflict(with_commas(*matched) + " dead letters match now, and " +
                        with_commas(change.expected) +
                        " did: nothing was changed. Look again, and decide anew");
    }
    const auto count = retry ? operations.retry_dead(change.filter) : discard(operations, change);
    if (!count.ok()) return count.error();
    return ordered_json{{"matched", *count}, {"action", retry ? "retry" : "discard"}};
}

}  // namespace outbox::app
