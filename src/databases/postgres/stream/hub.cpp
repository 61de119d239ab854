#include "databases/postgres/stream/hub.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "databases/postgres/stream/check.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kMaxFreshBytes = std::size_t{256} << 10;

constexpr std::chrono::milliseconds kGather{1'000};  // for all routes to want the stream
// A commit may be a message of its own: without a rest each wakes three threads, and at 5,000 a
// second the slowest percent waits five times as long for a core.
constexpr std::chrono::milliseconds kPortionEvery{1};
constexpr std::chrono::milliseconds kHeldMax{1'000};  // then the table shows what is visible
constexpr std::chrono::milliseconds kConfirmEvery{1'000};
constexpr std::chrono::milliseconds kAskAfter{500};  // of silence, whether the server lives
constexpr std::chrono::milliseconds kStalledAfter{1'000};
constexpr std::chrono::milliseconds kSilenceMax{10'000};  // and then it does not
constexpr std::chrono::seconds kGoodAfter{1};  // a stream of this age forgives earlier failures

constexpr std::size_t kWithOid = 1 + 4;

// The oid that an Insert, a Relation and a Type begin with; of at least `kWithOid` bytes.
std::uint32_t oid_of(std::string_view message) {
    std::uint32_t oid = 0;
    for (const char byte : message.substr(1, 4))
        oid = (oid << 8U) | static_cast<unsigned char>(byte);
    return oid;
}

}  // namespace

StreamHub::StreamHub(PostgresSourceConfig config, Table table, Identity& identity)
    : config_(std::move(config)), table_(std::move(table)), identity_(identity) {}

StreamHub::~StreamHub() {
    {
        const core::Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    stopped_.ring();
    wakeup_.ring();
    admission_wakeup_.ring();
    if (thread_.joinable()) thread_.join();
    end_admission();
}

std::string StreamHub::reason() const {
    const core::Lock lock(mutex_);
    return reason_;
}

bool StreamHub::pays() const {
    constexpr std::size_t kRoutes = 3;
    const core::Lock lock(mutex_);
    return subscriptions_.size() >= kRoutes;
}

void StreamHub::run() {
    while (wait_until_wanted()) {
        began_ = Clock::time_point::max();
        const Status why = serve();
        end_admission();
        end_stream(why);
        const Clock::time_point now = Clock::now();
        // Where routes left it, each has its own patience before it wants the stream again.
        if (why.ok() || (began_ < now && now - began_ >= kGoodAfter)) tries_.succeeded();
        if (!why.ok()) tries_.failed(now);
    }
}

// Waits for a route that wants the stream, then a little for the others, that they begin together.
bool StreamHub::wait_until_wanted() {
    core::Lock lock(mutex_);
    changed_.wait(mutex_, [&]() OUTBOX_REQUIRES(mutex_) { return stop_ || wanted(); });
    const auto all = [&]() OUTBOX_REQUIRES(mutex_) {
        return std::all_of(subscriptions_.begin(), subscriptions_.end(),
                           [](const Subscription* s) { return s->wants_; });
    };
    changed_.wait_until(mutex_, tries_.next(), [&]() OUTBOX_REQUIRES(mutex_) { return stop_; });
    changed_.wait_for(mutex_, kGather, [&]() OUTBOX_REQUIRES(mutex_) { return stop_ || all(); });
    return !stop_;
}

bool StreamHub::Portion::full() const {
    return fits_no_queue || messages.bytes() >= kMaxFreshBytes;
}

void StreamHub::Portion::clear() {
    messages.clear();
    fits_no_queue = false;
    descriptions.clear();
    xids.clear();
}

Result<Connection> StreamHub::open_connection() const {
    Result<Connection> connection = Connection::open(config_.url, config_.connect_timeout_s);
    if (connection.ok()) connection->limit_waits(kSilenceMax, stopped_.descriptor());
    return connection;
}

Result<std::shared_ptr<const StreamTable>> StreamHub::describe_table(Connection& connection) {
    Result<StreamVerdict> verdict = prepare_stream(connection, table_, config_);
    if (!verdict.ok()) return verdict.status();
    if (!verdict->obstacles.empty()) {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kRetryDestination, {}, verdict->text()};
    }
    published_ = std::move(verdict->published);
    return std::make_shared<const StreamTable>(std::move(verdict->table));
}

// One stream, from its slot to its end. Ok: no route is on it any more.
Status StreamHub::serve() {
    Result<Connection> connection = open_connection();
    if (!connection.ok()) return connection.status();
    const auto table = describe_table(*connection);
    if (!table.ok()) return table.status();
    Visibility visibility(*connection, life_of(table_),
                          published_as(table_, connection->server_version()));
    KeptLog kept(*connection, slot_prefix_, config_.max_kept_log);
    table_oid_ = (*table)->oid;
    begin_joining();
    ReplicationStream::Slot slot;
    Status keeps;
    Result<ReplicationStream> stream = open_stream(
        slot, wakeup_, [&] { return stopping() || !(keeps = look_at_kept_log(kept)).ok(); });
    if (!keeps.ok()) return keeps;
    if (!stream.ok()) return stream.status();
    if (!offer_to_routes(slot, *table)) return {};
    if (Status status = stream->start(slot, kPublication); !status.ok()) return status;
    received_.store(slot.start, std::memory_order_relaxed);
    return pump(*stream, *table, visibility, kept);
}

Status StreamHub::look_at_kept_log(KeptLog& kept) {
    Status status = kept.look();
    kept_bytes_.store(kept.bytes(), std::memory_order_relaxed);
    return status;
}

Status StreamHub::pump(ReplicationStream& stream, const std::shared_ptr<const StreamTable>& table,
                       Visibility& visibility, KeptLog& kept) {
    fresh_.clear();
    held_.clear();
    began_ = Clock::now();
    heard_ = began_;
    confirmed_ = began_;
    bool asked = false;
    while (goes_on()) {
        admit_late(table);
        bool any = false;
        if (Status status = drain(stream, any); !status.ok()) return status;
        if (Status status = hand_out_what_is_visible(visibility); !status.ok()) return status;
        if (Status status = look_at_kept_log(kept); !status.ok()) return status;
        const Clock::time_point now = Clock::now();
        if (any) {
            heard_ = now;
            asked = false;
        }
        const auto silence = now - heard_;
        stalled_.store(silence >= kStalledAfter, std::memory_order_relaxed);
        if (silence >= kSilenceMax) {
            return {
                ErrorCode::kConnectionLost, Advice::kRetryDestination,
                "the server sent nothing for " + std::to_string(kSilenceMax.count() / 1000) + " s"};
        }
        const bool ask = !asked && silence >= kAskAfter;
        if (ask || now - confirmed_ >= kConfirmEvery) {
            asked = asked || ask;
            if (Status status = confirm(stream, ask); !status.ok()) return status;
        }
        if (any || !held_.empty()) {
            std::this_thread::sleep_until(now + kPortionEvery);
            continue;
        }
        if (Status status = stream.wait(wakeup_, kAskAfter / 2); !status.ok()) return status;
    }
    return {};
}

bool StreamHub::goes_on() const {
    const core::Lock lock(mutex_);
    return !stop_ && std::any_of(subscriptions_.begin(), subscriptions_.end(),
                                 [](const Subscription* s) { return s->state_ == State::kOn; });
}

// All that has come by now, in portions, so that keepalives are answered meanwhile.
Status StreamHub::drain(ReplicationStream& stream, bool& any) {
    std::string_view bytes;
    Status status;
    while (!fresh_.full()) {
        const auto next = stream.next(bytes, status);
        if (next == ReplicationStream::Next::kEnded) return status;
        if (next == ReplicationStream::Next::kNothing) break;
        any = true;
        if (status = take_message(stream, bytes); !status.ok()) return status;
    }
    return {};
}

Status StreamHub::take_message(ReplicationStream& stream, std::string_view bytes) {
    pgoutput::Envelope envelope;
    if (Status status = pgoutput::parse_envelope(bytes, envelope); !status.ok()) return status;
    const Lsn reached = envelope.keepalive ? envelope.end_lsn : envelope.start_lsn;
    received_.store(std::max(received(), reached), std::memory_order_relaxed);
    if (envelope.keepalive) {
        return envelope.reply_requested ? confirm(stream, false) : Status();
    }
    const std::string_view message = envelope.message;
    if (message.starts_with('I') && message.size() >= kWithOid) {
        take_insert(stream, message);
        return {};
    }
    if (Status status = pgoutput::parse_message(message, parsed_); !status.ok()) return status;
    if (parsed_.kind == pgoutput::Kind::kBegin) {
        xid_ = parsed_.xid;
    } else if (parsed_.kind == pgoutput::Kind::kRelation || parsed_.kind == pgoutput::Kind::kType) {
        fresh_.messages.add(message);
        fresh_.descriptions.emplace_back(message);
    }
    return {};
}

// The routes decode it.
void StreamHub::take_insert(ReplicationStream& stream, std::string_view message) {
    // Another table of the publication costs them nothing.
    if (oid_of(message) != table_oid_) return;
    if (message.size() <= kMaxQueueBytes) {
        fresh_.messages.add(message);
    } else {
        // All will read it from the table, at once: not beside two copies of it here.
        fresh_.fits_no_queue = true;
        stream.free_message();
    }
    if (fresh_.xids.empty() || fresh_.xids.back() != xid_) fresh_.xids.push_back(xid_);
}

// One portion after the other, so that what is asked for does not grow while it is waited for.
Status StreamHub::hand_out_what_is_visible(Visibility& visibility) {
    if (held_.empty()) {
        if (fresh_.empty()) return {};
        std::swap(held_, fresh_);
        held_since_ = Clock::now();
    }
    if (!held_.xids.empty()) {
        const Result<bool> visible = visibility.all_visible(held_.xids);
        if (!visible.ok()) return visible.status();
        if (!*visible && Clock::now() - held_since_ < kHeldMax) return {};
        if (!*visible) {
            return {ErrorCode::kUnsupported, Advice::kRetryDestination,
                    "a commit is in the log and not visible since " +
                        std::to_string(kHeldMax.count() / 1000) +
                        " s: does it wait for a synchronous standby?"};
        }
        // Rows of another table of the name are not to go out as this one's: what reads the table
        // tells.
        if (visibility.life() != identity_.life()) {
            return {ErrorCode::kUnsupported, Advice::kRetryDestination,
                    "table " + table_.sql + " began anew"};
        }
        // What was committed while it showed less is in the table alone, before these.
        if (visibility.published() != published_) {
            return {ErrorCode::kUnsupported, Advice::kRetryDestination,
                    "the publication was changed"};
        }
    }
    hand_out(held_);
    return {};
}

void StreamHub::hand_out(Portion& portion) {
    const core::Lock lock(mutex_);
    for (std::string& message : portion.descriptions) {
        const bool of_table = message.front() == 'R';
        descriptions_[{of_table, oid_of(message)}] = std::move(message);
    }
    for (Subscription* subscription : subscriptions_) {
        const State state = subscription->state_;
        if (state != State::kOn && state != State::kJoining) continue;
        if (portion.fits_no_queue ||
            subscription->queue_.bytes() + portion.messages.bytes() > kMaxQueueBytes) {
            subscription->state_ = State::kBehind;
            subscription->queue_ = StreamQueue();
        } else {
            subscription->queue_.append(portion.messages);
        }
        subscription->something_.notify_one();
    }
    portion.clear();
}

// What was read needs not be kept for us: the table has it, too.
Status StreamHub::confirm(ReplicationStream& stream, bool request_reply) {
    confirmed_ = Clock::now();
    return stream.confirm(received(), request_reply);
}

void StreamHub::end_stream(const Status& why) {
    if (!why.ok()) tell(why);
    kept_bytes_.store(0, std::memory_order_relaxed);
    const core::Lock lock(mutex_);
    descriptions_.clear();
    for (Subscription* subscription : subscriptions_) {
        subscription->offered_ = false;
        if (subscription->state_ == State::kJoining) subscription->state_ = State::kOff;
        if (subscription->state_ == State::kOn) subscription->state_ = State::kLost;
        subscription->something_.notify_one();
    }
}

void StreamHub::tell(const Status& why) {
    const core::Lock lock(mutex_);
    // What the server is not set up for is no error.
    reason_ =
        why.error().code == ErrorCode::kUnsupported ? why.error().message : describe(why.error());
    endings_.fetch_add(1, std::memory_order_release);
}

}  // namespace outbox::postgres
