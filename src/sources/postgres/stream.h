#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <outbox/result.h>

#include "sources/postgres/config.h"
#include "sources/postgres/identity.h"
#include "sources/postgres/pgoutput.h"
#include "sources/postgres/replication.h"
#include "sources/postgres/row_decoder.h"
#include "sources/postgres/table.h"

namespace outbox::postgres {

/// Messages of the stream, one behind the other.
class StreamQueue {
  public:
    void add(std::string_view message);
    void append(const StreamQueue& other);
    /// The next message, valid until the next change; null `data()`: none is left.
    [[nodiscard]] std::string_view front() const;
    void pop();
    [[nodiscard]] bool empty() const { return next_ == ends_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_.size() - begin_; }
    void clear();
    void swap(StreamQueue& other) noexcept;

  private:
    std::vector<char> bytes_;
    std::vector<std::size_t> ends_;
    std::size_t next_ = 0;
    std::size_t begin_ = 0;  // of the next message
};

/// The one stream of the log of a relay process: a temporary slot, read by one thread, whose
/// messages go to the queues of the routes that have joined. It starts when a route wants it and
/// ends when none does.
///
/// A stream serves only those routes that joined at its beginning, in the slot's own snapshot. One
/// that comes later, or could not keep up, waits for the next generation, which then begins anew
/// for all: the routes read the table meanwhile, which is right at any moment.
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
        std::uint64_t generation = 0;
        std::string snapshot;  ///< For SET TRANSACTION SNAPSHOT; shows all that will not come.
        /// What the rows are decoded by. Shared by the routes and the hub; nobody changes it.
        std::shared_ptr<const StreamTable> table;
    };
    enum class State : std::uint8_t {
        kOff,     ///< Does not take part.
        kOn,      ///< Gets all that was committed since the snapshot it joined in.
        kBehind,  ///< Its queue overflowed.
        kLost,    ///< The stream ended.
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
        // Guarded by the hub's mutex.
        State state_ = State::kOff;
        bool wants_ = false;
        bool offered_ = false;
        std::uint64_t generation_ = 0;
        StreamQueue queue_;
        std::condition_variable something_;
    };

    /// Why there is no stream, or how it ended last; empty while there is one.
    [[nodiscard]] std::string reason() const;
    /// Rises when `reason` may have changed.
    [[nodiscard]] std::uint64_t endings() const { return endings_.load(std::memory_order_acquire); }

  private:
    using Clock = std::chrono::steady_clock;

    void add(Subscription& subscription);
    void remove(Subscription& subscription);
    void want(Subscription& subscription);
    std::optional<Offer> offer(Subscription& subscription);
    bool answer(Subscription& subscription, const Offer& offer, bool join);
    State take(Subscription& subscription, StreamQueue& empty);
    void leave(Subscription& subscription);
    bool wait(Subscription& subscription, std::chrono::milliseconds max_wait);

    void run();
    bool wait_until_wanted();
    Status serve();
    Result<std::shared_ptr<const StreamTable>> describe_table() const;
    Status offer_to_routes(const ReplicationStream::Slot& slot,
                           std::shared_ptr<const StreamTable> table);
    Status pump(ReplicationStream& stream, Lsn start);
    Status drain(ReplicationStream& stream, bool& any);
    Status take_message(ReplicationStream& stream, std::string_view bytes);
    void hand_out();
    Status confirm(ReplicationStream& stream, bool request_reply);
    [[nodiscard]] bool stopping() const;
    [[nodiscard]] bool wanted() const;  // with the mutex held
    [[nodiscard]] bool goes_on(Clock::time_point began) const;
    void end_generation(const Status& why);

    const PostgresSourceConfig config_;
    const Table table_;
    Identity& identity_;
    Wakeup wakeup_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Subscription*> subscriptions_;
    std::uint64_t generation_ = 0;
    std::optional<Offer> offer_;
    std::string reason_ = "no stream was begun yet";
    bool stop_ = false;
    std::atomic<bool> stalled_{false};
    std::atomic<std::uint64_t> endings_{0};

    // Of the thread.
    std::uint32_t table_oid_ = 0;
    StreamQueue fresh_;  // read and not yet handed out
    Lsn received_ = 0;
    Clock::time_point heard_{};
    Clock::time_point confirmed_{};
    Clock::time_point next_try_{};
    std::chrono::milliseconds backoff_{};

    std::thread thread_;
};

}  // namespace outbox::postgres
