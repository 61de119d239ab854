#include "brokers/pulsar/lane.h"

#include <algorithm>

#include "brokers/pulsar/channel.h"

namespace outbox::pulsar {

void Lane::begin(Connection& at) {
    if (connection == &at) return;
    connection = &at;
    is_fresh = true;
}

net::EndSearch::Line Lane::line() const {
    using enum net::EndSearch::Line;
    if (under_way > 0) return kBusy;
    return is_fresh ? kFresh : kIdle;
}

Channel* Lane::next_suspect(Time now) const {
    Channel* next = nullptr;
    for (Channel* channel : ready) {
        auto& suspects = channel->suspects;
        const auto found = std::find_if(
            suspects.begin(), suspects.end(),
            [&](const Message& message) { return search.may_go(message.record.id, now); });
        if (found == suspects.end()) continue;
        std::rotate(suspects.begin(), found, suspects.end());
        const std::uint64_t number = suspects.front().number;
        if (next == nullptr || number < next->suspects.front().number) next = channel;
    }
    return next;
}

Channel* Lane::next_other() const {
    const bool newest = search.newest_first();
    Channel* next = nullptr;
    for (Channel* channel : ready) {
        if (channel->queue.empty() || !channel->has_room()) continue;
        const bool is_next = next == nullptr ||
                             (newest ? channel->queue.back().number > next->queue.back().number
                                     : channel->queue.front().number < next->queue.front().number);
        if (is_next) next = channel;
    }
    if (next != nullptr && newest) next->put_last_first();
    return next;
}

}  // namespace outbox::pulsar
