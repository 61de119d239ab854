#include "tests/simulation/history.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tests/simulation/source.h"

namespace outbox::simulation {

History::History(const Settings& settings)
    : settings_(settings),
      world_(settings.seed, settings.tracing),
      judge_(world_, settings_),
      database_(world_, judge_),
      around_{.world = world_,
              .judge = judge_,
              .broker = broker_,
              .settings = settings_,
              .wall_offset_us = database_.wall_offset_us,
              .open_source =
                  [this](int relay) {
                      return Result<std::unique_ptr<spi::Source>>(
                          std::make_unique<SimSource>(world_, database_, judge_, settings_, relay));
                  },
              .vanish =
                  [](int, spi::Source* source) {
                      if (source != nullptr) static_cast<SimSource*>(source)->vanish();
                  }} {}

void History::start_relay() {
    relays_.push_back(std::make_unique<RelayProcess>(around_, next_relay_++));
    living_.push_back(relays_.back().get());
}

Verdict History::run() {
    for (int i = 0; i < settings_.relays; ++i) start_relay();
    writing_ = settings_.writers;
    for (int i = 0; i < settings_.writers; ++i) {
        world_.spawn(World::kNoGroup, "writer", [this, i] { write(i); });
    }
    world_.spawn(World::kNoGroup, "chaos", [this] { chaos(); });
    const auto broken = [&] { return !judge_.violations().empty(); };
    world_.run(settings_.writing_us * 4, [&] { return broken() || (settling_ && writing_ == 0); });
    world_.trace("--- settling");
    // From here on nothing breaks: what is not delivered now is lost.
    settings_.call_fails = 0;
    settings_.outcome_unknown = 0;
    settings_.record_lost = 0;
    start_relay();
    world_.spawn(World::kNoGroup, "busy", [this] { keep_busy(); });
    world_.spawn(World::kNoGroup, "operator", [this] { operate(); });
    const std::int64_t until_us = world_.now_us() + settings_.settle_us;
    const bool settled =
        world_.run(until_us, [&] { return broken() || judge_.all_settled(); }) && !broken();
    done_ = true;
    if (settled) {
        world_.run(until_us, [&] {
            return broken() || (database_.rows().empty() && database_.dead_letters() == 0) ||
                   (database_.rows().empty() && !settings_.block_key);
        });
        if (!database_.rows().empty()) judge_.violation("finished rows stay in the table");
        if (const std::string left = database_.lingering(); !left.empty()) {
            judge_.violation("state of finished events stays: " + left);
        }
    }
    if (!broken()) {
        judge_.finish();
        judge_.check_latency();
    }
    Verdict verdict;
    verdict.violations = judge_.violations();
    verdict.trace.assign(world_.lines().begin(), world_.lines().end());
    verdict.events = judge_.events();
    verdict.repeats = judge_.repeats();
    verdict.dead = judge_.dead();
    verdict.streamed = judge_.streamed;
    verdict.epochs = database_.epoch();
    verdict.ended_us = world_.now_us();
    verdict.worst_latency_us = judge_.worst_latency_us();
    verdict.fingerprint = world_.fingerprint();
    world_.end();
    return verdict;
}

void History::write(int writer) {
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(world_.random().between(1, 300) * kMs);
        write_one_transaction(world_.random(), writer);
    }
    --writing_;
}

void History::write_one_transaction(Random& random, int writer) {
    std::set<std::string> keys;
    for (auto n = random.between(0, 2); n > 0; --n) {
        keys.insert("k" + std::to_string(random.between(1, settings_.keys)));
    }
    const auto transaction = database_.begin();
    // Writers of a key serialise before the event is inserted, in sorted order.
    for (const std::string& key : keys) {
        while (!database_.lock_key(transaction, key)) world_.sleep(random.between(1, 20) * kMs);
    }
    const std::vector<std::string> locked(keys.begin(), keys.end());
    const auto dawdle = [&] {
        if (random.chance(0.5)) return;
        world_.sleep(random.chance(0.03) ? random.between(1, 3'000) * kMs
                                         : random.between(10, 20'000));
    };
    const auto count = random.between(1, 5);
    for (std::int64_t i = 0; i < count; ++i) {
        SimEvent event = make_event(random, locked);
        event.position = database_.take_position(transaction);
        event.id = "e" + std::to_string(event.position);
        dawdle();  // held between position and row
        database_.insert(transaction, std::move(event));
        if (random.chance(0.1)) {
            database_.roll_back_events(transaction, static_cast<std::size_t>(random.between(1, 2)));
        }
        dawdle();
    }
    if (random.chance(0.1)) {
        database_.prepare(transaction);
        dawdle();
    }
    if (random.chance(0.15)) {
        world_.trace("writer " + std::to_string(writer) + " rolls back");
        database_.roll_back(transaction);
    } else {
        if (settings_.hidden_commits && random.chance(0.4)) {
            database_.write_commit(transaction);
            dawdle();  // for a standby
        }
        database_.commit(transaction);
    }
}

SimEvent History::make_event(Random& random, const std::vector<std::string>& keys) {
    SimEvent event;
    if (!keys.empty()) event.key = keys[random.index(keys.size())];
    event.type = random.chance(0.5) ? "a" : "b";
    if (random.chance(settings_.trouble)) {
        event.trouble = static_cast<Trouble>(random.between(1, 6));
        if (!settings_.timeouts && event.trouble == Trouble::kTimesOut) {
            event.trouble = Trouble::kFailsAlways;
        }
    }
    if (event.trouble == Trouble::kNoRoute) event.type = "none";
    return event;
}

// Traffic that goes on: whether an event times out through its own fault shows by others that
// do not.
void History::keep_busy() {
    while (!done_) {
        const auto transaction = database_.begin();
        SimEvent event;
        event.position = database_.take_position(transaction);
        event.id = "e" + std::to_string(event.position);
        event.type = "b";
        event.heartbeat = true;
        database_.insert(transaction, std::move(event));
        database_.commit(transaction);
        world_.sleep(world_.random().between(100, 300) * kMs);
    }
}

void History::operate() {
    while (settings_.block_key) {
        world_.sleep(3 * kSecond);
        database_.retry_all_dead();
    }
}

void History::chaos() {
    Random& random = world_.random();
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(random.between(100, 1'500) * kMs);
        switch (random.between(0, 7)) {
            case 0:
            case 1:
                hurt_a_relay(random);
                break;
            case 2:
            case 3:
                if (!settings_.outages) break;
                broker_.away_fails = random.chance(0.5);
                broker_.away_until_us[static_cast<int>(random.between(0, settings_.routes - 1))] =
                    world_.now_us() + random.between(50, 4'000) * kMs;
                world_.trace("an outage of a destination");
                break;
            case 4:
                if (!settings_.database_outages) break;
                database_.away_until_us = world_.now_us() + random.between(20, 3'000) * kMs;
                world_.trace("an outage of the database");
                break;
            case 5:
                if (!settings_.cuts) break;
                world_.trace("the streams are cut");
                database_.cut_streams();
                break;
            case 6:
                if (!settings_.promotions) break;
                world_.trace("a standby is promoted");
                database_.promote();
                break;
            default:
                if (!settings_.clock_jumps) break;
                database_.wall_offset_us += random.between(-7'200, 7'200) * kSecond;
                world_.trace("the clocks on the wall jump");
        }
    }
    settling_ = true;
}

void History::hurt_a_relay(Random& random) {
    std::erase_if(living_, [](const RelayProcess* relay) { return relay->ended(); });
    while (living_.size() < static_cast<std::size_t>(settings_.relays)) start_relay();
    RelayProcess& relay = *living_[random.index(living_.size())];
    switch (random.between(0, 2)) {
        case 0:
            if (!settings_.pauses) break;
            world_.trace("relay " + std::to_string(relay.number()) + " is paused");
            relay.pause(random.between(10, 6'000) * kMs);
            break;
        case 1:
            if (!settings_.kills) break;
            relay.kill();
            std::erase(living_, &relay);
            start_relay();
            break;
        default:
            if (!settings_.kills) break;
            world_.trace("relay " + std::to_string(relay.number()) + " is asked to stop");
            relay.stop();
    }
}

}  // namespace outbox::simulation
