#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/redis/config.h"
#include "brokers/redis/session.h"

namespace outbox::redis {

inline const spi::SinkCapabilities kCapabilities{"redis", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/true};

/// Appends to streams in batches that the server takes in order or not at all. README.md says how.
/// `poll` blocks up to the connect timeout of each host where there is no connection. Not
/// thread-safe.
class RedisSink final : public spi::Sink {
  public:
    explicit RedisSink(RedisConfig config);
    ~RedisSink() override;

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;
    void report(spi::SinkReport& out) override;

  private:
    using Time = std::chrono::steady_clock::time_point;
    struct Item {
        spi::Record record;
        std::size_t bytes = 0;  // as they count against the limits
    };

    void compare(const Session& session);
    void connect(Time now, spi::Completions& out);
    void send(Time now, spi::Completions& out);
    void receive(Time now, spi::Completions& out);
    void settle(const Verdict& verdict, spi::Completions& out);
    void lose(const Fault& fault, Time now, spi::Completions& out);
    bool blame_largest(const Fault& fault, spi::Completions& out);
    void fail_queue(const ErrorInfo& error, spi::Completions& out);
    void acknowledge(const Item& item, spi::Completions& out);
    void fail(const Item& item, spi::FailedRecord failed, spi::Completions& out);
    [[nodiscard]] std::string where() const;

    const RedisConfig config_;
    std::unique_ptr<Session> session_;
    std::deque<Item> queue_;              // not sent yet
    std::deque<std::vector<Item>> sent_;  // batches without a verdict
    std::size_t records_ = 0;             // in both
    std::size_t bytes_ = 0;
    spi::Completions refused_;                // what no entry holds, not told yet
    std::unordered_set<std::string> closed_;  // streams that take nothing before it is said
    Batch batch_;
    std::vector<Verdict> verdicts_;
    Time heard_;                     // when the server last said something, or had nothing to say
    std::optional<ErrorInfo> down_;  // why there is no session
    Time next_try_;
    std::uint32_t tries_ = 0;
    std::size_t host_ = 0;
    // In the last session, of this sink or of one before it.
    const std::shared_ptr<Place> reached_;
    std::vector<spi::SinkReport::Note> notes_;
};

}  // namespace outbox::redis
