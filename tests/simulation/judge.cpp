#include "tests/simulation/judge.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace outbox::simulation {

namespace {
constexpr std::size_t kMaxViolations = 20;
// Dead letters of one route that a relay sends again at a time (src/relay/housekeeper.cpp).
constexpr std::size_t kMaxLettersUnderWay = 500;

bool may_die(const SimEvent& event) {
    return event.trouble != Trouble::kNone;
}

bool must_die(const SimEvent& event) {
    return may_die(event) && event.trouble != Trouble::kFailsTwice;
}

std::string name(int route, Position position) {
    return "event " + std::to_string(position) + " on route " + std::to_string(route);
}
}  // namespace

Position number_of(std::string_view id) {
    id.remove_prefix(id.find_last_of("e-") + 1);
    Position number = 0;
    std::from_chars(id.data(), id.data() + id.size(), number);
    return number;
}

Judge::Judge(World& world, const Settings& settings) : world_(world), settings_(settings) {}

void Judge::violation(const std::string& what) {
    world_.trace("VIOLATION " + what);
    if (violations_.size() < kMaxViolations) violations_.push_back(what);
}

bool Judge::wants(int route, const SimEvent& event) const {
    return event.type != "none" && (route == 0 || event.type == "b");
}

const SimEvent* Judge::find(Position position) const {
    auto it = events_.find(position);
    if (it == events_.end() && find_out_) {
        find_out_(position);
        it = events_.find(position);
    }
    return it == events_.end() ? nullptr : &it->second;
}

void Judge::committed(const SimEvent& event) {
    events_[event.position] = event;
    committed_us_[event.position] = world_.now_us();
    if (!event.key.empty()) by_key_[event.key].push_back(event.position);
    for (int route = 0; route < settings_.routes; ++route) {
        // What no route takes becomes the first route's dead letter.
        const bool due = wants(route, event) || (route == 0 && event.type == "none");
        if (due && !event.heartbeat) ++unsettled_;
        if (due && is_retired(route)) settled(route, event.position);
    }
}

void Judge::withdrawn(Position position) {
    withdrawn_.insert(position);
    letter_gone(position);
    for (int route = 0; route < settings_.routes; ++route) {
        const SimEvent& event = events_.at(position);
        if (wants(route, event) || (route == 0 && event.type == "none")) settled(route, position);
    }
}

void Judge::retired(int route) {
    retired_.insert(route);
    for (const auto& [position, event] : events_) {
        if (wants(route, event)) settled(route, position);
    }
}

void Judge::holds(int relay, std::uint64_t epoch, std::int64_t since_us) {
    if (since_us <= set_back_us_) return;  // it may be of what is no more
    // One may hear of its own when others have had theirs.
    if (!epochs_.insert(epoch).second) {
        violation("relay " + std::to_string(relay) + " has epoch " + std::to_string(epoch) +
                  ", as another had");
    }
    epoch_ = std::max(epoch_, epoch);
}

void Judge::in_ledger(int route, Position position) {
    const SimEvent* event = find(position);
    if (event != nullptr && wants(route, *event) && !settled_.contains({route, position})) {
        violation("a ledger holds " + name(route, position) + ", which is not finished");
    }
}

void Judge::published(int relay, int session, int route, Position position) {
    if (find(position) == nullptr) {
        violation("ghost: " + name(route, position) + " was sent and never committed");
        return;
    }
    if (world_.now_us() >= may_send_until_us_[relay]) {
        violation("relay " + std::to_string(relay) + " sent " + name(route, position) +
                  " without the lease");
    }
    if (paused_[relay].contains(find(position)->tenant)) {
        violation("relay " + std::to_string(relay) + " sent " + name(route, position) +
                  " of a paused tenant");
    }
    Session& sent = unrecorded_[session];
    sent.route = route;
    // What an operator has sent again is bounded apart.
    const bool again = dead_.contains({route, position});
    std::set<Position>& under_way = again ? sent.letters : sent.positions;
    under_way.insert(position);
    const std::size_t most =
        again ? kMaxLettersUnderWay : static_cast<std::size_t>(settings_.options.max_unrecorded);
    if (under_way.size() > most) {
        violation("more than " + std::to_string(most) + (again ? " dead letters" : " events") +
                  " sent and not recorded");
    }
}

void Judge::letter_recorded(Position position) {
    for (auto& [session, sent] : unrecorded_) sent.letters.erase(position);
}

void Judge::not_accepted(int session, Position position) {
    if (const auto it = unrecorded_.find(session); it != unrecorded_.end()) {
        it->second.positions.erase(position);
        it->second.letters.erase(position);
    }
}

void Judge::waits_for_part(int session, int part) {
    std::erase_if(unrecorded_[session].positions,
                  [&](Position position) { return part_of(*find(position)) == part; });
}

void Judge::stay_away(const std::set<std::string>& tenants) {
    for (auto& [session, sent] : unrecorded_) {
        std::erase_if(sent.positions,
                      [&](Position position) { return tenants.contains(find(position)->tenant); });
    }
}

void Judge::accepted(int route, Position position) {
    const SimEvent* event = find(position);
    if (event == nullptr) return;  // told by `published`
    if (!wants(route, *event) && !dead_.contains({route, position}))
        violation(name(route, position) + " is not the route's");
    if (accepted_us_.contains({route, position})) {
        ++repeats_;
        return;
    }
    if (must_die(*event) && !mended_.contains(position)) {
        violation(name(route, position) + " was accepted though it cannot be");
    }
    blocking_.erase({route, position});
    if (!dead_.contains({route, position})) {
        check_order(route, *event);
        check_blocked(route, *event);
    }
    accepted_us_[{route, position}] = world_.now_us();
    settled(route, position);
}

// The events of a key are settled in the order of their transactions.
void Judge::check_order(int route, const SimEvent& event) {
    if (event.key.empty()) return;
    const std::vector<Position>& positions = by_key_[event.key];
    for (std::size_t& i = in_order_[{route, event.key}]; i < positions.size(); ++i) {
        if (positions[i] >= event.position) return;
        if (wants(route, events_[positions[i]]) && !settled_.contains({route, positions[i]})) {
            violation("out of order: " + name(route, event.position) + " before " +
                      std::to_string(positions[i]) + " of its key " + event.key);
            return;
        }
    }
}

// A dead letter that blocks its key is passed by nothing of the key.
void Judge::check_blocked(int route, const SimEvent& event) {
    if (!blocks_keys(route) || event.key.empty()) return;
    for (const Position position : by_key_[event.key]) {
        if (position >= event.position) return;
        if (blocking_.contains({route, position})) {
            violation(name(route, event.position) + " passed the dead letter of " +
                      std::to_string(position) + ", which blocks its key " + event.key);
            return;
        }
    }
}

void Judge::letter_gone(Position position) {
    for (int route = 0; route < settings_.routes; ++route) blocking_.erase({route, position});
}

void Judge::settled(int route, Position position) {
    if (!settled_.insert({route, position}).second) return;
    if (!events_[position].heartbeat) --unsettled_;
}

void Judge::check_dead(const spi::DeadLetter& letter) {
    const int route = route_of(letter.route);
    const Position number =
        letter.event.size() == 1 ? number_of(letter.event.events()[0].id) : Position{0};
    const SimEvent* event = find(number);
    if (event == nullptr || letter.event.events()[0].id != event->id) {
        violation("a dead letter that is no committed event");
        return;
    }
    if (!may_die(*event)) {
        violation(name(route, number) + " was given up on without fault: " + letter.error);
    }
    const bool counted =
        event->trouble == Trouble::kFailsAlways || event->trouble == Trouble::kTimesOut;
    if (counted && letter.attempts != settings_.options.retry.max_attempts) {
        violation(name(route, number) + " was given up on after " +
                  std::to_string(letter.attempts) + " attempts");
    }
    if (counted && failures_[{route, number}] < letter.attempts) {
        violation(name(route, number) + " has more attempts than failures");
    }
    dead_.insert({route, number});
    // One may be recorded in a file that a copy took the place of.
    const bool is_there = !withdrawn_.contains(number);
    if (is_there && blocks_keys(route) && wants(route, *event)) blocking_.insert({route, number});
    settled(route, number);
}

void Judge::recorded(const spi::RecordBatch& batch, std::span<const spi::Finished> finished_now,
                     std::span<const std::string> routes) {
    for (const spi::DeadLetter& letter : batch.dead) check_dead(letter);
    for (const spi::Delivery& delivery : batch.failed) {
        const Position number = number_of(delivery.event_id);
        const SimEvent* event = find(number);
        if (event == nullptr) {
            violation("a failed delivery of no committed event");
        } else if (event->trouble == Trouble::kNone &&
                   delivery.attempts > unanswered_[{route_of(delivery.route), number}]) {
            violation(name(route_of(delivery.route), number) + " has " +
                      std::to_string(delivery.attempts) + " attempts without fault, and " +
                      std::to_string(unanswered_[{route_of(delivery.route), number}]) +
                      " without an answer");
        }
    }
    for (const spi::Finished& finished : finished_now) {
        const int route = route_of(routes[finished.route]);
        for (const Position position : finished.positions) {
            const SimEvent* event = find(position);
            if (event == nullptr) {
                violation("the ledger holds " + name(route, position) +
                          ", which was not committed");
            } else if (wants(route, *event) && !settled_.contains({route, position})) {
                violation("the ledger holds " + name(route, position) + ", which is not finished");
            }
            for (auto& [session, sent] : unrecorded_) {
                if (sent.route == route) sent.positions.erase(position);
            }
        }
    }
}

void Judge::removed(Position position) {
    const SimEvent* event = find(position);
    if (event == nullptr) {
        violation("removed " + std::to_string(position) + ", which was not committed");
        return;
    }
    for (int route = 0; route < settings_.routes; ++route) {
        if (wants(route, *event) && !settled_.contains({route, position})) {
            violation("removed " + name(route, position) + " before it was published");
        }
    }
}

int part_of(const SimEvent& event) {
    const auto number = event.key.empty()
                            ? event.position
                            : std::accumulate(event.key.begin(), event.key.end(), Position{0});
    return static_cast<int>(number % kParts);
}

std::int64_t Judge::slow_us(std::int64_t from_us, std::int64_t to_us) const {
    std::int64_t slow_us = 0;
    for (const auto& [began_us, ended_us] : slow_calls_) {
        const std::int64_t until_us = std::min(ended_us, to_us);
        if (until_us <= from_us || began_us >= to_us) continue;
        slow_us += until_us - std::max(began_us, from_us);
        from_us = until_us;
    }
    return slow_us;
}

Judge::Latency Judge::latency() const {
    std::set<std::string> hurt;
    for (const auto& [position, event] : events_) {
        if (event.trouble != Trouble::kNone) hurt.insert(event.key);
    }
    Latency latency;
    for (const auto& [settled, accepted_us] : accepted_us_) {
        const SimEvent& event = events_.at(settled.second);
        if (event.trouble != Trouble::kNone || event.heartbeat ||
            ever_paused_.contains(event.tenant) ||
            parts_away_.contains({settled.first, part_of(event)}) ||
            (!event.key.empty() && hurt.contains(event.key))) {
            continue;
        }
        const std::int64_t since_us = committed_us_.at(settled.second);
        latency.worst_us =
            std::max(latency.worst_us, accepted_us - since_us - slow_us(since_us, accepted_us));
        ++latency.events;
    }
    return latency;
}

// Where no process, destination or database was away, and there is room for what waits, an event
// that fails delays nothing but its own key. A term may have to begin anew, and a record without
// an answer is the route's until it fails.
std::size_t Judge::check_latency(std::int64_t more_us) {
    if (settings_.kills || settings_.pauses || settings_.outages || settings_.database_outages) {
        return 0;
    }
    const relay::RelayOptions& options = settings_.options;
    constexpr std::size_t kRoom = 1'000;
    if (options.max_waiting < kRoom || options.max_in_flight_bytes < kRoom * kRoom) return 0;
    const std::int64_t most_us =
        (options.lease_ttl_ms + options.retry.max_ms) * kMs + 2 * kSecond + more_us;
    const Latency found = latency();
    if (found.worst_us > most_us) {
        violation("an event with nothing wrong in its key waited for " +
                  std::to_string(found.worst_us / kMs) + " ms, with a limit of " +
                  std::to_string(most_us / kMs));
    }
    return found.events;
}

void Judge::finish() {
    for (const auto& [position, event] : events_) {
        if (event.heartbeat) continue;
        for (int route = 0; route < settings_.routes; ++route) {
            const bool due = wants(route, event) || (route == 0 && event.type == "none");
            if (due && !settled_.contains({route, position})) {
                violation("lost: " + name(route, position));
            }
        }
    }
}

}  // namespace outbox::simulation
