#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "core/mutex.h"
#include "databases/postgres/identity.h"
#include "databases/postgres/replication.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/stream/kept_log.h"
#include "databases/postgres/stream/pgoutput.h"
#include "databases/postgres/stream/queue.h"
#include "databases/postgres/stream/row_decoder.h"
#include "databases/postgres/stream/visibility.h"

namespace outbox::postgres {

/// How long to wait before the next try: longer after each failure, not at all after none.
class Backoff {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kMin{200};
    static constexpr std::chrono::milliseconds kMax{10'000};

    void succeeded() {
        wait_ = {};
        next_ = {};
    }
    void failed(Clock::time_point now) {
        wait_ = std::clamp(wait_ * 2, kMin, kMax);
        next_ = now + wait_;
    }
    [[nodiscard]] Clock::time_point next() const { return next_; }

  private:
    Clock::time_point next_{};
    std::chrono::milliseconds wait_{};
};

/// What the names of a hub's slots begin with; no other hub's do.
[[nodiscard]] std::string make_slot_prefix();

/// The one stream of the log of a relay process: a temporary slot, read by one thread, whose
/// messages go to the queues of the routes that have joined. It starts when a route wants it and
/// ends when none does.
///
/// A route joins in the snapshot of a slot, which shows what the stream will not bring it: that of
/// the stream's own slot at its beginning, or later that of another one, made for the snapshot
/// alone while the route's queue already fills. What both have the route drops by position.
///
/// Thread-safe.
class StreamHub {
  public:
    /// A route whose queue holds more is behind: the queue is dropped and the route goes to the
    /// table. So a transaction of any size costs no more memory than this for each route.
    static constexpr std::size_t kMaxQueueBytes = std::size_t{4} << 20;

    /// `identity` is the source's, which outlives the hub.
    StreamHub(PostgresSourceConfig config, Table table, Identity& identity);
    ~StreamHub();
    StreamHub(const StreamHub&) = delete;
    StreamHub& operator=(const StreamHub&) = delete;

    struct Offer {
        std::uint64_t number = 0;
        std::string snapshot;  ///< For SET TRANSACTION SNAPSHOT; shows all that will not come.
        /// What the rows are decoded by. Shared by the routes and the hub; nobody changes it.
        std::shared_ptr<const StreamTable> table;
    };
    enum class State : std::uint8_t {
        kOff,      ///< Does not take part.
        kJoining,  ///< Its queue fills; it is being offered a snapshot.
        kOn,       ///< Gets all that was committed since the snapshot it joined in.
        kBehind,   ///< Its queue overflowed.
        kLost,     ///< The stream ended.
    };

    /// One route's part in it. Used by one thread; must not outlive the hub.
    class Subscription {
      public:
        explicit Subscription(StreamHub& hub) : hub_(hub) { hub_.add(*this); }
        ~Subscription() { hub_.remove(*this); }
        Subscription(const Subscription&) = delete;
        Subscription& operator=(const Subscription&) = delete;

        /// Asks for the stream.
        void want() { hub_.want(*this); }
        /// A stream that waits for this route to read in its snapshot.
        [[nodiscard]] std::optional<Offer> offer() { return hub_.offer(*this); }
        /// The answer to an offer. False: it came too late, or was no.
        bool answer(const Offer& offer, bool join) { return hub_.answer(*this, offer, join); }
        /// Swaps what has come with `empty`, and says how the route stands. What came before the
        /// stream ended or the queue overflowed is dropped.
        State take(StreamQueue& empty) { return hub_.take(*this, empty); }
        void leave() { hub_.leave(*this); }
        /// Waits until there is something to take. False: the time was over first.
        bool wait(std::chrono::milliseconds max_wait) { return hub_.wait(*this, max_wait); }
        /// The server has not been heard of for a while.
        [[nodiscard]] bool stalled() const { return hub_.stalled_.load(std::memory_order_relaxed); }

      private:
        friend class StreamHub;
        StreamHub& hub_;
        // Guarded by the hub's mutex; the analysis cannot tell that it is the same for all.
        State state_ = State::kOff;
        bool wants_ = false;
        bool offered_ = false;
        StreamQueue queue_;
        core::Condition something_;
    };

    /// Why there is no stream, or how it ended last; empty while there is one.
    [[nodiscard]] std::string reason() const;
    /// Rises when `reason` may have changed.
    [[nodiscard]] std::uint64_t endings() const { return endings_.load(std::memory_order_acquire); }
    /// So many routes may read from it that one reading of the log costs less than theirs of the
    /// table do (docs/streaming.md, by `script/bench --only stream`).
    [[nodiscard]] bool pays() const;
    /// How far the log was read.
    [[nodiscard]] Lsn received() const { return received_.load(std::memory_order_relaxed); }
    /// See `KeptLog`; 0 without a stream.
    [[nodiscard]] std::int64_t kept_bytes() const {
        return kept_bytes_.load(std::memory_order_relaxed);
    }

  private:
    using Clock = std::chrono::steady_clock;

    /// What came together: Inserts of our table, and descriptions.
    struct Portion {
        StreamQueue messages;
        bool fits_no_queue = false;  // a row larger than a queue came, and is not in `messages`
        std::vector<std::string> descriptions;
        std::vector<std::uint32_t> xids;  // of the transactions with rows in it

        [[nodiscard]] bool empty() const { return messages.empty() && !fits_no_queue; }
        [[nodiscard]] bool full() const;
        void clear();
    };

    // What subscriptions do.
    void add(Subscription& subscription);
    void remove(Subscription& subscription);
    void want(Subscription& subscription);
    std::optional<Offer> offer(Subscription& subscription);
    bool answer(Subscription& subscription, const Offer& offer, bool join);
    State take(Subscription& subscription, StreamQueue& empty);
    void leave(Subscription& subscription);
    bool wait(Subscription& subscription, std::chrono::milliseconds max_wait);

    // The thread of the stream.
    void run();
    bool wait_until_wanted();
    Status serve();
    Result<Connection> open_connection() const;
    Result<std::shared_ptr<const StreamTable>> describe_table(Connection& connection);
    Status pump(ReplicationStream& stream, const std::shared_ptr<const StreamTable>& table,
                Visibility& visibility, KeptLog& kept);
    Status look_at_kept_log(KeptLog& kept);
    Status drain(ReplicationStream& stream, bool& any);
    Status take_message(ReplicationStream& stream, std::string_view bytes);
    void take_insert(ReplicationStream& stream, std::string_view message);
    Status hand_out_what_is_visible(Visibility& visibility);
    void hand_out(Portion& portion);
    Status confirm(ReplicationStream& stream, bool request_reply);
    [[nodiscard]] bool goes_on() const;
    void end_stream(const Status& why);

    // Joining: of that thread, or of one beside it for routes that come later.
    void begin_joining();
    Result<ReplicationStream> open_stream(ReplicationStream::Slot& slot, Wakeup& wakeup,
                                          const std::function<bool()>& stop);
    bool offer_to_routes(const ReplicationStream::Slot& slot,
                         std::shared_ptr<const StreamTable> table);
    void end_joining() OUTBOX_REQUIRES(mutex_);
    void admit_late(const std::shared_ptr<const StreamTable>& table);
    Status admit(std::shared_ptr<const StreamTable> table);
    [[nodiscard]] bool admission_to_end() const;
    void end_admission();

    [[nodiscard]] bool stopping() const;
    [[nodiscard]] bool wanted() const OUTBOX_REQUIRES(mutex_);
    void tell(const Status& why);

    const PostgresSourceConfig config_;
    const Table table_;
    Identity& identity_;
    Wakeup wakeup_;
    Wakeup admission_wakeup_;
    Wakeup stopped_;  // rings once, and is not cleared

    mutable core::Mutex mutex_;
    core::Condition changed_;
    std::vector<Subscription*> subscriptions_ OUTBOX_GUARDED_BY(mutex_);
    std::uint64_t offers_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::optional<Offer> offer_ OUTBOX_GUARDED_BY(mutex_);
    // The newest description of each type and table that was handed out, types first: a route that
    // comes later has not seen them. By kind and oid.
    std::map<std::pair<bool, std::uint32_t>, std::string> descriptions_ OUTBOX_GUARDED_BY(mutex_);
    std::string reason_ OUTBOX_GUARDED_BY(mutex_) = "no stream was begun yet";
    bool stop_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool end_admission_ OUTBOX_GUARDED_BY(mutex_) = false;    // it is to end
    bool admission_ended_ OUTBOX_GUARDED_BY(mutex_) = false;  // and did
    Backoff admissions_ OUTBOX_GUARDED_BY(mutex_);
    std::atomic<bool> stalled_{false};
    std::atomic<std::uint64_t> endings_{0};
    const std::string slot_prefix_ = make_slot_prefix();
    std::atomic<std::uint64_t> slots_{0};  // made so far, for their names
    std::atomic<Lsn> received_{0};
    std::atomic<std::int64_t> kept_bytes_{0};

    // Of the stream's thread.
    std::uint32_t table_oid_ = 0;
    std::string published_;  // before the slot was made, see `published_as`
    pgoutput::Message parsed_;
    std::uint32_t xid_ = 0;  // of the transaction that is being read
    Portion fresh_;          // read
    Portion held_;           // read before, and not all visible yet
    Clock::time_point held_since_{};
    Clock::time_point heard_{};
    Clock::time_point confirmed_{};
    Clock::time_point began_{};
    Backoff tries_;

    std::thread admission_;
    std::thread thread_;
};

}  // namespace outbox::postgres
