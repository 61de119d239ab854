#pragma once

#include "webhook/endpoint.h"

namespace outbox::webhook {

/// An endpoint from the columns of `outbox_webhook_endpoints` in the order in which all statements
/// name them: endpoint_id, url, events, tenant_id, state, reason, secrets, revision, created_at,
/// updated_at, failing_since, failures, last_attempt_at, paused_until, last_status, last_error,
/// delivered_total, missed_total. `Columns` gives one after the other: `text()`, `maybe()` (a
/// `std::optional` text), `number()`.
template <typename Columns>
void read_endpoint(Columns& next, Endpoint& endpoint) {
    endpoint.id = next.text();
    endpoint.url = next.text();
    endpoint.events = next.text();
    endpoint.tenant = next.maybe();
    endpoint.state =
        next.text() == "enabled" ? Endpoint::State::kEnabled : Endpoint::State::kDisabled;
    endpoint.reason = next.text();
    endpoint.secrets = next.text();
    endpoint.revision = next.number();
    endpoint.created_at_us = next.number();
    endpoint.updated_at_us = next.number();
    endpoint.failing_since_us = next.number();
    endpoint.failures = next.number();
    endpoint.last_attempt_at_us = next.number();
    endpoint.paused_until_us = next.number();
    endpoint.last_status = static_cast<int>(next.number());
    endpoint.last_error = next.text();
    endpoint.delivered_total = next.number();
    endpoint.missed_total = next.number();
}

}  // namespace outbox::webhook
