#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Clang's thread-safety analysis (clang.llvm.org/docs/ThreadSafetyAnalysis.html), which
// `script/lint` runs: what is guarded by a mutex is touched only while it is held. libstdc++'s
// mutex has no such attributes, so this one has them. Other compilers see nothing.
#ifdef __clang__
#define OUTBOX_ATTRIBUTE(x) __attribute__((x))
#else
#define OUTBOX_ATTRIBUTE(x)
#endif
#define OUTBOX_GUARDED_BY(mutex) OUTBOX_ATTRIBUTE(guarded_by(mutex))
/// On a function, or behind the parameters of a lambda: the caller holds it.
#define OUTBOX_REQUIRES(mutex) OUTBOX_ATTRIBUTE(requires_capability(mutex))
#define OUTBOX_UNCHECKED OUTBOX_ATTRIBUTE(no_thread_safety_analysis)

namespace outbox::core {

/// A mutex that the analysis knows; not recursive. By `Lock` alone, or `Condition`.
class OUTBOX_ATTRIBUTE(capability("mutex")) Mutex {
  public:
    Mutex() = default;
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() OUTBOX_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
    void unlock() OUTBOX_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

  private:
    friend class Condition;
    std::mutex mutex_;
};

/// Holds a mutex for as long as it lives, but for the time between `unlock` and `lock`.
class OUTBOX_ATTRIBUTE(scoped_lockable) Lock {
  public:
    explicit Lock(Mutex& mutex) OUTBOX_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
        mutex_.lock();
    }
    ~Lock() OUTBOX_ATTRIBUTE(release_capability()) {
        if (held_) mutex_.unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    void unlock() OUTBOX_ATTRIBUTE(release_capability()) {
        mutex_.unlock();
        held_ = false;
    }
    void lock() OUTBOX_ATTRIBUTE(acquire_capability()) {
        mutex_.lock();
        held_ = true;
    }

  private:
    Mutex& mutex_;
    bool held_ = true;
};

/// A condition variable. Each wait lets go of the mutex, which the caller holds, and has it again
/// when it returns.
class Condition {
  public:
    void notify_one() { condition_.notify_one(); }
    void notify_all() { condition_.notify_all(); }

    template <typename Holds>
    void wait(Mutex& mutex, const Holds& holds) OUTBOX_REQUIRES(mutex) OUTBOX_UNCHECKED {
        std::unique_lock lock(mutex.mutex_, std::adopt_lock);
        condition_.wait(lock, holds);
        lock.release();
    }
    /// False: the time is over and it does not hold.
    template <typename Duration, typename Holds>
    bool wait_for(Mutex& mutex, const Duration& most, const Holds& holds)
        OUTBOX_REQUIRES(mutex) OUTBOX_UNCHECKED {
        std::unique_lock lock(mutex.mutex_, std::adopt_lock);
        const bool held = condition_.wait_for(lock, most, holds);
        lock.release();
        return held;
    }

    template <typename Time, typename Holds>
    bool wait_until(Mutex& mutex, const Time& end, const Holds& holds)
        OUTBOX_REQUIRES(mutex) OUTBOX_UNCHECKED {
        std::unique_lock lock(mutex.mutex_, std::adopt_lock);
        const bool held = condition_.wait_until(lock, end, holds);
        lock.release();
        return held;
    }

  private:
    std::condition_variable condition_;
};

}  // namespace outbox::core
