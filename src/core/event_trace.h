#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "core/operations.h"

namespace outbox {

/// An event's row in the outbox table, or in that of delayed events. Optional fields are empty
/// where it has none.
struct TracedEvent {
    std::string id = {};
    std::int64_t position = 0;  ///< 0: the table has none that lasts.
    std::string aggregate_type = {};
    std::string event_type = {};
    std::string tenant_id = {};
    std::string topic = {};
    std::string key = {};  ///< What it is ordered by: its key, or else its aggregate's id.
    std::int64_t occurred_at_us = 0;
    std::int64_t available_at_us = 0;
    std::string transaction = {};  ///< That wrote the row, as the database numbers it; or empty.
    std::int64_t committed_at_us = 0;  ///< 0: the database does not keep that.
    bool finished = false;             ///< The row says that it was published.
    std::int64_t finished_at_us = 0;   ///< As the row says.
};

/// An event that waits for another attempt.
struct FailingEvent {
    std::int64_t attempts = 0;  ///< 0: its topic, partition or store is down, which counts none.
    std::int64_t first_failed_us = 0;
    std::int64_t next_attempt_us = 0;
    std::string error_code = {};
    std::string error = {};
};

/// What a route has not finished of an event's key and was written before it.
struct EarlierOfKey {
    std::string id = {};        ///< Of the first; empty: there is none.
    std::int64_t position = 0;  ///< Its.
    std::optional<FailingEvent> failing = {};
    BoundedCount count = {};
};

/// What a route has done with an event.
struct TracedRoute {
    std::string route = {};
    std::string source = {};  ///< The table; behind a "/" the tenants, where it has only some.
    bool finished = false;    ///< It was acknowledged, or is a dead letter, or `passed`.
    bool passed = false;      ///< The route's filter does not want it.
    std::optional<FailingEvent> failing = {};
    EarlierOfKey earlier = {};  ///< Where it has not finished the event.
};

/// One event. Without a row: something else in the database still speaks of it.
struct EventTrace {
    std::optional<TracedEvent> row = {};
    bool delayed = false;  ///< The row stands among the delayed events.
    std::vector<TracedRoute> routes = {};
};

/// A transaction that has written to the outbox table and has not ended.
struct OpenWriter {
    std::int64_t pid = 0;       ///< 0: of a prepared transaction.
    std::string prepared = {};  ///< The name of that.
    std::string user = {};
    std::string application = {};
    std::string state = {};            ///< "idle in transaction"; empty: the role may not see it.
    std::string_view seen_by = {};     ///< Who may: "a member of ...".
    std::int64_t began_at_us = 0;      ///< 0 likewise.
    std::int64_t statement_at_us = 0;  ///< When its last statement began; likewise.
};

/// An event that is still to be delivered to an endpoint of webhooks, or was given up on there.
struct EndpointDelivery {
    std::string endpoint = {};
    std::string event_id = {};
    std::string event_type = {};
    bool dead = false;               ///< Given up on; kept until an operator decides.
    std::int64_t written_at_us = 0;  ///< When the route wrote it.
    FailingEvent failing = {};       ///< Without a code; no attempts: it has not failed.
    bool endpoint_disabled = false;
    std::string disabled_because = {};
    std::int64_t paused_until_us = 0;  ///< The endpoint's circuit is open until then.
    std::string last_error = {};       ///< Of the endpoint.
    std::string behind = {};    ///< The first of its key that failed there before it; empty: none.
    BoundedCount earlier = {};  ///< That wait for the endpoint, too.
    bool served = true;         ///< A relay delivers from there, as far as is known.
};

/// What databases say of webhooks.
struct EndpointDeliveries {
    std::vector<EndpointDelivery> found;
    bool more = false;  ///< Others are not in `found`.
};

/// What can be said of the table of an outbox.
struct TracedTable {
    std::string name = {};
    bool removes = false;       ///< Rows of events that every route has finished go.
    bool keeps_ledger = false;  ///< What a route has finished is known as long as the row is there.
    bool is_other = false;  ///< See `Operations::is_other_table`: no route has finished anything.
    bool ids_are_uuids = false;  ///< It holds no other ids.
    bool tells_writers = false;  ///< `open_writers` says who has an open transaction.
    std::vector<std::string> others =
        {};  ///< Other outbox tables that relays of this database served.
};

/// Reads the life of events out of an outbox table and what is kept beside it, whether a relay has
/// ever run or not. Changes nothing. Used by one thread; calls block on the database, and read the
/// table where it has no index on ids or keys.
class EventTracer {
  public:
    EventTracer() = default;
    EventTracer(const EventTracer&) = delete;
    EventTracer& operator=(const EventTracer&) = delete;
    virtual ~EventTracer() = default;

    [[nodiscard]] virtual const TracedTable& table() const = 0;
    /// An id as consumers see it, of one as the table has it or as they do.
    [[nodiscard]] virtual std::string event_id(const std::string& id) const = 0;
    /// Events of this id, of either form; one that is nothing but mentioned is given without a row.
    virtual Result<std::vector<EventTrace>> find(const std::string& id) = 0;
    /// The first `limit` events of a tenant's key that some route has not finished, in their order,
    /// without what is earlier; without a tenant: of all that have such a key.
    virtual Result<std::vector<EventTrace>> of_key(const std::string& key,
                                                   const std::string& tenant,
                                                   std::size_t limit) = 0;
    /// Those that write to the table now, the oldest first; none where the database cannot tell.
    virtual Result<std::vector<OpenWriter>> open_writers() = 0;
    /// What operators did to the event, the first first; and dead letters that were discarded with
    /// more others than the line names (`is_unnamed`).
    virtual Result<std::vector<AuditLine>> audit(const std::string& id) = 0;
};

}  // namespace outbox
