#include "consumer/fence.h"

#include <algorithm>
#include <utility>

namespace outbox {

std::string_view fenced_name(Fenced state) {
    switch (state) {
        case Fenced::kApplied:
            return "applied";
        case Fenced::kWaiting:
            return "waiting";
        case Fenced::kUnknown:
            return "unknown";
        case Fenced::kDead:
            return "dead";
    }
    return "unknown";
}

namespace consumer {
namespace {

Fenced state_of_fenced(std::string_view why) {
    if (why.empty()) return Fenced::kApplied;
    if (why == "in_mailbox" || why == "retry_requested") return Fenced::kWaiting;
    if (why == "dead_letter" || why == "discarded") return Fenced::kDead;
    return Fenced::kUnknown;
}

}  // namespace

void FenceVerdict::add(std::string id, std::string why) {
    const Fenced state = state_of_fenced(why);
    look_.state = std::max(look_.state, state);
    look_.events.push_back({std::move(id), state, std::move(why)});
}

std::vector<std::string> fenced_ids(std::string_view consumer, std::string_view token) {
    if (consumer.empty()) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    "the name of the consumer that is asked about is empty");
    }
    return fence_ids(token);
}

}  // namespace consumer
}  // namespace outbox
