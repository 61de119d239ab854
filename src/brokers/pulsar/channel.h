#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/error.h>
#include <outbox/spi/sink.h>

#include "brokers/pulsar/connection.h"
#include "brokers/pulsar/lane.h"

namespace outbox::pulsar {

/// A record on its way. Views are valid until its token has an outcome.
struct Message {
    std::uint64_t number = 0;  ///< As answers name it.
    spi::Record record;
    bool alone = false;  ///< It shares no batch any more: one with it was refused.
};

/// A message or a batch that was sent and has no answer.
struct Entry {
    std::uint64_t first = 0;  ///< Sequence ids.
    std::uint64_t last = 0;
    std::vector<Message> messages;
    std::chrono::steady_clock::time_point at = {};  ///< It was sent.

    [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(last - first + 1); }
};

struct Topic;

/// A topic that is not partitioned, or one partition: it is at one broker, and has one producer
/// there.
struct Channel {
    using Time = std::chrono::steady_clock::time_point;
    enum class State : std::uint8_t {
        kIdle,        ///< Nobody knows where it is.
        kLookingUp,   ///< A broker was asked.
        kConnecting,  ///< To the broker `wanted`, which is to be asked or to have the producer.
        kJoining,     ///< The producer is being made.
        kReady
    };

    static constexpr std::size_t kLeastWindow = 4;

    Topic* topic = nullptr;
    std::string name;  ///< "persistent://public/default/orders-partition-3"
    std::string part;  ///< As errors name it: "topic orders[3]".
    State state = State::kIdle;
    Time since;                        ///< It is in this state.
    Time not_before;                   ///< It is looked up.
    Connection* connection = nullptr;  ///< Of kLookingUp, kJoining and kReady.
    std::string wanted;                ///< Of kConnecting: a broker's key.
    bool asks_there = false;           ///< Of kConnecting: it was redirected.
    bool authoritative = false;
    unsigned redirects = 0;
    Time again_at;                 ///< It was left last, and goes again.
    std::uint64_t left_after = 0;  ///< The last request before it was left; 0: it never was.
    std::uint64_t request = 0;     ///< Of kLookingUp and kJoining: what is to be answered.
    std::uint64_t producer = 0;
    std::string producer_name;
    std::uint64_t next_sequence = 0;   ///< Of the producer.
    unsigned resets = 0;               ///< Since the last message that the broker has.
    std::optional<ErrorInfo> trouble;  ///< Why it is not ready yet.
    bool listed = false;               ///< Among those that have something to do.

    Lane* lane = nullptr;          ///< Of the broker where it was last; null: it failed since.
    std::deque<Message> queue;     ///< Not sent yet.
    std::deque<Message> suspects;  ///< The same, of those that the lane suspects.
    std::deque<Entry> sent;
    std::size_t under_way = 0;          ///< Messages in `sent`.
    std::size_t window = kLeastWindow;  ///< So many may be.
    Time narrowed_at;

    [[nodiscard]] bool has_messages() const { return has_waiting() || !sent.empty(); }
    [[nodiscard]] bool has_waiting() const { return !queue.empty() || !suspects.empty(); }
    /// While a message is looked for that ends connections to its broker.
    [[nodiscard]] bool takes_turns() const {
        return lane != nullptr && (lane->search.is_on() || !suspects.empty());
    }
    /// The topic may have other partitions since it was left.
    [[nodiscard]] bool waits_for_partitions() const;
    void enter(State next, Time now) {
        state = next;
        since = now;
    }
    [[nodiscard]] bool has_room() const { return under_way < window; }
    void begin_producer(std::uint64_t id, const std::string& session);
    /// It waits behind what waits already, as a suspect where it is one.
    void add(const Message& message);
    /// Nothing may be under way. What waits is suspected by the new one, or by none.
    void enter_lane(Lane* next);
    /// Of what waits, the one at that place.
    void put_first(std::size_t place);
    void add_sent(Entry entry);
    /// More may be under way where the broker takes what it is sent within `prompt`, less where it
    /// does not.
    void adapt(const Entry& confirmed, Time now, std::chrono::milliseconds prompt);
    /// What was sent is to be sent again, before what waits.
    void take_back_sent();
    /// The message is forgotten; false: it is not here.
    bool forget(std::uint64_t number);
    /// The entry that a broker names by one of its sequence ids, taken out; nothing: there is none.
    std::optional<Entry> take_entry(std::uint64_t sequence);
};

/// Where events of one name go.
struct Topic {
    std::string name;    ///< In full.
    std::string called;  ///< As events call it.
    bool known = false;  ///< Whether it is partitioned.
    std::uint32_t partitions = 0;
    std::uint64_t request = 0;   ///< Not 0: it is being asked.
    std::uint64_t answered = 0;  ///< The last request that said what it has.
    Channel::Time asked_at;
    std::chrono::milliseconds again_in{0};  ///< It is asked for again; 0: as configured.
    Channel::Time used_at;
    std::size_t turn = 0;  ///< Where the next messages without a key go.
    std::vector<std::unique_ptr<Channel>> channels;
    std::deque<Message> queue;  ///< Until it is known.

    [[nodiscard]] bool has_messages() const;
    /// Whether its channels stay where it has so many partitions.
    [[nodiscard]] bool keeps_channels(std::uint32_t count) const;
    /// Makes its channels; what is at others than those that stay is in `queue` again.
    void set_partitions(std::uint32_t count);
    /// The channel of a record, once it is known.
    [[nodiscard]] Channel& channel_of(const spi::Record& record) const;
};

}  // namespace outbox::pulsar
