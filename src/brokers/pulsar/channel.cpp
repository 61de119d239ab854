#include "brokers/pulsar/channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "brokers/pulsar/message.h"
#include "brokers/pulsar/topic.h"

namespace outbox::pulsar {
namespace {

template <typename Messages>
bool erase_number(Messages& messages, std::uint64_t number) {
    const auto found = std::find_if(messages.begin(), messages.end(),
                                    [number](const Message& one) { return one.number == number; });
    if (found == messages.end()) return false;
    messages.erase(found);
    return true;
}

}  // namespace

bool Channel::waits_for_partitions() const {
    return left_after > 0 && topic->answered <= left_after;
}

void Channel::begin_producer(std::uint64_t id, const std::string& session) {
    producer = id;
    producer_name = session + std::to_string(id);
    next_sequence = 0;
    window = kLeastWindow;
}

void Channel::add(const Message& message) {
    const bool is_suspect = lane != nullptr && lane->search.is_suspect(message.record.id);
    (is_suspect ? suspects : queue).push_back(message);
}

void Channel::enter_lane(Lane* next) {
    if (std::exchange(lane, next) == next) return;
    std::deque<Message> waiting = std::exchange(suspects, {});
    waiting.insert(waiting.end(), queue.begin(), queue.end());
    queue.clear();
    for (const Message& message : waiting) add(message);
}

void Channel::put_first(std::size_t place) {
    if (place == 0) return;
    const Message message = queue[place];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(place));
    queue.push_front(message);
}

void Channel::add_sent(Entry entry) {
    under_way += entry.count();
    lane->under_way += entry.messages.size();
    lane->is_fresh = false;
    for (const Message& message : entry.messages) lane->search.sent(message.record);
    sent.push_back(std::move(entry));
}

void Channel::adapt(const Entry& confirmed, Time now, std::chrono::milliseconds prompt) {
    if (now - confirmed.at > prompt) {
        if (confirmed.at < narrowed_at) return;
        window = std::max(kLeastWindow, window / 2);
        narrowed_at = now;
    } else if (2 * (under_way + confirmed.count()) >= window) {
        window += confirmed.count();
    }
}

void Channel::take_back_sent() {
    for (auto entry = sent.rbegin(); entry != sent.rend(); ++entry) {
        lane->under_way -= entry->messages.size();
        for (auto message = entry->messages.rbegin(); message != entry->messages.rend();
             ++message) {
            if (lane->search.is_suspect(message->record.id)) {
                suspects.push_back(*message);
            } else {
                queue.push_front(*message);
            }
        }
    }
    sent.clear();
    under_way = 0;
}

bool Channel::forget(std::uint64_t number) {
    if (erase_number(queue, number) || erase_number(suspects, number)) return true;
    // The entry stays, as others may be in it, and its answer is to be known.
    const bool was_sent = std::any_of(sent.begin(), sent.end(), [number](Entry& entry) {
        return erase_number(entry.messages, number);
    });
    if (was_sent) --lane->under_way;
    return was_sent;
}

std::optional<Entry> Channel::take_entry(std::uint64_t sequence) {
    const auto found = std::find_if(sent.begin(), sent.end(), [sequence](const Entry& entry) {
        return entry.first <= sequence && sequence <= entry.last;
    });
    if (found == sent.end()) return std::nullopt;
    Entry entry = std::move(*found);
    sent.erase(found);
    under_way -= entry.count();
    lane->under_way -= entry.messages.size();
    return entry;
}

bool Topic::has_messages() const {
    return !queue.empty() || std::any_of(channels.begin(), channels.end(), [](const auto& channel) {
        return channel->has_messages();
    });
}

bool Topic::keeps_channels(std::uint32_t count) const {
    return count == partitions || (partitions > 0 && count > partitions);
}

void Topic::set_partitions(std::uint32_t count) {
    known = true;
    if (!keeps_channels(count)) {
        for (const auto& channel : channels) {
            channel->take_back_sent();
            channel->enter_lane(nullptr);
            queue.insert(queue.end(), channel->queue.begin(), channel->queue.end());
        }
        channels.clear();
    }
    partitions = count;
    while (channels.size() < std::max<std::size_t>(count, 1)) {
        const std::size_t place = channels.size();
        auto channel = std::make_unique<Channel>();
        channel->topic = this;
        channel->name = count > 0 ? name_of_partition(name, place) : name;
        channel->part = "topic " + called;
        if (count > 0) channel->part += "[" + std::to_string(place) + "]";
        channels.push_back(std::move(channel));
    }
}

Channel& Topic::channel_of(const spi::Record& record) const {
    std::string storage;
    const KeyText key = key_text(record, storage);
    const std::size_t place = key.text.data() != nullptr ? partition_of(key.text, channels.size())
                                                         : turn % channels.size();
    return *channels[place];
}

}  // namespace outbox::pulsar
