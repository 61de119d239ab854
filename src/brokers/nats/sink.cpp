#include "brokers/nats/sink.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "brokers/nats/answers.h"
#include "brokers/nats/connection.h"
#include "brokers/nats/look.h"
#include "brokers/nats/message.h"

namespace outbox::nats {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;  // bytes that wait for the socket
constexpr milliseconds kTryAgainMin{50};
constexpr milliseconds kTryAgainMax{1'000};
constexpr std::string_view kName = "outbox relay";

}  // namespace

NatsSink::NatsSink(NatsConfig config) : config_(std::move(config)) {}

NatsSink::~NatsSink() = default;

const spi::SinkCapabilities& NatsSink::capabilities() const {
    return kCapabilities;
}

Status NatsSink::check() {
    return look_at_server(config_);
}

// Another server of the cluster at the end of the URL leads to the same data.
Result<std::string> NatsSink::destination() {
    std::string name = name_of_host(config_.hosts.front());
    if (!config_.stream.empty()) name += ", stream " + config_.stream;
    return name;
}

bool NatsSink::publish(const spi::Record& record) {
    const std::size_t bytes = payload_bytes(record);
    if (records_ >= config_.max_records) return false;
    if (records_ > 0 && bytes_ + bytes > config_.max_bytes) return false;
    ++records_;
    bytes_ += bytes;
    queue_.push_back({record, bytes});
    return true;
}

void NatsSink::poll(milliseconds max_wait, spi::Completions& out) {
    const Time now = std::chrono::steady_clock::now();
    if (connection_ != nullptr) receive(now, out);
    if (connection_ == nullptr && !queue_.empty()) connect(now, out);
    if (connection_ == nullptr) {
        if (out.empty()) std::this_thread::sleep_for(max_wait);
        return;
    }
    send(now, out);
    receive(now, out);
    if (connection_ == nullptr || !out.empty()) return;
    connection_->wait(max_wait);
    receive(std::chrono::steady_clock::now(), out);
}

void NatsSink::connect(Time now, spi::Completions& out) {
    if (down_ && now < next_try_) {
        fail_queue(*down_, out);
        return;
    }
    auto connection = Connection::open(config_, host_, kName);
    if (connection.ok()) {
        connection_ = std::move(*connection);
        host_ = connection_->host();
        heard_ = connection_->heard();
        heard_at_ = std::chrono::steady_clock::now();
        asked_at_ = heard_at_;
        return;
    }
    down_ = connection.error();
    next_try_ = std::chrono::steady_clock::now() +
                std::min(kTryAgainMin * (1U << std::min(tries_, 5U)), kTryAgainMax);
    ++tries_;
    fail_queue(*down_, out);
}

void NatsSink::send(Time now, spi::Completions& out) {
    while (!queue_.empty() && connection_->unsent() < kMaxUnsent) {
        const Item item = queue_.front();
        queue_.pop_front();
        if (refuse(item, out)) continue;
        // Whoever says nothing while nothing is asked is not silent.
        if (sent_.empty()) heard_at_ = now;
        connection_->publish(item.record.topic, connection_->reply_subject(first_ + sent_.size()),
                             headers_, item.record.value);
        sent_.push_back({item, now});
    }
}

// What the server would close the connection for, or no message can hold. Writes the headers.
bool NatsSink::refuse(const Item& item, spi::Completions& out) {
    const spi::Record& record = item.record;
    ErrorInfo error;
    if (auto why = why_not_carried(record)) {
        error = {
            ErrorCode::kRecordRefused,
            Advice::kDeadLetter,
            {},
            "event " + std::string(record.id) + " fits no message of NATS: " + *std::move(why)};
    } else {
        write_headers(record, config_.stream, headers_);
        const std::size_t bytes = headers_.size() + record.value.size();
        const std::size_t most = connection_->server().max_payload;
        if (most == 0 || bytes <= most) return false;
        error = to_error({"TOO LARGE", "event " + std::string(record.id) + " makes a message of " +
                                           std::to_string(bytes) + " bytes, and it takes " +
                                           std::to_string(most)},
                         where());
    }
    finish(item);
    out.failed.push_back({.token = record.token, .error = std::move(error)});
    return true;
}

void NatsSink::receive(Time now, spi::Completions& out) {
    auto ended = connection_->exchange();
    while (true) {
        std::optional<Fault> fault;
        while (const auto frame = connection_->next(fault)) settle(*frame, out);
        if (!fault) break;
        if (refused_subject(*fault).empty()) {
            ended = std::move(fault);
            break;
        }
        refuse_subject(*fault, out);
    }
    drop_settled();
    if (ended) {
        lose(*ended, now, out);
        return;
    }
    if (connection_->heard() != heard_) {
        heard_ = connection_->heard();
        heard_at_ = now;
    }
    look_for_silence(now, out);
}

void NatsSink::settle(const Frame& answer, spi::Completions& out) {
    const auto number = connection_->number_of(answer.subject);
    if (!number || *number < first_ || *number - first_ >= sent_.size()) return;
    Sent& sent = sent_[static_cast<std::size_t>(*number - first_)];
    if (HeaderLines(answer.headers).status() == "503") {
        settle(sent, Fault{"NO RESPONDERS", "no stream takes it"}, out);
    } else {
        settle(sent, fault_of_answer(answer.payload), out);
    }
    // It works: what comes next is another trouble.
    down_.reset();
    tries_ = 0;
}

void NatsSink::settle(Sent& sent, const std::optional<Fault>& fault, spi::Completions& out) {
    if (std::exchange(sent.settled, true)) return;
    const spi::Record& record = sent.item.record;
    finish(sent.item);
    if (!fault) {
        out.acknowledged.push_back(record.token);
        return;
    }
    const std::string part = "subject " + std::string(record.topic);
    spi::FailedRecord failed{.token = record.token,
                             .error = to_error(*fault, where() + ", " + part)};
    if (failed.error.advice == Advice::kRetryDestination) failed.part = part;
    out.failed.push_back(std::move(failed));
}

void NatsSink::drop_settled() {
    while (!sent_.empty() && sent_.front().settled) {
        sent_.pop_front();
        ++first_;
    }
}

// A subject that we may not publish to is a part of the destination; of our inbox it is all.
void NatsSink::refuse_subject(const Fault& fault, spi::Completions& out) {
    const std::string_view subject = refused_subject(fault);
    for (Sent& sent : sent_) {
        if (sent.item.record.topic == subject) settle(sent, fault, out);
    }
}

void NatsSink::look_for_silence(Time now, spi::Completions& out) {
    if (sent_.empty()) return;
    const auto seconds = std::to_string(config_.stuck_after.count() / 1000) + " s";
    if (now - heard_at_ > config_.stuck_after) {
        lose({"SILENT", "no answer for " + seconds}, now, out);
        return;
    }
    if (now - std::max(heard_at_, asked_at_) > config_.stuck_after / 4) {
        connection_->ping();
        asked_at_ = now;
    }
    for (Sent& sent : sent_) {
        if (now - sent.at <= config_.stuck_after) break;
        settle(sent, Fault{"UNANSWERED", "no acknowledgement for " + seconds}, out);
    }
    drop_settled();
}

void NatsSink::lose(const Fault& fault, Time now, spi::Completions& out) {
    ErrorInfo error = to_error(fault, where());
    const bool was_idle = sent_.empty();
    for (const Sent& sent : sent_) {
        if (sent.settled) continue;
        finish(sent.item);
        out.failed.push_back({.token = sent.item.record.token, .error = error});
    }
    first_ += sent_.size();
    sent_.clear();
    connection_.reset();
    host_ = (host_ + 1) % config_.hosts.size();
    // That may be long ago: what waits tries another one first.
    if (was_idle) return;
    down_ = std::move(error);
    next_try_ = now + kTryAgainMin;
    fail_queue(*down_, out);
}

void NatsSink::fail_queue(const ErrorInfo& error, spi::Completions& out) {
    for (const Item& item : queue_) {
        finish(item);
        out.failed.push_back({.token = item.record.token, .error = error});
    }
    queue_.clear();
}

void NatsSink::finish(const Item& item) {
    --records_;
    bytes_ -= item.bytes;
}

std::string NatsSink::where() const {
    return name_of_host(config_.hosts[host_]);
}

}  // namespace outbox::nats
