#include "databases/postgres/timelines.h"

#include <charconv>
#include <map>

#include "core/mutex.h"

namespace outbox::postgres {
namespace {

struct Latest {
    core::Mutex mutex;
    std::map<std::string, std::int64_t> timelines OUTBOX_GUARDED_BY(mutex);
};

Latest& latest() {
    static Latest seen;
    return seen;
}

std::string name_of(const Primary& primary) {
    return primary.system_id + "\n" + primary.address;
}

}  // namespace

std::int64_t timeline_of(std::string_view log_file) {
    constexpr std::size_t kDigits = 8;
    std::int64_t timeline = 0;
    const std::string_view first = log_file.substr(0, kDigits);
    std::from_chars(first.data(), first.data() + first.size(), timeline, 16);
    return timeline;
}

Status meet(const Primary& primary) {
    Latest& seen = latest();
    const core::Lock lock(seen.mutex);
    std::int64_t& timeline = seen.timelines[name_of(primary)];
    if (primary.timeline < timeline) {
        return {
            ErrorCode::kConnectFailed, Advice::kRetryDestination,
            "the server is on timeline " + std::to_string(primary.timeline) +
                ", an old primary: timeline " + std::to_string(timeline) +
                " was seen at this URL; fence it, or take it off the URL. If an older state was "
                "restored on purpose, start this process again"};
    }
    timeline = primary.timeline;
    return {};
}

bool is_replaced(const Primary& primary) {
    if (primary.timeline == 0) return false;
    Latest& seen = latest();
    const core::Lock lock(seen.mutex);
    return primary.timeline < seen.timelines[name_of(primary)];
}

}  // namespace outbox::postgres
