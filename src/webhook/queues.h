#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/mutex.h"
#include "webhook/store.h"

namespace outbox::webhook {

/// What the route that writes deliveries and the dispatcher of the same process tell each other:
/// how long each endpoint's queue is, and where something new waits. Thread-safe.
class Queues {
  public:
    Queues();
    ~Queues();
    Queues(const Queues&) = delete;
    Queues& operator=(const Queues&) = delete;

    /// Can be read while there is news.
    [[nodiscard]] int wake_fd() const { return wake_fd_; }
    void wake() const;

    /// An endpoint has as many as that now.
    void looked(std::string_view endpoint, std::int64_t rows);
    /// So many more are to be written.
    void expect(std::string_view endpoint, std::int64_t rows);
    /// Whether so many more would go in, as far as is known here.
    [[nodiscard]] bool has_room(std::string_view endpoint, std::int64_t rows) const;
    /// Those are written.
    void written(std::string_view endpoint);
    /// Those were not, or were there already.
    void take_back(std::string_view endpoint, std::int64_t rows);
    void removed(std::string_view endpoint, std::int64_t rows);
    /// A look through the table begins: these were counted in it; and it ends. What it did not
    /// find has only what came meanwhile.
    void begin_count();
    void count(const std::vector<Count>& counts);
    void end_count();

    /// Endpoints with something new since the last call.
    [[nodiscard]] std::unordered_set<std::string> take_news();

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };
    struct Length {
        std::int64_t rows = 0;
        std::int64_t since = 0;  // of these, more or fewer than as the look began
        bool counted = false;    // in it
    };
    Length& of(std::string_view endpoint) OUTBOX_REQUIRES(mutex_);
    void add(std::string_view endpoint, std::int64_t rows) OUTBOX_REQUIRES(mutex_);

    int wake_fd_;
    mutable core::Mutex mutex_;
    std::unordered_map<std::string, Length, Hash, std::equal_to<>> lengths_
        OUTBOX_GUARDED_BY(mutex_);
    std::unordered_set<std::string> news_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::webhook
