#include "sources/postgres/stream.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include "sources/postgres/stream_check.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kMaxFreshBytes = std::size_t{256} << 10;

constexpr std::chrono::milliseconds kBackoffMin{500};
constexpr std::chrono::milliseconds kBackoffMax{30'000};
constexpr std::chrono::milliseconds kGather{1'000};  // for all routes to want the stream
constexpr std::chrono::milliseconds kAnswer{3'000};  // for them to read in its snapshot
constexpr std::chrono::milliseconds kConfirmEvery{1'000};
constexpr std::chrono::milliseconds kAskAfter{500};  // of silence, whether the server lives
constexpr std::chrono::milliseconds kStalledAfter{1'000};
constexpr std::chrono::milliseconds kSilenceMax{10'000};  // and then it does not
constexpr std::chrono::seconds kRenewEvery{10};
constexpr std::chrono::seconds kGoodAfter{5};  // a stream of this age forgives earlier failures

std::int64_t wall_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// The table's oid in an Insert message.
std::uint32_t relation_of(std::string_view message) {
    if (message.size() < 5) return 0;
    std::uint32_t oid = 0;
    for (std::size_t i = 1; i <= 4; ++i) {
        oid = (oid << 8U) | static_cast<unsigned char>(message[i]);
    }
    return oid;
}

Status ended(const char* why) {
    return {ErrorCode::kConnectionLost, Advice::kRetryDestination, why};
}

}  // namespace

void StreamQueue::add(std::string_view message) {
    bytes_.insert(bytes_.end(), message.begin(), message.end());
    ends_.push_back(bytes_.size());
}

void StreamQueue::append(const StreamQueue& other) {
    const std::size_t shift = bytes_.size() - other.begin_;
    bytes_.insert(bytes_.end(), other.bytes_.begin() + static_cast<std::ptrdiff_t>(other.begin_),
                  other.bytes_.end());
    for (std::size_t i = other.next_; i < other.ends_.size(); ++i) {
        ends_.push_back(other.ends_[i] + shift);
    }
}

std::string_view StreamQueue::front() const {
    if (empty()) return {};
    return {bytes_.data() + begin_, ends_[next_] - begin_};
}

void StreamQueue::pop() {
    begin_ = ends_[next_++];
    if (empty()) clear();
}

void StreamQueue::clear() {
    bytes_.clear();
    ends_.clear();
    next_ = 0;
    begin_ = 0;
}

void StreamQueue::swap(StreamQueue& other) noexcept {
    bytes_.swap(other.bytes_);
    ends_.swap(other.ends_);
    std::swap(next_, other.next_);
    std::swap(begin_, other.begin_);
}

StreamHub::StreamHub(PostgresSourceConfig config, Table table, Identity& identity)
    : config_(std::move(config)), table_(std::move(table)), identity_(identity) {}

StreamHub::~StreamHub() {
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    wakeup_.ring();
    if (thread_.joinable()) thread_.join();
}

std::string StreamHub::reason() const {
    const std::scoped_lock lock(mutex_);
    return reason_;
}

void StreamHub::add(Subscription& subscription) {
    const std::scoped_lock lock(mutex_);
    subscriptions_.push_back(&subscription);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void StreamHub::remove(Subscription& subscription) {
    {
        const std::scoped_lock lock(mutex_);
        std::erase(subscriptions_, &subscription);
    }
    changed_.notify_all();
    wakeup_.ring();
}

void StreamHub::want(Subscription& subscription) {
    {
        const std::scoped_lock lock(mutex_);
        if (subscription.wants_) return;
        subscription.wants_ = true;
    }
    changed_.notify_all();
    wakeup_.ring();
}

std::optional<StreamHub::Offer> StreamHub::offer(Subscription& subscription) {
    const std::scoped_lock lock(mutex_);
    return subscription.offered_ ? offer_ : std::nullopt;
}

bool StreamHub::answer(Subscription& subscription, const Offer& offer, bool join) {
    bool joined = false;
    {
        const std::scoped_lock lock(mutex_);
        if (!subscription.offered_ || !offer_ || offer_->generation != offer.generation) {
            return false;
        }
        subscription.offered_ = false;
        subscription.wants_ = false;
        subscription.queue_.clear();
        subscription.state_ = join ? State::kOn : State::kOff;
        subscription.generation_ = offer.generation;
        joined = join;
    }
    changed_.notify_all();
    return joined;
}

StreamHub::State StreamHub::take(Subscription& subscription, StreamQueue& empty) {
    const std::scoped_lock lock(mutex_);
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
        const std::scoped_lock lock(mutex_);
        subscription.state_ = State::kOff;
        subscription.queue_ = StreamQueue();
    }
    wakeup_.ring();
}

bool StreamHub::wait(Subscription& subscription, std::chrono::milliseconds max_wait) {
    std::unique_lock lock(mutex_);
    return subscription.something_.wait_for(lock, max_wait, [&] {
        return subscription.state_ != State::kOn || !subscription.queue_.empty();
    });
}

bool StreamHub::stopping() const {
    const std::scoped_lock lock(mutex_);
    return stop_ || subscriptions_.empty();
}

bool StreamHub::wanted() const {
    return std::any_of(subscriptions_.begin(), subscriptions_.end(),
                       [](const Subscription* s) { return s->wants_; });
}

void StreamHub::run() {
    while (wait_until_wanted()) {
        const Clock::time_point began = Clock::now();
        const Status why = serve();
        end_generation(why);
        const Clock::time_point now = Clock::now();
        if (now - began >= kGoodAfter) backoff_ = {};
        backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
        next_try_ = now + backoff_;
    }
}

// Waits for a route that wants the stream, then a little for the others, that they begin together.
bool StreamHub::wait_until_wanted() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || wanted(); });
    const auto all = [&] {
        return std::all_of(subscriptions_.begin(), subscriptions_.end(),
                           [](const Subscription* s) { return s->wants_; });
    };
    changed_.wait_until(lock, next_try_, [&] { return stop_; });
    changed_.wait_for(lock, kGather, [&] { return stop_ || all(); });
    return !stop_;
}

Result<std::shared_ptr<const StreamTable>> StreamHub::describe_table() const {
    Result<Connection> connection = Connection::open(config_.url, config_.connect_timeout_s);
    if (!connection.ok()) return connection.status();
    Result<StreamVerdict> verdict = prepare_stream(*connection, table_, config_);
    if (!verdict.ok()) return verdict.status();
    if (!verdict->obstacles.empty()) {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kRetryDestination, {}, verdict->text()};
    }
    return std::make_shared<const StreamTable>(std::move(verdict->table));
}

// One generation of the stream, from its slot to its end.
Status StreamHub::serve() {
    auto table = describe_table();
    if (!table.ok()) return table.status();
    table_oid_ = (*table)->oid;
    Result<ReplicationStream> stream =
        ReplicationStream::open(config_.url, config_.connect_timeout_s);
    if (!stream.ok()) return stream.status();
    if (Status same = identity_.check(*stream); !same.ok()) return same;
    const std::string name =
        "outbox_" + std::to_string(getpid()) + "_" + std::to_string(generation_ + 1);
    Result<ReplicationStream::Slot> slot =
        stream->create_slot(name, wakeup_, [this] { return stopping(); });
    if (!slot.ok()) return slot.status();
    if (Status status = offer_to_routes(*slot, *table); !status.ok()) return status;
    if (Status status = stream->start(*slot, kPublication); !status.ok()) return status;
    return pump(*stream, slot->start);
}

// While routes read in the slot's snapshot, nothing may be sent on its connection.
Status StreamHub::offer_to_routes(const ReplicationStream::Slot& slot,
                                  std::shared_ptr<const StreamTable> table) {
    std::unique_lock lock(mutex_);
    offer_ = Offer{++generation_, slot.snapshot, std::move(table)};
    for (Subscription* subscription : subscriptions_) {
        subscription->offered_ = subscription->wants_;
    }
    changed_.wait_for(lock, kAnswer, [&] {
        return stop_ || std::none_of(subscriptions_.begin(), subscriptions_.end(),
                                     [](const Subscription* s) { return s->offered_; });
    });
    offer_.reset();
    bool joined = false;
    for (Subscription* subscription : subscriptions_) {
        subscription->offered_ = false;
        joined = joined || subscription->state_ == State::kOn;
    }
    if (!joined) return ended("no route has caught up with the table");
    reason_.clear();
    return {};
}

Status StreamHub::pump(ReplicationStream& stream, Lsn start) {
    fresh_.clear();
    received_ = start;
    const Clock::time_point began = Clock::now();
    heard_ = began;
    confirmed_ = began;
    bool asked = false;
    while (goes_on(began)) {
        bool any = false;
        if (Status status = drain(stream, any); !status.ok()) return status;
        const Clock::time_point now = Clock::now();
        if (any) {
            heard_ = now;
            asked = false;
        }
        const auto silence = now - heard_;
        stalled_.store(silence >= kStalledAfter, std::memory_order_relaxed);
        if (silence >= kSilenceMax) return ended("the server is silent");
        const bool ask = !asked && silence >= kAskAfter;
        if (ask || now - confirmed_ >= kConfirmEvery) {
            asked = asked || ask;
            if (Status status = confirm(stream, ask); !status.ok()) return status;
        }
        if (any) continue;
        if (Status status = stream.wait(wakeup_, kAskAfter / 2); !status.ok()) return status;
    }
    const std::scoped_lock lock(mutex_);
    return wanted() ? ended("the stream begins anew for a route that caught up") : Status();
}

// A route that caught up again gets a stream by a new one for all, but not too often.
bool StreamHub::goes_on(Clock::time_point began) const {
    const std::scoped_lock lock(mutex_);
    if (stop_ || std::none_of(subscriptions_.begin(), subscriptions_.end(),
                              [](const Subscription* s) { return s->state_ == State::kOn; })) {
        return false;
    }
    return !wanted() || Clock::now() - began < kRenewEvery;
}

// All that has come by now, in portions, so that keepalives are answered meanwhile.
Status StreamHub::drain(ReplicationStream& stream, bool& any) {
    std::string_view bytes;
    Status status;
    while (fresh_.bytes() < kMaxFreshBytes) {
        const auto next = stream.next(bytes, status);
        if (next == ReplicationStream::Next::kEnded) return status;
        if (next == ReplicationStream::Next::kNothing) break;
        any = true;
        if (status = take_message(stream, bytes); !status.ok()) return status;
    }
    hand_out();
    return {};
}

Status StreamHub::take_message(ReplicationStream& stream, std::string_view bytes) {
    pgoutput::Envelope envelope;
    if (Status status = pgoutput::parse_envelope(bytes, envelope); !status.ok()) return status;
    received_ = std::max(received_, envelope.keepalive ? envelope.end_lsn : envelope.start_lsn);
    if (envelope.keepalive) {
        return envelope.reply_requested ? confirm(stream, false) : Status();
    }
    const std::string_view message = envelope.message;
    if (message.empty()) return {};
    switch (message.front()) {
        case 'R':
        case 'Y':
            fresh_.add(message);
            break;
        case 'I':
            // Another table of the publication costs the routes nothing.
            if (relation_of(message) == table_oid_) fresh_.add(message);
            break;
        default:
            break;
    }
    return {};
}

void StreamHub::hand_out() {
    if (fresh_.empty()) return;
    const std::scoped_lock lock(mutex_);
    for (Subscription* subscription : subscriptions_) {
        if (subscription->state_ != State::kOn) continue;
        if (subscription->queue_.bytes() + fresh_.bytes() > kMaxQueueBytes) {
            subscription->state_ = State::kBehind;
            subscription->queue_ = StreamQueue();
        } else {
            subscription->queue_.append(fresh_);
        }
        subscription->something_.notify_one();
    }
    fresh_.clear();
}

// What was read needs not be kept for us: the table has it, too.
Status StreamHub::confirm(ReplicationStream& stream, bool request_reply) {
    confirmed_ = Clock::now();
    const auto update =
        pgoutput::status_update(received_, received_, received_, wall_us(), request_reply);
    return stream.send({update.data(), update.size()});
}

void StreamHub::end_generation(const Status& why) {
    const std::scoped_lock lock(mutex_);
    if (!why.ok()) {
        reason_ = describe(why.error());
        endings_.fetch_add(1, std::memory_order_release);
    }
    offer_.reset();
    for (Subscription* subscription : subscriptions_) {
        subscription->offered_ = false;
        if (subscription->state_ == State::kOn) subscription->state_ = State::kLost;
        subscription->something_.notify_one();
    }
}

}  // namespace outbox::postgres
