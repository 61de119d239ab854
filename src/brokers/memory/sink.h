#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

#include "core/mutex.h"

namespace outbox::memory {

/// A record that arrived, copied.
struct StoredRecord {
    std::string topic;
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<std::pair<std::string, std::string>> headers;
    std::int64_t position = 0;
    std::string id;
};

/// Where memory sinks publish to: it keeps what arrives and fails as scripted. Thread-safe.
class Destination {
  public:
    /// Down: every record fails with kSinkUnavailable/retry_destination, and so does `check`.
    void set_down(bool down);
    /// Down: a part of the destination, whose records fail with kNoRights/retry_destination.
    void set_topic_down(const std::string& topic, bool down);
    /// Holds records back without an outcome until turned off.
    void set_paused(bool paused);
    /// The next `times` deliveries of the event with this id fail with `error`.
    void fail(const std::string& id, ErrorInfo error, std::size_t times);
    [[nodiscard]] std::vector<StoredRecord> records() const;
    /// How many records failed on a part that is down.
    [[nodiscard]] std::size_t refused() const;

  private:
    friend class MemorySink;
    std::optional<ErrorInfo> take_failure(const spi::Record& record) OUTBOX_REQUIRES(mutex_);
    [[nodiscard]] std::string part_down(const spi::Record& record, const ErrorInfo& error) const
        OUTBOX_REQUIRES(mutex_);

    struct Failure {
        ErrorInfo error;
        std::size_t times = 0;
    };
    mutable core::Mutex mutex_;
    core::Condition changed_;
    bool down_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool paused_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::map<std::string, Failure> failures_ OUTBOX_GUARDED_BY(mutex_);
    std::set<std::string> topics_down_ OUTBOX_GUARDED_BY(mutex_);
    std::size_t refused_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::vector<StoredRecord> records_ OUTBOX_GUARDED_BY(mutex_);
};

struct MemoryOptions {
    bool fail_stop_order = true;
    bool across_topics = true;         ///< Else a failure stops only what follows it on its topic.
    std::size_t max_records = 10'000;  ///< Under way at once; more makes `publish` return false.
};

/// Publishes to a `Destination`. With `fail_stop_order` a failed record fails everything that was
/// published behind it, whatever its key, as a broken connection does. Not thread-safe.
class MemorySink final : public spi::Sink {
  public:
    /// The destination is shared with the test that owns it and with later sinks.
    MemorySink(std::shared_ptr<Destination> destination, const MemoryOptions& options);

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return capabilities_;
    }
    Status check() override;
    Result<std::string> destination() override { return std::string("memory"); }
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;

  private:
    void deliver(spi::Completions& out) OUTBOX_REQUIRES(destination_->mutex_);

    std::shared_ptr<Destination> destination_;
    MemoryOptions options_;
    spi::SinkCapabilities capabilities_;
    std::deque<spi::Record> under_way_;
};

}  // namespace outbox::memory
