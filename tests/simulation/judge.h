#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/spi/source.h>

#include "tests/simulation/settings.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

using spi::Position;

/// What is wrong with an event, on every route.
enum class Trouble : std::uint8_t {
    kNone,
    kRefused,      ///< The destination will never take it.
    kFailsTwice,   ///< The destination takes it at the third time.
    kFailsAlways,  ///< Fails again and again, as an event does.
    kTimesOut,     ///< Fails again and again, as if the destination were down.
    kBadTopic,     ///< Names a topic that cannot be.
    kNoRoute,      ///< No route takes it.
};

/// An event is told from all others by a number that goes up with the order of its key: its
/// position, or what its id ends with where positions come again.
struct SimEvent {
    Position position = 0;
    std::string id;
    std::string key;     ///< Empty: no order.
    std::string tenant;  ///< Empty: there are no tenants.
    std::string type;    ///< "a", "b": route 2 takes only "b". "none": no route.
    Trouble trouble = Trouble::kNone;
    bool heartbeat = false;  ///< Written after the history proper to keep destinations busy.
};

/// What an id ends with: "e7", or the digits of a UUID's last part.
[[nodiscard]] Position number_of(std::string_view id);

/// Into how many parts a destination is divided, each of which may be away alone.
inline constexpr int kParts = 3;

/// Where an event goes: with its key, if it has one.
[[nodiscard]] int part_of(const SimEvent& event);

/// Knows the whole truth and checks the promises against it as the history goes on.
class Judge {
  public:
    Judge(World& world, const Settings& settings);

    // What writers did.
    void committed(const SimEvent& event);
    /// Asked about an event that nobody has told of, whose writer may be about to.
    void find_out(std::function<void(Position)> ask) { find_out_ = std::move(ask); }
    [[nodiscard]] const SimEvent* find(Position position) const;
    [[nodiscard]] bool wants(int route, const SimEvent& event) const;

    /// Somebody took it out of the table: it is owed to nobody any more.
    void withdrawn(Position position);

    // What relays and destinations did. A term is one relay's time of holding the lease.
    void may_send_until(int relay, std::int64_t until_us) { may_send_until_us_[relay] = until_us; }
    void published(int relay, int session, int route, Position position);
    void not_accepted(int session, Position position);
    void accepted(int route, Position position);
    [[nodiscard]] bool is_accepted(int route, Position position) const {
        return accepted_us_.contains({route, position});
    }
    /// `finished` is the batch's, by the numbers of events.
    void recorded(const spi::RecordBatch& batch, std::span<const spi::Finished> finished,
                  std::span<const std::string> routes);
    void removed(Position position);
    /// Each owner of the lease has an epoch of its own. It was asked for at `since_us`.
    void holds(int relay, std::uint64_t epoch, std::int64_t since_us);
    [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
    /// The database is as it was: epochs come again. What it lost is `withdrawn`.
    void set_back() {
        epochs_.clear();
        set_back_us_ = world_.now_us();
    }
    /// A ledger says that the route has finished it, or would not send it.
    void in_ledger(int route, Position position);
    void failed(int route, Position position) { failures_[{route, position}] += 1; }
    /// By chance alone its record or the answer to it was lost.
    void unanswered(int route, Position position) { unanswered_[{route, position}] += 1; }
    /// Counts: how often the destination has refused it before.
    std::uint32_t refused(int route, Position position) { return refusals_[{route, position}]++; }
    void session_ended(int session) { unrecorded_.erase(session); }
    /// Whatever it is called by now.
    [[nodiscard]] int route_of(const std::string& name) const { return names_.at(name); }
    void named(const std::string& name, int route) { names_[name] = route; }
    /// Nobody wants anything of the route, and what it lacked is owed no more.
    void retired(int route);
    /// It is there again: what is committed from now on is owed.
    void added(int route) { retired_.erase(route); }
    [[nodiscard]] bool is_retired(int route) const { return retired_.contains(route); }
    /// Of which tenants a relay has known since its term began that nothing is to be sent.
    void paused(int relay, std::set<std::string> tenants) {
        ever_paused_.insert(tenants.begin(), tenants.end());
        paused_[relay] = std::move(tenants);
    }
    /// A part of the route's destination is away, and what goes there waits.
    void part_is_away(int route, int part) { parts_away_.insert({route, part}); }
    /// A retry of its letter is over, in the database, too.
    void letter_recorded(Position position);
    /// Nor is what of it may be there already counted while it does.
    void waits_for_part(int session, int part);
    /// A relay hears that they are: what of theirs got no answer may stay away for days.
    void stay_away(const std::set<std::string>& tenants);
    [[nodiscard]] const std::set<std::string>& paused(int relay) { return paused_[relay]; }
    /// The letter blocks its key no longer, or may not.
    void letter_gone(Position position);
    /// What was wrong with the event is no longer.
    void mended(Position position) { mended_.insert(position); }
    [[nodiscard]] bool is_mended(Position position) const { return mended_.contains(position); }
    /// A relay has looked at the table, not before `since_us`.
    void looked(std::int64_t since_us) { looked_us_ = std::max(looked_us_, since_us); }
    [[nodiscard]] std::int64_t looked_us() const { return looked_us_; }
    /// How often routes joined the stream, and what it brought.
    struct Streamed {
        std::size_t joins = 0;
        std::size_t events = 0;
    };
    Streamed streamed;

    void violation(const std::string& what);

    [[nodiscard]] bool all_settled() const { return unsettled_ == 0; }
    /// Checks that nothing is lost; names what is.
    void finish();
    /// Checks that nothing was late whose key had nothing wrong with it. Not where backends are
    /// ended, locks held or routes changed, which others may wait for. `more_us`: that they may
    /// wait for something else. Of how many events; 0: others may have delayed them.
    std::size_t check_latency(std::int64_t more_us = 0);
    /// A call to the database that takes long has begun.
    void slow_call(std::int64_t us) {
        slow_calls_.emplace_back(world_.now_us(), world_.now_us() + us);
    }
    /// From commit to acceptance, of events of keys with nothing wrong and of tenants never paused,
    /// without the time of slow calls.
    struct Latency {
        std::int64_t worst_us = 0;
        std::size_t events = 0;
    };
    [[nodiscard]] Latency latency() const;
    [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
    [[nodiscard]] std::size_t events() const { return events_.size(); }
    [[nodiscard]] std::size_t repeats() const { return repeats_; }
    [[nodiscard]] std::size_t dead() const { return dead_.size(); }
    [[nodiscard]] const std::map<Position, SimEvent>& all() const { return events_; }

  private:
    [[nodiscard]] std::int64_t slow_us(std::int64_t from_us, std::int64_t to_us) const;
    using RouteEvent = std::pair<int, Position>;
    void settled(int route, Position position);
    void check_order(int route, const SimEvent& event);
    void check_dead(const spi::DeadLetter& letter);
    void check_blocked(int route, const SimEvent& event);
    [[nodiscard]] bool blocks_keys(int route) const {
        return settings_.block_key && route + 1 == settings_.routes;
    }

    World& world_;
    const Settings& settings_;
    std::map<Position, SimEvent> events_;  // committed
    std::function<void(Position)> find_out_;
    std::int64_t looked_us_ = -1;
    std::map<Position, std::int64_t> committed_us_;
    std::map<std::string, std::vector<Position>> by_key_;
    std::map<RouteEvent, std::int64_t> accepted_us_;  // the first time
    std::set<RouteEvent> dead_;
    std::set<Position> withdrawn_;
    std::set<RouteEvent> blocking_;  // dead letters of the route that blocks their keys
    std::set<RouteEvent> settled_;
    std::set<Position> mended_;
    std::map<std::pair<int, std::string>, std::size_t> in_order_;  // settled prefix of a key
    std::map<RouteEvent, std::uint32_t> failures_;
    std::map<RouteEvent, std::uint32_t> unanswered_;
    std::map<RouteEvent, std::uint32_t> refusals_;
    std::map<int, std::int64_t> may_send_until_us_;
    std::map<std::string, int> names_{{"first", 0}, {"second", 1}};
    std::set<int> retired_;
    std::map<int, std::set<std::string>> paused_;  // by relay
    std::set<std::string> ever_paused_;
    std::set<std::pair<int, int>> parts_away_;                       // ever, by route
    std::vector<std::pair<std::int64_t, std::int64_t>> slow_calls_;  // by when they began
    struct Session {
        int route = 0;
        std::set<Position> positions;
        std::set<Position> letters;  // that an operator has sent again
    };
    std::map<int, Session> unrecorded_;  // sent and not in a checkpoint, by session
    std::uint64_t epoch_ = 0;
    std::set<std::uint64_t> epochs_;
    std::int64_t set_back_us_ = -1;
    std::size_t unsettled_ = 0;
    std::size_t repeats_ = 0;
    std::vector<std::string> violations_;
};

}  // namespace outbox::simulation
