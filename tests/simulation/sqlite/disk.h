#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulation/settings.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

/// Processes of services have such a group or a higher one, relays a lower one.
inline constexpr World::Group kFirstService = 1'000;

/// The machine under SQLite: its files, its clocks and its chance. The production code opens its
/// database as always and gets a VFS that passes everything on to the system's, with what a history
/// wants in between: calls take time, in which others move, and fail; who waits for a lock sleeps
/// in simulated time; a process that is killed writes nothing more and lets go of its locks; what
/// was not synced is lost with the power.
class Disk {
  public:
    Disk(World& world, const Settings& settings, const std::int64_t& wall_offset_us);
    ~Disk();
    Disk(const Disk&) = delete;
    Disk& operator=(const Disk&) = delete;

    /// Of the history that moves; null: none does, or whose waits are to be real.
    static Disk* current();

    /// What the clocks on the machine's wall show, since the Unix epoch.
    [[nodiscard]] std::int64_t wall_us() const;
    [[nodiscard]] World& world() const { return world_; }

    /// A guard that is taken out of a statement of ours: it runs with `to` in place of `from`.
    struct Plant {
        std::string from;
        std::string to;
    };
    void plant(Plant plant) { plant_ = std::move(plant); }
    /// How many statements it was taken out of.
    [[nodiscard]] std::size_t planted() const { return planted_; }
    [[nodiscard]] std::string_view as_planted(std::string_view sql, std::string& changed);

    // Called in place of SQLite's functions.
    /// A statement begins, which takes its time; how much of it is for after its answer.
    [[nodiscard]] std::int64_t before_statement(bool reads);
    /// Ends a task whose process is gone, where that may be; or takes the rest of the time.
    void after_statement(std::int64_t us) const;

    enum class Call : std::uint8_t { kOpen, kRead, kWrite, kSync, kTruncate, kDelete, kLock };
    /// Before a file is touched. Not 0: the call fails with it.
    int before(Call call);
    void nap(std::int64_t us);
    [[nodiscard]] std::uint64_t bits() { return chance_.bits(); }

    // Chaos.
    /// Until then whatever relays do with the files fails.
    void away_until(std::int64_t until_us) { away_until_us_ = until_us; }
    /// Until then nobody's file grows.
    void full_until(std::int64_t until_us) { full_until_us_ = until_us; }
    /// Told when a call takes long, and how long.
    void on_slow(std::function<void(std::int64_t)> tell) { slow_ = std::move(tell); }

    /// From now on what is not synced is lost with the power.
    void can_lose_power() { remembers_ = true; }
    [[nodiscard]] bool remembers() const { return remembers_; }
    /// What the file held in a place that is written to, and how long it was.
    struct Before {
        std::int64_t offset = 0;
        std::string bytes;
        std::int64_t size = 0;
    };
    void wrote(const std::string& path, Before before);
    void synced(const std::string& path);
    /// A file is about to be deleted; `for_good`: its folder is synced then. Else it may be there
    /// again once the power has failed.
    void deletes(const std::string& path, bool for_good);
    /// No process is left that has a file open.
    void lose_power();

    [[nodiscard]] std::size_t statements() const { return statements_; }
    [[nodiscard]] std::size_t waits() const { return waits_; }
    [[nodiscard]] std::size_t failed() const { return failed_; }

  private:
    [[nodiscard]] int failure(Call call);

    World& world_;
    const Settings& settings_;
    const std::int64_t& wall_offset_us_;
    Random chance_;  // what SQLite is given
    std::int64_t away_until_us_ = 0;
    std::int64_t full_until_us_ = 0;
    std::function<void(std::int64_t)> slow_;
    Plant plant_;
    bool remembers_ = false;
    std::map<std::string, std::vector<Before>> unsynced_;  // by path, as it was written
    std::map<std::string, std::string> deleted_;           // what was in files that may come again
    std::size_t planted_ = 0;
    std::size_t statements_ = 0;
    std::size_t waits_ = 0;
    std::size_t failed_ = 0;
};

}  // namespace outbox::simulation
