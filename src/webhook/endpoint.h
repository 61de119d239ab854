#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace outbox::webhook {

/// Where webhooks go, as `outbox_webhook_endpoints` keeps it. Times are microseconds since the Unix
/// epoch; 0: never.
struct Endpoint {
    enum class State : std::uint8_t { kEnabled, kDisabled };

    std::string id;  ///< 1 to 64 bytes; never given twice.
    std::string url;
    std::string events = "*";           ///< As `EventFilter` takes it.
    std::optional<std::string> tenant;  ///< Only events of this tenant; none: of all.
    State state = State::kEnabled;
    std::string reason;              ///< Why it is disabled.
    std::string secrets;             ///< Sealed, as text.
    std::int64_t revision = 1;       ///< Rises with each change of what an operator says.
    std::int64_t created_at_us = 0;  ///< Tells it from one that had its id before.
    std::int64_t updated_at_us = 0;

    // What the dispatcher last said of it.
    std::int64_t failing_since_us = 0;  ///< No attempt has succeeded since.
    std::int64_t failures = 0;          ///< Attempts in a row that failed.
    std::int64_t last_attempt_at_us = 0;
    std::int64_t paused_until_us = 0;  ///< Its circuit is open until then.
    int last_status = 0;               ///< Of the last answer; 0: there was none.
    std::string last_error;
    std::int64_t delivered_total = 0;
    std::int64_t missed_total = 0;  ///< Events that found its queue full.

    [[nodiscard]] bool enabled() const { return state == State::kEnabled; }
};

inline constexpr std::size_t kMaxEndpointIdBytes = 64;
inline constexpr std::size_t kMaxEndpoints = 10'000;           ///< Of one database.
inline constexpr std::int64_t kMaxQueuePerEndpoint = 100'000;  ///< Deliveries, dead ones included.

/// One event on its way to one endpoint, as `outbox_webhook_deliveries` keeps it.
struct Delivery {
    std::int64_t position = 0;
    std::string endpoint_id;
    std::string event_id;
    std::string event_type;
    std::optional<std::string> key;  ///< None also for an empty one: no order is kept.
    std::string headers;             ///< A JSON object of strings, or empty.
    std::string payload;
    std::int64_t occurred_at_us = 0;  ///< 0: not known.
    std::int64_t attempts = 0;        ///< Failed ones; what an outage ends counts as none.
    std::int64_t first_failed_at_us = 0;
    std::int64_t next_attempt_at_us = 0;
    int last_status = 0;
    std::string last_error;

    [[nodiscard]] std::size_t bytes() const {
        return event_id.size() + event_type.size() + (key ? key->size() : 0) + headers.size() +
               payload.size();
    }
};

}  // namespace outbox::webhook
