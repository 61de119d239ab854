#include "tests/simulation/world.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

namespace outbox::simulation {

namespace {
constexpr std::size_t kLines = 20'000;
constexpr std::int64_t kStepMaxUs = 10;  // what a task's own work takes

World* moving_world = nullptr;
}  // namespace

World* World::moving() {
    return moving_world;
}

World::Reality::Reality() : moving_(std::exchange(moving_world, nullptr)) {}

World::Reality::~Reality() {
    moving_world = moving_;
}

void World::end() {
    for (TaskId task = tasks_.size(); task-- > 0;) {
        if (ended(task)) continue;
        tasks_[task]->killed = true;
        resume(task);
    }
}

World::TaskId World::spawn(Group group, std::string name, std::function<void()> body) {
    auto task = std::make_unique<Task>();
    Task* self = task.get();
    task->group = group;
    task->name = std::move(name);
    task->wake_us = now_us_;
    // Nobody of its process is left to wait for it.
    task->killed = dying() && group != kNoGroup;
    task->fiber = std::make_unique<Fiber>([self, body = std::move(body)] {
        if (self->killed) return;
        try {
            body();
        } catch (const Killed&) {
            return;
        }
    });
    const auto index = static_cast<std::size_t>(group);
    if (paused_until_us_.size() <= index) paused_until_us_.resize(index + 1, 0);
    tasks_.push_back(std::move(task));
    living_.push_back(tasks_.size() - 1);
    return tasks_.size() - 1;
}

void World::sleep_until(std::int64_t time_us) {
    Task& task = *tasks_[current_];
    if (task.killed) throw Killed();
    task.wake_us = time_us;
    task.fiber->suspend();
    if (task.killed) throw Killed();
}

void World::wake(TaskId task) {
    tasks_[task]->wake_us = std::min(tasks_[task]->wake_us, now_us_);
}

void World::pause(Group group, std::int64_t until_us) {
    // It may have no task yet.
    const auto index = static_cast<std::size_t>(group);
    if (paused_until_us_.size() <= index) paused_until_us_.resize(index + 1, 0);
    paused_until_us_[index] = until_us;
}

void World::kill(Group group) {
    dying_.push_back(group);
}

std::int64_t World::wakes_at(const Task& task) const {
    return std::max(task.wake_us, paused_until_us_[static_cast<std::size_t>(task.group)]);
}

void World::resume(TaskId task) {
    current_ = task;
    if (enters_) enters_(task);
    in_task_ = true;
    moving_world = this;
    tasks_[task]->fiber->resume();
    moving_world = nullptr;
    in_task_ = false;
    if (leaves_) leaves_(task);
}

// Youngest first: a process's first task owns what the others use.
void World::bury() {
    for (const Group group : std::exchange(dying_, {})) {
        for (TaskId task = tasks_.size(); task-- > 0;) {
            if (tasks_[task]->group != group || ended(task)) continue;
            tasks_[task]->killed = true;
            resume(task);
        }
    }
}

bool World::run(std::int64_t until_us, const std::function<bool()>& done) {
    while (now_us_ < until_us) {
        if (!dying_.empty()) bury();
        if (done()) return true;
        std::erase_if(living_, [&](TaskId task) {
            if (!ended(task)) return false;
            tasks_[task]->fiber.reset();
            return true;
        });
        ready_.clear();
        std::int64_t next_us = until_us;
        for (const TaskId task : living_) {
            const std::int64_t wakes_us = wakes_at(*tasks_[task]);
            if (wakes_us <= now_us_) ready_.push_back(task);
            next_us = std::min(next_us, wakes_us);
        }
        if (ready_.empty()) {
            now_us_ = next_us;
            continue;
        }
        const TaskId task = ready_[random_.index(ready_.size())];
        fingerprint_ =
            (fingerprint_ ^ (task + static_cast<std::uint64_t>(now_us_))) * 0x100000001b3;
        resume(task);
        now_us_ += random_.between(0, kStepMaxUs);
    }
    return done();
}

void World::trace(const std::string& line) {
    if (!tracing_) return;
    char time[32];
    std::snprintf(time, sizeof time, "%11.6f  ", static_cast<double>(now_us_) / 1e6);
    lines_.push_back(time + line);
    if (lines_.size() > kLines) lines_.pop_front();
}

}  // namespace outbox::simulation
