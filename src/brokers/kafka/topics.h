#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

#include "brokers/kafka/client.h"

namespace outbox::kafka {

using Time = std::chrono::steady_clock::time_point;

/// Topics of Kafka have 1 to 249 characters of [a-zA-Z0-9._-], are not "." or "..", and do not
/// start with "__". Errors: kTopicInvalid/dead_letter, with the cause.
Status check_topic_name(std::string_view topic);

/// A topic, or one of its partitions, is down: its records fail at once, but for one now and then
/// that is tried.
struct Trouble {
    ErrorInfo error;
    Time next_try{};
    bool trying = false;
};

/// A partition as the sink knows it.
struct Partition {
    bool has_leader = true;
    std::size_t under_way = 0;  ///< Inside librdkafka,
    std::size_t bytes = 0;      ///< and their bytes.
    Time alive_at{};            ///< When it last acknowledged something, or had nothing to.
    std::optional<Trouble> down;
};

/// A topic as the sink knows it. A record goes to librdkafka only once its topic is known to
/// exist: a record that waits inside librdkafka for an unknown topic would fail there on its own,
/// and others behind it might not.
struct Topic {
    enum class State : std::uint8_t {
        kUnknown,  ///< Not asked yet, or known to be missing: the next record asks.
        kAsked,    ///< Records park until the answer.
        kReady,
        kInvalid,  ///< No broker takes this name.
    };
    struct Parked {
        std::uint32_t slot;
        spi::Record record;
    };

    std::string name;
    State state = State::kUnknown;
    bool asking = false;  ///< A question is under way.
    Time asked_at{};
    std::optional<Time> ask_again_at;
    std::optional<Time> missing_since;       ///< Until a creation on demand may have come about.
    Client::Topic handle = nullptr;          ///< Of the main producer,
    Client::Topic careful_handle = nullptr;  ///< and of the careful one.
    std::optional<std::size_t> max_message_bytes;  ///< None: the user may not read it.
    std::vector<Parked> parked;
    std::optional<Time> gathers_since;  ///< What is parked waits for nothing but more, since then.
    std::size_t gathered = 0;           ///< So many when that was looked at last.
    std::size_t under_way = 0;
    std::size_t produced = 0;  ///< Of these, inside librdkafka.

    std::vector<Partition> partitions;
    std::int32_t sticky = -1;  ///< Where records without a key go,
    Time sticky_until{};       ///< for a while.
    std::optional<Trouble> down;
    /// Until then its records go one by one, through the careful producer, because the broker
    /// refused a batch.
    std::optional<Time> careful_until;
    std::chrono::seconds careful_for{0};  ///< The last such time,
    Time careful_ended{};                 ///< and when it ended.
};

/// The topics in use, by name; those that are not in use are forgotten above a limit.
class Topics {
  public:
    static constexpr std::size_t kMaxTopics = 1'000;

    /// Valid until the next `find_or_add`, except for topics with records under way.
    /// Null: too many topics are in use. `forget` is called for those dropped.
    Topic* find_or_add(std::string_view name, const std::function<void(Topic&)>& forget);
    Topic* find(std::string_view name);

    template <typename Action>
    void for_each(Action action) {
        for (auto& [name, topic] : topics_) action(topic);
    }

  private:
    std::map<std::string, Topic, std::less<>> topics_;
    Topic* last_ = nullptr;  // neighbours mostly share the topic
};

}  // namespace outbox::kafka
