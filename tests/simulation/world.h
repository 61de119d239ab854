#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/fiber.h"

namespace outbox::simulation {

inline constexpr std::int64_t kMs = 1'000;
inline constexpr std::int64_t kSecond = 1'000'000;
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// All that happens by chance, from one seed.
class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::uint64_t bits() { return engine_(); }
    /// From `low` to `high`, both included.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool chance(double probability) {
        return static_cast<double>(bits() >> 11) * 0x1p-53 < probability;
    }
    std::size_t index(std::size_t size) { return static_cast<std::size_t>(bits() % size); }

  private:
    std::mt19937_64 engine_;
};

/// Thrown out of a blocking call when the process that made it is killed.
struct Killed {};

/// Time, and who moves when. Everything that lives here is a task: a fiber that sleeps, or waits
/// in a blocking call, and goes on in an order that the seed decides. Tasks of one group stand for
/// the threads of one process: they are paused and killed together.
class World {
  public:
    using TaskId = std::size_t;
    using Group = int;
    static constexpr Group kNoGroup = 0;  ///< Is never paused or killed.

    World(std::uint64_t seed, bool tracing) : random_(seed), tracing_(tracing) {}
    ~World() { end(); }
    /// Ends all tasks that still live, before what they use goes.
    void end();

    [[nodiscard]] std::int64_t now_us() const { return now_us_; }
    Random& random() { return random_; }

    TaskId spawn(Group group, std::string name, std::function<void()> body);
    [[nodiscard]] bool ended(TaskId task) const {
        return !tasks_[task]->fiber || tasks_[task]->fiber->finished();
    }
    [[nodiscard]] TaskId current() const { return current_; }
    /// Of the current task.
    [[nodiscard]] Group group() const { return tasks_[current_]->group; }
    /// The one whose task moves now; null: somebody beside the worlds does, or a task whose waits
    /// are to be real.
    static World* moving();
    /// The waits of the task that makes one are real for as long as that lives.
    class Reality {
      public:
        Reality();
        ~Reality();
        Reality(const Reality&) = delete;
        Reality& operator=(const Reality&) = delete;

      private:
        World* moving_;
    };
    /// Called before a task moves and after it: what belongs to a thread is a task's here.
    void on_switch(std::function<void(TaskId)> enters, std::function<void(TaskId)> leaves) {
        enters_ = std::move(enters);
        leaves_ = std::move(leaves);
    }
    /// What the ids end with that production code makes (receiving/ids.cpp).
    void end_ids_with(std::function<std::uint64_t()> bits) { id_bits_ = std::move(bits); }
    [[nodiscard]] bool makes_ids() const { return id_bits_ != nullptr; }
    [[nodiscard]] std::uint64_t id_bits() const { return id_bits_(); }
    [[nodiscard]] bool dying() const { return in_task_ && tasks_[current_]->killed; }
    /// From within a task: others go on meanwhile. Throws `Killed`.
    void sleep(std::int64_t us) { sleep_until(now_us_ + us); }
    void sleep_until(std::int64_t time_us);
    /// Ends the sleep of a task.
    void wake(TaskId task);

    /// The tasks of the group stand still until `until_us`.
    void pause(Group group, std::int64_t until_us);
    /// The tasks of the group end where they are, before anything else moves.
    void kill(Group group);

    /// Lets tasks move until `done` or the time is over. False: the time is over.
    bool run(std::int64_t until_us, const std::function<bool()>& done);

    [[nodiscard]] bool tracing() const { return tracing_; }
    void trace(const std::string& line);
    [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }
    /// Differs when two runs differ.
    [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

  private:
    struct Task {
        Group group = kNoGroup;
        std::string name;
        std::unique_ptr<Fiber> fiber;
        std::int64_t wake_us = 0;
        bool killed = false;
    };

    void resume(TaskId task);
    void bury();
    [[nodiscard]] std::int64_t wakes_at(const Task& task) const;

    Random random_;
    bool tracing_;
    std::int64_t now_us_ = 0;
    std::vector<std::unique_ptr<Task>> tasks_;
    std::vector<TaskId> living_;
    std::vector<TaskId> ready_;  // scratch of `run`
    std::vector<Group> dying_;
    std::vector<std::int64_t> paused_until_us_;  // by group
    TaskId current_ = 0;
    bool in_task_ = false;
    std::function<void(TaskId)> enters_;
    std::function<void(TaskId)> leaves_;
    std::function<std::uint64_t()> id_bits_;
    std::uint64_t fingerprint_ = 0;
    std::deque<std::string> lines_;
};

}  // namespace outbox::simulation
