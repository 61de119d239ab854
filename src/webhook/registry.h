#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "core/event_trace.h"
#include "webhook/endpoint.h"

namespace outbox::consumer {
class Sql;
}

namespace outbox::webhook {

/// An endpoint beside what waits for it.
struct EndpointReport {
    Endpoint endpoint;
    std::int64_t waiting = 0;       ///< Deliveries that are not given up on, failing ones included.
    std::int64_t failing = 0;       ///< Of these, that failed and go again.
    std::int64_t dead = 0;          ///< Given up on.
    std::int64_t oldest_at_us = 0;  ///< When the oldest that waits was written.
    std::int64_t next_due_at_us = 0;  ///< When the first of those that failed goes again.

    /// When it is sent to next; 0: never, as nothing waits or it is disabled. In the past: now.
    [[nodiscard]] std::int64_t next_attempt_at_us() const {
        if (!endpoint.enabled() || waiting == 0) return 0;
        return std::max(endpoint.paused_until_us,
                        waiting > failing ? oldest_at_us : next_due_at_us);
    }
};

/// Which relay delivers.
struct Delivering {
    bool held = false;
    std::string owner;  ///< The last one where none does.
};

/// What operators, and services for their customers, do with endpoints. Each change is written into
/// outbox_audit, too, in the same transaction. Works beside a running relay, which sees a change
/// within about a second. Used by one thread; calls block on the database. Errors: kNoSuchTable
/// with the remedy where the tables are missing; kConflict as each call says.
class Registry {
  public:
    /// `os_user`: whom the audit names.
    static std::unique_ptr<Registry> make(std::unique_ptr<consumer::Sql> sql, std::string os_user);
    virtual ~Registry() = default;

    virtual Result<bool> has_tables() = 0;
    virtual Result<Delivering> delivering() = 0;
    /// `id`, `url`, `events`, `tenant` and `secrets` are taken. kConflict: the id is in use, or
    /// there are `kMaxEndpoints`.
    virtual Status add(const Endpoint& endpoint) = 0;
    /// By creation. `count`: also what waits, which reads the table of deliveries.
    virtual Result<std::vector<EndpointReport>> list(bool count) = 0;
    /// None: there is no such endpoint.
    virtual Result<std::optional<EndpointReport>> get(const std::string& id) = 0;
    /// What is not over of one event, by its id, or of a key: what is dead last, those that failed
    /// most first. What is delivered leaves nothing. A key reads the table of deliveries.
    virtual Result<EndpointDeliveries> deliveries_of_event(const std::string& id,
                                                           std::size_t limit) = 0;
    virtual Result<EndpointDeliveries> deliveries_of_key(const std::string& key,
                                                         std::size_t limit) = 0;
    /// kConflict: somebody changed the endpoint since it had `revision`.
    virtual Status set_secrets(const std::string& id, std::int64_t revision,
                               const std::string& secrets) = 0;
    /// False: there is no such endpoint.
    virtual Result<bool> disable(const std::string& id, const std::string& reason) = 0;
    /// Also of an endpoint that is enabled: what waits for a retry, and what was given up on, goes
    /// at once, with fresh attempts. False: there is no such endpoint.
    virtual Result<bool> enable(const std::string& id) = 0;
    /// Removes the endpoint and all that is to be delivered to it. How many deliveries; none: there
    /// is no such endpoint.
    virtual Result<std::optional<std::int64_t>> remove(const std::string& id) = 0;

  protected:
    Registry() = default;
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;
};

}  // namespace outbox::webhook
