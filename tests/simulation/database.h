#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/source.h>

#include "core/read_mark.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

/// A database with an outbox table as PostgreSQL has it: a position is taken at insert under a
/// lock that others see, rows become visible at commit, and what is rolled back leaves a hole.
/// Every change is told to the judge. Its functions take no time; the callers' waits do.
class Database {
  public:
    Database(World& world, Judge& judge) : world_(world), judge_(judge) {}

    // Writers.
    using TransactionId = std::int64_t;
    TransactionId begin();
    [[nodiscard]] bool lock_key(TransactionId transaction, const std::string& key);
    /// The transaction holds the table's lock from here on, and takes a position.
    Position take_position(TransactionId transaction);
    void insert(TransactionId transaction, SimEvent event);
    /// Back to the savepoint before the last `count` events.
    void roll_back_events(TransactionId transaction, std::size_t count);
    void prepare(TransactionId transaction);
    /// The commit is in the log, and so in the stream, before others see it; `commit` follows.
    void write_commit(TransactionId transaction);
    void commit(TransactionId transaction);
    void roll_back(TransactionId transaction);

    // Relays.
    [[nodiscard]] const std::map<Position, SimEvent>& rows() const { return rows_; }
    [[nodiscard]] std::vector<core::Writer> writers() const;
    Status record(const spi::RecordBatch& batch);
    /// Those of `positions` that are there leave the table and the ledgers; `hit` gets
    /// them.
    Status remove(std::uint64_t epoch, std::span<const Position> positions,
                  std::vector<Position>& hit);
    /// These leave the ledgers: they never were there, by proof.
    Status forget(std::uint64_t epoch, std::span<const Position> gone);

    // The log.
    struct Logged {
        std::int64_t written_us = 0;
        SimEvent event;
    };
    [[nodiscard]] const std::vector<Logged>& log() const { return log_; }
    [[nodiscard]] std::set<TransactionId> open_transactions() const;
    /// What a slot's snapshot shows: all that is in the log, visible to others or not.
    [[nodiscard]] std::map<Position, SimEvent> snapshot() const;
    /// Streams that were begun before the last cut are over.
    void cut_streams() { ++cuts_; }
    [[nodiscard]] int cuts() const { return cuts_; }
    /// A standby takes over, with all that was committed.
    void promote() {
        ++timeline_;
        ++cuts_;
    }
    [[nodiscard]] int timeline() const { return timeline_; }
    [[nodiscard]] std::vector<spi::Delivery> deliveries(std::string_view route) const;
    Result<spi::Beginning> begin_term(std::uint64_t epoch, std::span<const spi::RouteName> routes);
    [[nodiscard]] std::vector<spi::DeadLetter> redeliveries(std::string_view route,
                                                            std::int64_t after,
                                                            std::size_t limit) const;
    [[nodiscard]] std::vector<spi::DeadKey> dead_keys(std::string_view route) const;
    [[nodiscard]] std::size_t dead_letters() const { return dead_.size(); }
    /// What is kept of events that are finished; empty: nothing.
    [[nodiscard]] std::string lingering() const;

    // The lease, by the database's clock. `session` is the connection that holds it.
    int new_session() { return ++sessions_; }
    std::optional<std::uint64_t> acquire(int session, std::int64_t ttl_us);
    bool renew(int session, std::uint64_t epoch, std::int64_t ttl_us);
    void release(std::uint64_t epoch);
    /// The server has noticed that the connection is gone.
    void session_gone(int session);
    [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

    // The operator.
    /// Mends what was wrong with all dead events and asks to deliver them again.
    void retry_all_dead();

    /// What every clock on the wall shows beyond the time since the start.
    std::int64_t wall_offset_us = 1'700'000'000 * kSecond;
    /// Until when relays cannot reach it.
    std::int64_t away_until_us = 0;

  private:
    struct Transaction {
        bool writes = false;
        bool prepared = false;
        bool logged = false;
        std::vector<SimEvent> events;
        std::vector<std::string> keys;
    };
    struct Dead {
        std::string route;
        SimEvent event;
        std::uint32_t attempts = 0;
        std::string error_code;
        std::string error;
        bool retry = false;
    };
    void end(TransactionId transaction);

    World& world_;
    Judge& judge_;
    TransactionId next_transaction_ = 1;
    Position next_position_ = 1;
    std::map<TransactionId, Transaction> transactions_;
    std::set<std::string> locked_keys_;
    std::map<Position, SimEvent> rows_;  // visible and unfinished
    std::vector<Logged> log_;
    int cuts_ = 0;
    int timeline_ = 1;

    std::map<std::pair<std::string, Position>, spi::Delivery> deliveries_;
    std::vector<std::string> routes_;
    std::map<std::string, spi::PositionSet> ledgers_;
    std::map<std::int64_t, Dead> dead_;
    std::int64_t next_dead_id_ = 1;

    std::uint64_t epoch_ = 0;
    int sessions_ = 0;
    int holder_ = 0;  // the session
    bool holder_gone_ = true;
    std::int64_t lease_until_us_ = 0;
};

/// The event as the relay carries it.
void add_to(spi::EventBatch& batch, const SimEvent& event);

}  // namespace outbox::simulation
