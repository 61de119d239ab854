#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "core/routing.h"
#include "replay/run_table.h"

namespace outbox::replay {

/// Which events of the past. What is empty does not restrict.
struct Selection {
    std::string route;
    bool dead = false;          ///< The route's dead letters, in place of what it has finished.
    std::int64_t since_us = 0;  ///< Those that occurred then or later; 0: from the first on.
    std::int64_t until_us = 0;  ///< Those that occurred before; 0: to the last.
    std::string key;
    std::string event_type;
    std::vector<std::string> tenants;

    [[nodiscard]] bool is_everything() const {
        return since_us == 0 && until_us == 0 && key.empty() && event_type.empty() &&
               tenants.empty();
    }
};

/// "published events of route orders, since 2026-01-31T08:15:00.000000Z, key o-1"
[[nodiscard]] std::string describe(const Selection& selection);

/// Where in a history an event stands, as a text of its database's own. Empty: before the first.
using Place = std::string;

inline constexpr std::int64_t kMostLeftOut = 10'000;

/// What a replay of the selection would send.
struct Estimate {
    std::int64_t looked_at = 0;  ///< Events that the route has finished, or dead letters of it.
    std::int64_t events = 0;     ///< Those that are selected.
    std::int64_t bytes = 0;      ///< Of their payloads, about: as the database stores them.
    std::int64_t first_us = 0;   ///< When the earliest of them occurred; 0: not known.
    std::int64_t last_us = 0;
    Place end;  ///< Of the last event of the history.
    /// Selected, too, and no part of the history yet: behind the first event that the route has not
    /// finished, some may be published. At most `kMostLeftOut` are counted.
    std::int64_t left_out = 0;
    /// Of each floor that was given: how many are from before it.
    std::vector<std::int64_t> before;
};

/// Reads selected events of the past. Positions rise from event to event, and mean nothing to
/// another reader.
class HistoryReader : public spi::Reader {
  public:
    /// Of an event that was returned and is not forgotten.
    [[nodiscard]] virtual Place place_of(spi::Position position) const = 0;
    /// The last event was returned.
    [[nodiscard]] virtual bool at_end() const = 0;
};

/// What an outbox table, with the tables beside it, knows of events that are done with. Used by one
/// thread; calls block on the database, which they reach again when it was away.
class History : public RunTable {
  public:
    /// The table as `spi::Source` names it.
    [[nodiscard]] virtual std::string table_name() const = 0;

    /// What the route's destination calls itself; empty: not known.
    struct Route {
        std::string destination;
    };
    /// Chooses the events for all that follows: those of the selection that `predicate` takes.
    /// Errors: `kTableShape` where the table keeps nothing that is published, or lacks what the
    /// selection asks for; `kConflict` where it has no such route; `kTableReset` where the
    /// ledgers, which tell what was published, are of another table.
    virtual Result<Route> select(const Selection& selection, const core::Predicate& predicate) = 0;

    /// Looks at all of the history, some thousand rows at a time, and tells how many it has seen.
    /// `floors`: times of inboxes, at most `kMaxFloors`; before them they take no event any more.
    static constexpr std::size_t kMaxFloors = 64;
    virtual Result<Estimate> estimate(const std::vector<std::int64_t>& floors,
                                      const std::function<void(std::int64_t)>& seen) = 0;

    /// The events behind `after`, up to `end`. Its reads fail with `kTableReset` where the table is
    /// known to be another than the one that `end` is of.
    virtual Result<std::unique_ptr<HistoryReader>> open_reader(const Place& after,
                                                               const Place& end) = 0;

    /// How many events the route has not finished, up to `most`; and how many it publishes in a
    /// second.
    struct Load {
        std::int64_t waiting = 0;
        double rate_per_s = 0;
    };
    virtual Result<Load> load(std::int64_t most) = 0;
};

// What the databases share.

/// The errors of `select`, and of a database where no relay has run.
[[nodiscard]] ErrorInfo no_history(const std::string& table, bool native);
[[nodiscard]] ErrorInfo no_times(const std::string& table);
[[nodiscard]] ErrorInfo no_tenants(const std::string& table);
[[nodiscard]] ErrorInfo no_relay(const std::string& table);
/// Of a reader: what it has read is of another table than the run.
[[nodiscard]] ErrorInfo began_anew(const std::string& table);
/// Of `make_table`.
[[nodiscard]] ErrorInfo no_runs();

/// Which of the sources that have the route is meant: a relay may serve some tenants only.
Result<std::size_t> choose_source(const std::vector<std::string>& sources, const std::string& table,
                                  const Selection& selection);

/// The first 12 digits of a UUIDv7 of that time, or of the next millisecond: ids of before have
/// lower ones.
[[nodiscard]] std::string uuid7_digits(std::int64_t time_us);

/// Takes the times of a part of the history into the estimate; 0: there are none.
void widen(Estimate& estimate, std::int64_t first_us, std::int64_t last_us);

}  // namespace outbox::replay
