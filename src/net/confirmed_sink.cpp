#include "net/confirmed_sink.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/record_bytes.h"

namespace outbox::net {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;  // bytes that wait for the socket
constexpr std::size_t kLongRow = 4;                       // times the records that may be under way
constexpr milliseconds kTryAgainMin{50};
constexpr milliseconds kTryAgainMax{1'000};
constexpr milliseconds kRound{10};  // while something waits for its time

ErrorInfo behind_error() {
    return {ErrorCode::kSinkRebuilt,
            Advice::kRetryDestination,
            {},
            "the connection was closed for another message; it goes again"};
}

}  // namespace

ConfirmedSink::ConfirmedSink(Limits limits, std::string part, Connect connect, Time (*now)())
    : limits_(limits), part_(std::move(part)), connect_(std::move(connect)), now_(now) {}

ConfirmedSink::~ConfirmedSink() = default;

// The oldest first, while `act` returns true.
template <typename Act>
void ConfirmedSink::for_each_sent(const Act& act) {
    for (auto& [number, sent] : late_) {
        if (!act(number, sent)) return;
    }
    for (std::size_t i = 0; i < sent_.size(); ++i) {
        if (!act(first_ + i, sent_[i])) return;
    }
}

// What has no answer yet.
template <typename Act>
void ConfirmedSink::for_each_open(const Act& act) {
    for_each_sent(
        [&](std::uint64_t number, Sent& sent) { return sent.settled || act(number, sent); });
}

bool ConfirmedSink::publish(const spi::Record& record) {
    const std::size_t bytes = payload_bytes(record);
    if (records_ >= limits_.records) return false;
    if (records_ > 0 && bytes_ + bytes > limits_.bytes) return false;
    ++records_;
    bytes_ += bytes;
    waiting_.add({record, bytes});
    return true;
}

void ConfirmedSink::poll(milliseconds max_wait, spi::Completions& out) {
    const Time now = now_();
    if (link_ != nullptr) receive(now, out);
    const bool has_work = !waiting_.empty();
    if (link_ == nullptr && has_work) {
        connect(now, out);
        // Others may have come while it blocked, and go before a suspect.
        if (link_ != nullptr && !waiting_.has_others()) return;
    }
    if (link_ == nullptr) {
        if (out.empty())
            std::this_thread::sleep_for(has_work ? std::min(max_wait, kRound) : max_wait);
        return;
    }
    send(now, out);
    if (link_ == nullptr) return;
    receive(now, out);
    if (link_ == nullptr || !out.empty()) return;
    const bool has_turns = search_.is_on() && !waiting_.empty();
    link_->wait(has_turns ? std::min(max_wait, kRound) : max_wait);
    receive(now_(), out);
}

void ConfirmedSink::connect(Time now, spi::Completions& out) {
    if (now < next_try_) {
        if (down_) fail_queue(*down_, out);
        return;
    }
    auto link = connect_(host_);
    if (link.ok()) {
        link_ = std::move(*link);
        host_ = link_->host();
        is_fresh_ = true;
        heard_ = link_->heard();
        heard_at_ = now_();
        asked_at_ = heard_at_;
        search_.began(host_, heard_at_);
        return;
    }
    down_ = link.error();
    next_try_ = now_() + std::min(kTryAgainMin * (1U << std::min(tries_, 5U)), kTryAgainMax);
    ++tries_;
    fail_queue(*down_, out);
}

void ConfirmedSink::send(Time now, spi::Completions& out) {
    if (!send_suspect(now, out)) return;
    const std::size_t window = link_->finds_messages()
                                   ? link_->max_window()
                                   : std::min(link_->max_window(), search_.window());
    while (open_ < window && link_->unsent() < kMaxUnsent) {
        const auto item = waiting_.next(now);
        if (!item) return;
        send(*item, now, out);
    }
}

void ConfirmedSink::send(const Item& item, Time now, spi::Completions& out) {
    // Whoever says nothing while nothing is asked is not silent.
    if (is_idle()) heard_at_ = now;
    auto error = link_->send(first_ + sent_.size(), item.record);
    if (!error) {
        sent_.push_back({item, now});
        search_.sent(item.record);
        ++open_;
        is_fresh_ = false;
        return;
    }
    finish(item);
    out.failed.push_back({.token = item.record.token, .error = *std::move(error)});
}

EndSearch::Line ConfirmedSink::line() const {
    if (!is_idle()) return EndSearch::Line::kBusy;
    return is_fresh_ ? EndSearch::Line::kFresh : EndSearch::Line::kIdle;
}

// False: it is nobody else's turn, or the connection was closed for another.
bool ConfirmedSink::send_suspect(Time now, spi::Completions& out) {
    std::optional<Item> suspect;
    const EndSearch::Turn turn = waiting_.turn(line(), now, suspect);
    if (turn == EndSearch::Turn::kFresh) let_go();
    if (suspect) send(*suspect, now, out);
    return turn == EndSearch::Turn::kOthers;
}

void ConfirmedSink::receive(Time now, spi::Completions& out) {
    answers_.clear();
    const auto ended = link_->exchange(answers_);
    for (const Answer& answer : answers_) settle(answer, now, out);
    if (!answers_.empty()) {
        // It works: what comes next is another trouble.
        down_.reset();
        tries_ = 0;
    }
    drop_settled();
    if (ended) {
        this->ended(*ended, now, out);
        return;
    }
    if (link_->heard() != heard_) {
        heard_ = link_->heard();
        heard_at_ = now;
    }
    look_for_silence(now, out);
}

void ConfirmedSink::settle(const Answer& answer, Time now, spi::Completions& out) {
    if (answer.number == 0) {
        for_each_open([&](std::uint64_t, Sent& sent) {
            if (sent.item.record.topic == answer.topic) settle(sent, answer, now, out);
            return true;
        });
    } else if (answer.number < first_) {
        const auto late = late_.find(answer.number);
        if (late != late_.end()) settle(late->second, answer, now, out);
    } else if (answer.number - first_ < sent_.size()) {
        settle(sent_[static_cast<std::size_t>(answer.number - first_)], answer, now, out);
    }
}

void ConfirmedSink::settle(Sent& sent, const Answer& answer, Time now, spi::Completions& out) {
    if (std::exchange(sent.settled, true)) return;
    --open_;
    const spi::Record& record = sent.item.record;
    finish(sent.item);
    search_.answered(record, !answer.error);
    if (!answer.error) {
        sent.alive_at = now;
        out.acknowledged.push_back(record.token);
        return;
    }
    spi::FailedRecord failed{.token = record.token, .error = *answer.error};
    if (failed.error.advice == Advice::kRetryDestination) {
        failed.part = answer.part.empty() ? part_ + std::string(record.topic) : answer.part;
    }
    out.failed.push_back(std::move(failed));
}

void ConfirmedSink::drop_settled() {
    drop_late();
    while (!sent_.empty() && sent_.front().settled) drop_first();
    // One that waits keeps no long row of settled ones behind it.
    if (sent_.size() <= kLongRow * limits_.records) return;
    while (sent_.size() > limits_.records) {
        if (!sent_.front().settled) late_.emplace(first_, sent_.front());
        drop_first();
    }
}

// Those behind learn when they were alive.
void ConfirmedSink::drop_late() {
    for (auto late = late_.begin(); late != late_.end();) {
        if (!late->second.settled) {
            ++late;
            continue;
        }
        const Time alive_at = late->second.alive_at;
        late = late_.erase(late);
        if (late == late_.end() && sent_.empty()) return;
        Sent& next = late == late_.end() ? sent_.front() : late->second;
        next.alive_at = std::max(next.alive_at, alive_at);
    }
}

void ConfirmedSink::drop_first() {
    const Time alive_at = sent_.front().alive_at;
    sent_.pop_front();
    ++first_;
    if (!sent_.empty()) sent_.front().alive_at = std::max(sent_.front().alive_at, alive_at);
}

void ConfirmedSink::look_for_silence(Time now, spi::Completions& out) {
    if (is_idle()) return;
    if (now - heard_at_ > limits_.stuck_after) {
        lose(link_->silence(limits_.stuck_after), now, out);
        return;
    }
    if (now - std::max(heard_at_, asked_at_) > limits_.stuck_after / 4) {
        link_->ping();
        asked_at_ = now;
    }
    if (!give_up_old(now, out)) lose(link_->silence(limits_.stuck_after), now, out);
}

// What has waited for too long has failed, unless the server is still on its way to it. False: the
// connection has.
bool ConfirmedSink::give_up_old(Time now, spi::Completions& out) {
    bool is_alive = true;
    Time alive_at{};  // what was sent before, too
    for_each_sent([&](std::uint64_t number, Sent& sent) {
        alive_at = std::max(alive_at, sent.alive_at);
        if (now - alive_at <= limits_.stuck_after) return false;
        if (sent.settled || link_->is_held(number, limits_.stuck_after)) return true;
        auto error = link_->unanswered(number, limits_.stuck_after);
        is_alive = error.has_value();
        if (error) settle(sent, {.number = number, .error = std::move(error)}, now, out);
        return is_alive;
    });
    drop_settled();
    return is_alive;
}

// For a message, perhaps: none has failed before that is known.
void ConfirmedSink::ended(const ErrorInfo& error, Time now, spi::Completions& out) {
    std::vector<Item> open;
    for_each_open([&](std::uint64_t, const Sent& sent) {
        open.push_back(sent.item);
        return true;
    });
    if (open.empty() || error.advice != Advice::kRetryDestination) {
        if (open.empty()) search_.ended_idle(now);
        lose(error, now, out);
        return;
    }
    const Item& first = open.front();
    const bool has_passed = search_.has_passed();
    EndSearch::Records under_way;  // the end of one that finds messages is that of none
    for (const Item& item : open) {
        if (!link_->finds_messages()) under_way.push_back(&item.record);
    }
    switch (search_.ended(under_way, now)) {
        case EndSearch::Next::kOutage:
            lose(outage(error, under_way), now, out, true);
            return;
        case EndSearch::Next::kOwnFault:
            finish(first);
            out.failed.push_back(
                {.token = first.record.token, .error = own_fault(error, first.record.id)});
            break;
        case EndSearch::Next::kAgain:
            waiting_.add_again(open);
            news_.ended(error);
            break;
    }
    let_go();
    // Where others pass it is well.
    if (!has_passed) ++host_;
    down_.reset();
    next_try_ = has_passed ? now : now + kTryAgainMin;
}

// `bad_probes`: the server was there.
void ConfirmedSink::lose(const ErrorInfo& error, Time now, spi::Completions& out, bool bad_probes) {
    const bool was_idle = is_idle();
    const bool blames_one = error.advice == Advice::kDeadLetter;
    if (blames_one) blame(error, out);
    for_each_open([&](std::uint64_t, const Sent& sent) {
        finish(sent.item);
        out.failed.push_back({.token = sent.item.record.token,
                              .error = blames_one ? behind_error() : error,
                              .behind = blames_one,
                              .bad_probe = bad_probes && is_suspect(sent.item)});
        return true;
    });
    let_go();
    // An idle connection may have ended long ago: what waits tries another one first.
    if ((was_idle && !is_fresh_) || blames_one) return;
    ++host_;
    down_ = error;
    next_try_ = now + kTryAgainMin;
    fail_queue(*down_, out, bad_probes);
}

void ConfirmedSink::let_go() {
    first_ += sent_.size();
    sent_.clear();
    late_.clear();
    open_ = 0;
    link_.reset();
}

// The server has closed the connection for a message and does not say which: the largest.
void ConfirmedSink::blame(const ErrorInfo& error, spi::Completions& out) {
    Sent* largest = nullptr;
    std::size_t under_way = 0;
    for_each_open([&](std::uint64_t, Sent& sent) {
        ++under_way;
        if (largest == nullptr || sent.item.bytes > largest->item.bytes) largest = &sent;
        return true;
    });
    if (largest == nullptr) return;
    largest->settled = true;
    finish(largest->item);
    out.failed.push_back(
        {.token = largest->item.record.token, .error = error, .suspect = under_way > 1});
}

void ConfirmedSink::fail_queue(const ErrorInfo& error, spi::Completions& out, bool bad_probes) {
    search_.away();
    for (const Item& item : waiting_.take_all()) {
        finish(item);
        out.failed.push_back({.token = item.record.token,
                              .error = error,
                              .bad_probe = bad_probes && is_suspect(item)});
    }
}

void ConfirmedSink::finish(const Item& item) {
    --records_;
    bytes_ -= item.bytes;
}

}  // namespace outbox::net
