#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/consumer_operations.h"
#include "core/event_trace.h"
#include "core/operations.h"

namespace outbox {

/// Something that happened to an event.
struct Moment {
    std::int64_t at_us = 0;  ///< 0: when is not kept.
    std::string where;       ///< "route billing", "consumer stock"; empty: the outbox itself.
    std::string text;
    bool bad = false;
};

/// Why an event waits.
struct Waiting {
    std::string route;  ///< Empty: every route.
    /// "tenant_paused", "delayed", "no_relay", "other_table", "no_routes", "circuit_open",
    /// "failing", "part_down", "behind", "behind_dead", "route_error", "open_transaction",
    /// "under_way"; of webhooks "endpoint_disabled", "endpoint_paused", "endpoint_failing",
    /// "endpoint_behind", "endpoint_not_served", "endpoint_under_way".
    std::string_view reason;
    std::string text;
    std::string behind = {};           ///< The id of the event that it is behind.
    std::int64_t next_attempt_us = 0;  ///< 0: no time is known.
};

/// What there is to say of one event.
struct Explanation {
    /// "waiting", "delayed", "sent", "dead", "applied", "gone", "unknown".
    std::string_view state = "unknown";
    std::vector<Moment> timeline;  ///< By time; what has none comes last.
    std::vector<Waiting> waits;
    std::vector<std::string> remarks;
};

/// Everything that the databases said of one event and of what it may wait for.
struct Facts {
    std::string id;
    TracedTable table;
    EventTrace trace;
    LeaseInfo lease;                 ///< Of those who serve its tenant.
    bool others_are_served = false;  ///< Relays lead that serve other tenants alone.
    std::vector<RouteInfo> routes;
    std::vector<DeadInfo> dead;         ///< Of the event.
    std::vector<DeadInfo> dead_of_key;  ///< Of its key, the first of each route; none of its own.
    std::vector<AuditLine> audit;
    std::vector<OpenWriter> writers;
    std::vector<PausedTenant> paused;          ///< Tenants of the table.
    std::optional<ReceivedMessages> received;  ///< Nothing: no consumer's database was asked.
    std::vector<std::string> unasked;  ///< Databases that did not say what was received: which,
                                       ///< why.
    std::vector<std::string> unasked_webhooks;   ///< Likewise whether endpoints wait for it.
    std::optional<EndpointDeliveries> webhooks;  ///< Nothing: no database that was asked has some.
    std::string received_as;  ///< The id by which consumers know it; empty: the event's own.
    std::int64_t now_us = 0;
    /// Whether dead letters of a route block their keys; nothing: not known.
    std::function<std::optional<bool>(const std::string& route)> blocks_key;
};

/// Says what follows from the facts, and no more. Pure; error texts are without secrets.
[[nodiscard]] Explanation explain(const Facts& facts);

/// "pid 4711 (application shop, user app), idle in transaction, begun 2026-..., ...".
[[nodiscard]] std::string describe(const OpenWriter& writer, std::int64_t now_us);

/// When an id of version 7 (RFC 9562) says that it was made; 0: it is none.
[[nodiscard]] std::int64_t time_of_uuid7(std::string_view id);

/// "2026-01-31T08:15:00Z", from year 1 to 9999; "" for 0.
[[nodiscard]] std::string second_text(std::int64_t epoch_us);

}  // namespace outbox
