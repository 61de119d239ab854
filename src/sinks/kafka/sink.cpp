#include "sinks/kafka/sink.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "sinks/kafka/record_size.h"

namespace outbox::sinks::kafka {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kAskTimeout = seconds(5);
constexpr milliseconds kAskAgainAfter{100};
constexpr milliseconds kTopicTtl = seconds(30);
// An answer as fresh as this is believed before an event is given up for its size.
constexpr milliseconds kFreshAnswer = seconds(1);
// How long a broker may take to create a topic on demand.
constexpr milliseconds kCreationWait = seconds(2);
// A topic that is missing is asked for at most this often,
constexpr milliseconds kMissingTtl = seconds(1);
// and so many records wait for its creation, so that other topics keep their room.
constexpr std::size_t kMaxAwaitingCreation = 500;
// How long outcomes of what the broker already has are waited for before a rebuild.
constexpr milliseconds kSettle{300};
constexpr milliseconds kSettleStep{10};
constexpr milliseconds kCheckStep = seconds(1);
constexpr milliseconds kLongestWait{100};  // with records under way, so that limits are seen

Time clock_now() {
    return std::chrono::steady_clock::now();
}

std::string topic_text(const Topic& topic) {
    return "topic " + topic.name;
}

ErrorInfo behind_error() {
    return {ErrorCode::kSinkRebuilt,
            Advice::kRetryDestination,
            {},
            "a record before this one on its key was not accepted; it goes again"};
}

ErrorInfo rebuilt_error(const Fault& fault) {
    return {ErrorCode::kSinkRebuilt, Advice::kRetryDestination, fault.name,
            "the producer was rebuilt (" + fault.text + "); the record goes again"};
}

ErrorInfo too_large_error(const Topic& topic, std::size_t bytes) {
    return {ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, "MSG_SIZE_TOO_LARGE",
            topic_text(topic) + ": the record has " + std::to_string(bytes) +
                " bytes, max.message.bytes is " + std::to_string(*topic.max_message_bytes) +
                "; raise it, or publish a reference to the data (claim check)"};
}

bool is_no_right_to_ask(const Fault& fault) {
    return to_error(fault, {}).code == ErrorCode::kNoRights;
}

}  // namespace

Result<std::unique_ptr<KafkaSink>> KafkaSink::open(KafkaConfig config) {
    std::unique_ptr<KafkaSink> sink(new KafkaSink(std::move(config)));
    if (Status opened = sink->open_client(); !opened.ok()) return std::move(opened).error();
    return sink;
}

KafkaSink::KafkaSink(KafkaConfig config)
    : config_(std::move(config)),
      batch_bytes_(wanted_batch_bytes(config_)),
      compresses_(compresses(config_)),
      under_way_(config_.max_records),
      now_(clock_now()) {}

Status KafkaSink::open_client() {
    auto client = Client::open(librdkafka_settings(config_, batch_bytes_));
    if (!client.ok()) return client.error();
    client_ = std::move(client).value();
    return {};
}

const spi::SinkCapabilities& KafkaSink::capabilities() const {
    static const spi::SinkCapabilities kCapabilities{"kafka", spi::Guarantee::kAtLeastOnce,
                                                     /*fail_stop_order=*/true,
                                                     /*durable=*/true, /*across_topics=*/false};
    return kCapabilities;
}

Status KafkaSink::check() {
    if (client_ == nullptr) {
        if (Status opened = open_client(); !opened.ok()) return opened;
    }
    const Time deadline = clock_now() + config_.connect_timeout;
    while (true) {
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - clock_now());
        const auto fault = client_->reach(std::clamp(left, milliseconds(1), kCheckStep));
        client_->poll(milliseconds(0), events_);
        now_ = clock_now();
        const bool down = events_.all_brokers_down || all_brokers_down_;
        take(pending_);
        const std::string where = "Kafka at " + config_.bootstrap_servers;
        if (fatal_) return to_error(*fatal_, where);
        if (!fault) {
            all_brokers_down_ = false;
            connection_.reset();
            return {};
        }
        if (down || now_ >= deadline) return to_error(connection_.value_or(*fault), where);
    }
}

Result<std::string> KafkaSink::destination() {
    if (Status reached = check(); !reached.ok()) return reached;
    const std::string id = client_->cluster_id(kCheckStep);
    return "kafka cluster " + (id.empty() ? "without an id" : id);
}

bool KafkaSink::publish(const spi::Record& record) {
    // What failed must be known to the caller before anything else may be accepted behind it.
    if (!failed_.empty() || refusal_ || fatal_ || shrinking_) return false;
    const std::size_t bytes = payload_bytes(record);
    if (under_way_.full()) return false;
    if (!under_way_.empty() && under_way_.bytes() + bytes > config_.max_bytes) return false;
    Topic* topic = topics_.find_or_add(record.topic, [this](Topic& old) { close_handle(old); });
    if (topic == nullptr) return false;
    const std::uint32_t slot = under_way_.add(record.token, bytes, *topic);
    if (client_ == nullptr) {
        if (const Status opened = open_client(); !opened.ok()) {
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
                fail_slot(slot, to_error({"UNKNOWN_TOPIC_OR_PART", "the broker has no such topic"},
                                         topic_text(*topic)));
            } else {
                park(slot, *topic, record);
            }
            return true;
        case Topic::State::kReady:
            break;
    }
    if (!topic->asking && now_ - topic->asked_at > kTopicTtl) ask(*topic);
    if (send(slot, *topic, record) == Sent::kDone) return true;
    under_way_.remove(slot);
    return false;
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
    if (topic.handle == nullptr) {
        auto handle = client_->open_topic(topic.name);
        if (!handle.ok()) {
            fail_slot(slot, handle.error());
            return Sent::kDone;
        }
        topic.handle = *handle;
    }
    Fault fault;
    switch (client_->produce(topic.handle, record, slot, fault)) {
        case Client::Produced::kTaken:
            under_way_[slot].produced = true;
            ++produced_;
            return Sent::kDone;
        case Client::Produced::kFull:
            return Sent::kFull;
        case Client::Produced::kRefused:
            break;
    }
    if (is_unknown_topic(fault)) {
        close_handle(topic);
        topic.state = Topic::State::kUnknown;
        park(slot, topic, record);
    } else if (is_record_fault(fault)) {
        fail_slot(slot, to_error(fault, topic_text(topic)));
    } else {
        fatal_ = std::move(fault);  // the next poll rebuilds and fails this record with the others
    }
    return Sent::kDone;
}

bool KafkaSink::too_large(const Topic& topic, const spi::Record& record) const {
    return topic.max_message_bytes && !compresses_ &&
           record_batch_bytes(record) > *topic.max_message_bytes;
}

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
    std::vector<Topic::Parked> parked;
    parked.swap(topic.parked);
    std::set<std::string_view> refused_keys;
    for (const auto& [slot, record] : parked) {
        if (refused_keys.contains(record.key)) {
            fail_slot(slot, behind_error());
            continue;
        }
        const std::size_t failures = failed_.size();
        if (topic.state != Topic::State::kReady || fatal_ || shrinking_) {
            topic.parked.push_back({slot, record});
        } else if (send(slot, topic, record) == Sent::kFull) {
            fail_slot(slot, behind_error());
        }
        if (failed_.size() > failures && !record.key.empty()) refused_keys.insert(record.key);
    }
}

void KafkaSink::fail_slot(std::uint32_t slot, ErrorInfo error) {
    const bool missing = error.code == ErrorCode::kTopicUnknown;
    failed_.push_back(
        {.token = under_way_[slot].token, .error = std::move(error), .missing = missing});
    under_way_.remove(slot);
}

// Of each key the first has failed, and the others lay behind it.
void KafkaSink::fail_parked(Topic& topic, const ErrorInfo& error) {
    std::set<std::string_view> failed_keys;
    for (const auto& [slot, record] : topic.parked) {
        if (record.key.empty() || failed_keys.insert(record.key).second) {
            fail_slot(slot, error);
            continue;
        }
        failed_.push_back(
            {.token = under_way_[slot].token, .error = behind_error(), .behind = true});
        under_way_.remove(slot);
    }
    topic.parked.clear();
}

void KafkaSink::close_handle(Topic& topic) {
    if (topic.handle != nullptr) client_->close_topic(topic.handle);
    topic.handle = nullptr;
}

void KafkaSink::ask(Topic& topic) {
    client_->describe(topic.name, kAskTimeout);
    topic.asking = true;
    topic.asked_at = now_;
    topic.ask_again_at.reset();
}

void KafkaSink::ask_again() {
    if (!asks_again_) return;
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
        all_brokers_down_ = false;
        topic->state = Topic::State::kReady;
        topic->missing_since.reset();
        topic->max_message_bytes = answer.max_message_bytes;
        if (topic->max_message_bytes && *topic->max_message_bytes < batch_bytes_) {
            batch_bytes_ = std::max<std::size_t>(1, *topic->max_message_bytes);
            shrinking_ = true;
        }
        if (!shrinking_) unpark(*topic);
    } else if (is_unknown_topic(answer.fault)) {
        topic_missing(*topic, answer.fault);
    } else if (is_record_fault(answer.fault)) {
        topic->state = Topic::State::kInvalid;
        fail_parked(*topic, to_error(answer.fault, topic_text(*topic)));
    } else if (!topic->parked.empty()) {
        connection_ = answer.fault;
        topic->ask_again_at = now_ + kAskAgainAfter;
        asks_again_ = true;
    }
}

void KafkaSink::topic_missing(Topic& topic, const Fault& fault) {
    topic.state = Topic::State::kUnknown;
    if (topic.parked.empty()) return;
    if (!topic.missing_since) topic.missing_since = now_;
    if (topic.handle == nullptr) {
        if (auto handle = client_->open_topic(topic.name); handle.ok()) topic.handle = *handle;
    }
    if (now_ - *topic.missing_since < kCreationWait) {
        topic.state = Topic::State::kAsked;
        topic.ask_again_at = now_ + kAskAgainAfter;
        asks_again_ = true;
        return;
    }
    fail_parked(topic, to_error(fault, topic_text(topic)));
    close_handle(topic);
}

void KafkaSink::poll(milliseconds max_wait, spi::Completions& out) {
    now_ = clock_now();
    out.acknowledged.insert(out.acknowledged.end(), pending_.acknowledged.begin(),
                            pending_.acknowledged.end());
    pending_.clear();
    const bool known = !out.empty() || !failed_.empty() || refusal_ || fatal_;
    tell_failures(out);
    if (client_ == nullptr) {
        if (!known) std::this_thread::sleep_for(max_wait);  // the caller paces itself by it
        return;
    }
    client_->poll(known ? milliseconds(0) : wait(max_wait), events_);
    now_ = clock_now();
    take(out);
    ask_again();
    if (refusal_ || fatal_) {
        rebuild(out);
    } else if (unreachable()) {
        give_up(out);
    } else if (shrinking_ && produced_ == 0) {
        replace_drained_client(out);
    }
    tell_failures(out);
}

// Moves what `events_` holds to where it belongs.
void KafkaSink::take(spi::Completions& out) {
    for (const std::uint32_t slot : events_.acknowledged) {
        out.acknowledged.push_back(under_way_[slot].token);
        under_way_.remove(slot);
    }
    produced_ -= events_.acknowledged.size() + events_.refused.size();
    if (!events_.acknowledged.empty()) {
        all_brokers_down_ = false;
        connection_.reset();
    }
    for (Events::Refusal& refused : events_.refused) {
        under_way_[refused.slot].produced = false;
        // What follows a refusal (purged, out of sequence) says nothing about its cause.
        if (!refusal_ || (!is_record_fault(refusal_->fault) && is_record_fault(refused.fault))) {
            refusal_ = {refused.slot, std::move(refused.fault)};
        }
    }
    if (events_.connection) connection_ = std::move(events_.connection);
    if (events_.all_brokers_down) all_brokers_down_ = true;
    if (events_.fatal) fatal_ = std::move(events_.fatal);
    for (const Events::TopicAnswer& answer : events_.topics) take_answer(answer);
    events_.clear();
}

void KafkaSink::tell_failures(spi::Completions& out) {
    std::move(failed_.begin(), failed_.end(), std::back_inserter(out.failed));
    failed_.clear();
}

milliseconds KafkaSink::wait(milliseconds max_wait) const {
    if (asks_again_ || shrinking_) return std::min(max_wait, kAskAgainAfter / 10);
    return under_way_.empty() ? max_wait : std::min(max_wait, kLongestWait);
}

bool KafkaSink::unreachable() {
    if (under_way_.empty()) return false;
    if (const auto sequence = under_way_[under_way_.oldest()].sequence; sequence != oldest_) {
        oldest_ = sequence;
        oldest_since_ = now_;
    }
    const auto age = now_ - oldest_since_;
    return age > config_.stuck_after || (all_brokers_down_ && age > config_.down_after);
}

// Something was refused: nothing behind it was accepted, and this producer is of no more use.
void KafkaSink::rebuild(spi::Completions& out) {
    settle(out);
    Refusal cause = refusal_.value_or(Refusal{kNoSlot, fatal_.value_or(Fault{})});
    if (fatal_ && !is_record_fault(cause.fault)) cause.fault = *fatal_;
    if (cause.slot != kNoSlot && is_record_fault(cause.fault)) {
        // What was known about the topic was wrong: its limit, or that it exists.
        under_way_[cause.slot].topic->state = Topic::State::kUnknown;
    }
    forget_client();
    const bool idle = under_way_.empty();
    fail_all(cause, out);
    // An idle producer that fails at once would be rebuilt for ever: wait for the next record.
    if (!idle) static_cast<void>(open_client());
}

// Outcomes of records that the broker already has spare repeats.
void KafkaSink::settle(spi::Completions& out) {
    client_->purge_unsent();
    const Time deadline = clock_now() + kSettle;
    while (produced_ > 0 && clock_now() < deadline) {
        client_->poll(kSettleStep, events_);
        events_.topics.clear();
        take(out);
    }
}

// No broker answers: whether the records arrived is unknown.
void KafkaSink::give_up(spi::Completions& out) {
    const auto age_ms = std::chrono::duration_cast<milliseconds>(now_ - oldest_since_).count();
    const Fault silence{"_TIMED_OUT", "no answer for " + std::to_string(age_ms) + " ms"};
    Refusal cause{kNoSlot, connection_.value_or(silence)};
    forget_client();
    fail_all(cause, out);
    static_cast<void>(open_client());
}

void KafkaSink::fail_all(const Refusal& cause, spi::Completions& out) {
    const bool guilty = cause.slot != kNoSlot && is_record_fault(cause.fault);
    const bool alone = under_way_.count() == 1;
    if (guilty) {
        const auto& slot = under_way_[cause.slot];
        out.failed.push_back({.token = slot.token,
                              .error = alone ? to_error(cause.fault, topic_text(*slot.topic))
                                             : rebuilt_error(cause.fault),
                              .suspect = !alone,
                              .missing = alone && is_unknown_topic(cause.fault)});
        under_way_.remove(cause.slot);
    }
    if (under_way_.empty()) return;
    // A destination in trouble is named as such; else the record goes again at once.
    const ErrorInfo mapped = to_error(cause.fault, "Kafka at " + config_.bootstrap_servers);
    const bool trouble = !is_record_fault(cause.fault);
    const ErrorInfo error = trouble ? mapped : rebuilt_error(cause.fault);
    while (!under_way_.empty()) {
        const std::uint32_t slot = under_way_.oldest();
        out.failed.push_back({.token = under_way_[slot].token, .error = error});
        under_way_.remove(slot);
    }
}

// A topic takes smaller batches than we make. Nothing is under way inside librdkafka.
void KafkaSink::replace_drained_client(spi::Completions& out) {
    shrinking_ = false;
    client_.reset();
    topics_.for_each([](Topic& topic) {
        topic.handle = nullptr;
        topic.asking = false;
    });
    if (const Status opened = open_client(); !opened.ok()) {
        forget_client();
        fail_all({kNoSlot, {"_FATAL", opened.error().message}}, out);
        return;
    }
    topics_.for_each([this](Topic& topic) {
        if (topic.state == Topic::State::kAsked) ask(topic);
        if (topic.state == Topic::State::kReady && !topic.parked.empty()) unpark(topic);
    });
}

void KafkaSink::forget_client() {
    client_.reset();  // after this nobody reads the records' bytes
    ++rebuilds_;
    produced_ = 0;
    refusal_.reset();
    fatal_.reset();
    all_brokers_down_ = false;
    shrinking_ = false;
    asks_again_ = false;
    topics_.for_each([](Topic& topic) {
        topic.handle = nullptr;
        topic.asking = false;
        topic.ask_again_at.reset();
        topic.parked.clear();
        if (topic.state == Topic::State::kAsked) topic.state = Topic::State::kUnknown;
    });
}

Result<std::unique_ptr<spi::Sink>> make_kafka_sink(
    std::string_view url, const std::map<std::string, std::string>& options) {
    auto config = make_config(url, options);
    if (!config.ok()) return config.error();
    auto sink = KafkaSink::open(*std::move(config));
    if (!sink.ok()) return sink.error();
    return std::unique_ptr<spi::Sink>(std::move(sink).value());
}

}  // namespace outbox::sinks::kafka
