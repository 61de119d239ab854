#include "brokers/rabbitmq/ways.h"

namespace outbox::rabbitmq {

void Ways::begin(std::size_t channels) {
    set_count(channels);
    for (Channel& channel : channels_) channel = {};
    // Every connection has it.
    channels_.front().is_open = true;
    windows_ = {SIZE_MAX, 1, 1};
}

bool Ways::has_room(Kind kind) const {
    const Channel& channel = channel_of(kind);
    if (channel.line.unjudged() >= windows_[place(kind)]) return false;
    const auto shares = [&](Kind other) { return other != kind && share(other, kind); };
    if (std::none_of(kKinds.begin(), kKinds.end(), shares)) return true;
    const bool others_wait = std::any_of(kKinds.begin(), kKinds.end(),
                                         [&](Kind other) { return shares(other) && waits(other); });
    if (channel.turn == kind && (channel.left > 0 || !others_wait)) return true;
    return channel.line.unjudged() == 0 && next_in_turn(kind) == kind;
}

// Of those that share the channel of the one that asks, and wait as it does. Whose turn it is comes
// last once it is over.
std::optional<Ways::Kind> Ways::next_in_turn(Kind asking) const {
    const Channel& channel = channel_of(asking);
    const auto takes = [&](Kind kind) {
        return share(kind, asking) && (kind == asking || waits(kind));
    };
    if (channel.left > 0 && takes(channel.turn)) return channel.turn;
    for (std::size_t i = 1; i <= kMost; ++i) {
        const Kind kind = kKinds[(place(channel.turn) + i) % kMost];
        if (takes(kind)) return kind;
    }
    return std::nullopt;
}

void Ways::push(const Item& item, Kind kind, Line::Time now, std::uint64_t serial) {
    Channel& its = channel(number_of(kind));
    if (its.turn != kind || its.left == 0) {
        its.turn = kind;
        its.left = kTurns[place(kind)];
    }
    --its.left;
    its.line.push(item, kind, now, serial);
}

void Ways::judged(Kind kind) {
    if (kind != Kind::kUnproven) return;
    std::size_t& window = windows_[place(kind)];
    window = std::min(window + 1, kMostUnproven);
}

void Ways::closed(Channel& channel, Kind guilty) {
    channel.is_open = false;
    channel.line.clear();
    channel.left = 0;
    if (guilty == Kind::kUnproven) windows_[place(guilty)] = 1;
}

bool Ways::any_may_go() const {
    return std::any_of(kKinds.begin(), kKinds.end(),
                       [this](Kind kind) { return waits(kind) && has_room(kind); });
}

std::size_t Ways::open() const {
    std::size_t open = 0;
    for (const Channel& channel : channels_) open += channel.line.open();
    return open;
}

std::size_t Ways::opened() const {
    std::size_t opened = 0;
    for (const Channel& channel : channels_) opened += channel.is_open ? 1U : 0U;
    return opened;
}

bool Ways::all_confirmed() const {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const Channel& channel) { return channel.line.empty(); });
}

}  // namespace outbox::rabbitmq
