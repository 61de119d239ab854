#include "brokers/rabbitmq/worker.h"

#include <algorithm>
#include <iterator>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "brokers/rabbitmq/message.h"

namespace outbox::rabbitmq {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kBurst = 128;  // messages between two looks for answers
// While a socket can be written at all, this much fits.
constexpr std::size_t kLookEveryBytes = std::size_t{16} << 10;
constexpr milliseconds kTryAgainMin{50};
constexpr milliseconds kTryAgainMax{1'000};
constexpr milliseconds kRound{100};  // with messages under way
constexpr milliseconds kIdleRound{1'000};

std::chrono::steady_clock::time_point clock_now() {
    return std::chrono::steady_clock::now();
}

ErrorInfo behind_error() {
    return {ErrorCode::kSinkRebuilt,
            Advice::kRetryDestination,
            {},
            "the channel was closed for another message; it goes again"};
}

}  // namespace

Worker::Worker(const RabbitmqConfig& config)
    : config_(config),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      alive_at_(clock_now()),
      thread_([this] { run(); }) {}

Worker::~Worker() {
    {
        const core::Lock lock(mutex_);
        stopping_ = true;
        if (cuttable_ != nullptr) cuttable_->cut();
        came_.notify_all();
    }
    ::eventfd_write(wake_, 1);
    thread_.join();
    ::close(wake_);
}

void Worker::take(std::vector<Item>& items) {
    const core::Lock lock(mutex_);
    under_way_ += items.size();
    std::move(items.begin(), items.end(), std::back_inserter(inbox_));
    items.clear();
    if (std::exchange(woken_, true)) return;
    ::eventfd_write(wake_, 1);
    came_.notify_all();
}

void Worker::collect(milliseconds most, Outcomes& out) {
    const core::Lock lock(mutex_);
    const auto known = [this]() OUTBOX_REQUIRES(mutex_) {
        return !outcomes_.acknowledged.empty() || !outcomes_.failed.empty();
    };
    if (!known()) came_.wait_for(mutex_, most, known);
    out = std::exchange(outcomes_, {});
    under_way_ -= out.acknowledged.size() + out.failed.size();
    // It hangs in the library: the broker takes no bytes and has not said why.
    const bool hangs = under_way_ > 0 && clock_now() - alive_at_ > config_.stuck_after;
    if (hangs && cuttable_ != nullptr) cuttable_->cut();
}

std::optional<ErrorInfo> Worker::blocked() {
    const core::Lock lock(mutex_);
    return blocked_told_;
}

void Worker::run() {
    while (take_inbox()) {
        now_ = clock_now();
        if (client_ == nullptr && !queue_.empty()) connect();
        if (client_ != nullptr) listen();
        if (client_ != nullptr) send_some();
        if (client_ != nullptr) look_for_silence();
        tell();
        if (client_ == nullptr) continue;
        const bool to_send = !queue_.empty();
        const milliseconds most = to_send && !clogged_ ? milliseconds(0)
                                  : sent_.empty()      ? kIdleRound
                                                       : kRound;
        if (client_->wait(most, to_send, wake_)) clogged_ = false;
    }
    set_client(nullptr);
}

// False: it is time to end. Without a connection and without work it waits here.
bool Worker::take_inbox() {
    const core::Lock lock(mutex_);
    const auto has_work = [this]() OUTBOX_REQUIRES(mutex_) { return stopping_ || !inbox_.empty(); };
    if (client_ == nullptr && queue_.empty()) came_.wait(mutex_, has_work);
    alive_at_ = clock_now();
    std::move(inbox_.begin(), inbox_.end(), std::back_inserter(queue_));
    inbox_.clear();
    if (std::exchange(woken_, false)) {
        eventfd_t count = 0;
        ::eventfd_read(wake_, &count);
    }
    return !stopping_;
}

void Worker::connect() {
    if (down_ && now_ < next_try_) {
        fail_all(*down_);
        return;
    }
    auto client = Client::open(config_, next_host_);
    now_ = clock_now();
    if (!client.ok()) {
        down_ = client.error();
        next_try_ = now_ + std::min(kTryAgainMin * (1U << std::min(tries_, 5U)), kTryAgainMax);
        ++tries_;
        fail_all(*down_);
        return;
    }
    down_.reset();
    tries_ = 0;
    first_tag_ = 1;
    next_returned_ = 0;
    told_ = 0;
    unlooked_bytes_ = 0;
    clogged_ = false;
    next_host_ = (*client)->host();
    max_frame_bytes_ = (*client)->max_frame_bytes();
    set_client(std::move(*client));
}

void Worker::send_some() {
    if (blocked_) {
        for (const Item& item : queue_) fail(item, *blocked_);
        queue_.clear();
    }
    if (queue_.empty() || clogged_) return;
    client_->gather(true);
    for (std::size_t i = 0; i < kBurst && !queue_.empty(); ++i) {
        if (unlooked_bytes_ >= kLookEveryBytes) {
            unlooked_bytes_ = 0;
            clogged_ = !client_->wait(milliseconds(0), true, -1);
            if (clogged_) break;
        }
        const Item item = queue_.front();
        queue_.pop_front();
        if (!send(item)) return;
    }
    client_->gather(false);
}

// False: there is no connection any more.
bool Worker::send(const Item& item) {
    const spi::Record& record = item.record;
    if (auto why = why_not_carried(record, max_frame_bytes_)) {
        fail(item, {ErrorCode::kRecordRefused,
                    Advice::kDeadLetter,
                    {},
                    "event " + std::string(record.id) + " fits no AMQP message: " + *why});
        return true;
    }
    unlooked_bytes_ += item.bytes;
    sent_.push_back(
        {record.token, item.bytes, record.value.size(), record.id, routing_key_of(record), now_});
    const auto fault = client_->publish(record);
    if (!fault) return true;
    listen();  // what the broker said before it went is the cause
    lost(*fault);
    return false;
}

void Worker::listen() {
    words_.clear();
    client_->hear(words_);
    const std::vector<Word> words = std::exchange(words_, {});
    for (const Word& word : words) obey(word);
}

void Worker::obey(const Word& word) {
    switch (word.kind) {
        case Word::Kind::kAck:
        case Word::Kind::kNack:
            settle(word);
            break;
        case Word::Kind::kReturned:
            mark_returned(word);
            break;
        case Word::Kind::kBlocked:
            blocked_since_ = now_;
            set_blocked(to_error(word.fault, where()));
            break;
        case Word::Kind::kUnblocked:
            set_blocked(std::nullopt);
            break;
        case Word::Kind::kEnded:
            lost(word.fault);
            break;
    }
}

void Worker::settle(const Word& word) {
    if (word.tag < first_tag_ || word.tag - first_tag_ >= sent_.size()) return;
    const auto index = static_cast<std::size_t>(word.tag - first_tag_);
    for (std::size_t i = word.multiple ? 0 : index; i <= index; ++i) settle(sent_[i], word);
    while (!sent_.empty() && sent_.front().state == State::kSettled) {
        sent_.pop_front();
        ++first_tag_;
        if (next_returned_ > 0) --next_returned_;
    }
}

void Worker::settle(Sent& sent, const Word& word) {
    const State before = std::exchange(sent.state, State::kSettled);
    if (before == State::kTold) --told_;
    if (before != State::kSent) return;
    if (word.kind == Word::Kind::kNack) {
        const std::string part = part_of(sent.routing_key);
        fail(sent, to_error({"NACK", "the broker does not take it"}, part), part);
    } else if (sent.returned != nullptr) {
        const std::string part = part_of(sent.routing_key);
        fail(sent, to_error(*sent.returned, part), part);
    } else {
        out_.acknowledged.push_back(sent.token);
        out_.bytes += sent.bytes;
    }
}

// They come back in the order in which they were sent.
void Worker::mark_returned(const Word& word) {
    for (std::size_t n = 0; n < sent_.size(); ++n) {
        const std::size_t i = (next_returned_ + n) % sent_.size();
        Sent& sent = sent_[i];
        if (sent.state != State::kSent || sent.returned != nullptr || sent.id != word.id) continue;
        sent.returned = std::make_unique<Fault>(word.fault);
        next_returned_ = i + 1;
        return;
    }
}

// What has been given up may be confirmed all the same; it is then sent once more.
void Worker::look_for_silence() {
    const bool blocked = blocked_ && now_ - blocked_since_ > config_.blocked_grace;
    for (Sent& sent : sent_) {
        if (!blocked && now_ - sent.at <= config_.stuck_after) break;
        if (sent.state != State::kSent) continue;
        if (blocked) {
            fail(sent, *blocked_);
        } else {
            const std::string part = part_of(sent.routing_key);
            fail(sent,
                 to_error({"SILENT", "no confirm for " +
                                         std::to_string(config_.stuck_after.count() / 1000) + " s"},
                          part),
                 part);
        }
        sent.state = State::kTold;
        ++told_;
    }
    if (told_ > config_.max_records) lost({"SILENT", "too many messages without a confirm"});
}

// A message that is at fault is given back alone; the others go again at once.
void Worker::lost(const Fault& fault) {
    if (client_ == nullptr) return;
    const std::string host = where();
    const std::string_view refused_key = refused_routing_key(fault);
    const std::uint64_t size = refused_size(fault);
    const auto guilty = [&](const Sent& sent) {
        return refused_key.empty() ? size > 0 && sent.value_bytes == size
                                   : sent.routing_key == refused_key;
    };
    const bool known = std::any_of(sent_.begin(), sent_.end(), [&](const Sent& sent) {
        return sent.state == State::kSent && guilty(sent);
    });
    ErrorInfo error = to_error(fault, host + ", " + name_of_exchange(config_));
    for (const Sent& sent : sent_) {
        if (sent.state != State::kSent) continue;
        if (!known) {
            fail(sent, error);
        } else if (!guilty(sent)) {
            fail(sent, behind_error(), {}, true);
        } else if (size > 0) {
            fail(sent,
                 {ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, fault.name, error.message});
        } else {
            fail(sent, error, part_of(sent.routing_key));
        }
    }
    sent_.clear();
    set_client(nullptr);
    set_blocked(std::nullopt);
    if (known) return;
    down_ = std::move(error);
    next_try_ = now_ + kTryAgainMin;
    next_host_ = (next_host_ + 1) % config_.hosts.size();
    fail_all(*down_);
}

void Worker::fail_all(const ErrorInfo& error) {
    for (const Item& item : queue_) fail(item, error);
    queue_.clear();
}

void Worker::set_client(std::unique_ptr<Client> client) {
    {
        const core::Lock lock(mutex_);
        cuttable_ = client.get();
        if (stopping_ && cuttable_ != nullptr) cuttable_->cut();
    }
    client_ = std::move(client);
}

void Worker::set_blocked(std::optional<ErrorInfo> error) {
    blocked_ = std::move(error);
    const core::Lock lock(mutex_);
    blocked_told_ = blocked_;
}

void Worker::tell() {
    if (out_.acknowledged.empty() && out_.failed.empty()) return;
    const core::Lock lock(mutex_);
    outcomes_.acknowledged.insert(outcomes_.acknowledged.end(), out_.acknowledged.begin(),
                                  out_.acknowledged.end());
    std::move(out_.failed.begin(), out_.failed.end(), std::back_inserter(outcomes_.failed));
    outcomes_.bytes += out_.bytes;
    out_ = {};
    came_.notify_all();
}

void Worker::fail(const Sent& sent, ErrorInfo error, std::string part, bool behind) {
    out_.failed.push_back({.token = sent.token,
                           .error = std::move(error),
                           .behind = behind,
                           .part = std::move(part)});
    out_.bytes += sent.bytes;
}

void Worker::fail(const Item& item, ErrorInfo error) {
    out_.failed.push_back({.token = item.record.token, .error = std::move(error)});
    out_.bytes += item.bytes;
}

std::string Worker::part_of(std::string_view routing_key) const {
    return "routing key '" + std::string(routing_key) + "' of " + name_of_exchange(config_);
}

std::string Worker::where() const {
    return name_of_host(config_.hosts[client_ == nullptr ? next_host_ : client_->host()]);
}

}  // namespace outbox::rabbitmq
