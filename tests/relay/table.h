#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/source.h>

#include "core/clock.h"

namespace outbox::test {

/// An outbox table in memory that several relays share, each through a source of its own. Commits
/// are atomic, so that no position comes late: what relays do with threads is tested here, what
/// they do with late commits in the simulation. Thread-safe.
class Table {
  public:
    /// One committed event.
    void insert(const std::string& id, const std::string& key, const std::string& topic = "",
                const std::string& tenant = "", const std::string& payload = "{}");
    /// Somebody else takes out the row with this id.
    void remove(const std::string& id);
    /// One that was delayed and is due. Times in microseconds since the Unix epoch.
    void insert_delayed(const std::string& id, const std::string& key, std::int64_t occurred_at_us,
                        std::int64_t available_at_us);
    [[nodiscard]] std::size_t unfinished() const;
    /// Rows of which a reader returned the position alone.
    [[nodiscard]] std::size_t passed_over() const { return passed_over_; }
    [[nodiscard]] std::size_t dead() const;
    [[nodiscard]] std::string owner() const;
    [[nodiscard]] std::uint64_t epoch() const;
    /// Calls fail as if the server were gone.
    void set_away(bool away) { away_ = away; }
    /// The lease can be had, and nothing else: as with a full disk, or a role at its limit of
    /// connections.
    void set_lease_only(bool lease_only) { lease_only_ = lease_only; }
    /// Each term finds at its beginning that the server is another one.
    void set_changing(bool changing) { changing_ = changing; }
    /// Terms do not get further than their beginning until this is taken back.
    void set_slow_start(bool slow_start) { slow_start_ = slow_start; }
    /// Reads do not return until this is taken back.
    void set_hanging_reads(bool hanging) { hanging_reads_ = hanging; }
    /// What the lease lasts by, instead of the system's time. Before anything is connected.
    void set_clock(const core::Clock& clock) { clock_ = &clock; }
    /// Called as the lease is given, which takes as long. Before anything is connected.
    void on_acquire(std::function<void()> called) { on_acquire_ = std::move(called); }
    /// How often an owner has renewed the lease.
    [[nodiscard]] int renewals() const { return renewals_; }
    /// The lease's holder is forgotten, as if its backend were gone.
    void drop_lease();
    /// The same, and another relay had a term since.
    void let_another_lead();
    /// A backup was restored: the lease is lost first, then a read says that the server changed.
    void replace_server() { replaced_ = true; }
    /// What the database is found to have lost from now on.
    void set_ghosts(std::vector<spi::Ghost> ghosts);

    std::unique_ptr<spi::Source> connect();

  private:
    friend class TableReader;
    friend class TableRecorder;
    friend class TableLease;
    friend class TableSource;

    struct Row {
        std::string id;
        std::string key;
        std::string topic;
        std::int64_t occurred_at_us = 0;
        std::int64_t available_at_us = 0;
        std::string tenant = {};
        std::string payload = "{}";
    };
    [[nodiscard]] std::chrono::microseconds now() const;
    [[nodiscard]] Status reach() const;
    [[nodiscard]] Status reach_reading();

    mutable std::mutex mutex_;
    std::atomic<bool> away_{false};
    std::atomic<bool> lease_only_{false};
    std::atomic<bool> changing_{false};
    std::atomic<bool> slow_start_{false};
    std::atomic<bool> hanging_reads_{false};
    std::atomic<bool> replaced_{false};
    std::atomic<bool> lease_forgotten_{false};
    std::atomic<int> renewals_{0};
    std::atomic<std::size_t> passed_over_{0};
    spi::Position last_position_ = 0;
    std::map<spi::Position, Row> rows_;
    std::vector<std::string> routes_;
    std::map<std::string, spi::PositionSet> ledgers_;
    std::map<std::string, std::string> destinations_;
    std::map<std::pair<std::string, spi::Position>, spi::Delivery> deliveries_;
    std::map<std::pair<std::string, spi::Position>, std::string> dead_;  // to the event's key
    std::vector<spi::Ghost> ghosts_;
    std::string owner_;
    std::uint64_t epoch_ = 0;
    std::chrono::microseconds lease_until_{};
    const core::Clock* clock_ = nullptr;
    std::function<void()> on_acquire_;
};

}  // namespace outbox::test
