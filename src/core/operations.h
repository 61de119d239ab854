#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox {

/// Who relays, or did last, the events of some tenants or of all.
struct LeaseInfo {
    std::string owner;  ///< Empty: free.
    std::uint64_t epoch = 0;
    bool held = false;  ///< Not expired, by the database's clock.
    std::int64_t acquired_at_us = 0;
    std::int64_t expires_in_ms = 0;
    std::vector<std::string> tenants = {};  ///< Empty: all.
    std::vector<std::string> routes = {};   ///< Names, ascending.
};

/// A relay that waits for the lease.
struct StandbyInfo {
    std::string owner;
    std::vector<std::string> routes;  ///< Names of those that it has.
    std::int64_t seen_at_us = 0;
    std::vector<std::string> tenants = {};  ///< As `LeaseInfo`.
};

/// What the database knows of one route.
struct RouteInfo {
    std::string name = {};
    std::int64_t published_total = 0;
    std::int64_t dead_total = 0;
    std::int64_t failing = 0;  ///< Events that wait for another attempt.
    std::int64_t dead = 0;     ///< Dead letters there are now.
    std::string circuit = {};  ///< Empty: not reported yet.
    std::string last_error = {};
    std::int64_t last_error_at_us = 0;
    double rate_per_s = 0;
    std::string path = {};  ///< Where events come from, "polling" or "stream"; empty as `circuit`.
    std::string path_reason =
        {};  ///< Why not from the stream; empty where there is nothing to say.
    std::int64_t updated_at_us = 0;  ///< 0: not reported yet.
    bool retired = false;  ///< No route of the table any more: only its dead letters are left.
};

/// A number that is counted up to a limit.
struct BoundedCount {
    static constexpr std::int64_t kLimit = 20'000;
    std::int64_t count = 0;
    bool more = false;  ///< There are more than `count`.
};

/// What of each tenant is not finished, by the route that has most left of it.
struct TenantBacklogs {
    struct Tenant {
        std::string tenant_id;
        std::int64_t waiting = 0;
    };
    std::vector<Tenant> tenants;  ///< The longest first.
    bool more = false;            ///< More wait than were counted.
};

/// A route of the table, as its ledger is kept.
struct LedgerRoute {
    std::string name;
    std::string source;       ///< The table; behind a "/" the tenants, where it has only some.
    std::string destination;  ///< What it calls itself; empty: the one that is met next is taken.
    std::int64_t since_us = 0;
    BoundedCount unfinished;
    std::int64_t dead = 0;
    std::string circuit;  ///< Empty: not reported yet.
    std::string last_error;
};

/// What retiring a route did, or would have done.
struct RetiredRoute {
    bool known = false;
    bool done = false;        ///< False: it has unfinished events, and that was not allowed.
    BoundedCount unfinished;  ///< Before.
    std::int64_t dead = 0;    ///< Its dead letters, which stay.
};

/// A route that dead letters have, of the relays that serve their tenants.
struct DeadRoute {
    std::string name;
    std::string source;                     ///< As `LedgerRoute`.
    std::vector<std::string> tenants = {};  ///< As `LeaseInfo`.
};

/// Which dead letters; what is empty does not restrict.
struct DeadFilter {
    std::vector<std::string> ids = {};  ///< Event ids.
    std::string route = {};
    std::string event_type = {};
    std::string key = {};
    std::string error_code = {};
    std::string tenant = {};
    std::int64_t up_to = 0;  ///< Of those that were there when this was the last; 0: of all.
    bool idle = false;       ///< Of those that are not being retried; of a table only.

    [[nodiscard]] DeadFilter of_idle() const {
        DeadFilter out = *this;
        out.idle = true;
        return out;
    }
    [[nodiscard]] bool empty() const {
        return ids.empty() && route.empty() && event_type.empty() && key.empty() &&
               error_code.empty() && tenant.empty();
    }
};

/// One dead letter. Optional fields are empty where the event has none.
struct DeadInfo {
    std::int64_t dead_id = 0;
    std::string id = {};
    std::string route = {};
    std::int64_t position = 0;
    std::string aggregate_type = {};
    std::string aggregate_id = {};
    std::string event_type = {};
    std::string tenant_id = {};
    std::string schema_id = {};
    std::string schema_version = {};
    std::string topic = {};
    std::string key = {};
    std::string routing_key = {};
    std::string headers = {};   ///< JSON object or empty.
    std::string metadata = {};  ///< JSON object or empty.
    std::string payload = {};
    bool payload_is_null = false;
    std::int64_t attempts = 0;
    std::string error_code = {};
    std::string error = {};
    std::int64_t occurred_at_us = 0;
    std::int64_t died_at_us = 0;
    std::int64_t retry_requested_at_us = 0;  ///< 0: not requested.
    bool route_known = true;  ///< False: the table has no such route, so that nobody retries it.
    bool unmatched = false;   ///< No route took it, and its only keeps it: it blocks no key.

    [[nodiscard]] bool is_retried() const { return retry_requested_at_us != 0 && route_known; }
};

/// What an operator changes of a dead letter; what is not given stays.
struct DeadEdit {
    std::optional<std::string> payload;
    std::optional<std::string> topic;
    std::optional<std::string> key;
    std::optional<std::string> headers;  ///< A JSON object.
};

/// An event that waits for another attempt, and with it the later ones of its key.
struct WaitingEvent {
    std::string route = {};
    std::string id = {};
    std::int64_t position = 0;  ///< 0: the table has none that lasts.
    std::string key = {};
    std::int64_t attempts = 0;  ///< 0: its topic, partition or store is down, which counts none.
    std::int64_t first_failed_at_us = 0;
    std::int64_t next_attempt_at_us = 0;
    std::string error_code = {};
    std::string error = {};
};

/// What an operator did.
struct AuditLine {
    std::int64_t at_us = 0;
    std::string who = {};
    std::string action = {};
    std::string detail = {};
    std::int64_t audit_id = 0;
    std::int64_t events = 0;  ///< How many it was done to.
    std::string source = {};  ///< The table, "webhooks", "sagas" or "consumer NAME".
    /// Of `Tracer::audit`: the event is none of those that the line names, which are not all.
    bool is_unnamed = false;
};

/// Which delayed events; what is empty does not restrict.
struct ScheduledFilter {
    std::vector<std::string> ids = {};
    std::string event_type = {};
    std::string key = {};
    std::string tenant = {};
};

/// A delayed event that is not due yet. Optional fields are empty where the event has none.
struct ScheduledInfo {
    std::string id;
    std::string aggregate_type;
    std::string aggregate_id;
    std::string event_type;
    std::string topic;
    std::string key;
    std::int64_t available_at_us = 0;
    std::string tenant_id = {};
};

/// How many delayed events wait in outbox_scheduled.
struct DelayedEvents {
    std::int64_t count = 0;
    std::int64_t last_due_us = 0;  ///< When all of them will be due; 0: there are none.
};

/// A tenant whose events are kept and not sent.
struct PausedTenant {
    std::string tenant_id;
    std::string reason;
    std::string who;  ///< "role app, user ann"
    std::int64_t since_us = 0;
};

/// The dead letters of one outbox table, or of one consumer. Used by one thread; calls block on the
/// database.
class DeadLetters {
  public:
    DeadLetters() = default;
    DeadLetters(const DeadLetters&) = delete;
    DeadLetters& operator=(const DeadLetters&) = delete;
    virtual ~DeadLetters() = default;

    /// Oldest first, from behind `after_dead_id`, at most `limit`; the payload only on request.
    virtual Result<std::vector<DeadInfo>> dead(const DeadFilter& filter, std::int64_t after_dead_id,
                                               std::size_t limit, bool with_payload) = 0;
    virtual Result<std::int64_t> count_dead(const DeadFilter& filter) = 0;
    /// Asks the relay or consumer to try them again. How many there are.
    virtual Result<std::int64_t> retry_dead(const DeadFilter& filter) = 0;
    /// Deletes them, but none of a table that is being retried: it may be on its way. How many.
    virtual Result<std::int64_t> discard_dead(const DeadFilter& filter) = 0;
};

/// What an operator asks of the side tables of one outbox table. Works beside a running relay and
/// without one.
///
/// What it changes it also writes into outbox_audit, in the same transaction.
class Operations : public DeadLetters {
  public:
    /// Whom the audit names beside the database's role: the user of the operating system, or who
    /// a page says that he is; and why, where that was asked for.
    void act_for(std::string os_user, std::string reason = {}) {
        os_user_ = std::move(os_user);
        reason_ = std::move(reason);
    }

    /// The highest `dead_id`; 0: there is no letter.
    virtual Result<std::int64_t> last_dead() = 0;

    /// When the oldest event of the table's dead letters occurred, in microseconds since 1970; 0:
    /// there is none. Reads all of them.
    virtual Result<std::int64_t> oldest_dead_us() = 0;

    /// One for each set of tenants that relays serve or have served and that has routes; held ones
    /// first, then by epoch, the highest first. Empty: none has led the table yet.
    virtual Result<std::vector<LeaseInfo>> leases() = 0;
    /// The table's routes, and those that are retired and have dead letters, by name.
    virtual Result<std::vector<RouteInfo>> routes() = 0;
    /// Whether the table is another one, by its numbering, than the ledgers of its routes were kept
    /// for, and no relay has gone on with it since: what the ledgers say is not of its events.
    virtual Result<bool> is_other_table() { return false; }
    /// Relays that have said lately that they wait for the lease, by owner.
    virtual Result<std::vector<StandbyInfo>> standbys() = 0;
    /// Events that wait for another attempt, those that failed first before the others.
    virtual Result<std::vector<WaitingEvent>> waiting_events(std::size_t limit) = 0;
    /// What operators did to the table's events, tenants and routes, and to the webhooks, sagas and
    /// consumers of its database, the last first, from before `before_audit_id` (0: from the end).
    virtual Result<std::vector<AuditLine>> audit_lines(std::int64_t before_audit_id,
                                                       std::size_t limit) = 0;

    /// The table's routes, by name and source. `count_unfinished` reads the table.
    virtual Result<std::vector<LedgerRoute>> ledger_routes(bool count_unfinished) = 0;

    // Each of the following is done in one transaction. Those that name a route do it for the relay
    // of these tenants alone (none: that of all), and give 0, or `known` false, where that has none
    // of the name. The others do it for all sources of the table. All but `accept` are refused
    // (`kConflict`) while a relay that serves some of the same tenants has the lease.

    /// The destination that is met next is taken for the one that was known. How many routes.
    virtual Result<std::int64_t> accept_destination(const std::vector<std::string>& tenants,
                                                    const std::string& route) = 0;
    /// `kConflict` also where the new name is in use.
    virtual Result<std::int64_t> rename_route(const std::vector<std::string>& tenants,
                                              const std::string& from, const std::string& to) = 0;
    virtual Result<RetiredRoute> retire_route(const std::vector<std::string>& tenants,
                                              const std::string& route, bool with_unfinished) = 0;
    /// The table holds the events that the ledgers speak of. How many routes had a ledger that may
    /// have spoken of others.
    virtual Result<std::int64_t> keep_ledgers() = 0;
    /// Everything that the table holds is unfinished. How many routes had a ledger.
    virtual Result<std::int64_t> forget_ledgers() = 0;

    /// The routes that these dead letters have, by name and source; those alone that their source
    /// does not have where `unknown_only`.
    virtual Result<std::vector<DeadRoute>> routes_of_dead(const DeadFilter& filter,
                                                          bool unknown_only) = 0;
    /// As `retry_dead`, by another route, those alone whose source has it. `kConflict`: an event
    /// has two dead letters, which would become one.
    virtual Result<std::int64_t> reroute_dead(const DeadFilter& filter,
                                              const std::string& route) = 0;
    /// Changes those that are not being retried. How many.
    virtual Result<std::int64_t> edit_dead(const DeadFilter& filter, const DeadEdit& edit) = 0;

    /// Delayed events, the next first. `kUnsupported` where the table has none.
    virtual Result<std::vector<ScheduledInfo>> scheduled(const ScheduledFilter& filter,
                                                         std::size_t limit) = 0;
    virtual Result<std::int64_t> count_scheduled(const ScheduledFilter& filter) = 0;
    /// Deletes them before they are due. How many: those that are moved meanwhile are not.
    virtual Result<std::int64_t> cancel_scheduled(const ScheduledFilter& filter) = 0;

    /// Tenants that are paused, by name; none where the table of them is missing.
    virtual Result<std::vector<PausedTenant>> paused_tenants() = 0;
    /// Changes nothing, and is false, where it is so already. Audited. A running relay follows
    /// within a second or so. `kTableShape` where the table of them is missing and cannot be made.
    virtual Result<bool> pause_tenant(const std::string& tenant_id) = 0;
    virtual Result<bool> resume_tenant(const std::string& tenant_id) = 0;
    /// Events of the tenant that some route has not finished: of the route that has most left.
    /// An empty name: of those that name none, whatever default tenant a relay takes them for.
    /// Reads the table. Where nobody can say: `kConflict` (no relay has served the table), or
    /// `kTableReset` (`is_other_table`).
    virtual Result<BoundedCount> unfinished_of_tenant(const std::string& tenant_id) = 0;
    /// Its delayed events, which are not among those. The name means what it means there. Who asks
    /// for both asks for these first: they come into the table when they are due.
    virtual Result<DelayedEvents> delayed_of_tenant(const std::string& tenant_id) = 0;
    /// Of up to `BoundedCount::kLimit` unfinished events of each route, which it reads; none where
    /// no relay has served the table, or it has no tenants.
    virtual Result<TenantBacklogs> tenant_backlogs() = 0;

  protected:
    static constexpr std::size_t kAuditedIds = 1'000;  // of one action
    [[nodiscard]] std::string with_reason(const std::string& detail) const {
        return reason_.empty() ? detail : detail + "; reason: " + reason_;
    }
    [[nodiscard]] const std::string& reason() const { return reason_; }
    std::string os_user_;

  private:
    std::string reason_;
};

/// The filter as the audit shows it: "route old, event type A".
[[nodiscard]] std::string describe(const DeadFilter& filter);
[[nodiscard]] std::string describe(const ScheduledFilter& filter);
/// "payload (12 bytes), topic orders"
[[nodiscard]] std::string describe(const DeadEdit& edit);
/// Of counts by tenant, for each route, those that `TenantBacklogs` has.
[[nodiscard]] TenantBacklogs most_of_each(
    const std::vector<std::map<std::string, std::int64_t>>& routes);
/// The error of delayed events of a table that is not outbox_events.
[[nodiscard]] ErrorInfo no_delayed_events(const std::string& table);

/// The lines of a text.
[[nodiscard]] std::vector<std::string> lines_of(std::string_view text);

/// Those that `Operations::leases` names: what others have taken over since is left out.
[[nodiscard]] std::vector<LeaseInfo> leases_with_routes(std::vector<LeaseInfo> leases);
/// Of the relays that serve the tenant; an empty one: none has led for it.
[[nodiscard]] LeaseInfo lease_of_tenant(const std::vector<LeaseInfo>& leases,
                                        const std::string& tenant);

/// What is said where `Operations::is_other_table`: what follows from that, and what to do.
[[nodiscard]] std::string other_table_text(const std::string& follows);
/// The error of what asks the ledgers of such a table.
[[nodiscard]] ErrorInfo ledgers_of_another();

/// Of `Operations::unfinished_of_tenant`: nobody can say.
[[nodiscard]] bool is_not_known(const ErrorInfo& error);

/// The errors of the table of paused tenants that is missing, and of a table that nobody relays.
[[nodiscard]] ErrorInfo no_paused_tenants();
[[nodiscard]] ErrorInfo never_relayed();

/// The errors of `Operations`: a relay has the lease; a run of `outbox replay` sends events of the
/// route; dead letters of one event would become one.
[[nodiscard]] ErrorInfo relay_is_running(const std::string& owner);
[[nodiscard]] ErrorInfo replay_is_running(const std::string& run, const std::string& runner);
[[nodiscard]] ErrorInfo two_letters(const std::string& one, const std::string& other);

/// For the audit: ", which had not finished 2 events", or nothing; "what 2 routes had finished".
[[nodiscard]] std::string left_over(const BoundedCount& unfinished);
[[nodiscard]] std::string ledgers_of(std::int64_t routes);

}  // namespace outbox
