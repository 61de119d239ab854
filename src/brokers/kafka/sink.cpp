#include "brokers/kafka/sink.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "brokers/kafka/record_size.h"
#include "brokers/kafka/texts.h"
#include "core/record_bytes.h"

namespace outbox::kafka {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTopicTtl = seconds(30);
// A partition without a leader is looked at this often, if there are records for it.
constexpr milliseconds kLeaderTtl = seconds(1);
// An answer as fresh as this is believed before an event is given up for its size.
constexpr milliseconds kFreshAnswer = seconds(1);
constexpr milliseconds kCheckStep = seconds(1);
constexpr milliseconds kLongestWait{100};  // with records under way, so that limits are seen
constexpr milliseconds kCarefulWait{5};    // as the other producer is not heard meanwhile
// Records without a key go to one partition for so long, so that batches fill.
constexpr milliseconds kSticky{10};
// A partition holds half of what may be under way; one that is full and has been silent for so long
// gets no more.
constexpr std::size_t kPartitionShare = 2;
constexpr milliseconds kQuiet = seconds(1);
// While more follows, records of a topic are gathered behind others of it that are under way: as
// many as this, and this part of what may be under way, for so long at most, and no longer than
// more comes where nothing is under way. A request costs a broker as much as a hundred records.
constexpr std::size_t kGathered = 2'000;
constexpr std::size_t kGatheredPart = 4;
constexpr milliseconds kGatherFor{20};
constexpr milliseconds kGatherLook{1};
constexpr milliseconds kOutcomesGather{1};          // where nobody waits for them
constexpr milliseconds kCarefulIdle = seconds(60);  // then the careful producer is closed

Time clock_now() {
    return std::chrono::steady_clock::now();
}

ErrorInfo too_large_error(const Topic& topic, std::size_t bytes) {
    return {ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, "MSG_SIZE_TOO_LARGE",
            topic_text(topic) + ": the record has " + std::to_string(bytes) +
                " bytes, max.message.bytes is " + std::to_string(*topic.max_message_bytes) +
                "; raise it, or publish a reference to the data (claim check)"};
}

ErrorInfo no_partition_error(const Topic& topic, std::int32_t wanted) {
    return {ErrorCode::kInvalidEvent, Advice::kDeadLetter, "UNKNOWN_PARTITION",
            topic_text(topic) + " has " + std::to_string(topic.partitions.size()) +
                " partitions, and the event asks for number " + std::to_string(wanted) +
                "; add partitions, then retry the dead letter"};
}

}  // namespace

Result<std::unique_ptr<KafkaSink>> KafkaSink::open(KafkaConfig config) {
    std::unique_ptr<KafkaSink> sink(new KafkaSink(std::move(config)));
    if (Status opened = sink->open_client(sink->main_); !opened.ok()) {
        return std::move(opened).error();
    }
    return sink;
}

KafkaSink::KafkaSink(KafkaConfig config)
    : config_(std::move(config)),
      batch_bytes_(wanted_batch_bytes(config_)),
      compresses_(compresses(config_)),
      under_way_(config_.max_records),
      now_(clock_now()) {}

Status KafkaSink::open_client(Producer& producer) {
    auto client = Client::open(librdkafka_settings(config_, batch_bytes_, &producer == &careful_));
    if (!client.ok()) return client.error();
    producer.client = std::move(client).value();
    return {};
}

const spi::SinkCapabilities& KafkaSink::capabilities() const {
    return kCapabilities;
}

Status KafkaSink::check() {
    if (main_.client == nullptr) {
        if (Status opened = open_client(main_); !opened.ok()) return opened;
    }
    const Time deadline = clock_now() + config_.connect_timeout;
    while (true) {
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - clock_now());
        const auto fault = main_.client->reach(std::clamp(left, milliseconds(1), kCheckStep));
        main_.client->poll(milliseconds(0), events_);
        now_ = clock_now();
        const bool down = events_.all_brokers_down || all_brokers_down_;
        take(main_, pending_);
        if (main_.fatal) return to_error(*main_.fatal, where());
        if (!fault) {
            all_brokers_down_ = false;
            connection_.reset();
            return {};
        }
        if (down || now_ >= deadline) {
            const Fault why = connection_.value_or(*fault);
            // Files of certificates are read when a client is made: they may be renewed by then.
            if (why.name == "_SSL" && under_way_.empty()) forget(main_);
            return to_error(why, where());
        }
    }
}

Result<std::string> KafkaSink::destination() {
    if (Status reached = check(); !reached.ok()) return reached;
    const std::string id = main_.client->cluster_id(kCheckStep);
    return "kafka cluster " + (id.empty() ? "without an id" : id);
}

bool KafkaSink::publish(const spi::Record& record) {
    // What failed must be known to the caller before anything else may be accepted behind it.
    if (!failed_.empty() || broken() || shrinking_) return false;
    const std::size_t bytes = payload_bytes(record);
    if (under_way_.full()) return false;
    if (!under_way_.empty() && under_way_.bytes() + bytes > config_.max_bytes) return false;
    Topic* topic = topics_.find_or_add(record.topic, [this](Topic& old) { close_handles(old); });
    if (topic == nullptr) return false;
    const std::uint32_t slot = under_way_.add(record.token, bytes, *topic);
    if (main_.client == nullptr) {
        if (const Status opened = open_client(main_); !opened.ok()) {
            fail_slot(slot, {ErrorCode::kSinkUnavailable,
                             Advice::kRetryDestination,
                             {},
                             opened.error().message});
            return true;
        }
    }
    switch (topic->state) {
        case Topic::State::kInvalid:
            fail_slot(slot,
                      to_error({"TOPIC_EXCEPTION", "the name is not valid"}, topic_text(*topic)));
            return true;
        case Topic::State::kUnknown:
        case Topic::State::kAsked:
            if (is_given_up(*topic)) {
                fail_slot(slot,
                          to_error({"UNKNOWN_TOPIC_OR_PART", "the broker has no such topic"},
                                   topic_text(*topic)),
                          topic_text(*topic));
            } else if (topic->down && now_ < topic->down->next_try) {
                fail_slot(slot, topic->down->error, topic_text(*topic));
            } else {
                park(slot, *topic, record);
            }
            return true;
        case Topic::State::kReady:
            break;
    }
    if (!topic->asking && now_ - topic->asked_at > kTopicTtl) ask(*topic);
    end_careful(*topic);
    const bool drains = topic->careful_until && now_ >= *topic->careful_until;
    if (drains || !topic->parked.empty()) {
        park(slot, *topic, record);
        const std::size_t most = std::min(kGathered, config_.max_records / kGatheredPart);
        if (topic->gathers_since && topic->parked.size() >= most) unpark(*topic);
        return true;
    }
    if (gathers(*topic)) {
        park(slot, *topic, record);
        topic->gathers_since = now_;
        topic->gathered = 0;
        gathering_ = true;
        return true;
    }
    if (send(slot, *topic, record) == Sent::kDone) return true;
    under_way_.remove(slot);
    return false;
}

bool KafkaSink::gathers(const Topic& topic) const {
    return more_follows_ && topic.produced > 0 && !topic.careful_until && !topic.down;
}

void KafkaSink::send_gathered() {
    gathering_ = false;
    topics_.for_each([this](Topic& topic) {
        if (!topic.gathers_since) return;
        const bool grows = topic.parked.size() > std::exchange(topic.gathered, topic.parked.size());
        if (more_follows_ && now_ - *topic.gathers_since < kGatherFor &&
            (grows || topic.produced > 0)) {
            gathering_ = true;
        } else if (topic.state == Topic::State::kReady) {
            unpark(topic);
        }
    });
}

KafkaSink::Sent KafkaSink::send(std::uint32_t slot, Topic& topic, const spi::Record& record) {
    if (too_large(topic, record)) {
        if (now_ - topic.asked_at <= kFreshAnswer) {
            fail_slot(slot, too_large_error(topic, record_batch_bytes(record)));
        } else {
            topic.state = Topic::State::kUnknown;  // the limit may have been raised
            park(slot, topic, record);
        }
        return Sent::kDone;
    }
    const auto fails_again = [this](const std::optional<Trouble>& down) {
        return down && (down->trying || now_ < down->next_try);
    };
    if (fails_again(topic.down)) {
        fail_slot(slot, topic.down->error, topic_text(topic));
        return Sent::kDone;
    }
    const std::int32_t chosen = choose_partition(topic, record);
    if (chosen < 0 || chosen >= static_cast<std::int32_t>(topic.partitions.size())) {
        fail_slot(slot, no_partition_error(topic, chosen));
        return Sent::kDone;
    }
    const Partition& partition = topic.partitions[static_cast<std::size_t>(chosen)];
    under_way_[slot].partition = chosen;
    if (!partition.has_leader) {
        if (!topic.asking && now_ - topic.asked_at > kLeaderTtl) ask(topic);
        fail_slot(slot, leaderless_error(topic, chosen), part_text(topic, chosen));
        return Sent::kDone;
    }
    if (fails_again(partition.down)) {
        fail_slot(slot, partition.down->error, part_text(topic, chosen));
        return Sent::kDone;
    }
    if (!has_room(partition, under_way_[slot].bytes)) {
        if (now_ - partition.alive_at < kQuiet) return Sent::kFull;
        fail_slot(slot, silent_error(topic, chosen, now_ - partition.alive_at),
                  part_text(topic, chosen));
        return Sent::kDone;
    }
    return produce(slot, topic, record, topic.down || partition.down);
}

KafkaSink::Sent KafkaSink::produce(std::uint32_t slot, Topic& topic, const spi::Record& record,
                                   bool trial) {
    const bool careful = trial || topic.careful_until;
    Producer& producer = careful ? careful_ : main_;
    if (producer.client == nullptr) {
        if (const Status opened = open_client(producer); !opened.ok()) {
            fail_slot(slot, opened.error());
            return Sent::kDone;
        }
    }
    Client::Topic& handle = careful ? topic.careful_handle : topic.handle;
    if (handle == nullptr) {
        auto made = producer.client->open_topic(topic.name);
        if (!made.ok()) {
            fail_slot(slot, made.error());
            return Sent::kDone;
        }
        handle = *made;
    }
    UnderWay::Slot& mine = under_way_[slot];
    Partition& partition = topic.partitions[static_cast<std::size_t>(mine.partition)];
    Fault fault;
    switch (producer.client->produce(handle, mine.partition, record, slot, fault)) {
        case Client::Produced::kTaken:
            if (careful) careful_used_ = now_;
            mine.produced = true;
            mine.careful = careful;
            mine.trial = trial;
            if (trial && topic.down) topic.down->trying = true;
            if (trial && partition.down) partition.down->trying = true;
            if (partition.under_way++ == 0) partition.alive_at = now_;
            partition.bytes += mine.bytes;
            ++topic.produced;
            ++producer.produced;
            return Sent::kDone;
        case Client::Produced::kFull:
            return Sent::kFull;
        case Client::Produced::kRefused:
            break;
    }
    if (is_unknown_topic(fault)) {
        close_handles(topic);
        topic.state = Topic::State::kUnknown;
        park(slot, topic, record);
        return Sent::kDone;
    }
    switch (scope_of(fault)) {
        case Scope::kRecord:
            fail_slot(slot, to_error(fault, topic_text(topic)));
            break;
        case Scope::kTopic:
            set_down(topic.down, to_error(fault, topic_text(topic)));
            fail_slot(slot, topic.down->error, topic_text(topic));
            break;
        case Scope::kPartition:
            set_down(partition.down, to_error(fault, part_text(topic, mine.partition)));
            fail_slot(slot, partition.down->error, part_text(topic, mine.partition));
            break;
        case Scope::kDestination:  // the next poll rebuilds and fails this record with the others
            mine.careful = careful;
            producer.fatal = std::move(fault);
            break;
    }
    return Sent::kDone;
}

bool KafkaSink::too_large(const Topic& topic, const spi::Record& record) const {
    return topic.max_message_bytes && !compresses_ &&
           record_batch_bytes(record) > *topic.max_message_bytes;
}

// A record without a key goes where records can go.
std::int32_t KafkaSink::choose_partition(Topic& topic, const spi::Record& record) {
    if (record.partition >= 0) return record.partition;
    const auto count = static_cast<std::int32_t>(topic.partitions.size());
    if (record.key.data() != nullptr) return Client::partition_of(record.key, count);
    const auto works = [&](std::int32_t id) {
        const Partition& partition = topic.partitions[static_cast<std::size_t>(id)];
        return partition.has_leader && !partition.down && has_room(partition, 0);
    };
    if (topic.sticky >= 0 && topic.sticky < count && now_ < topic.sticky_until &&
        works(topic.sticky)) {
        return topic.sticky;
    }
    static thread_local std::minstd_rand random(std::random_device{}());
    const auto first = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(count));
    topic.sticky = first;
    topic.sticky_until = now_ + kSticky;
    for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t id = (first + i) % count;
        if (!works(id)) continue;
        topic.sticky = id;
        break;
    }
    return topic.sticky;
}

bool KafkaSink::has_room(const Partition& partition, std::size_t bytes) const {
    return partition.under_way == 0 ||
           (partition.under_way < config_.max_records / kPartitionShare &&
            partition.bytes + bytes <= config_.max_bytes / kPartitionShare);
}

void KafkaSink::fail_slot(std::uint32_t slot, ErrorInfo error, std::string part) {
    failed_.push_back(
        {.token = under_way_[slot].token, .error = std::move(error), .part = std::move(part)});
    under_way_.remove(slot);
}

void KafkaSink::fail_behind(std::uint32_t slot) {
    failed_.push_back({.token = under_way_[slot].token, .error = behind_error(), .behind = true});
    under_way_.remove(slot);
}

void KafkaSink::poll(milliseconds max_wait, spi::Completions& out) {
    now_ = clock_now();
    out.acknowledged.insert(out.acknowledged.end(), pending_.acknowledged.begin(),
                            pending_.acknowledged.end());
    pending_.clear();
    const bool known = !out.empty() || !failed_.empty() || broken();
    tell_failures(out);
    if (main_.client == nullptr && careful_.client == nullptr) {
        if (!known) std::this_thread::sleep_for(max_wait);  // the caller paces itself by it
        return;
    }
    drive(known ? milliseconds(0) : wait(max_wait), out);
    ask_again();
    if (careful_.broken()) rebuild(careful_, out);
    if (main_.broken()) {
        rebuild(main_, out);
    } else if (shrinking_ && main_.produced == 0) {
        replace_drained_client(out);
    }
    if (gathering_) send_gathered();
    if (std::exchange(unparks_again_, false)) {
        topics_.for_each([this](Topic& topic) {
            if (topic.state == Topic::State::kReady && !topic.parked.empty()) unpark(topic);
        });
    }
    look_for_silence(out);
    if (careful_.client != nullptr && careful_.produced == 0 &&
        now_ - careful_used_ > kCarefulIdle) {
        forget(careful_);
    }
    tell_failures(out);
}

void KafkaSink::drive(milliseconds wait, spi::Completions& out) {
    if (careful_.client != nullptr) {
        const bool waits = careful_.produced > 0;
        careful_.client->poll(waits ? std::min(wait, kCarefulWait) : milliseconds(0), events_);
        now_ = clock_now();
        take(careful_, out);
        if (waits) wait = {};
    }
    if (main_.client != nullptr) {
        // Each acknowledgement that wakes this thread costs more than to publish its event did.
        if (outcomes_may_wait_ && main_.produced > 0 && wait.count() > 0) {
            const milliseconds pause = std::min(wait, kOutcomesGather);
            std::this_thread::sleep_for(pause);
            wait -= pause;
        }
        main_.client->poll(wait, events_);
        now_ = clock_now();
        take(main_, out);
    }
}

// Moves what `events_` holds to where it belongs.
void KafkaSink::take(Producer& producer, spi::Completions& out) {
    for (const std::uint32_t slot : events_.acknowledged) acknowledged(slot, out);
    for (Events::Refusal& refused : events_.refused) {
        returned(refused.slot);
        producer.refused.push_back(std::move(refused));
    }
    if (events_.connection) connection_ = std::move(events_.connection);
    if (events_.all_brokers_down && &producer == &main_) all_brokers_down_ = true;
    if (events_.fatal) producer.fatal = std::move(events_.fatal);
    const std::vector<Events::TopicAnswer> answers = std::move(events_.topics);
    events_.clear();
    for (const Events::TopicAnswer& answer : answers) take_answer(answer);
}

void KafkaSink::acknowledged(std::uint32_t slot, spi::Completions& out) {
    Topic& topic = *under_way_[slot].topic;
    Partition& partition = topic.partitions[static_cast<std::size_t>(under_way_[slot].partition)];
    out.acknowledged.push_back(under_way_[slot].token);
    partition.alive_at = now_;
    acknowledged_at_ = now_;
    all_brokers_down_ = false;
    connection_.reset();
    if (under_way_[slot].trial) {
        topic.down.reset();
        partition.down.reset();
    }
    returned(slot);
    under_way_.remove(slot);
    if (topic.produced == 0 && topic.state == Topic::State::kReady && !topic.parked.empty() &&
        !topic.gathers_since) {
        unpark(topic);
    }
}

// librdkafka has the record no longer.
void KafkaSink::returned(std::uint32_t slot) {
    UnderWay::Slot& mine = under_way_[slot];
    if (!mine.produced) return;
    mine.produced = false;
    Partition& partition = mine.topic->partitions[static_cast<std::size_t>(mine.partition)];
    --partition.under_way;
    partition.bytes -= mine.bytes;
    --mine.topic->produced;
    --(mine.careful ? careful_ : main_).produced;
    if (!mine.trial) return;
    if (mine.topic->down) mine.topic->down->trying = false;
    if (partition.down) partition.down->trying = false;
}

void KafkaSink::tell_failures(spi::Completions& out) {
    std::move(failed_.begin(), failed_.end(), std::back_inserter(out.failed));
    failed_.clear();
}

milliseconds KafkaSink::wait(milliseconds max_wait) const {
    if (gathering_ && main_.produced == 0) return std::min(max_wait, kGatherLook);
    if (asks_again_ || shrinking_ || gathering_) return std::min(max_wait, kLongestWait / 10);
    return under_way_.empty() ? max_wait : std::min(max_wait, kLongestWait);
}

Result<std::unique_ptr<spi::Sink>> make_kafka_sink(
    std::string_view url, const std::map<std::string, std::string>& options) {
    auto config = make_config(url, options);
    if (!config.ok()) return config.error();
    auto sink = KafkaSink::open(*std::move(config));
    if (!sink.ok()) return sink.error();
    return std::unique_ptr<spi::Sink>(std::move(sink).value());
}

}  // namespace outbox::kafka
