#include "tests/simulation/deployment.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace outbox::simulation {

Deployment::Deployment(const DeploymentSettings& habits)
    : habits_(habits),
      settings_(habits.settings),
      world_(settings_.seed, settings_.tracing),
      judge_(world_, settings_),
      around_{.world = world_,
              .judge = judge_,
              .broker = broker_,
              .settings = settings_,
              .wall_offset_us = wall_offset_us_,
              .open_source = [this](int relay) { return open_source(relay); },
              .vanish = [this](int relay, spi::Source*) { vanish(relay); },
              .routes =
                  [this] {
                      std::vector<relay::RouteSpec> routes;
                      for (int route = 0; route < settings_.routes; ++route) {
                          if (judge_.is_retired(route) && !adding_) continue;
                          routes.push_back(route_spec(
                              route, names_[static_cast<std::size_t>(route)], settings_));
                      }
                      return routes;
                  },
              .may_end =
                  [this](int relay, const ErrorInfo& error) {
                      const bool is_of_past =
                          error.code == ErrorCode::kRouteGone && of_the_past_.contains(relay);
                      return is_of_past || may_end(relay, error);
                  },
              .may_change = [this] { return may_change(); }} {}

void Deployment::play(DeploymentVerdict& verdict) {
    for (int i = 0; i < settings_.relays; ++i) start_relay();
    writing_ = settings_.writers;
    for (int i = 0; i < settings_.writers; ++i) start_writer(i);
    world_.spawn(World::kNoGroup, "chaos", [this] { chaos(); });
    begin();
    world_.spawn(World::kNoGroup, "watch", [this] { watch_relays(); });
    const auto broken = [&] { return !judge_.violations().empty(); };
    // A change of routes may wait for a relay that stands still with a lock, and a lease may last
    // for as long as the clock was set back.
    world_.run(settings_.writing_us * 4 + (settings_.clock_jumps ? 80 : 20) * kSecond,
               [&] { return broken() || (settling_ && writing_ == 0); });
    if (!broken() && writing_ != 0) judge_.violation("a writer hangs");
    world_.trace("--- settling");
    // From here on nothing breaks: what is not delivered now is lost.
    settings_.call_fails = 0;
    settings_.outcome_unknown = 0;
    settings_.record_lost = 0;
    settle();
    // One that is configured as before would take another route's name for its own.
    if (changing_routes_) {
        world_.run(world_.now_us() + 60 * kSecond, [&] { return broken() || !changing_routes_; });
    }
    start_relay();
    if (changing_routes_) of_the_past_.insert(living_.back()->number());
    world_.spawn(World::kNoGroup, "busy", [this] { keep_busy(); });
    world_.spawn(World::kNoGroup, "operator", [this] { operate(); });
    const std::int64_t until_us = world_.now_us() + settings_.settle_us;
    const bool settled =
        world_.run(until_us, [&] { return broken() || judge_.all_settled(); }) && !broken();
    if (settled) {
        done_ = true;
        std::string left = "nobody has looked";
        world_.spawn(World::kNoGroup, "looks", [&] {
            while (!(left = this->left()).empty()) world_.sleep(300 * kMs);
        });
        world_.run(until_us, [&] { return broken() || left.empty(); });
        if (!left.empty() && !broken()) judge_.violation("what is finished stays: " + left);
        world_.run(until_us, [&] { return broken() || at_rest(); });
    }
    if (!broken()) judge_.finish();
    if (!broken() && nobody_interferes()) {
        verdict.latencies = judge_.check_latency(may_wait_us());
    }
    verdict.violations = judge_.violations();
    verdict.events = judge_.events();
    verdict.repeats = judge_.repeats();
    verdict.dead = judge_.dead();
    verdict.epochs = judge_.epoch();
    verdict.ended_us = world_.now_us();
    verdict.worst_latency_us = judge_.latency().worst_us;
    verdict.fingerprint = world_.fingerprint();
    world_.end();
    verdict.trace.assign(world_.lines().begin(), world_.lines().end());
    verdict.happened = happened_;
}

void Deployment::did(const std::string& what) {
    world_.trace(what);
    ++happened_[what];
}

std::string Deployment::id_of(Position number) {
    char id[48];
    std::snprintf(id, sizeof id, "00000000-0000-4000-8000-%012lld", static_cast<long long>(number));
    return id;
}

void Deployment::committed(const std::vector<Written>& written) {
    for (const Written& one : written) {
        if (one.position != 0) numbers_[one.position] = one.event.position;
        judge_.committed(one.event);
        if (world_.tracing()) {
            world_.trace("committed e" + std::to_string(one.event.position) + " at " +
                         std::to_string(one.position) + " key=" + one.event.key + " " +
                         one.event.type);
        }
    }
}

SimEvent Deployment::make_event(Random& random, const std::vector<std::string>& keys,
                                double trouble) {
    SimEvent event;
    if (!keys.empty()) event.key = keys[random.index(keys.size())];
    event.type = random.chance(0.5) ? "a" : "b";
    if (random.chance(trouble)) {
        event.trouble = static_cast<Trouble>(random.between(1, 6));
        // With more of them than are spared for probes nothing shows whose fault it is.
        if (event.trouble == Trouble::kTimesOut &&
            (!settings_.timeouts || ++timing_out_ > settings_.options.max_unrecorded / 4)) {
            event.trouble = Trouble::kFailsAlways;
        }
        // The table refuses it.
        if (event.trouble == Trouble::kBadTopic) event.trouble = Trouble::kRefused;
    }
    if (event.trouble == Trouble::kNoRoute) event.type = "none";
    if (habits_.tenants) {
        // A key is a tenant's.
        const std::string& of = event.key;
        event.tenant = "t" + std::to_string(of.empty() ? random.between(0, 2) : of.back() % 3);
    }
    return event;
}

// Traffic that goes on: whether an event times out through its own fault shows by others that
// do not. When all is through it comes and goes: a route that was added may have what is owed to
// nobody.
void Deployment::keep_busy() {
    constexpr std::int64_t kWhile = 10 * kSecond;
    while (true) {
        const bool rests = done_ && world_.now_us() / kWhile % 2 == 0;
        Written written;
        written.event.type = "b";
        written.event.heartbeat = true;
        if (!rests) {
            written.event.position = next_number_++;
            written.event.id = id_of(written.event.position);
            if (write_heartbeat(written)) committed({written});
        }
        world_.sleep(world_.random().between(100, 300) * kMs);
    }
}

// Of what the seed's kind of history has.
void Deployment::chaos() {
    Random& random = world_.random();
    const Kinds some = kinds();
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(random.between(50, 600) * kMs);
        if (!some.empty()) some[random.index(some.size())]();
    }
    settling_ = true;
}

void Deployment::start_relay() {
    relays_.push_back(std::make_unique<RelayProcess>(around_, next_relay_++));
    living_.push_back(relays_.back().get());
}

void Deployment::start_missing_relays() {
    std::erase_if(living_, [](const RelayProcess* relay) { return relay->ended(); });
    while (living_.size() < static_cast<std::size_t>(settings_.relays)) start_relay();
}

// A process that ended is started again, and where that does not help a person decides.
void Deployment::watch_relays() {
    while (true) {
        world_.sleep(300 * kMs);
        watch();
        if (!changing_routes_) start_missing_relays();
    }
}

void Deployment::hurt_a_relay() {
    Random& random = world_.random();
    start_missing_relays();
    RelayProcess& relay = *living_[random.index(living_.size())];
    switch (random.between(0, 2)) {
        case 0:
            if (!settings_.pauses) break;
            did("a relay is paused");
            relay.pause(random.between(10, 5'000) * kMs);
            break;
        case 1:
            if (!settings_.kills) break;
            did("a relay is killed");
            relay.kill();
            std::erase(living_, &relay);
            start_relay();
            break;
        default:
            if (!settings_.kills) break;
            did("a relay is asked to stop");
            relay.stop();
    }
}

void Deployment::lose_a_destination() {
    Random& random = world_.random();
    broker_.away_fails = random.chance(0.5);
    broker_.away_until_us[static_cast<int>(random.between(0, settings_.routes - 1))] =
        world_.now_us() + random.between(50, 3'000) * kMs;
    did("an outage of a destination");
}

void Deployment::lose_a_part() {
    Random& random = world_.random();
    const std::pair part(static_cast<int>(random.between(0, settings_.routes - 1)),
                         static_cast<int>(random.between(0, kParts - 1)));
    broker_.part_away_until_us[part] = world_.now_us() + random.between(50, 5'000) * kMs;
    judge_.part_is_away(part.first, part.second);
    did("a part of a destination is away");
}

// All relays stop, as a deployment does.
bool Deployment::stop_all_relays() {
    for (RelayProcess* relay : living_) relay->stop();
    const std::int64_t until_us = world_.now_us() + 8 * kSecond;
    const auto stopped = [&] {
        return std::all_of(living_.begin(), living_.end(),
                           [](const RelayProcess* relay) { return relay->ended(); });
    };
    while (!stopped() && world_.now_us() < until_us) world_.sleep(20 * kMs);
    return stopped();
}

// What an operator does until all is through.
void Deployment::operate() {
    while (true) {
        world_.sleep(1 * kSecond);
        if (!paused_.empty()) {
            if (const auto desk = operations()) {
                for (const std::string& tenant : paused_) {
                    insist([&] { return desk->resume_tenant(tenant); });
                }
                paused_.clear();
            }
        }
        if (settings_.block_key) handle_letters();
    }
}

void Deployment::change_tenants() {
    const auto desk = operations();
    if (!desk) return;
    const std::string tenant = "t" + std::to_string(world_.random().between(0, 2));
    if (paused_.contains(tenant)) {
        if (desk->resume_tenant(tenant).ok()) paused_.erase(tenant);
        did("a tenant is resumed");
    } else if (desk->pause_tenant(tenant).ok()) {
        paused_.insert(tenant);
        did("a tenant is paused");
    }
}

// Retried, after what was wrong was mended or not, or discarded.
void Deployment::handle_letters() {
    Random& random = world_.random();
    const auto desk = operations();
    if (!desk) return;
    const auto letters = desk->dead({}, 0, 100, false);
    if (!letters.ok() || letters->empty()) return;
    DeadFilter filter;
    for (const DeadInfo& letter : *letters) {
        if (settling_ || random.chance(0.5)) filter.ids.push_back(letter.id);
    }
    if (filter.ids.empty()) return;
    if (!settling_ && random.chance(0.3)) {
        // Also those of the same events that are written while it waits for a lock.
        const auto gone = [&] {
            for (const std::string& id : filter.ids) judge_.letter_gone(number_of(id));
        };
        gone();
        if (desk->discard_dead(filter).ok()) did("letters are discarded");
        gone();
        return;
    }
    if (settling_ || random.chance(0.7)) {
        for (const std::string& id : filter.ids) judge_.mended(number_of(id));
    }
    if (desk->retry_dead(filter).ok()) did("letters are retried");
}

void Deployment::change_routes() {
    Random& random = world_.random();
    changing_routes_ = true;
    const std::shared_ptr<void> changed(nullptr, [this](void*) { changing_routes_ = false; });
    // One of them stands still meanwhile, and wakes as one of the past.
    if (!living_.empty() && random.chance(0.5)) {
        RelayProcess& frozen = *living_[random.index(living_.size())];
        frozen.pause(random.between(3'000, 9'000) * kMs);
        frozen.stop();
        of_the_past_.insert(frozen.number());
        std::erase(living_, &frozen);
        did("a relay stands still while routes change");
    }
    if (!stop_all_relays()) return;
    const auto desk = operations();
    if (!desk) return;
    if (settings_.routes > 1 && random.chance(0.5)) {
        change_number_of_routes(*desk);
    } else {
        rename_routes(*desk);
    }
}

// To new names, or two routes to each other's.
void Deployment::rename_routes(Operations& desk) {
    const auto rename = [&](std::size_t route, const std::string& to) {
        if (!insist([&] { return desk.rename_route({}, names_[route], to); })) return false;
        names_[route] = to;
        judge_.named(to, static_cast<int>(route));
        return true;
    };
    const std::string fresh = "route" + std::to_string(next_name_++);
    if (settings_.routes == 1 || judge_.is_retired(1)) {
        if (rename(0, fresh)) did("a route is renamed");
        return;
    }
    const std::string first = names_[0];
    const std::string second = names_[1];
    if (rename(0, fresh) && rename(1, first) && rename(0, second)) did("routes swap their names");
}

void Deployment::change_number_of_routes(Operations& desk) {
    if (judge_.is_retired(1)) {
        adding_ = true;
        did("a route is added");
        return;
    }
    if (insist([&] { return desk.retire_route({}, names_[1], true); })) {
        adding_ = false;
        judge_.retired(1);
        did("a route is retired");
    }
}

void Deployment::copied() {
    copied_us_ = world_.now_us();
    for (const auto& [number, event] : judge_.all()) copied_.insert(number);
    copied_numbers_ = numbers_;
}

void Deployment::set_back() {
    copied_us_ = world_.now_us();
    judge_.set_back();
    for (const auto& [number, event] : judge_.all()) {
        if (!copied_.contains(number)) judge_.withdrawn(number);
    }
    numbers_ = copied_numbers_;
}

// The judge hears of a letter when its relay does, and that is later.
void Deployment::check_tables(const std::set<Position>& there,
                              const std::set<std::pair<int, Position>>& dead) {
    for (const Position number : there) {
        if (judge_.find(number) == nullptr) {
            judge_.violation("the table holds e" + std::to_string(number) +
                             ", which was not committed");
        }
    }
    const auto is_dead = [&](Position number) {
        return dead.contains({0, number}) || dead.contains({1, number});
    };
    for (const auto& [position, number] : numbers_) {
        if (!there.contains(number) && !is_dead(number)) judge_.removed(number);
    }
}

void Deployment::check_ledger(const std::string& route, Position position,
                              const std::set<std::pair<int, Position>>& dead) {
    const auto found = numbers_.find(position);
    const int number_of_route = judge_.route_of(route);
    if (found == numbers_.end() || dead.contains({number_of_route, found->second})) return;
    judge_.in_ledger(number_of_route, found->second);
}

}  // namespace outbox::simulation
