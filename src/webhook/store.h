#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "core/frontier.h"
#include "webhook/endpoint.h"

namespace outbox::webhook {

/// The database that holds the endpoints.
struct StoreConfig {
    std::string target;  ///< Its URL.
    /// Roles that may own the tables, besides the current one, superusers and the owners of
    /// database and schema.
    std::vector<std::string> owners;
    int connect_timeout_s = kConnectTimeoutS;
};

/// One event as the route writes it. Null `data()` is NULL.
struct Event {
    std::string_view id;
    std::string_view type;
    std::string_view key;
    std::string_view headers;  ///< A JSON object of strings.
    std::string_view payload;
    std::int64_t occurred_at_us = 0;  ///< 0: NULL.
};

/// Which of the events goes to which endpoint.
struct Target {
    std::uint32_t event = 0;
    std::uint32_t endpoint = 0;
};

/// How many events an endpoint will not get, as its queue is full.
struct Missed {
    std::string_view endpoint_id;
    std::int64_t created_at_us = 0;  ///< One that was made anew under its id missed nothing.
    std::int64_t events = 0;
};

/// How many deliveries of an endpoint were not written: they are there already, or it is gone.
struct LeftOut {
    std::uint32_t endpoint = 0;
    std::int64_t rows = 0;
};

/// Where a route writes deliveries. Used by one thread. Calls block up to the connect timeout and
/// the time limit of a statement. Errors as those of `mailbox::Client`: retry_event and dead_letter
/// blame an event, anything else the database.
class Inlet {
  public:
    virtual ~Inlet() = default;

    /// Connects if it must, and makes the tables if they are missing and may be made.
    virtual Status prepare() = 0;
    /// Whether `prepare` would succeed, and which endpoints there are. Changes nothing.
    virtual Result<std::vector<Endpoint>> look() = 0;
    /// What the database calls itself.
    virtual Result<std::string> destination() = 0;
    /// Another text once an endpoint was added, deleted, or changed by an operator.
    virtual Result<std::string> version() = 0;
    virtual Result<std::vector<Endpoint>> endpoints() = 0;
    /// How many deliveries of an endpoint there are, dead ones included; at most so many are
    /// counted.
    virtual Result<std::int64_t> queued(std::string_view endpoint, std::int64_t most) = 0;
    /// Adds a delivery for each target, in their order, in one transaction that is durable on
    /// return.
    virtual Result<std::vector<LeftOut>> insert(std::span<const Event> events,
                                                std::span<const std::string_view> endpoints,
                                                std::span<const Target> targets) = 0;
    /// Adds it to the endpoints' totals; a crash of the server may undo that. Which of them it
    /// passed over, as another transaction holds their rows.
    virtual Result<std::vector<std::string>> count_missed(std::span<const Missed> missed) = 0;

  protected:
    Inlet() = default;
    Inlet(const Inlet&) = delete;
    Inlet& operator=(const Inlet&) = delete;
};

/// Which deliveries of an endpoint are wanted; none where it is not as it was known to be, as
/// whoever changed it may have changed what waits as well.
struct Slice {
    std::string endpoint_id;
    std::int64_t created_at_us = 0;
    std::int64_t revision = 0;
    std::int64_t after = 0;    ///< Fresh ones: only behind this position.
    std::size_t max_rows = 0;  ///< Of fresh ones, and of those that are due.
    struct Held {
        std::int64_t position = 0;
        std::string event_id;
    };
    std::vector<Held> held;  ///< In memory already.
    /// Asks for what goes around the keys that wait for something in memory.
    bool around = false;
    std::vector<std::string> without_keys;
};

/// Which of those that failed go again: what is due now, and what is due later than any wait may
/// last, as the clock was set back.
struct Due {
    std::int64_t now_us = 0;
    std::int64_t latest_us = 0;
};

/// Payload bytes after which `Outlet::fetch` stops; the delivery that reaches them is still
/// returned.
struct MaxBytes {
    std::size_t of_endpoint = 0;  ///< Of those that are due, and of fresh ones.
    std::size_t of_all = 0;
};

/// Of one slice, while keys of it wait for something: fresh deliveries are looked at up to here,
/// and `more` lie behind. 0: all of them were, or as many as were wanted found.
struct Looked {
    std::int64_t position = 0;
    bool more = false;
};
/// Fresh deliveries that one read looks at for one slice, while keys of it wait.
inline constexpr std::size_t kMaxLookedAt = 2'000;

/// What `Outlet::fetch` says beside the deliveries.
struct Read {
    /// Another number once positions began anew: what was remembered of them holds no more, and
    /// what was read now may be out of order.
    std::int64_t life = 0;
    /// Another number where the session is a new one: it may be with another server, which gives
    /// positions again that were read of the one before.
    std::uint64_t session = 0;
    std::vector<Looked> looked;  ///< By slice.
    core::Frontier::Writers writers = {};
};

/// What became of a delivery, to be recorded.
struct Outcome {
    enum class Kind : std::uint8_t {
        kDone,    ///< Delivered: the row goes.
        kFailed,  ///< Goes again at `next_attempt_at_us`; its key waits for it.
        kDead     ///< Given up on; its key goes on.
    };
    Kind kind = Kind::kDone;
    std::string endpoint_id;
    std::string event_id;
    /// With the event's id it names the row: an endpoint or a table that was made anew has others.
    std::int64_t position = 0;
    std::int64_t attempts = 0;
    std::int64_t first_failed_at_us = 0;
    std::int64_t next_attempt_at_us = 0;
    int last_status = 0;
    std::string last_error;
    /// Of the endpoint. A failure holds only while it is this one and no operator has changed it
    /// since it had this revision.
    std::int64_t created_at_us = 0;
    std::int64_t revision = 0;
};

/// What the dispatcher says of an endpoint.
struct EndpointChange {
    std::string endpoint_id;
    std::int64_t created_at_us = 0;  ///< One that was made anew under its id is another endpoint.
    std::int64_t failing_since_us = 0;
    std::int64_t failures = 0;
    std::int64_t last_attempt_at_us = 0;
    std::int64_t paused_until_us = 0;
    int last_status = 0;
    std::string last_error;
    std::int64_t delivered = 0;  ///< Added to the total.
    std::optional<std::string> disabled_because;
    /// All but the total holds only while no operator has changed it since it had this one.
    std::int64_t revision = 0;
};

/// Asks for what waits for an endpoint.
struct BacklogOf {
    std::string endpoint_id;
    std::int64_t after = 0;  ///< Fresh ones: only behind this position.
};
/// What waits for an endpoint.
struct Backlog {
    std::string endpoint_id;
    bool fresh = false;               ///< Some was never tried.
    std::int64_t next_due_at_us = 0;  ///< The first that goes again; 0: none.
};

/// Deliveries of one endpoint, of those that one call of `Outlet::count` looked at.
struct Count {
    std::string endpoint_id;
    std::int64_t waiting = 0;
    std::int64_t dead = 0;
    std::int64_t last = 0;  ///< The position of the last one counted.
};

/// Where the dispatcher takes deliveries from. Used by one thread; calls block as those of `Inlet`.
/// After an error the next call connects afresh.
class Outlet {
  public:
    virtual ~Outlet() = default;

    /// The right to deliver, as the relay's lease: the epoch, or none while another has it. Free at
    /// once when the owner's process is gone.
    virtual Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                         std::chrono::milliseconds ttl) = 0;
    /// False: another has it.
    virtual Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) = 0;
    virtual Status release(std::uint64_t epoch) = 0;

    virtual Result<std::vector<Endpoint>> endpoints() = 0;
    virtual Result<std::vector<Backlog>> backlog(std::span<const BacklogOf> endpoints) = 0;
    /// Appends deliveries in position order for each endpoint: first those that failed and are due
    /// (`Due`), then fresh ones whose key does not wait for one that failed. Stops within an
    /// endpoint, and altogether, behind the delivery that reaches those bytes of payloads.
    virtual Result<Read> fetch(std::span<const Slice> slices, const Due& due, const MaxBytes& max,
                               std::vector<Delivery>& out) = 0;
    /// In one transaction, committed only while the lease has this epoch (else kLeaseLost). What is
    /// not there any more is passed over. Of endpoints of which another transaction holds a row,
    /// their own or a delivery's, not all is recorded, and no change: which; what was given of them
    /// is to be given again. One that holds a table or the lease is waited for, up to some seconds
    /// (kConflict).
    virtual Result<std::vector<std::string>> record(std::uint64_t epoch,
                                                    std::span<const Outcome> outcomes,
                                                    std::span<const EndpointChange> changes) = 0;
    /// Counts the next `max_rows` deliveries behind this endpoint's position, in the order of the
    /// endpoints, those that are gone included, and of positions.
    virtual Result<std::vector<Count>> count(const std::string& endpoint_id, std::int64_t after,
                                             std::size_t max_rows) = 0;
    /// Removes some thousands of deliveries of an endpoint that is gone, but for those that another
    /// transaction holds; how many.
    virtual Result<std::int64_t> sweep(const std::string& endpoint_id) = 0;

  protected:
    Outlet() = default;
    Outlet(const Outlet&) = delete;
    Outlet& operator=(const Outlet&) = delete;
};

}  // namespace outbox::webhook
