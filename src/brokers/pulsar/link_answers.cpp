// What brokers say to a link, and what it does where they say nothing.

#include <algorithm>
#include <set>
#include <utility>

#include "brokers/pulsar/link.h"

namespace outbox::pulsar {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A broker that bounds what it takes a second takes what it has read, and then nothing, of any
// topic of the connection, until that was allowed. With this part of the time after which it counts
// as silent for the least that is under way, it stays far from that.
constexpr int kPromptPart = 16;
constexpr unsigned kMostResets = 3;
constexpr milliseconds kAskAgainIn{2'000};  // and then twice that, up to what is configured
constexpr milliseconds kLookEvery{100};
constexpr milliseconds kShortWait{10};
constexpr milliseconds kLastWords{100};

void answer_all(std::deque<Message>& messages, const ErrorInfo& error, const std::string& part,
                std::vector<net::Answer>& out) {
    for (const Message& message : messages) {
        out.push_back({.number = message.number, .error = error, .part = part});
    }
    messages.clear();
}

}  // namespace

std::optional<ErrorInfo> Link::exchange(Answers& out) {
    now_ = Clock::now();
    take_arrived(out);
    if (!end_) work();
    talk(out);
    // What became ready by what was said just now.
    if (!end_ && !listed_.empty()) {
        work();
        talk(out);
    }
    if (!end_ && now_ >= next_look_) {
        next_look_ = now_ + kLookEvery;
        look_for_silence(out);
    }
    return is_over() ? end_ : std::nullopt;
}

// What can be sent and received at once.
void Link::talk(Answers& out) {
    brokers_.for_each([&](Connection& connection) {
        const bool is_first = &connection == &brokers_.first();
        if (is_first && end_) return;
        auto broken = connection.exchange();
        std::optional<Fault> strange;
        while (const auto command = connection.next(strange)) {
            look_for_new_token(connection, *command);
            take(connection, *command, out);
        }
        if (strange) broken = std::move(strange);
        if (!broken) return;
        const ErrorInfo error = to_error(*broken, connection.name());
        if (is_first) {
            end(error);
        } else {
            ended(connection, error, out);
        }
    });
}

// Where a whole broker dies of a message, the connection that carried it ends in this moment, too.
void Link::end(const ErrorInfo& why) {
    if (end_) return;
    end_ = why;
    ends_at_ = now_ + kLastWords;
}

bool Link::is_over() const {
    const auto is_empty = [](const auto& lane) { return lane.second.under_way == 0; };
    return now_ >= ends_at_ || std::all_of(lanes_.begin(), lanes_.end(), is_empty);
}

// Where a right is missing the token may have been corrected.
void Link::look_for_new_token(const Connection& from, const Command& command) {
    using enum Command::Kind;
    const bool is_error = command.failed || command.kind == kError || command.kind == kSendError;
    if (!is_error) return;
    const ErrorInfo error = to_error(fault_of_request(command.error, command.text), from.name());
    if (error.code != ErrorCode::kNoRights || !from.has_old_token(config_)) return;
    ErrorInfo told = error;
    told.message += "; it connects anew, as the token has changed";
    end(told);
}

void Link::take(const Connection& from, const Command& command, Answers& out) {
    using enum Command::Kind;
    switch (command.kind) {
        case kReceipt:
            return take_receipt(command, out);
        case kSendError:
            return take_send_error(from, command, out);
        case kCloseProducer: {
            const auto found = producers_.find(command.producer);
            if (found == producers_.end()) return;
            return reset(
                *found->second,
                to_error({"ServiceNotReady", "the broker has closed the topic"}, from.name()), out);
        }
        case kProducer:
            // Else it waits for its turn, and is told again.
            if (!command.ready) return;
            [[fallthrough]];
        case kError:
        case kPartitions:
        case kLookup:
            break;
        case kConnected:
        case kPing:
        case kPong:
        case kOther:
            return;
    }
    const auto asker = take_request(command.request);
    if (!asker) return;
    if (command.kind == kError) {
        take_error(from, *asker, command, out);
    } else if (command.kind == kPartitions && asker->topic != nullptr) {
        take_partitions(*asker->topic, command, out);
    } else if (command.kind == kLookup && asker->channel != nullptr) {
        take_lookup(*asker->channel, command, out);
    } else if (command.kind == kProducer && asker->channel != nullptr) {
        asker->channel->enter(State::kReady, now_);
        asker->channel->trouble.reset();
        // It may be one that the broker has just made of the old name, before somebody makes the
        // topic anew.
        if (asker->channel->left_after != 0) asker->channel->topic->again_in = kAskAgainIn;
        enlist(*asker->channel);
    }
}

void Link::take_receipt(const Command& command, Answers& out) {
    const auto found = producers_.find(command.producer);
    if (found == producers_.end()) return;
    Channel& channel = *found->second;
    const auto entry = channel.take_entry(command.sequence);
    if (!entry) return;
    channel.resets = 0;
    channel.adapt(*entry, now_, config_.stuck_after / kPromptPart);
    channel.lane->alive_at = now_;
    for (const Message& message : entry->messages) {
        channel.lane->search.answered(message.record, true);
        out.push_back({.number = message.number});
    }
    if (channel.has_waiting()) enlist(channel);
}

std::optional<Link::Asker> Link::take_request(std::uint64_t request) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) return std::nullopt;
    const Asker asker = found->second;
    requests_.erase(found);
    return asker;
}

void Link::take_error(const Connection& from, const Asker& asker, const Command& command,
                      Answers& out) {
    const Fault fault = fault_of_request(command.error, command.text);
    const ErrorInfo error = to_error(fault, from.name());
    if (asker.topic != nullptr) {
        asker.topic->request = 0;
        fail(*asker.topic, error, out);
    } else if (is_moving(fault)) {
        try_again(*asker.channel, error);
    } else {
        fail(*asker.channel, error, out);
    }
}

void Link::take_send_error(const Connection& from, const Command& command, Answers& out) {
    const auto found = producers_.find(command.producer);
    if (found == producers_.end()) return;
    Channel& channel = *found->second;
    auto entry = channel.take_entry(command.sequence);
    if (!entry) return;
    if (channel.has_waiting()) enlist(channel);
    const ErrorInfo error = to_error(fault_of_send(command.error, command.text), from.name());
    const bool is_down = error.advice == Advice::kRetryDestination;
    if (entry->messages.size() > 1 && !is_down) {
        // One of them is at fault.
        for (Message& message : entry->messages) message.alone = true;
        channel.queue.insert(channel.queue.begin(), entry->messages.begin(), entry->messages.end());
        return enlist(channel);
    }
    for (const Message& message : entry->messages) {
        channel.lane->search.answered(message.record, false);
        out.push_back({.number = message.number, .error = error, .part = channel.part});
    }
}

void Link::leave(Channel& channel) {
    producers_.erase(channel.producer);
    requests_.erase(channel.request);
    channel.connection = nullptr;
    channel.left_after = last_request_;
    channel.enter(State::kIdle, now_);
}

void Link::try_again(Channel& channel, const ErrorInfo& why) {
    leave(channel);
    channel.trouble = why;
    channel.not_before = now_ + kTryAgainIn;
    enlist(channel);
}

void Link::go_again(Channel& channel, std::optional<ErrorInfo> why, Time not_before) {
    leave(channel);
    channel.take_back_sent();
    channel.trouble = std::move(why);
    channel.again_at = now_;
    channel.not_before = not_before;
    if (channel.has_waiting()) enlist(channel);
}

void Link::reset(Channel& channel, const ErrorInfo& why, Answers& out) {
    go_again(channel, why, channel.resets > 0 ? now_ + kTryAgainIn : now_);
    if (channel.has_waiting() && ++channel.resets > kMostResets) fail(channel, why, out);
}

void Link::fail(Channel& channel, const ErrorInfo& error, Answers& out) {
    leave(channel);
    channel.take_back_sent();
    channel.enter_lane(nullptr);
    channel.resets = 0;
    answer_all(channel.queue, error, channel.part, out);
    // The next message finds out whether the topic is as it was.
    channel.topic->known = false;
    channel.topic->asked_at = {};
}

void Link::fail(Topic& topic, const ErrorInfo& error, Answers& out) {
    topic.asked_at = {};
    answer_all(topic.queue, error, {}, out);
    for (const auto& channel : topic.channels) {
        if (channel->state == State::kIdle && channel->has_messages()) fail(*channel, error, out);
    }
}

void Link::for_each_at(const Connection& connection, const std::function<void(Channel&)>& act) {
    for (const auto& [name, topic] : topics_) {
        for (const auto& channel : topic->channels) {
            if (channel->connection == &connection) act(*channel);
        }
    }
}

void Link::lose(const Connection& connection, const ErrorInfo& why, Answers& out) {
    for_each_at(connection, [&](Channel& channel) { reset(channel, why, out); });
    close(connection);
}

void Link::close(const Connection& connection) {
    for (auto& [key, lane] : lanes_) {
        if (lane.connection == &connection) lane.connection = nullptr;
    }
    brokers_.close(connection);
}

void Link::look_for_silence(Answers& out) {
    std::set<const Connection*> waited_for;
    for (const auto& [name, topic] : topics_) {
        if (topic->request != 0) waited_for.insert(&brokers_.first());
        if (topic->request != 0 && now_ - topic->asked_at > config_.stuck_after) {
            requests_.erase(std::exchange(topic->request, 0));
            fail(*topic,
                 to_error({"SILENT", "it does not say how many partitions " + topic->name + " has"},
                          brokers_.first().name()),
                 out);
        }
        for (const auto& channel : topic->channels) {
            const bool asks =
                channel->state == State::kLookingUp || channel->state == State::kJoining;
            if (asks || !channel->sent.empty()) waited_for.insert(channel->connection);
            if (!asks || now_ - channel->since <= config_.stuck_after) continue;
            fail(*channel,
                 to_error({"SILENT", channel->state == State::kJoining
                                         ? "no answer to PRODUCER for " + channel->name
                                         : "no answer to LOOKUP for " + channel->name},
                          channel->connection->name()),
                 out);
        }
    }
    brokers_.for_each([&](Connection& connection) {
        const auto silent =
            connection.look_for_silence(waited_for.contains(&connection), config_.stuck_after);
        if (!silent) return;
        const ErrorInfo error = to_error(*silent, connection.name());
        if (&connection == &brokers_.first()) {
            end(error);
        } else {
            lose(connection, error, out);
        }
    });
}

void Link::wait(milliseconds most) const {
    // Some are to be looked up again soon, or it ends soon.
    brokers_.wait(listed_.empty() && !end_ ? most : std::min(most, kShortWait));
}

std::optional<ErrorInfo> Link::unanswered(std::uint64_t number, milliseconds time) {
    std::optional<ErrorInfo> why;
    for (const auto& [name, topic] : topics_) {
        std::erase_if(topic->queue, [&](const Message& one) { return one.number == number; });
        for (const auto& channel : topic->channels) {
            if (channel->forget(number) && channel->state != State::kReady) why = channel->trouble;
        }
    }
    if (why) return why;
    return to_error(
        {"UNANSWERED", "no acknowledgement for " + std::to_string(time.count() / 1000) + " s"},
        brokers_.first().name());
}

ErrorInfo Link::silence(milliseconds time) const {
    return to_error({"SILENT", "no answer for " + std::to_string(time.count() / 1000) + " s"},
                    brokers_.first().name());
}

}  // namespace outbox::pulsar
