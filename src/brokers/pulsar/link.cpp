#include "brokers/pulsar/link.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <utility>
#include <xxhash.h>

#include "brokers/pulsar/message.h"
#include "brokers/pulsar/topic.h"
#include "core/record_bytes.h"

namespace outbox::pulsar {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostTopics = 1'000;  // with a producer each, at least
constexpr std::size_t kBatchMessages = 1'000;
constexpr std::size_t kBatchBytes = std::size_t{128} << 10;
constexpr std::size_t kHeaderBytes = 16;     // around a header's name and value, at most
constexpr std::size_t kMessageBytes = 200;   // of a message beside key, value and headers
constexpr std::size_t kLongestEncoding = 4;  // a byte that is no UTF-8 becomes so many
constexpr unsigned kMostRedirects = 20;

// For operators: which relay it is; and for brokers that drop repeats by a producer's name: a name
// that nobody had before, as positions do not rise in the order of sending.
std::string session_name(const std::string& producer) {
    std::random_device random;
    std::array<char, 80> text{};
    std::snprintf(text.data(), text.size(), "outbox-%016llx-%08x%08x%08x-",
                  static_cast<unsigned long long>(XXH3_64bits(producer.data(), producer.size())),
                  random(), random(), random());
    return text.data();
}

// Where nothing in it has to be encoded.
std::size_t bytes_of(const spi::Record& record) {
    return kMessageBytes + payload_bytes(record) + kHeaderBytes * record.headers.size();
}

std::int64_t now_ms() {
    return std::chrono::duration_cast<milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace

Link::Link(const PulsarConfig& config, std::unique_ptr<Connection> first, Searches& searches)
    : config_(config),
      session_(session_name(config.producer)),
      searches_(searches),
      brokers_(config, std::move(first)),
      now_(Clock::now()),
      next_look_(now_) {}

std::size_t Link::host() const {
    const net::Host& host = brokers_.first().host();
    const auto found = std::find_if(
        config_.hosts.begin(), config_.hosts.end(),
        [&](const net::Host& one) { return one.name == host.name && one.port == host.port; });
    return static_cast<std::size_t>(found - config_.hosts.begin());
}

std::optional<ErrorInfo> Link::send(std::uint64_t number, const spi::Record& record) {
    if (auto why = why_not_carried(record)) {
        return ErrorInfo{
            ErrorCode::kRecordRefused,
            Advice::kDeadLetter,
            {},
            "event " + std::string(record.id) + " fits no message of Pulsar: " + *std::move(why)};
    }
    if (auto error = why_too_large(record)) return error;
    Topic& topic = topic_of(record.topic);
    topic.used_at = now_;
    const bool is_old = now_ - topic.asked_at >
                        (topic.again_in.count() > 0 ? topic.again_in : config_.partitions_for);
    if ((!topic.known || is_old) && topic.request == 0) ask_for_partitions(topic);
    topic.queue.push_back({number, record});
    if (topic.known) distribute(topic);
    return std::nullopt;
}

// A broker closes the connection for what is larger than it takes.
std::optional<ErrorInfo> Link::why_too_large(const spi::Record& record) {
    const std::size_t most = brokers_.first().max_bytes();
    if (kLongestEncoding * bytes_of(record) <= most) return std::nullopt;
    metadata_.clear();
    append_metadata({}, record, metadata_);
    const std::size_t bytes = kMessageBytes + metadata_.size() + record.value.size();
    if (bytes <= most) return std::nullopt;
    return to_error(
        {"TOO LARGE", "event " + std::string(record.id) + " makes a message of " +
                          std::to_string(bytes) + " bytes, and it takes " + std::to_string(most)},
        brokers_.first().name());
}

Topic& Link::topic_of(std::string_view called) {
    const auto found = topics_.find(called);
    if (found != topics_.end()) return *found->second;
    make_room();
    auto topic = std::make_unique<Topic>();
    topic->called = called;
    topic->name = full_name(called, config_.home());
    return *topics_.emplace(topic->called, std::move(topic)).first->second;
}

// A template may make a topic of each key.
void Link::make_room() {
    if (topics_.size() < kMostTopics) return;
    auto oldest = topics_.end();
    for (auto one = topics_.begin(); one != topics_.end(); ++one) {
        if (one->second->has_messages()) continue;
        if (oldest == topics_.end() || one->second->used_at < oldest->second->used_at) oldest = one;
    }
    if (oldest == topics_.end()) return;
    Topic& topic = *oldest->second;
    forget_channels(topic);
    requests_.erase(topic.request);
    topics_.erase(oldest);
}

void Link::ask_for_partitions(Topic& topic) {
    topic.request = ++last_request_;
    topic.asked_at = now_;
    topic.again_in = std::min(topic.again_in * 2, config_.partitions_for);
    requests_[topic.request] = {.topic = &topic};
    line_.clear();
    append_partitions_request(topic.name, topic.request, line_);
    brokers_.first().write(line_);
}

void Link::take_partitions(Topic& topic, const Command& answer, Answers& out) {
    const std::uint64_t request = std::exchange(topic.request, 0);
    if (answer.failed) {
        fail(topic, to_error(fault_of_request(answer.error, answer.text), brokers_.first().name()),
             out);
        return;
    }
    topic.answered = request;
    if (!topic.keeps_channels(answer.partitions)) forget_channels(topic);
    topic.set_partitions(answer.partitions);
    distribute(topic);
}

void Link::distribute(Topic& topic) {
    for (const Message& message : topic.queue) {
        Channel& channel = topic.channel_of(message.record);
        channel.add(message);
        enlist(channel);
    }
    topic.queue.clear();
}

// Nothing refers to them any more; they keep their messages.
void Link::forget_channels(Topic& topic) {
    for (const auto& channel : topic.channels) {
        if (channel->state == State::kReady) {
            line_.clear();
            append_close_producer(channel->producer, ++last_request_, line_);
            channel->connection->write(line_);
        }
        leave(*channel);
        std::erase(listed_, channel.get());
    }
}

void Link::enlist(Channel& channel) {
    if (!std::exchange(channel.listed, true)) listed_.push_back(&channel);
}

// What can be sent is; who does not know where to begins to ask.
void Link::work() {
    std::vector<Channel*> channels;
    channels.swap(listed_);
    for (Channel* channel : channels) {
        channel->listed = false;
        const bool begins = channel->state == State::kIdle && now_ >= channel->not_before;
        if (begins && channel->has_waiting()) begin(*channel);
        if (channel->state != State::kReady) continue;
        if (channel->takes_turns()) {
            channel->lane->ready.push_back(channel);
        } else {
            send_queue(*channel);
        }
    }
    for (auto& [key, lane] : lanes_) {
        if (!lane.ready.empty()) take_turns(lane);
        lane.ready.clear();
    }
    for (Channel* channel : channels) {
        const bool may_send = channel->has_room() || !channel->suspects.empty();
        const bool goes_on =
            channel->state == State::kIdle || (channel->state == State::kReady && may_send);
        if (goes_on && channel->has_waiting()) enlist(*channel);
    }
}

// A topic may have been made anew with other partitions, or with none, and the broker would make
// one of the old name of whatever is joined.
void Link::begin(Channel& channel) {
    Topic& topic = *channel.topic;
    if (channel.waits_for_partitions()) {
        if (topic.request == 0) ask_for_partitions(topic);
        return;
    }
    channel.redirects = 0;
    channel.authoritative = false;
    look_up(channel, brokers_.first());
}

void Link::look_up(Channel& channel, Connection& at) {
    channel.enter(State::kLookingUp, now_);
    channel.connection = &at;
    channel.request = ++last_request_;
    requests_[channel.request] = {.channel = &channel};
    line_.clear();
    append_lookup(channel.name, channel.request, channel.authoritative, line_);
    at.write(line_);
}

void Link::take_lookup(Channel& channel, const Command& answer, Answers& out) {
    const std::string where = channel.connection->name();
    if (answer.failed) {
        const Fault fault = fault_of_request(answer.error, answer.text);
        const ErrorInfo error = to_error(fault, where);
        return is_moving(fault) ? try_again(channel, error) : fail(channel, error, out);
    }
    // How a proxy reaches it is the proxy's affair.
    const bool takes_tls = config_.tls && !answer.url_tls.empty();
    const auto broker = read_broker_url(takes_tls ? answer.url_tls : answer.url);
    if (!broker || (broker->tls != config_.tls && !answer.through_proxy)) {
        return fail(channel,
                    to_error({"NO ADDRESS",
                              "it names no broker that " + channel.name + " can be reached at"},
                             where),
                    out);
    }
    channel.asks_there = answer.lookup == Command::Lookup::kRedirect;
    channel.authoritative = answer.authoritative;
    if (channel.asks_there && ++channel.redirects > kMostRedirects) {
        return fail(channel,
                    to_error({"REDIRECTS", "brokers name each other for " + channel.name}, where),
                    out);
    }
    go_to(channel, broker->host, answer.through_proxy);
}

void Link::go_to(Channel& channel, const net::Host& broker, bool through_proxy) {
    channel.wanted = Brokers::key_of(broker, through_proxy);
    channel.enter(State::kConnecting, now_);
    channel.connection = nullptr;
    if (Connection* connection = brokers_.get(broker, through_proxy)) arrive(channel, *connection);
}

void Link::take_arrived(Answers& out) {
    for (const auto& arrived : brokers_.take_arrived()) {
        for (const auto& [name, topic] : topics_) {
            for (const auto& channel : topic->channels) {
                if (channel->state != State::kConnecting || channel->wanted != arrived.key)
                    continue;
                if (arrived.connection != nullptr) {
                    arrive(*channel, *arrived.connection);
                } else {
                    fail(*channel, arrived.error, out);
                }
            }
        }
    }
}

void Link::arrive(Channel& channel, Connection& connection) {
    channel.connection = &connection;
    if (channel.asks_there) {
        look_up(channel, connection);
    } else {
        join(channel);
    }
}

void Link::join(Channel& channel) {
    channel.enter(State::kJoining, now_);
    Lane& lane =
        lanes_.try_emplace(channel.wanted, searches_.by_broker[channel.wanted]).first->second;
    lane.begin(*channel.connection, now_);
    channel.enter_lane(&lane);
    channel.begin_producer(++last_producer_, session_);
    channel.request = ++last_request_;
    producers_[channel.producer] = &channel;
    requests_[channel.request] = {.channel = &channel};
    line_.clear();
    append_producer(channel.name, channel.producer, channel.producer_name, channel.request, line_);
    channel.connection->write(line_);
}

void Link::send_queue(Channel& channel) {
    while (!channel.queue.empty() && channel.has_room() &&
           channel.connection->unsent() < kMostUnsent) {
        send_entry(channel, size_of_next_entry(channel));
    }
}

// Messages with keys go alone: a subscription of the type Key_Shared takes a batch for one of its
// first key.
std::size_t Link::size_of_next_entry(const Channel& channel) const {
    const auto may_share = [this](const Message& message) {
        return !message.alone && (config_.mixed_batches || message.record.key.data() == nullptr);
    };
    const std::size_t most = std::min(kBatchBytes, channel.connection->max_bytes());
    const std::size_t most_messages = std::min(kBatchMessages, channel.window - channel.under_way);
    std::size_t count = 0;
    std::size_t bytes = kMessageBytes;
    for (const Message& message : channel.queue) {
        bytes += bytes_of(message.record);
        if (!may_share(message) || bytes > most || count == most_messages) break;
        ++count;
    }
    return std::max<std::size_t>(count, 1);
}

void Link::send_entry(Channel& channel, std::size_t count) {
    Entry entry;
    entry.first = channel.next_sequence;
    entry.last = entry.first + count - 1;
    entry.at = now_;
    channel.next_sequence += count;
    entry.messages.assign(
        std::make_move_iterator(channel.queue.begin()),
        std::make_move_iterator(channel.queue.begin() + static_cast<std::ptrdiff_t>(count)));
    channel.queue.erase(channel.queue.begin(),
                        channel.queue.begin() + static_cast<std::ptrdiff_t>(count));
    const Origin origin{
        .producer = channel.producer_name, .sequence = entry.first, .now_ms = now_ms()};
    const Send send{.producer = channel.producer,
                    .first = entry.first,
                    .count = static_cast<std::uint32_t>(count)};
    metadata_.clear();
    line_.clear();
    if (count == 1) {
        const spi::Record& record = entry.messages.front().record;
        append_metadata(origin, record, metadata_);
        append_send(send, metadata_, record.value, line_);
    } else {
        payload_.clear();
        for (std::size_t i = 0; i < count; ++i) {
            append_to_batch(entry.first + i, entry.messages[i].record, payload_);
        }
        append_batch_metadata(origin, send.count, payload_.size(), metadata_);
        append_send(send, metadata_, payload_, line_);
    }
    channel.connection->write(line_);
    channel.add_sent(std::move(entry));
}

}  // namespace outbox::pulsar
