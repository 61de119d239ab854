// How routes come onto the stream and leave it.
#include <algorithm>
#include <random>
#include <unistd.h>
#include <utility>

#include "databases/postgres/stream/hub.h"

namespace outbox::postgres {
namespace {

constexpr std::chrono::milliseconds kAnswer{3'000};  // for routes to read in an offered snapshot
// A stream that begins does not wait longer for the others once a route is on it: they join later.
constexpr std::chrono::milliseconds kOthersAnswer{500};

}  // namespace

void StreamHub::add(Subscription& subscription) {
    const core::Lock lock(mutex_);
    subscriptions_.push_back(&subscription);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void StreamHub::remove(Subscription& subscription) {
    {
        const core::Lock lock(mutex_);
        std::erase(subscriptions_, &subscription);
    }
    changed_.notify_all();
    wakeup_.ring();
    admission_wakeup_.ring();
}

void StreamHub::want(Subscription& subscription) {
    {
        const core::Lock lock(mutex_);
        if (subscription.wants_) return;
        subscription.wants_ = true;
    }
    changed_.notify_all();
    wakeup_.ring();
}

std::optional<StreamHub::Offer> StreamHub::offer(Subscription& subscription) {
    const core::Lock lock(mutex_);
    return subscription.offered_ ? offer_ : std::nullopt;
}

bool StreamHub::answer(Subscription& subscription, const Offer& offer, bool join) {
    bool joined = false;
    {
        const core::Lock lock(mutex_);
        if (!subscription.offered_ || !offer_ || offer_->number != offer.number) return false;
        joined = join && subscription.state_ == State::kJoining;
        subscription.offered_ = false;
        subscription.wants_ = false;
        subscription.state_ = joined ? State::kOn : State::kOff;
        if (!joined) subscription.queue_ = StreamQueue();
    }
    changed_.notify_all();
    return joined;
}

StreamHub::State StreamHub::take(Subscription& subscription, StreamQueue& empty) {
    const core::Lock lock(mutex_);
    const State state = subscription.state_;
    if (state == State::kOn) {
        empty.swap(subscription.queue_);
    } else {
        subscription.queue_ = StreamQueue();
        subscription.state_ = State::kOff;
    }
    return state;
}

void StreamHub::leave(Subscription& subscription) {
    {
        const core::Lock lock(mutex_);
        subscription.state_ = State::kOff;
        subscription.queue_ = StreamQueue();
    }
    wakeup_.ring();
}

bool StreamHub::wait(Subscription& subscription, std::chrono::milliseconds max_wait) {
    core::Lock lock(mutex_);
    return subscription.something_.wait_for(mutex_, max_wait, [&]() OUTBOX_REQUIRES(mutex_) {
        return subscription.state_ != State::kOn || !subscription.queue_.empty();
    });
}

bool StreamHub::stopping() const {
    const core::Lock lock(mutex_);
    return stop_ || subscriptions_.empty();
}

bool StreamHub::wanted() const {
    return std::any_of(subscriptions_.begin(), subscriptions_.end(),
                       [](const Subscription* s) { return s->wants_; });
}

// Before the slot is made: its snapshot then shows whatever was handed out before.
void StreamHub::begin_joining() {
    const core::Lock lock(mutex_);
    for (Subscription* subscription : subscriptions_) {
        if (!subscription->wants_) continue;
        subscription->state_ = State::kJoining;
        subscription->queue_.clear();
        for (const auto& [kind, message] : descriptions_) subscription->queue_.add(message);
    }
}

// Slots are the cluster's, and in a container many relays are process 1.
std::string make_slot_prefix() {
    return "outbox_" + std::to_string(getpid()) + "_" + std::to_string(std::random_device()()) +
           "_";
}

Result<ReplicationStream> StreamHub::open_stream(ReplicationStream::Slot& slot, Wakeup& wakeup,
                                                 const std::function<bool()>& stop) {
    Result<ReplicationStream> stream =
        ReplicationStream::open(config_.url, config_.connect_timeout_s, stopped_.descriptor());
    if (!stream.ok()) return stream;
    if (Status same = identity_.check(*stream); !same.ok()) return same;
    const std::string name = slot_prefix_ + std::to_string(slots_.fetch_add(1) + 1);
    Result<ReplicationStream::Slot> made = stream->create_slot(name, wakeup, stop);
    if (!made.ok()) return made.status();
    slot = std::move(*made);
    return stream;
}

// While routes read in the slot's snapshot, nothing may be sent on its connection.
bool StreamHub::offer_to_routes(const ReplicationStream::Slot& slot,
                                std::shared_ptr<const StreamTable> table) {
    core::Lock lock(mutex_);
    offer_ = Offer{++offers_, slot.snapshot, std::move(table)};
    for (Subscription* subscription : subscriptions_) {
        subscription->offered_ = subscription->state_ == State::kJoining;
    }
    const auto answered = [&]() OUTBOX_REQUIRES(mutex_) {
        return stop_ || end_admission_ ||
               std::none_of(subscriptions_.begin(), subscriptions_.end(),
                            [](const Subscription* s) { return s->offered_; });
    };
    const auto one_is_on = [&]() OUTBOX_REQUIRES(mutex_) {
        return std::any_of(subscriptions_.begin(), subscriptions_.end(),
                           [](const Subscription* s) { return s->state_ == State::kOn; });
    };
    const bool begins = !one_is_on();
    changed_.wait_for(mutex_, kAnswer, [&]() OUTBOX_REQUIRES(mutex_) {
        return answered() || (begins && one_is_on());
    });
    if (begins) changed_.wait_for(mutex_, kOthersAnswer, answered);
    end_joining();
    if (one_is_on()) reason_.clear();
    return one_is_on();
}

// Who has not answered reads nothing now, and wants the stream again when it
// does: until then no slot is made for it.
void StreamHub::end_joining() {
    offer_.reset();
    for (Subscription* subscription : subscriptions_) {
        if (subscription->offered_) subscription->wants_ = false;
        subscription->offered_ = false;
        if (subscription->state_ != State::kJoining) continue;
        subscription->state_ = State::kOff;
        subscription->queue_ = StreamQueue();
    }
}

// Lets routes that come later join by a slot of their own, on a thread of its own: the others'
// stream goes on meanwhile.
void StreamHub::admit_late(const std::shared_ptr<const StreamTable>& table) {
    const core::Lock lock(mutex_);
    if (admission_.joinable()) {
        if (!admission_ended_) return;
        admission_.join();
    }
    if (!wanted() || Clock::now() < admissions_.next()) return;
    admission_ended_ = false;
    admission_ = std::thread([this, table] {
        const Status why = admit(table);
        if (!why.ok() && !admission_to_end()) tell(why);
        const core::Lock guard(mutex_);
        why.ok() ? admissions_.succeeded() : admissions_.failed(Clock::now());
        admission_ended_ = true;
    });
}

Status StreamHub::admit(std::shared_ptr<const StreamTable> table) {
    begin_joining();
    ReplicationStream::Slot slot;
    const Result<ReplicationStream> stream =
        open_stream(slot, admission_wakeup_, [this] { return admission_to_end(); });
    if (stream.ok()) {
        static_cast<void>(offer_to_routes(slot, std::move(table)));
    } else {
        const core::Lock lock(mutex_);
        end_joining();
    }
    return stream.status();
}

bool StreamHub::admission_to_end() const {
    const core::Lock lock(mutex_);
    return stop_ || end_admission_ || subscriptions_.empty();
}

void StreamHub::end_admission() {
    if (!admission_.joinable()) return;
    {
        const core::Lock lock(mutex_);
        end_admission_ = true;
    }
    changed_.notify_all();
    admission_wakeup_.ring();
    admission_.join();
    const core::Lock lock(mutex_);
    end_admission_ = false;
}

}  // namespace outbox::postgres
