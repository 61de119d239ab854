#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/circuit.h"
#include "core/frontier.h"
#include "webhook/dispatch_options.h"
#include "webhook/remark.h"
#include "webhook/sender.h"
#include "webhook/store.h"

namespace outbox::webhook {

/// A moment on both clocks.
struct Now {
    std::int64_t boot_us = 0;
    std::int64_t wall_us = 0;
};

/// One endpoint as the dispatcher sees it: the deliveries that it holds, which of them may go, and
/// what their outcomes mean. Of a key one is under way at a time, and none while an earlier one of
/// the key failed. Pure: no clock, no I/O. Not thread-safe.
class EndpointQueue {
  public:
    EndpointQueue(Endpoint endpoint, const DispatchOptions& options);

    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
    /// What the table says now of the same endpoint (`created_at_us`). Whatever an operator changed
    /// has it begin afresh.
    void update(Endpoint endpoint);

    /// Something may wait in the table behind what was read. `everywhere`: or before.
    void expect_more(bool everywhere = false);
    /// Fresh ones up to there are known.
    [[nodiscard]] std::int64_t looks_from() const { return after_.settled(); }
    /// The first that failed is due then; 0: none is.
    void expect_due(std::int64_t at_us, const Now& now);

    /// Whether it wants to be read for; and what is to be read, if `share` may be under way at
    /// once.
    [[nodiscard]] bool wants_slice(std::size_t share, const Now& now);
    /// Whether it will before long, so that a read for others may be one for it, too.
    [[nodiscard]] bool has_room() const;
    [[nodiscard]] Slice slice() const;
    /// What was read for that slice. `cut`: the read ended before the slice's own limits.
    void admit(std::vector<Delivery> deliveries, const Slice& slice, const Looked& looked,
               core::Frontier::Writers writers, bool cut);

    /// The next delivery that may go, which then is under way; null: none may.
    const Delivery* take(std::size_t share, const Now& now);

    struct Judged {
        std::optional<Outcome> outcome;  ///< To be recorded before anything is read again.
        bool disabled = false;           ///< The endpoint is, from now on.
    };
    /// An answer to what was sent before the endpoint was changed or disabled says only whether
    /// that event was taken.
    Judged judge(std::int64_t position, const Attempted& attempted, const Now& now,
                 std::uint64_t random);
    /// The attempt was broken off: nothing is known of it.
    void forget(std::int64_t position);
    /// All that is in memory and not under way.
    void drop_waiting();

    /// Those under way; what is broken off with the endpoint.
    [[nodiscard]] const std::vector<std::int64_t>& under_way() const { return under_way_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// What its last attempt says of the next one. At first by what the table says.
    enum class Standing : std::uint8_t {
        kProven,  ///< It succeeded.
        kUnknown,
        kFailing
    };
    [[nodiscard]] Standing standing() const;
    [[nodiscard]] bool proven() const { return proven_; }
    /// Has something to deliver, or may have.
    [[nodiscard]] bool busy() const;
    [[nodiscard]] bool paused(const Now& now) const;
    /// Nothing could be sent to it, for a reason that is ours (`Endpoint::last_error`).
    [[nodiscard]] bool own_fault() const { return own_faults_ > 0; }
    [[nodiscard]] const std::string& host() const { return host_; }
    /// That it began or ceased to fail, or what was given up on; at most one line in `kQuietUs`,
    /// and one more where it recovers.
    std::optional<Remark> news(const Now& now);
    /// What is to be told of the endpoint, if anything changed and the last time is a second ago;
    /// at once that it is disabled, and what is the `last`.
    std::optional<EndpointChange> change(const Now& now, bool last = false);
    /// That could not be told.
    void untold(const EndpointChange& change);

  private:
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

    struct Held {
        Delivery delivery;
        bool under_way = false;
        std::int64_t generation = 0;  // in which it was sent
        std::int64_t attempt = 0;     // its number
        std::int64_t sent_at_us = 0;
    };
    // One that failed as if the endpoint were down, until it is accepted.
    struct Suspect {
        std::uint32_t failures = 0;  // that were its own, by what is known of others
        std::uint32_t evidence = 0;  // such ones for which it was not blamed yet
        std::int64_t accepted = 0;   // others, before its last failure
        std::int64_t failed_at_us = 0;
        std::int64_t due_at_us = 0;
    };
    // Whose turn it may be now, while the circuit is closed.
    struct Room {
        bool others = false;
        bool suspects = false;
    };
    using Place = std::list<Held>::iterator;

    void bound_pause(const Now& now);
    [[nodiscard]] bool may_send(std::size_t share, const Now& now);
    [[nodiscard]] Room room(std::size_t share, const Now& now) const;
    [[nodiscard]] bool is_suspect(const Delivery& delivery) const;
    [[nodiscard]] bool waits(const Delivery& delivery, const Now& now) const;
    template <typename May>
    [[nodiscard]] Place startable(May may);
    template <typename May>
    [[nodiscard]] Place longest_untried(May may);
    [[nodiscard]] Place next_to_send(std::size_t share, const Now& now);
    [[nodiscard]] Place find(std::int64_t position);
    void erase(Place place);
    void drop_key(const std::string& key);
    void read_again_from(std::int64_t position);

    void end_attempt(Held& held);
    void succeeded(const Attempted& attempted, const Now& now);
    void failed(const Attempted& attempted, const Now& now);
    Judged own_fault(const Attempted& attempted, const Now& now, std::uint64_t random);
    Judged down(Place place, const Attempted& attempted, const Now& now, std::uint64_t random);
    Judged its_own(Place place, Suspect& suspect, const Attempted& attempted, const Now& now,
                   std::uint64_t random);
    [[nodiscard]] bool must_blame(const Delivery& delivery, const Suspect& suspect) const;
    Judged outage(Place place, const Attempted& attempted, const Now& now, std::uint64_t random);
    Suspect& suspect(std::int64_t position, const Now& now);
    [[nodiscard]] bool says_nothing(std::int64_t position) const;
    void put_off(Suspect& suspect, const Now& now, std::uint64_t random) const;
    Judged endpoint_failed(Place place, const Attempted& attempted, const Now& now,
                           std::uint64_t random);
    [[nodiscard]] std::int64_t failing_since(const Delivery& delivery, const Now& now) const;
    Judged refused(Place place, const Attempted& attempted, const Now& now, std::uint64_t random);
    Judged disable(std::string_view reason);
    Judged done(Place place);
    Judged late(Place place, const Attempted& attempted);
    void begin_afresh();

    const DispatchOptions& options_;
    Endpoint endpoint_;
    std::string host_;
    std::int64_t generation_ = 0;  // rises as it begins afresh
    core::Circuit circuit_;
    std::int64_t probe_ = 0;  // under way for a half-open circuit
    bool proven_ = false;
    std::uint32_t own_faults_ = 0;  // in a row
    std::int64_t rests_until_us_ = 0;
    std::int64_t refused_in_row_ = 0;

    std::list<Held> held_;     // by position
    std::size_t retried_ = 0;  // of these: that failed before, by the table
    std::vector<std::int64_t> under_way_;
    std::vector<std::int64_t> others_under_way_;  // than suspects; attempts, which rise
    std::map<std::int64_t, Suspect> suspects_;    // by position
    std::int64_t suspects_rest_until_us_ = 0;     // where there are few places
    std::int64_t attempts_ = 0;                   // begun
    std::int64_t last_accepted_ = 0;              // of these
    std::int64_t accepted_ = 0;                   // so many
    std::unordered_set<std::string> busy_keys_;   // of these
    std::size_t bytes_ = 0;
    std::size_t rows_;       // of the next slice
    core::Frontier after_;   // up to here all is held, gone, or waits for its key
    core::Frontier around_;  // up to here likewise, or its key is held
    bool more_ = true;       // behind it
    std::int64_t due_at_us_ = 0;
    // What is held waits for what is under way, or has failed: others may go meanwhile.
    enum class Stuck : std::uint8_t { kNo, kAsks, kAlone };
    Stuck stuck_ = Stuck::kNo;

    bool told_failing_ = false;
    std::int64_t untold_failures_ = 0;
    std::int64_t untold_dead_ = 0;
    std::string last_dead_;  // event
    std::string last_dead_error_;
    std::int64_t quiet_until_us_ = 0;

    bool changed_ = false;
    std::int64_t told_us_ = 0;
    std::int64_t delivered_ = 0;
    std::optional<std::string> disabled_because_;
    std::int64_t disabled_revision_ = 0;
};

}  // namespace outbox::webhook
