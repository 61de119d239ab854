#include "aws/batch_sink.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "aws/look.h"
#include "aws/message.h"
#include "net/id_suffix.h"

namespace outbox::aws {
namespace {

constexpr std::size_t kBatch = 10;
constexpr std::size_t kMaxTopics = 1'000;  // whose addresses are remembered

// It may be made anew, or the key at hand be another account's.
bool is_of_address(ErrorCode code) {
    return code == ErrorCode::kTopicUnknown || code == ErrorCode::kNoRights;
}

ErrorInfo refusal(const Service& service, const spi::Record& record, const std::string& why) {
    return {ErrorCode::kRecordRefused,
            Advice::kDeadLetter,
            {},
            "event " + std::string(record.id) + " fits no message of " +
                std::string(service.product.name) + ": " + why};
}

}  // namespace

BatchSink::BatchSink(const Config& config)
    : config_(config),
      service_(*config.service),
      suffix_(net::id_suffix(config.producer)),
      client_(config) {}

Status BatchSink::check() {
    return look_at_service(config_);
}

Result<std::string> BatchSink::destination() {
    std::string name = name_of_server(config_) + ", " + config_.region;
    if (!config_.account.empty()) name += ", account " + config_.account;
    return name;
}

std::string BatchSink::what(const Topic& topic) const {
    return name_of_server(config_) + ", " + std::string(service_.topic) + " " + topic.name;
}

// Nothing is wrong with what is sent until the key expires; who learns of it now has the time.
void BatchSink::report(spi::SinkReport& out) {
    const ErrorInfo* why = client_.key_not_renewed();
    std::string text = why ? describe(*why) : std::string();
    if (text == key_told_) return;
    key_told_ = std::move(text);
    if (!why) return;
    out.notes.push_back(
        {spi::SinkReport::Level::kWarning, "key_not_renewed", {{"error", key_told_}}});
}

void BatchSink::forget_idle_topics() {
    std::erase_if(topics_, [](const auto& one) {
        return one.second.waiting.empty() && one.second.requests == 0 && !one.second.in_turn;
    });
}

BatchSink::Topic& BatchSink::topic_of(std::string_view name) {
    const auto found = topics_.find(name);
    if (found != topics_.end()) return found->second;
    if (topics_.size() >= kMaxTopics) forget_idle_topics();
    Topic& topic = topics_[std::string(name)];
    topic.name = name;
    topic.address = service_.known_address(config_, name);
    return topic;
}

bool BatchSink::publish(const spi::Record& record) {
    if (records_ >= config_.max_records || bytes_ >= config_.max_bytes) return false;
    Message message;
    if (const auto why = make_message(record, is_fifo(record.topic), suffix_, message)) {
        refused_.failed.push_back(
            {.token = record.token, .error = refusal(service_, record, *why)});
        return true;
    }
    Topic& topic = topic_of(record.topic);
    if (message.bytes > config_.max_message_bytes) {
        const Fault fault{"TOO LONG", "event " + std::string(record.id) + " makes a message of " +
                                          std::to_string(message.bytes) + " bytes, and it takes " +
                                          std::to_string(config_.max_message_bytes)};
        refused_.failed.push_back(
            {.token = record.token, .error = to_error(service_, fault, what(topic))});
        return true;
    }
    std::string entry = service_.entry(message);
    ++records_;
    bytes_ += entry.size();
    topic.waiting.push_back({record.token, std::move(entry), message.bytes});
    take_turn(topic);
    return true;
}

void BatchSink::take_turn(Topic& topic) {
    if (topic.in_turn || topic.asking || topic.waiting.empty()) return;
    topic.in_turn = true;
    turns_.push_back(&topic);
}

void BatchSink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    const bool refused = !refused_.empty();
    std::move(refused_.failed.begin(), refused_.failed.end(), std::back_inserter(out.failed));
    refused_.clear();
    start(out);
    const bool wait = !refused && out.empty();
    answers_.clear();
    client_.poll(wait ? max_wait : std::chrono::milliseconds(0), answers_);
    for (const Answer& answer : answers_) settle(answer, out);
    start(out);
}

void BatchSink::start(spi::Completions& out) {
    while (!turns_.empty() && client_.under_way() < config_.connections) {
        Topic& topic = *turns_.front();
        turns_.pop_front();
        topic.in_turn = false;
        if (!(topic.address.empty() ? ask_for_address(topic, out) : send_batch(topic, out))) return;
        take_turn(topic);
    }
}

bool BatchSink::ask_for_address(Topic& topic, spi::Completions& out) {
    topic.asking = begin(topic, service_.ask_address(config_, topic.name), {}, out);
    return topic.asking;
}

bool BatchSink::send_batch(Topic& topic, spi::Completions& out) {
    std::vector<Item> items;
    std::size_t bytes = 0;
    while (!topic.waiting.empty() && items.size() < kBatch) {
        Item& next = topic.waiting.front();
        bytes += next.bytes;
        if (!items.empty() && bytes > service_.max_batch_bytes) break;
        items.push_back(std::move(next));
        topic.waiting.pop_front();
    }
    std::vector<std::string_view> entries;
    entries.reserve(items.size());
    for (const Item& item : items) entries.emplace_back(item.entry);
    return begin(topic, service_.batch(topic.address, entries), std::move(items), out);
}

// False: there is no access key, and nothing waits any more.
bool BatchSink::begin(Topic& topic, Call call, std::vector<Item> items, spi::Completions& out) {
    if (const auto failed = client_.start(next_request_, std::move(call))) {
        for (const Item& item : items) {
            finish(item);
            out.failed.push_back({.token = item.token, .error = *failed});
        }
        fail_all_waiting(*failed, out);
        return false;
    }
    ++topic.requests;
    requests_.emplace(next_request_++, Request{&topic, std::move(items)});
    return true;
}

void BatchSink::settle(const Answer& answer, spi::Completions& out) {
    const auto place = requests_.find(answer.token);
    const Request request = std::move(place->second);
    requests_.erase(place);
    Topic& topic = *request.topic;
    --topic.requests;
    if (!request.items.empty()) {
        settle_batch(request, answer, out);
    } else {
        settle_address(topic, answer, out);
    }
    if (answer.fault && scope_of(service_, *answer.fault) == Scope::kService) {
        fail_all_waiting(to_error(service_, *answer.fault, name_of_server(config_)), out);
    }
    if (answer.fault && is_of_address(to_error(service_, *answer.fault, "").code)) {
        topic.address = service_.known_address(config_, topic.name);
    }
    take_turn(topic);
}

void BatchSink::settle_address(Topic& topic, const Answer& answer, spi::Completions& out) {
    topic.asking = false;
    if (!answer.fault) topic.address = service_.read_address(topic.name, answer.body);
    if (!topic.address.empty()) return;
    fail_waiting(topic, answer.fault.value_or(service_.no_address), out);
}

void BatchSink::settle_batch(const Request& request, const Answer& answer, spi::Completions& out) {
    std::vector<std::optional<Fault>> faults(request.items.size(), answer.fault);
    if (!answer.fault) faults = service_.read_batch(answer.body, request.items.size());
    // What concerns one message and was said of all has to be found out singly.
    const bool alone = !answer.fault || request.items.size() == 1;
    for (std::size_t i = 0; i < request.items.size(); ++i) {
        finish(request.items[i]);
        if (faults[i]) {
            fail(*request.topic, request.items[i], *faults[i], alone, out);
        } else {
            out.acknowledged.push_back(request.items[i].token);
        }
    }
}

void BatchSink::fail(const Topic& topic, const Item& item, const Fault& fault, bool alone,
                     spi::Completions& out) {
    const Scope scope = scope_of(service_, fault);
    spi::FailedRecord failed{
        .token = item.token,
        .error = to_error(service_, fault,
                          scope == Scope::kService ? name_of_server(config_) : what(topic))};
    if (scope == Scope::kTopic) failed.part = std::string(service_.topic) + " " + topic.name;
    failed.suspect = scope == Scope::kRecord && !alone;
    out.failed.push_back(std::move(failed));
}

void BatchSink::fail_waiting(Topic& topic, const Fault& fault, spi::Completions& out) {
    for (const Item& item : topic.waiting) {
        finish(item);
        fail(topic, item, fault, true, out);
    }
    topic.waiting.clear();
}

// Each would find it out by itself, after one more timeout.
void BatchSink::fail_all_waiting(const ErrorInfo& error, spi::Completions& out) {
    for (auto& [name, topic] : topics_) {
        for (const Item& item : topic.waiting) {
            finish(item);
            out.failed.push_back({.token = item.token, .error = error});
        }
        topic.waiting.clear();
        topic.in_turn = false;
    }
    turns_.clear();
}

void BatchSink::finish(const Item& item) {
    --records_;
    bytes_ -= item.entry.size();
}

}  // namespace outbox::aws
