#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include <outbox/result.h>

#include "consumer/operator_sql.h"
#include "consumer/stop_signal.h"
#include "core/mutex.h"

namespace outbox::consumer {

constexpr std::int64_t kLeastRetentionS = 7'200;

/// Removes what one consumer need not remember any more, on a thread and a connection of its own,
/// in steps: no message waits for it, and it is as fast as what comes.
class Janitor {
  public:
    /// `open` is called on the janitor's thread. `retention_s` 0: never.
    Janitor(OpenSql open, std::string consumer, std::int64_t retention_s);
    ~Janitor() { stop(); }
    Janitor(const Janitor&) = delete;
    Janitor& operator=(const Janitor&) = delete;

    /// Begins with it, at the first call. An error that has not been told yet.
    std::optional<ErrorInfo> turn();
    /// Ends it, for ever; a step that waits for somebody's lock is broken off.
    void stop();

  private:
    void run();
    Status prune_all();

    const OpenSql open_;
    const std::string consumer_;
    const std::int64_t retention_s_;
    StopSignal stop_;
    core::Mutex mutex_;
    std::optional<ErrorInfo> error_ OUTBOX_GUARDED_BY(mutex_);  // not told yet
    Sql* at_work_ OUTBOX_GUARDED_BY(mutex_) = nullptr;
    std::thread thread_;
};

}  // namespace outbox::consumer
