#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <outbox/result.h>

namespace outbox {

/// Who relays, or did last.
struct LeaseInfo {
    std::string owner;  ///< Empty: free.
    std::uint64_t epoch = 0;
    bool held = false;  ///< Not expired, by the database's clock.
    std::int64_t acquired_at_us = 0;
    std::int64_t expires_in_ms = 0;
};

/// What the database knows of one route.
struct RouteInfo {
    std::string name;
    std::int64_t published_total = 0;
    std::int64_t dead_total = 0;
    std::int64_t failing = 0;  ///< Events that wait for another attempt.
    std::int64_t dead = 0;     ///< Dead letters there are now.
    std::string circuit;       ///< Empty: not reported yet.
    std::string last_error;
    double rate_per_s = 0;
    std::int64_t updated_at_us = 0;  ///< 0: not reported yet.
};

/// Which dead letters; what is empty does not restrict.
struct DeadFilter {
    std::vector<std::string> ids;  ///< Event ids.
    std::string route;
    std::string event_type;
    std::string key;
    std::string error_code;
};

/// One dead letter. Optional fields are empty where the event has none.
struct DeadInfo {
    std::int64_t dead_id = 0;
    std::string id;
    std::string route;
    std::int64_t position = 0;
    std::string aggregate_type;
    std::string aggregate_id;
    std::string event_type;
    std::string tenant_id;
    std::string schema_id;
    std::string schema_version;
    std::string topic;
    std::string key;
    std::string routing_key;
    std::string headers;   ///< JSON object or empty.
    std::string metadata;  ///< JSON object or empty.
    std::string payload;
    bool payload_is_null = false;
    std::int64_t attempts = 0;
    std::string error_code;
    std::string error;
    std::int64_t occurred_at_us = 0;
    std::int64_t died_at_us = 0;
    std::int64_t retry_requested_at_us = 0;  ///< 0: not requested.
};

/// What an operator asks of the side tables of one outbox table. Works beside a running relay and
/// without one. Used by one thread; calls block on the database.
class Operations {
  public:
    Operations() = default;
    Operations(const Operations&) = delete;
    Operations& operator=(const Operations&) = delete;
    virtual ~Operations() = default;

    virtual Result<LeaseInfo> lease() = 0;
    /// Every route that the side tables mention, by name.
    virtual Result<std::vector<RouteInfo>> routes() = 0;

    /// Oldest first, from behind `after_dead_id`, at most `limit`; the payload only on request.
    virtual Result<std::vector<DeadInfo>> dead(const DeadFilter& filter, std::int64_t after_dead_id,
                                               std::size_t limit, bool with_payload) = 0;
    virtual Result<std::int64_t> count_dead(const DeadFilter& filter) = 0;
    /// Asks the relay to deliver them again. How many there are.
    virtual Result<std::int64_t> retry_dead(const DeadFilter& filter) = 0;
    /// Deletes them. How many.
    virtual Result<std::int64_t> discard_dead(const DeadFilter& filter) = 0;
};

/// Where no relay has ever run: there are no side tables, and looking makes none.
class NoOperations final : public Operations {
  public:
    Result<LeaseInfo> lease() override { return LeaseInfo{}; }
    Result<std::vector<RouteInfo>> routes() override { return std::vector<RouteInfo>{}; }
    Result<std::vector<DeadInfo>> dead(const DeadFilter&, std::int64_t, std::size_t,
                                       bool) override {
        return std::vector<DeadInfo>{};
    }
    Result<std::int64_t> count_dead(const DeadFilter&) override { return std::int64_t{0}; }
    Result<std::int64_t> retry_dead(const DeadFilter&) override { return std::int64_t{0}; }
    Result<std::int64_t> discard_dead(const DeadFilter&) override { return std::int64_t{0}; }
};

}  // namespace outbox
