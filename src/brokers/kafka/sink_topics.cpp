// What is known of topics, and the records that wait for it.
#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "brokers/kafka/sink.h"
#include "brokers/kafka/texts.h"

namespace outbox::kafka {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kAskTimeout = seconds(5);
constexpr milliseconds kPartitionsTimeout = seconds(1);
constexpr milliseconds kAskAgainAfter{100};
// How long a broker may take to create a topic on demand.
constexpr milliseconds kCreationWait = seconds(2);
// A topic that is missing is asked for at most this often,
constexpr milliseconds kMissingTtl = seconds(1);
// and so many records wait for its creation, so that other topics keep their room.
constexpr std::size_t kMaxAwaitingCreation = 500;

bool is_no_right_to_ask(const Fault& fault) {
    return to_error(fault, {}).code == ErrorCode::kNoRights;
}

// Where to, and which: those of a partition together, so that librdkafka, which sends what it has
// of one in a request, has all of them. As they came where records choose their partition: those of
// a key may choose several.
std::vector<std::pair<std::int32_t, std::size_t>> by_partition(
    const Topic& topic, std::span<const Topic::Parked> parked) {
    std::vector<std::pair<std::int32_t, std::size_t>> out;
    out.reserve(parked.size());
    const auto count = static_cast<std::int32_t>(topic.partitions.size());
    bool chosen = topic.state != Topic::State::kReady || count == 0;
    for (const Topic::Parked& one : parked) {
        chosen = chosen || one.record.partition >= 0;
        const bool goes_anywhere = chosen || one.record.key.data() == nullptr;
        out.emplace_back(goes_anywhere ? 0 : Client::partition_of(one.record.key, count),
                         out.size());
    }
    if (!chosen) std::sort(out.begin(), out.end());
    return out;
}

}  // namespace

// Known to be missing, a moment ago; or as many wait for it as may.
bool KafkaSink::is_given_up(const Topic& topic) const {
    if (!topic.missing_since) return false;
    return topic.parked.size() >= kMaxAwaitingCreation ||
           (topic.state == Topic::State::kUnknown && now_ - topic.asked_at < kMissingTtl &&
            now_ - *topic.missing_since >= kCreationWait);
}

void KafkaSink::park(std::uint32_t slot, Topic& topic, const spi::Record& record) {
    topic.parked.push_back({slot, record});
    if (topic.state == Topic::State::kUnknown) {
        topic.state = Topic::State::kAsked;
        if (!topic.asking) ask(topic);
    }
}

// Sends what waited for the topic. A record that is refused here fails those behind it on its key.
void KafkaSink::unpark(Topic& topic) {
    end_careful(topic);
    topic.gathers_since.reset();
    std::vector<Topic::Parked> parked;
    parked.swap(topic.parked);
    std::set<std::string_view> refused_keys;
    for (const auto& [partition, index] : by_partition(topic, parked)) {
        const auto& [slot, record] = parked[index];
        if (refused_keys.contains(record.key)) {
            fail_behind(slot);
            continue;
        }
        const std::size_t failures = failed_.size();
        if (topic.state != Topic::State::kReady || broken() || shrinking_ ||
            !topic.parked.empty() || send(slot, topic, record) == Sent::kFull) {
            topic.parked.push_back({slot, record});
            unparks_again_ = true;
        }
        if (failed_.size() > failures && !record.key.empty()) refused_keys.insert(record.key);
    }
}

// Of each key the first has failed, and the others lay behind it.
void KafkaSink::fail_parked(Topic& topic, const ErrorInfo& error, const std::string& part) {
    std::set<std::string_view> failed_keys;
    for (const auto& [slot, record] : topic.parked) {
        if (record.key.empty() || failed_keys.insert(record.key).second) {
            fail_slot(slot, error, part);
        } else {
            fail_behind(slot);
        }
    }
    topic.parked.clear();
    topic.gathers_since.reset();
}

void KafkaSink::close_handles(Topic& topic) {
    if (topic.handle != nullptr) main_.client->close_topic(topic.handle);
    if (topic.careful_handle != nullptr) careful_.client->close_topic(topic.careful_handle);
    topic.handle = nullptr;
    topic.careful_handle = nullptr;
}

// Back to whole batches, when it is time and nothing is left in the careful producer.
void KafkaSink::end_careful(Topic& topic) {
    if (!topic.careful_until || now_ < *topic.careful_until || topic.produced > 0) return;
    topic.careful_until.reset();
    topic.careful_ended = now_;
}

void KafkaSink::ask(Topic& topic) {
    if (main_.client == nullptr) return;
    main_.client->describe(topic.name, kAskTimeout);
    topic.asking = true;
    topic.asked_at = now_;
    topic.ask_again_at.reset();
}

void KafkaSink::ask_again_soon(Topic& topic) {
    topic.ask_again_at = now_ + kAskAgainAfter;
    asks_again_ = true;
}

void KafkaSink::ask_again() {
    if (!asks_again_ || main_.client == nullptr) return;
    asks_again_ = false;
    topics_.for_each([this](Topic& topic) {
        if (topic.ask_again_at && now_ >= *topic.ask_again_at) ask(topic);
        asks_again_ = asks_again_ || topic.ask_again_at.has_value();
    });
}

void KafkaSink::take_answer(const Events::TopicAnswer& answer) {
    Topic* topic = topics_.find(answer.topic);
    if (topic == nullptr) return;
    topic->asking = false;
    topic->asked_at = now_;
    if (answer.fault.name.empty() || is_no_right_to_ask(answer.fault)) {
        // Who may not read the topic's settings may still be allowed to write to it.
        topic->max_message_bytes = answer.max_message_bytes;
        topic_exists(*topic);
    } else if (is_unknown_topic(answer.fault)) {
        topic_missing(*topic, answer.fault);
    } else if (scope_of(answer.fault) == Scope::kRecord) {
        topic->state = Topic::State::kInvalid;
        fail_parked(*topic, to_error(answer.fault, topic_text(*topic)), {});
    } else if (!topic->parked.empty()) {
        connection_ = answer.fault;
        ask_again_soon(*topic);
    }
}

void KafkaSink::topic_exists(Topic& topic) {
    all_brokers_down_ = false;
    const Fault fault = load_partitions(topic);
    if (is_unknown_topic(fault)) {
        topic_missing(topic, fault);
        return;
    }
    if (!fault.name.empty() && scope_of(fault) == Scope::kTopic) {
        set_down(topic.down, to_error(fault, topic_text(topic)));
        topic.state = Topic::State::kUnknown;
        fail_parked(topic, topic.down->error, topic_text(topic));
        return;
    }
    const bool being_made =
        std::none_of(topic.partitions.begin(), topic.partitions.end(),
                     [](const Partition& partition) { return partition.has_leader; });
    if (topic.state == Topic::State::kAsked && being_made) {
        if (!topic.missing_since) topic.missing_since = now_;
        if (topic.partitions.empty() || now_ - *topic.missing_since < kCreationWait) {
            ask_again_soon(topic);
            return;
        }
    }
    if (topic.partitions.empty()) return;
    topic.state = Topic::State::kReady;
    topic.missing_since.reset();
    if (topic.down && topic.down->error.code == ErrorCode::kTopicUnknown) topic.down.reset();
    if (topic.max_message_bytes && *topic.max_message_bytes < batch_bytes_) {
        batch_bytes_ = std::max<std::size_t>(1, *topic.max_message_bytes);
        shrinking_ = true;
    }
    if (!shrinking_) unpark(topic);
}

// The fault's name is empty if they are known. What could not be learned stays as it was.
Fault KafkaSink::load_partitions(Topic& topic) {
    if (topic.handle == nullptr) {
        auto handle = main_.client->open_topic(topic.name);
        if (!handle.ok()) return {"_FATAL", handle.error().message};
        topic.handle = *handle;
    }
    const Client::Partitions found = main_.client->partitions(topic.handle, kPartitionsTimeout);
    if (!found.fault.name.empty()) return found.fault;
    // A topic made anew may have fewer: those that still have records stay for their counts.
    if (topic.produced == 0 || found.leaders.size() > topic.partitions.size()) {
        topic.partitions.resize(found.leaders.size());
    }
    for (std::size_t i = 0; i < topic.partitions.size(); ++i) {
        topic.partitions[i].has_leader = i < found.leaders.size() && found.leaders[i];
    }
    return {};
}

void KafkaSink::topic_missing(Topic& topic, const Fault& fault) {
    topic.state = Topic::State::kUnknown;
    if (topic.parked.empty()) return;
    if (!topic.missing_since) topic.missing_since = now_;
    if (topic.handle == nullptr) {
        if (auto handle = main_.client->open_topic(topic.name); handle.ok()) {
            topic.handle = *handle;
        }
    }
    if (now_ - *topic.missing_since < kCreationWait) {
        topic.state = Topic::State::kAsked;
        ask_again_soon(topic);
        return;
    }
    fail_parked(topic, to_error(fault, topic_text(topic)), topic_text(topic));
    if (topic.produced == 0) close_handles(topic);
}

}  // namespace outbox::kafka
