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
constexpr milliseconds kSuspectRound{10};  // while something waits for its time

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
        if (client_ == nullptr && !waiting_.empty()) {
            connect();
            tell();
            continue;  // Others may have come while it blocked, and go before a suspect.
        }
        if (client_ != nullptr) listen();
        if (client_ != nullptr) send_some();
        if (client_ != nullptr) look_for_silence();
        tell();
        if (client_ == nullptr) continue;
        const bool to_send = may_send() && !has_turns_;
        const milliseconds most = has_turns_             ? kSuspectRound
                                  : to_send && !clogged_ ? milliseconds(0)
                                  : sent_.empty()        ? kIdleRound
                                                         : kRound;
        if (client_->wait(most, to_send, wake_)) clogged_ = false;
    }
    set_client(nullptr);
}

// False: it is time to end. Without a connection and without work it waits here.
bool Worker::take_inbox() {
    const core::Lock lock(mutex_);
    const auto has_work = [this]() OUTBOX_REQUIRES(mutex_) { return stopping_ || !inbox_.empty(); };
    if (client_ == nullptr && waiting_.empty()) came_.wait(mutex_, has_work);
    alive_at_ = clock_now();
    for (const Item& item : inbox_) waiting_.add(item);
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
    std::this_thread::sleep_until(next_try_);
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
    open_ = 0;
    told_ = 0;
    unlooked_bytes_ = 0;
    clogged_ = false;
    next_host_ = (*client)->host();
    search_.began(next_host_, now_);
    max_frame_bytes_ = (*client)->max_frame_bytes();
    set_client(std::move(*client));
}

void Worker::send_some() {
    if (blocked_) fail_all(*blocked_);
    if (send_suspect() && may_send() && !clogged_) send_others();
    has_turns_ = search_.is_on() && !clogged_ && !waiting_.empty();
}

void Worker::send_others() {
    client_->gather(true);
    for (std::size_t i = 0; i < kBurst && may_send(); ++i) {
        if (unlooked_bytes_ >= kLookEveryBytes) {
            unlooked_bytes_ = 0;
            clogged_ = !client_->wait(milliseconds(0), true, -1);
            if (clogged_) break;
        }
        const auto item = waiting_.next(now_);
        if (!item) break;
        if (!send(*item)) return;
    }
    client_->gather(false);
}

net::EndSearch::Line Worker::line() const {
    if (open_ > 0) return net::EndSearch::Line::kBusy;
    const bool is_fresh = sent_.empty() && first_tag_ == 1;
    return is_fresh ? net::EndSearch::Line::kFresh : net::EndSearch::Line::kIdle;
}

// False: it is nobody else's turn, or there is no connection any more.
bool Worker::send_suspect() {
    std::optional<Item> suspect;
    const auto turn = waiting_.turn(line(), now_, suspect);
    if (turn == net::EndSearch::Turn::kFresh) {
        sent_.clear();
        set_client(nullptr);
    }
    if (suspect) static_cast<void>(send(*suspect));
    return turn == net::EndSearch::Turn::kOthers;
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
    sent_.push_back({item, now_});
    search_.sent(record);
    ++open_;
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
    --open_;
    const spi::Record& record = sent.item.record;
    const bool took = word.kind != Word::Kind::kNack && sent.returned == nullptr;
    search_.answered(record, took);
    if (took) {
        out_.acknowledged.push_back(record.token);
        out_.bytes += sent.item.bytes;
        return;
    }
    const Fault fault =
        sent.returned == nullptr ? Fault{"NACK", "the broker does not take it"} : *sent.returned;
    const std::string part = part_of(routing_key_of(record));
    fail(sent.item, to_error(fault, part), part);
}

// They come back in the order in which they were sent. An id is not enough: several events may have
// it, and the one that went to no queue must not pass for the one that did.
void Worker::mark_returned(const Word& word) {
    for (std::size_t n = 0; n < sent_.size(); ++n) {
        const std::size_t i = (next_returned_ + n) % sent_.size();
        Sent& sent = sent_[i];
        if (sent.state != State::kSent || sent.returned != nullptr ||
            !word.returned.is_of(sent.item.record)) {
            continue;
        }
        sent.returned = std::make_unique<Fault>(word.fault);
        next_returned_ = i + 1;
        return;
    }
    // The broker changed it (a plugin adds headers): of one id all count as returned, as a repeat
    // is better than a loss.
    for (Sent& sent : sent_) {
        if (sent.state != State::kSent || sent.item.record.id != word.returned.id) continue;
        sent.returned = std::make_unique<Fault>(word.fault);
    }
}

// What has been given up may be confirmed all the same; it is then sent once more.
void Worker::look_for_silence() {
    const bool blocked = blocked_ && now_ - blocked_since_ > config_.blocked_grace;
    for (Sent& sent : sent_) {
        if (!blocked && now_ - sent.at <= config_.stuck_after) break;
        if (sent.state != State::kSent) continue;
        if (blocked) {
            fail(sent.item, *blocked_);
        } else {
            const std::string part = part_of(routing_key_of(sent.item.record));
            fail(sent.item,
                 to_error({"SILENT", "no confirm for " +
                                         std::to_string(config_.stuck_after.count() / 1000) + " s"},
                          part),
                 part);
        }
        --open_;
        search_.given_up(sent.item.record);
        sent.state = State::kTold;
        ++told_;
    }
    if (told_ > config_.max_records) lost({"SILENT", "too many messages without a confirm"});
}

void Worker::lost(const Fault& fault) {
    if (client_ == nullptr) return;
    ErrorInfo error = to_error(fault, where() + ", " + name_of_exchange(config_));
    bool bad_probes = false;
    // An idle connection may have ended long ago: what waits tries another one first.
    const bool was_idle = sent_.empty() && first_tag_ > 1;
    if (open_ == 0) search_.ended_idle(now_);
    const bool goes_on = was_idle || gives_back_guilty(fault, error) ||
                         (may_be_a_message(fault) && goes_again(error, bad_probes));
    for (const Sent& sent : sent_) {
        if (goes_on || sent.state != State::kSent) continue;
        fail(sent.item, error, {}, false, bad_probes && is_suspect(sent.item));
    }
    sent_.clear();
    set_client(nullptr);
    set_blocked(std::nullopt);
    if (goes_on) return;
    down_ = std::move(error);
    next_try_ = now_ + kTryAgainMin;
    next_host_ = (next_host_ + 1) % config_.hosts.size();
    fail_all(*down_, bad_probes);
}

// A message that the broker says is at fault is given back alone; the others go again at once.
bool Worker::gives_back_guilty(const Fault& fault, const ErrorInfo& error) {
    const std::uint64_t size = refused_size(fault);
    const auto guilty = [&](const Sent& sent) {
        const spi::Record& record = sent.item.record;
        return size > 0 ? record.value.size() == size
                        : refuses_routing_key(fault, routing_key_of(record));
    };
    const bool known = std::any_of(sent_.begin(), sent_.end(), [&](const Sent& sent) {
        return sent.state == State::kSent && guilty(sent);
    });
    if (!known) return false;
    for (const Sent& sent : sent_) {
        if (sent.state != State::kSent) continue;
        if (!guilty(sent)) {
            fail(sent.item, behind_error(), {}, true);
        } else if (size > 0) {
            fail(sent.item,
                 {ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, fault.name, error.message});
        } else {
            fail(sent.item, error, part_of(routing_key_of(sent.item.record)));
        }
    }
    return true;
}

// For a message, perhaps: none has failed before that is known.
bool Worker::goes_again(ErrorInfo& error, bool& bad_probes) {
    if (open_ == 0) return false;
    std::vector<Item> open;
    net::EndSearch::Records under_way;
    for (const Sent& sent : sent_) {
        if (sent.state != State::kSent) continue;
        open.push_back(sent.item);
        under_way.push_back(&sent.item.record);
    }
    const Item& first = open.front();
    const bool has_passed = search_.has_passed();
    switch (search_.ended(under_way, now_)) {
        case net::EndSearch::Next::kOutage:
            bad_probes = true;
            error = net::outage(error, under_way);
            return false;
        case net::EndSearch::Next::kOwnFault:
            fail(first, net::own_fault(error, first.record.id));
            break;
        case net::EndSearch::Next::kAgain:
            waiting_.add_again(open);
            news_.ended(error);
            break;
    }
    // Where others pass the host is well.
    if (!has_passed) next_host_ = (next_host_ + 1) % config_.hosts.size();
    next_try_ = has_passed ? now_ : now_ + kTryAgainMin;
    return true;
}

void Worker::fail_all(const ErrorInfo& error, bool bad_probes) {
    search_.away();
    for (const Item& item : waiting_.take_all()) {
        fail(item, error, {}, false, bad_probes && is_suspect(item));
    }
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

void Worker::fail(const Item& item, ErrorInfo error, std::string part, bool behind,
                  bool bad_probe) {
    out_.failed.push_back({.token = item.record.token,
                           .error = std::move(error),
                           .behind = behind,
                           .part = std::move(part),
                           .bad_probe = bad_probe});
    out_.bytes += item.bytes;
}

std::string Worker::part_of(std::string_view routing_key) const {
    return "routing key '" + std::string(routing_key) + "' of " + name_of_exchange(config_);
}

std::string Worker::where() const {
    return name_of_host(config_.hosts[client_ == nullptr ? next_host_ : client_->host()]);
}

}  // namespace outbox::rabbitmq
