#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"
#include "webhook/census.h"
#include "webhook/dispatch_options.h"
#include "webhook/endpoint_queue.h"
#include "webhook/queues.h"
#include "webhook/remark.h"
#include "webhook/sender.h"
#include "webhook/store.h"

namespace outbox::webhook {

/// What the metrics show of a dispatcher.
struct DispatcherStats {
    bool dispatching = false;  ///< This process delivers; else another does, or none can.
    std::int64_t enabled = 0;  ///< Endpoints.
    std::int64_t disabled = 0;
    std::int64_t paused = 0;   ///< Enabled ones whose circuit is open, or that asked for a pause.
    std::int64_t waiting = 0;  ///< Deliveries, by the last count.
    std::int64_t dead = 0;
    std::int64_t under_way = 0;
    std::int64_t delivered_total = 0;  ///< By this process, as are the others.
    std::int64_t failed_total = 0;     ///< Attempts.
};

/// Delivers what the table holds, as long as it has the table's lease: each endpoint by a queue of
/// its own (`EndpointQueue`), so that one that hangs or fails, or whose row somebody holds, delays
/// no other. Turns are taken by one thread. Limits are those of `DispatchOptions`; an endpoint that
/// others crowd out gets its turn in a circle.
class Dispatcher {
  public:
    struct Deps {
        Outlet& outlet;
        Sender& sender;
        Queues& queues;
        const core::Clock& clock;
    };
    Dispatcher(const Deps& deps, DispatchOptions options);

    /// Takes what has come, sends what may go, and waits up to `max_wait` if there was nothing.
    void turn(std::chrono::milliseconds max_wait);
    /// Waits for what is under way, for about two seconds, breaks off the rest, records what is
    /// known, and frees the lease.
    void finish();

    /// From any thread.
    [[nodiscard]] DispatcherStats stats() const;
    [[nodiscard]] std::vector<Remark> take_remarks();

  private:
    struct Attempt {
        EndpointQueue* queue = nullptr;
        std::int64_t position = 0;
        bool unproven = false;
        std::string host = {};
    };

    [[nodiscard]] Now now() const { return {deps_.clock.boot_us(), deps_.clock.wall_us()}; }
    bool keep_lease();
    bool take_lease(std::int64_t started_us);
    void lose_lease();
    bool look_around();
    Status read_endpoints();
    Status read_backlog();
    void count_on();
    void take_news();
    void ended(const Attempt& attempt);
    [[nodiscard]] bool host_is_full(const EndpointQueue& queue) const;
    [[nodiscard]] bool is_one_too_many(const EndpointQueue& queue) const;
    [[nodiscard]] bool leaves_places(const EndpointQueue& queue) const;
    [[nodiscard]] std::size_t share_of(const EndpointQueue& queue) const;
    void drop(const std::string& endpoint);
    void tell_own_faults();
    void forget_all();
    bool fill();
    void add_with_room(std::vector<EndpointQueue*>& out);
    void add_hungry(EndpointQueue::Standing standing, std::size_t most, const Now& at,
                    std::vector<EndpointQueue*>& out);
    bool read_for(const std::vector<EndpointQueue*>& hungry, std::size_t max_bytes);
    void adapt(std::int64_t took_us, std::size_t bytes);
    bool lease_holds() const { return epoch_ != 0 && deps_.clock.boot_us() < valid_until_us_; }
    bool send();
    void judge(const std::vector<Attempted>& attempts);
    bool flush(bool all, bool last = false);
    [[nodiscard]] bool is_unrecorded(const EndpointQueue& queue) const {
        return !unrecorded_.empty() && unrecorded_.contains(queue.endpoint().id);
    }
    [[nodiscard]] bool waits_to_be_recorded(const std::string& endpoint) const {
        const auto found = unrecorded_.find(endpoint);
        return found != unrecorded_.end() && !found->second.is_tried;
    }
    void take_up_unrecorded(const Now& at, bool last);
    void recorded(const std::vector<std::string>& held, const std::vector<EndpointChange>& changes);
    void untold(const EndpointChange& change);
    bool failed(const Status& status);
    void worked();
    void remark(Remark::Level level, std::string what,
                std::vector<std::pair<std::string, std::string>> fields);
    void publish_stats();

    Deps deps_;
    const DispatchOptions options_;
    std::mt19937_64 random_;
    Census census_;

    std::uint64_t epoch_ = 0;  // 0: another has the lease
    std::int64_t valid_until_us_ = 0;
    std::int64_t renew_at_us_ = 0;
    std::int64_t retry_at_us_ = 0;  // after an error of the database
    bool away_ = false;             // the database, and it was said
    bool standing_by_ = false;

    std::unordered_map<std::string, std::unique_ptr<EndpointQueue>> queues_;
    std::vector<EndpointQueue*> circle_;  // of the same
    std::size_t next_;                    // in the circle
    std::unordered_map<std::uint64_t, Attempt> under_way_;
    struct OfHost {
        std::size_t attempts = 0;
        std::size_t unproven = 0;  // of endpoints that have not succeeded last
    };
    std::unordered_map<std::string, OfHost> of_host_;            // of these
    std::unordered_map<std::string, std::size_t> busy_of_host_;  // endpoints
    std::uint64_t last_token_ = 0;
    std::size_t share_ = 1;          // of an endpoint, but for its host's
    std::size_t read_bytes_;         // in one statement
    std::size_t unproven_ = 0;       // as those of a host
    std::vector<Outcome> outcomes_;  // to be recorded
    std::int64_t oldest_outcome_us_ = 0;
    bool not_recorded_ = false;  // nothing could be, the last time
    // Of endpoints of which another transaction holds rows, by their ids: nothing is read for them
    // until it is recorded. Bounded by what of an endpoint is in memory.
    struct Unrecorded {
        std::vector<Outcome> outcomes;
        int tries = 0;
        std::int64_t try_at_us = 0;
        bool is_tried = false;  // its outcomes are among those to be recorded
    };
    std::unordered_map<std::string, Unrecorded> unrecorded_;
    std::int64_t look_at_us_ = 0;
    std::int64_t look_everywhere_at_us_ = 0;
    std::optional<std::int64_t> life_;      // of the table's positions
    std::optional<std::uint64_t> session_;  // that they were read in
    std::vector<std::string> gone_;         // endpoints whose deliveries are to be removed
    std::vector<Attempted> attempted_;
    std::set<std::string> own_faults_;  // that were said

    DispatcherStats mine_;
    mutable core::Mutex mutex_;
    DispatcherStats stats_ OUTBOX_GUARDED_BY(mutex_);
    std::vector<Remark> remarks_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::webhook
