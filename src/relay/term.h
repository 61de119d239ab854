#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "relay/housekeeper.h"
#include "relay/outcome_queue.h"
#include "relay/pipeline.h"
#include "relay/record_keeper.h"
#include "relay/remover.h"

namespace outbox::relay {

/// One time of holding the lease: a thread for each route, one that records, one that removes what
/// is recorded, and one for chores. Everything that they remember ends with the term; the database
/// keeps what the next one needs.
class Term {
  public:
    struct Deps {
        spi::Source& source;
        std::span<RouteSpec> routes;
        std::span<RouteStats* const> stats;
        const RelayOptions& options;
        const core::Clock& clock;
        const LeaseView& lease;
        const Notify& notify;
        std::uint64_t epoch;
    };

    /// Opens connections and sinks and reads what the last owner left. Starts no thread yet.
    static Result<std::unique_ptr<Term>> open(const Deps& deps);
    Term(const Term&) = delete;
    Term& operator=(const Term&) = delete;
    /// Ends at once what `finish` has not ended.
    ~Term();

    void start();
    /// Stop reading and sending, wait up to `grace_ms` for what is in flight, then record all
    /// outcomes and remove what is recorded. Joins the threads.
    void finish(std::int64_t grace_ms);

    /// A thread met something that ends the term: the lease is lost, or an error that stops.
    [[nodiscard]] bool over() const { return over_.load(std::memory_order_acquire); }
    [[nodiscard]] Status error() const;
    [[nodiscard]] spi::Recorder::Stats database_stats() const;

  private:
    explicit Term(const Deps& deps) : deps_(deps), queue_(deps.routes.size()) {}

    /// A thread's work with the database: turns until it is told to end.
    struct Work {
        const char* failed;  ///< What its failure is called in a note.
        const char* recovered;
        std::function<Status()> turn;
        std::function<bool()> done;       ///< Asked once `ending`: nothing is left to do.
        const std::atomic<bool>& ending;  ///< What hands it work has ended.
    };
    void run_route(std::size_t route);
    void run(const Work& work);
    Status record();
    Status remove();
    [[nodiscard]] bool late() const;
    void end(const Status& why);

    Deps deps_;
    OutcomeQueue queue_;
    std::unique_ptr<spi::Recorder> recorder_;
    std::unique_ptr<spi::Recorder> removals_;
    std::unique_ptr<spi::Recorder> chores_;
    std::unique_ptr<Remover> remover_;
    std::vector<std::unique_ptr<spi::Reader>> readers_;
    std::vector<std::unique_ptr<Pipeline>> pipelines_;
    std::vector<std::unique_ptr<spi::Sink>> sinks_;  // go before the events that they still send
    std::unique_ptr<RecordKeeper> keeper_;
    std::unique_ptr<Housekeeper> housekeeper_;
    std::vector<std::thread> route_threads_;
    std::thread recorder_thread_;
    std::thread remover_thread_;
    std::thread housekeeper_thread_;
    bool housekept_ = false;  // the last turn of it went well; the thread's until it ended
    std::atomic<bool> over_{false};
    std::atomic<bool> draining_{false};
    std::atomic<std::int64_t> drain_until_us_{0};
    std::atomic<bool> routes_done_{false};
    std::atomic<bool> recorder_done_{false};
    mutable core::Mutex mutex_;
    Status error_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::relay
