#include "brokers/pulsar/lane.h"

#include <algorithm>

#include "brokers/pulsar/channel.h"

namespace outbox::pulsar {
namespace {

struct Place {
    Channel* channel = nullptr;
    std::size_t index = 0;  // in its queue
    std::uint64_t number = 0;
};

}  // namespace

void Lane::begin(Connection& at, Time now) {
    if (connection == &at) return;
    connection = &at;
    is_fresh = true;
    search.began(0, now);
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

Channel* Lane::next_other(Time now) const {
    Place known;
    Place stranger;
    const bool newest = search.newest_first(now);
    for (Channel* channel : ready) {
        if (!channel->has_room()) continue;
        for (std::size_t i = 0; i < channel->queue.size(); ++i) {
            const Message& message = channel->queue[i];
            const bool is_stranger = search.is_stranger(message.record);
            Place& place = is_stranger ? stranger : known;
            const bool is_next =
                place.channel == nullptr || (is_stranger && newest ? message.number > place.number
                                                                   : message.number < place.number);
            if (is_next) place = {channel, i, message.number};
        }
    }
    const bool has_known = known.channel != nullptr;
    const bool may_stranger =
        stranger.channel != nullptr &&
        search.may_stranger_go(stranger.channel->queue[stranger.index].record, has_known, now);
    const Place& next = may_stranger ? stranger : known;
    if (next.channel != nullptr) next.channel->put_first(next.index);
    return next.channel;
}

}  // namespace outbox::pulsar
