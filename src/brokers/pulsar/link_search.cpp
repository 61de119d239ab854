// How a link finds the messages that end its connections.

#include <algorithm>
#include <utility>

#include "brokers/pulsar/link.h"

namespace outbox::pulsar {
namespace {

constexpr std::chrono::milliseconds kMostHeld{5'000};  // while a suspect's topic is looked up again

}  // namespace

template <typename Test>
bool Link::any_of(const Lane& lane, const Test& test) const {
    return std::any_of(topics_.begin(), topics_.end(), [&](const auto& topic) {
        const auto& channels = topic.second->channels;
        return std::any_of(channels.begin(), channels.end(), [&](const auto& channel) {
            return channel->lane == &lane && test(*channel);
        });
    });
}

// Whether others wait, be it for their topic to be found again.
bool Link::has_others(const Lane& lane) const {
    return any_of(lane, [](const Channel& channel) { return !channel.queue.empty(); });
}

// Whether the connection was made for a suspect whose topic is not found again yet.
bool Link::is_held_for_suspect(const Lane& lane) const {
    const auto is_coming = [](const Channel& channel) {
        return !channel.suspects.empty() && channel.state != State::kReady;
    };
    return now_ < lane.held_until && any_of(lane, is_coming);
}

// While a message is looked for that ends the connection: what goes, few at a time.
void Link::take_turns(Lane& lane) {
    using enum net::EndSearch::Turn;
    Channel* suspect = lane.next_suspect(now_);
    if (suspect == nullptr && is_held_for_suspect(lane)) return;
    lane.held_until = {};
    net::EndSearch::Waits waits;
    if (suspect != nullptr) {
        waits = {.others = has_others(lane), .suspect = suspect->suspects.front().record.id};
    }
    switch (lane.search.turn(waits, lane.line(), now_)) {
        case kNobody:
            return;
        case kFresh:
            return connect_anew(lane);
        case kSuspect:
            suspect->queue.push_front(suspect->suspects.front());
            suspect->suspects.pop_front();
            return send_entry(*suspect, 1);
        case kOthers:
            break;
    }
    if (!lane.is_narrow()) {
        for (Channel* channel : lane.ready) send_queue(*channel);
        return;
    }
    while (lane.under_way < lane.search.window() && lane.connection->unsent() < kMostUnsent) {
        Channel* next = lane.next_other(now_);
        if (next == nullptr) return;
        send_entry(*next, 1);
    }
}

// For a suspect that goes first then.
void Link::connect_anew(Lane& lane) {
    lane.held_until = now_ + kMostHeld;
    const Connection& connection = *lane.connection;
    for_each_at(connection, [&](Channel& channel) { go_again(channel, std::nullopt, now_); });
    close(connection);
}

// For a message, perhaps: none has failed before that is known.
void Link::ended(const Connection& connection, const ErrorInfo& why, Answers& out) {
    net::EndSearch::Records open;  // the oldest first
    Channel* channel = nullptr;
    const Entry* first = nullptr;
    for_each_at(connection, [&](Channel& one) {
        for (const Entry& entry : one.sent) {
            for (const Message& message : entry.messages) open.push_back(&message.record);
            if (entry.messages.empty() || (first != nullptr && first->at <= entry.at)) continue;
            channel = &one;
            first = &entry;
            std::iter_swap(open.begin(),
                           open.end() - static_cast<std::ptrdiff_t>(entry.messages.size()));
        }
    });
    if (first == nullptr) return ended_idle(connection, why, out);
    const Message message = first->messages.front();
    Lane& lane = *channel->lane;
    const Time not_before = lane.search.has_passed() ? now_ : now_ + kTryAgainIn;
    lane.alive_at = now_;
    switch (lane.search.ended(open, now_)) {
        case net::EndSearch::Next::kOutage: {
            const ErrorInfo told = net::outage(why, open);
            for_each_at(connection, [&](Channel& one) {
                if (one.has_messages()) fail(one, told, out);
            });
            break;
        }
        case net::EndSearch::Next::kOwnFault:
            channel->forget(message.number);
            out.push_back(
                {.number = message.number, .error = net::own_fault(why, message.record.id)});
            break;
        case net::EndSearch::Next::kAgain:
            searches_.news.ended(why);
            break;
    }
    for_each_at(connection, [&](Channel& one) { go_again(one, why, not_before); });
    close(connection);
}

// It may have ended long ago; for who was about to join it may be the answer.
void Link::ended_idle(const Connection& connection, const ErrorInfo& why, Answers& out) {
    for (auto& [key, lane] : lanes_) {
        if (lane.connection == &connection) lane.search.ended_idle(now_);
    }
    for_each_at(connection, [&](Channel& channel) {
        if (channel.state == State::kReady) {
            go_again(channel, why, now_);
        } else {
            reset(channel, why, out);
        }
    });
    close(connection);
}

bool Link::is_held(std::uint64_t number, std::chrono::milliseconds time) const {
    const auto has = [number](const auto& messages) {
        return std::any_of(messages.begin(), messages.end(),
                           [number](const Message& one) { return one.number == number; });
    };
    for (const auto& [name, topic] : topics_) {
        for (const auto& channel : topic->channels) {
            if (!channel->takes_turns()) continue;
            const Time alive_at =
                channel->state == State::kReady ? channel->lane->alive_at : channel->again_at;
            const bool waits =
                now_ - alive_at <= time &&
                (has(channel->suspects) || (channel->has_room() && has(channel->queue)));
            const bool went_lately = std::any_of(
                channel->sent.begin(), channel->sent.end(),
                [&](const Entry& entry) { return now_ - entry.at <= time && has(entry.messages); });
            if (waits || went_lately) return true;
        }
    }
    return false;
}

}  // namespace outbox::pulsar
