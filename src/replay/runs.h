#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "replay/history.h"

namespace outbox::replay {

/// An event that a run could not send.
struct Refusal {
    std::string id;
    std::string key;
    std::string error;
};

/// A run as outbox_replays has it.
struct Run {
    std::string id;      ///< A UUID.
    std::string source;  ///< The table.
    Selection selection;
    std::string destination;  ///< The URL without secrets; empty: the route's own.
    std::string met;          ///< What the destination calls itself.
    std::string topic_template;
    std::string format;     ///< Empty: an earlier version began it, and wrote down neither.
    std::int64_t rate = 0;  ///< Events in a second.
    bool as_new = false;
    std::string reason;
    std::string who;  ///< "role app, user ann"

    std::string state;  ///< "running", "cancelled", "finished", "failed".
    std::int64_t expected = 0;
    std::int64_t sent = 0;
    std::int64_t refused = 0;
    std::vector<Refusal> refusals;  ///< The first of them.
    Place place;
    Place end;
    std::string error;
    std::string runner;         ///< host:process of who runs it, or did last; empty: nobody.
    std::uint64_t epoch = 0;    ///< Rises with each runner.
    std::int64_t lease_ms = 0;  ///< For so long the runner may be taken for alive; 0: it is not.
    double rate_per_s = 0;      ///< As the runner measured it.
    std::int64_t started_us = 0;
    std::int64_t updated_us = 0;
    std::int64_t ended_us = 0;  ///< 0: not yet.
};

/// What a runner brings to the table.
struct Progress {
    std::int64_t sent = 0;  ///< In all.
    std::int64_t refused = 0;
    std::vector<Refusal> refusals;
    Place place;
    double rate_per_s = 0;
};

inline constexpr std::size_t kMaxRefusals = 100;  ///< That a run lists.

/// For a run whose row was there and is not.
[[nodiscard]] ErrorInfo run_is_gone(const Run& run);

/// The runs of one outbox table: who begins, goes on with or cancels one also writes a line of
/// outbox_audit, in the same transaction. Used by one thread; calls block on the database.
class Runs {
  public:
    /// `source`: the table as `History::table_name` has it; `os_user` as for `Operations`.
    Runs(RunTable& table, std::string source, std::string os_user)
        : table_(table), source_(std::move(source)), os_user_(std::move(os_user)) {}

    /// Adds it, without a runner.
    Status begin(const Run& run);
    /// None, too, where the table is missing, as `list`: looking makes none.
    Result<std::optional<Run>> find(const std::string& id);
    /// Those that are not over first, then the newest.
    Result<std::vector<Run>> list(std::size_t limit);

    /// Takes the run for `runner`, for `lease_ms`: its new epoch; none where somebody else has it,
    /// or it is over. Who has it for longer than that said so before the database's clock was set
    /// back: to be asked only where they have been silent for `lease_ms` since. With `reason` it is
    /// also audited, as going on.
    Result<std::optional<std::uint64_t>> take(const Run& run, const std::string& runner,
                                              std::int64_t lease_ms, const std::string& reason);
    /// Writes down how far the runner is and that it is alive for `lease_ms` more. The state of the
    /// run, which somebody may have cancelled; `kLeaseLost` where another runner has it, or where
    /// the database has forgotten the run or this runner.
    Result<std::string> record(const Run& run, std::uint64_t epoch, const Progress& progress,
                               std::int64_t lease_ms);
    /// The runner leaves it: in `state`, or as it is where that is empty.
    Status leave(const Run& run, std::uint64_t epoch, const std::string& state,
                 const std::string& error);
    /// False: it is over.
    Result<bool> cancel(const Run& run, const std::string& reason);

  private:
    ErrorInfo why_not_recorded(const Run& run, std::uint64_t epoch, std::int64_t lease_ms);
    Status audit(const std::string& action, const std::string& detail, std::int64_t events);
    Status in_transaction(const std::function<Status()>& change);
    [[nodiscard]] std::string columns() const;

    RunTable& table_;
    const std::string source_;
    const std::string os_user_;
};

}  // namespace outbox::replay
