// What becomes of records when something was refused or nobody answers; README.md tells the story.
#include <algorithm>
#include <set>
#include <utility>

#include "brokers/kafka/sink.h"
#include "brokers/kafka/texts.h"

namespace outbox::kafka {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long outcomes of what the broker already has are waited for before a rebuild.
constexpr milliseconds kSettle{300};
constexpr milliseconds kSettleStep{10};
// What is down is tried at most this often.
constexpr milliseconds kTryEvery = seconds(1);
// How long a topic's records go one by one after a refusal: longer if the last time is not long
// ago.
constexpr seconds kCarefulMin{2};
constexpr seconds kCarefulMax{60};
// Batches are not made smaller than this on a guess.
constexpr std::size_t kMinBatchBytes = 1'000;

}  // namespace

void KafkaSink::set_down(std::optional<Trouble>& down, ErrorInfo error) const {
    down = Trouble{std::move(error), now_ + kTryEvery, false};
}

void KafkaSink::look_for_silence(spi::Completions& out) {
    if (under_way_.empty()) return;
    const UnderWay::Slot& slot = under_way_[under_way_.oldest()];
    if (slot.sequence != oldest_) {
        oldest_ = slot.sequence;
        oldest_since_ = now_;
    }
    const auto age = now_ - oldest_since_;
    if (all_brokers_down_ && age > config_.down_after) {
        give_up(out);
    } else if (age > config_.stuck_after) {
        const bool others_pass = acknowledged_at_ > oldest_since_;
        const Fault fault = slot.produced && main_.client != nullptr ? load_partitions(*slot.topic)
                                                                     : Fault{"_TIMED_OUT", {}};
        const bool answers = fault.name.empty() || scope_of(fault) != Scope::kDestination;
        if (slot.produced && (others_pass || answers)) {
            give_up_silent(out);
        } else {
            give_up(out);
        }
    }
}

// The brokers answer, and the oldest record's partition does not: whether its records arrived is
// unknown. Others that have been silent for nearly as long go with it, to spare another rebuild.
void KafkaSink::give_up_silent(spi::Completions& out) {
    std::set<Producer*> silent;
    const UnderWay::Slot& oldest = under_way_[under_way_.oldest()];
    for (std::uint32_t id = under_way_.oldest(); id != kNoSlot; id = under_way_[id].next) {
        const UnderWay::Slot& slot = under_way_[id];
        if (!slot.produced) continue;
        Partition& partition = slot.topic->partitions[static_cast<std::size_t>(slot.partition)];
        const auto silence = now_ - partition.alive_at;
        if (id != under_way_.oldest() && silence <= config_.stuck_after / 2 &&
            (slot.topic != oldest.topic || slot.partition != oldest.partition)) {
            continue;
        }
        silent.insert(slot.careful ? &careful_ : &main_);
        set_down(partition.down, partition.has_leader
                                     ? silent_error(*slot.topic, slot.partition, silence)
                                     : leaderless_error(*slot.topic, slot.partition));
    }
    for (Producer* producer : silent) {
        producer->fatal = Fault{"_TIMED_OUT", "a partition is silent"};  // nothing more goes in
        settle(*producer, out);
        forget(*producer);
        fail_all(*producer, {}, std::nullopt, out);
        if (producer == &main_) static_cast<void>(open_client(main_));
    }
}

// No broker answers: whether the records arrived is unknown.
void KafkaSink::give_up(spi::Completions& out) {
    const auto age_ms = std::chrono::duration_cast<milliseconds>(now_ - oldest_since_).count();
    const Fault silence{"_TIMED_OUT", "no answer for " + std::to_string(age_ms) + " ms"};
    const ErrorInfo error = to_error(connection_.value_or(silence), where());
    for (Producer* producer : {&careful_, &main_}) {
        forget(*producer);
        fail_all(*producer, {}, error, out);
    }
    static_cast<void>(open_client(main_));
}

// Something was refused: nothing behind it was accepted, and this producer is of no more use.
void KafkaSink::rebuild(Producer& producer, spi::Completions& out) {
    settle(producer, out);
    Guilty guilty;
    std::optional<ErrorInfo> cause;
    if (!blame(producer, guilty)) {
        cause =
            to_error(producer.fatal ? *producer.fatal : producer.refused.front().fault, where());
    }
    forget(producer);
    fail_all(producer, guilty, cause, out);
    // An idle producer that fails at once would be rebuilt for ever: wait for the next record.
    if (&producer == &main_ && !out.empty()) static_cast<void>(open_client(main_));
}

// Who is at fault: records, and topics and partitions, which are down from now on. False: the
// destination.
bool KafkaSink::blame(const Producer& producer, Guilty& guilty) {
    struct Batch {
        std::vector<std::uint32_t> slots;
        std::size_t bytes = 0;
        Fault fault;
    };
    std::map<Topic*, Batch> batches;
    bool found = false;
    for (const Events::Refusal& refused : producer.refused) {
        const UnderWay::Slot& slot = under_way_[refused.slot];
        Topic& topic = *slot.topic;
        switch (scope_of(refused.fault)) {
            case Scope::kDestination:
                continue;  // it follows a refusal (purged, out of sequence)
            case Scope::kRecord: {
                Batch& batch = batches[&topic];
                batch.slots.push_back(refused.slot);
                batch.bytes += slot.bytes;
                batch.fault = refused.fault;
                break;
            }
            case Scope::kTopic:
                set_down(topic.down, to_error(refused.fault, topic_text(topic)));
                if (is_unknown_topic(refused.fault)) topic.state = Topic::State::kUnknown;
                break;
            case Scope::kPartition:
                set_down(topic.partitions[static_cast<std::size_t>(slot.partition)].down,
                         to_error(refused.fault, part_text(topic, slot.partition)));
                break;
        }
        found = true;
    }
    // A broker refuses whole batches, so that one record alone is guilty and others are in doubt.
    for (const auto& [topic, batch] : batches) {
        const bool in_doubt = &producer == &main_ && batch.slots.size() > 1;
        // Not because of a trial: the main producer may have others of the topic.
        if (in_doubt || topic->careful_until) go_careful(*topic);
        if (in_doubt && batch.fault.name == "MSG_SIZE_TOO_LARGE" && !topic->max_message_bytes) {
            batch_bytes_ = std::max(kMinBatchBytes, std::min(batch_bytes_, batch.bytes) / 2);
        }
        topic->state =
            Topic::State::kUnknown;  // what was known may be wrong: its limit has changed
        if (in_doubt) continue;
        for (const std::uint32_t slot : batch.slots) {
            guilty.emplace(slot, to_error(batch.fault, topic_text(*topic)));
        }
    }
    return found;
}

void KafkaSink::go_careful(Topic& topic) {
    if (!topic.careful_until) {
        const bool again = now_ - topic.careful_ended < kCarefulMax;
        topic.careful_for =
            again ? std::clamp(topic.careful_for * 2, kCarefulMin, kCarefulMax) : kCarefulMin;
    }
    topic.careful_until = now_ + topic.careful_for;
}

// Outcomes of records that the broker already has spare repeats.
void KafkaSink::settle(Producer& producer, spi::Completions& out) {
    if (producer.client == nullptr) return;
    producer.client->purge_unsent();
    const auto clock_now = [] { return std::chrono::steady_clock::now(); };
    const Time deadline = clock_now() + kSettle;
    while (producer.produced > 0 && clock_now() < deadline) {
        producer.client->poll(kSettleStep, events_);
        events_.topics.clear();
        take(producer, out);
    }
}

// Fails what the producer had, and what is parked where that could be behind it. Without a cause
// only what is guilty or down has failed, and the rest goes again.
void KafkaSink::fail_all(const Producer& producer, const Guilty& guilty,
                         const std::optional<ErrorInfo>& cause, spi::Completions& out) {
    const bool careful = &producer == &careful_;
    topics_.for_each([&](Topic& topic) {
        if (careful && !topic.careful_until) return;
        topic.parked.clear();
        topic.gathers_since.reset();
    });
    for (std::uint32_t id = under_way_.oldest(); id != kNoSlot;) {
        const UnderWay::Slot& slot = under_way_[id];
        const std::uint32_t next = slot.next;
        const Topic& topic = *slot.topic;
        const bool parked = !slot.produced && !slot.careful;
        if (careful ? slot.careful || (parked && topic.careful_until) : !slot.careful) {
            spi::FailedRecord failed{.token = slot.token, .error = behind_error()};
            const auto blamed = guilty.find(id);
            const bool partition_down =
                slot.partition >= 0 &&
                topic.partitions[static_cast<std::size_t>(slot.partition)].down;
            if (blamed != guilty.end()) {
                failed.error = blamed->second;
            } else if (cause) {
                failed.error = *cause;
            } else if (topic.down) {
                failed.error = topic.down->error;
                failed.part = topic_text(topic);
            } else if (partition_down) {
                failed.error =
                    topic.partitions[static_cast<std::size_t>(slot.partition)].down->error;
                failed.part = part_text(topic, slot.partition);
            } else {
                failed.behind = true;
            }
            out.failed.push_back(std::move(failed));
            under_way_.remove(id);
        }
        id = next;
    }
}

// A topic takes smaller batches than we make. Nothing is under way inside librdkafka.
void KafkaSink::replace_drained_client(spi::Completions& out) {
    shrinking_ = false;
    main_.client.reset();
    topics_.for_each([](Topic& topic) {
        topic.handle = nullptr;
        topic.asking = false;
    });
    if (const Status opened = open_client(main_); !opened.ok()) {
        forget(main_);
        fail_all(main_, {}, to_error({"_FATAL", opened.error().message}, where()), out);
        return;
    }
    topics_.for_each([this](Topic& topic) {
        if (topic.state == Topic::State::kAsked) ask(topic);
        if (topic.state == Topic::State::kReady && !topic.parked.empty()) unpark(topic);
    });
}

// After this nobody reads the bytes of its records.
void KafkaSink::forget(Producer& producer) {
    const bool careful = &producer == &careful_;
    producer.client.reset();
    for (std::uint32_t id = under_way_.oldest(); id != kNoSlot; id = under_way_[id].next) {
        if (under_way_[id].careful == careful) returned(id);
    }
    producer.refused.clear();
    producer.fatal.reset();
    topics_.for_each([careful](Topic& topic) {
        if (careful) {
            topic.careful_handle = nullptr;
            return;
        }
        topic.handle = nullptr;
        topic.asking = false;
        topic.ask_again_at.reset();
        if (topic.state == Topic::State::kAsked) topic.state = Topic::State::kUnknown;
    });
    if (careful) return;
    ++rebuilds_;
    all_brokers_down_ = false;
    shrinking_ = false;
    asks_again_ = false;
}

}  // namespace outbox::kafka
