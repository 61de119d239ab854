#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace outbox {

/// Header names and values of one event. Each name once; the order is not kept.
using Headers = std::vector<std::pair<std::string, std::string>>;

/// An event as a producer writes it. Text is UTF-8. Only `payload` and either `aggregate_type` or
/// `topic` are needed; everything else has a default.
struct Event {
    std::string id;              ///< Empty: a UUIDv7 is made. Stable for ever; the dedup key.
    std::string aggregate_type;  ///< What changed, for example "Order".
    std::string aggregate_id;    ///< Which one; the key that order is kept by unless `key` is set.
    std::string event_type;      ///< What happened, for example "OrderCreated".
    std::optional<std::string> payload;  ///< JSON unless the table was made with text or bytea.
                                         ///< None: a null record value (a tombstone in Kafka).
    Headers headers;
    std::string tenant_id;  ///< Empty: the table's default ("default").
    std::string schema_id;
    std::string schema_version;
    std::string topic;        ///< Empty: the route's topic template decides.
    std::string key;          ///< Empty: `aggregate_id`.
    std::string routing_key;  ///< An attribute for sinks; never decides order.
    std::string traceparent;  ///< W3C trace context, carried to the record as a header.
    std::optional<std::chrono::system_clock::time_point> occurred_at;   ///< None: now.
    std::optional<std::chrono::system_clock::time_point> available_at;  ///< None: at once. Else the
                                                                        ///< event is delayed.
};

}  // namespace outbox
