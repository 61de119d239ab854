#include "tests/simulation/postgres/history.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "databases/postgres/source/source.h"
#include "tests/simulation/postgres/watched_source.h"

namespace outbox::simulation {

namespace {

constexpr std::int64_t kTick = 50 * kMs;  // of the server's own timers

std::string id_of(Position number) {
    char id[48];
    std::snprintf(id, sizeof id, "00000000-0000-4000-8000-%012lld", static_cast<long long>(number));
    return id;
}

}  // namespace

PostgresSettings PostgresSettings::from_seed(std::uint64_t seed, const Server&) {
    Random random(seed * 0xd1b54a32d192ed03 + 5);
    PostgresSettings kind;
    kind.settings = Settings::from_seed(seed);
    Settings& s = kind.settings;
    // Histories are shorter, as each statement costs what a server takes for it.
    s.writing_us = random.between(2'000, 5'000) * kMs;
    s.settle_us = 60 * kSecond;
    s.writers = static_cast<int>(random.between(2, 4));
    s.stream = false;
    relay::RelayOptions& o = s.options;
    o.poll_busy_ms = random.between(10, 40);
    o.poll_idle_ms = random.between(50, 200);
    o.record_interval_ms = random.between(20, 150);
    return kind;
}

PostgresHistory::PostgresHistory(Server& server, const PostgresSettings& settings)
    : server_(server),
      kind_(settings),
      settings_(kind_.settings),
      world_(settings_.seed, settings_.tracing),
      judge_(world_, settings_),
      lines_(world_, server, settings_),
      around_{.world = world_,
              .judge = judge_,
              .broker = broker_,
              .settings = settings_,
              .wall_offset_us = wall_offset_us_,
              .open_source = [this](int relay) -> Result<std::unique_ptr<spi::Source>> {
                  auto source = postgres::make_postgres_source(config_);
                  if (!source.ok()) return source;
                  return watched(*std::move(source), world_, judge_, settings_, relay);
              },
              .vanish = [this](int relay, spi::Source*) { lines_.vanish(relay); },
              .real = true} {
    config_.url = server.url(kind_.layout);
    config_.mode = postgres::Mode::kPolling;
    server.reset(kind_.layout);
}

PostgresHistory::~PostgresHistory() {
    world_.end();
}

void PostgresHistory::did(const std::string& what) {
    world_.trace(what);
    ++happened_[what];
}

void PostgresHistory::start_relay() {
    relays_.push_back(std::make_unique<RelayProcess>(around_, next_relay_++));
    living_.push_back(relays_.back().get());
}

void PostgresHistory::start_missing_relays() {
    std::erase_if(living_, [](const RelayProcess* relay) { return relay->ended(); });
    while (living_.size() < static_cast<std::size_t>(settings_.relays)) start_relay();
}

PostgresVerdict PostgresHistory::run() {
    for (int i = 0; i < settings_.relays; ++i) start_relay();
    writing_ = settings_.writers;
    for (int i = 0; i < settings_.writers; ++i) {
        world_.spawn(World::kNoGroup, "writer", [this, i] { write(i); });
    }
    world_.spawn(World::kNoGroup, "chaos", [this] { chaos(); });
    world_.spawn(World::kNoGroup, "time", [this] { keep_time(); });
    const auto broken = [&] { return !judge_.violations().empty(); };
    world_.run(settings_.writing_us * 4, [&] { return broken() || (settling_ && writing_ == 0); });
    if (!broken() && writing_ != 0) judge_.violation("a writer hangs");
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
    if (settled) {
        done_ = true;
        bool empty = false;
        world_.spawn(World::kNoGroup, "looks", [&] {
            while (!(empty = drained())) world_.sleep(100 * kMs);
        });
        world_.run(until_us, [&] { return broken() || empty; });
        if (!empty && !broken()) judge_.violation("finished rows stay, or what is kept of them");
    }
    if (!broken()) judge_.finish();
    PostgresVerdict verdict;
    verdict.violations = judge_.violations();
    verdict.events = judge_.events();
    verdict.repeats = judge_.repeats();
    verdict.dead = judge_.dead();
    verdict.epochs = judge_.epoch();
    verdict.ended_us = world_.now_us();
    verdict.fingerprint = world_.fingerprint();
    world_.end();
    verdict.trace.assign(world_.lines().begin(), world_.lines().end());
    verdict.happened = happened_;
    verdict.statements = lines_.statements();
    verdict.blocked = lines_.blocked();
    verdict.connections = lines_.connections();
    return verdict;
}

void PostgresHistory::keep_time() {
    std::int64_t next_audit_us = 500 * kMs;
    while (true) {
        world_.sleep(kTick);
        lines_.keep_time();
        if (world_.now_us() < next_audit_us) continue;
        audit();
        next_audit_us = world_.now_us() + 500 * kMs;
    }
}

void PostgresHistory::write(int writer) {
    Client client(config_.url);
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(world_.random().between(1, 300) * kMs);
        write_one_transaction(client, writer);
    }
    --writing_;
}

void PostgresHistory::committed(const std::vector<Written>& written) {
    for (const Written& one : written) {
        numbers_[one.position] = one.event.position;
        judge_.committed(one.event);
        if (world_.tracing()) {
            world_.trace("committed e" + std::to_string(one.event.position) + " at " +
                         std::to_string(one.position) + " key=" + one.event.key + " " +
                         one.event.type);
        }
    }
}

bool PostgresHistory::insert(Client& client, Random& random, const std::vector<std::string>& keys,
                             std::vector<Written>& written) {
    Written one;
    one.event = make_event(random, keys);
    one.event.position = next_number_++;
    one.event.id = id_of(one.event.position);
    const std::string key = one.event.key.empty() ? "NULL" : "'" + one.event.key + "'";
    if (!client.run("INSERT INTO public.outbox_events (id, aggregate_type, event_type, payload, "
                    "key) VALUES ('" +
                    one.event.id + "', '" + one.event.type + "', 'Happened', '{}', " + key +
                    ") RETURNING position")) {
        return false;
    }
    one.position = std::stoll(client.rows().at(0).at(0));
    written.push_back(std::move(one));
    return true;
}

void PostgresHistory::write_one_transaction(Client& client, int writer) {
    Random& random = world_.random();
    std::set<std::string> keys;
    for (auto n = random.between(0, 2); n > 0; --n) {
        keys.insert("k" + std::to_string(random.between(1, settings_.keys)));
    }
    const std::vector<std::string> locked(keys.begin(), keys.end());
    const auto dawdle = [&] {
        if (random.chance(0.5)) return;
        world_.sleep(random.chance(0.03) ? random.between(1, 2'000) * kMs
                                         : random.between(10, 20'000));
    };
    const auto fails = [&] {
        world_.trace("writer " + std::to_string(writer) + " fails: " + client.error());
        if (!client.lost()) client.run("ROLLBACK");
    };
    if (!client.run("BEGIN")) return fails();
    // Writers of a key serialise before the event is inserted, in sorted order.
    if (!locked.empty()) {
        std::string list;
        for (const std::string& key : locked) list += (list.empty() ? "'" : ", '") + key + "'";
        if (!client.run("SELECT public.outbox_lock_keys(" + list + ")")) return fails();
    }
    std::vector<Written> written;
    for (auto count = random.between(1, 5); count > 0; --count) {
        const bool takes_back = random.chance(0.1);
        const std::size_t before = written.size();
        if (takes_back && !client.run("SAVEPOINT s")) return fails();
        if (!insert(client, random, locked, written)) return fails();
        dawdle();
        if (takes_back) {
            if (!client.run("ROLLBACK TO s")) return fails();
            written.resize(before);
        }
    }
    std::string end = "COMMIT";
    const bool rolls_back = random.chance(0.15);
    if (random.chance(0.1)) {
        const std::string name = "p" + std::to_string(next_prepared_++);
        if (!client.run("PREPARE TRANSACTION '" + name + "'")) return fails();
        dawdle();
        while (
            !client.run((rolls_back ? "ROLLBACK PREPARED '" : "COMMIT PREPARED '") + name + "'")) {
            if (!client.lost()) return judge_.violation("COMMIT PREPARED: " + client.error());
        }
    } else if (!client.run(rolls_back ? "ROLLBACK" : "COMMIT")) {
        return fails();
    }
    if (!rolls_back) committed(written);
}

SimEvent PostgresHistory::make_event(Random& random, const std::vector<std::string>& keys) {
    SimEvent event;
    if (!keys.empty()) event.key = keys[random.index(keys.size())];
    event.type = random.chance(0.5) ? "a" : "b";
    if (random.chance(settings_.trouble)) {
        event.trouble = static_cast<Trouble>(random.between(1, 6));
        if (!settings_.timeouts && event.trouble == Trouble::kTimesOut) {
            event.trouble = Trouble::kFailsAlways;
        }
        // The table refuses it.
        if (event.trouble == Trouble::kBadTopic) event.trouble = Trouble::kRefused;
    }
    if (event.trouble == Trouble::kNoRoute) event.type = "none";
    return event;
}

// Traffic that goes on: whether an event times out through its own fault shows by others that
// do not.
void PostgresHistory::keep_busy() {
    Client client(config_.url);
    while (!done_) {
        SimEvent event;
        event.position = next_number_++;
        event.id = id_of(event.position);
        event.type = "b";
        event.heartbeat = true;
        if (client.run("INSERT INTO public.outbox_events (id, aggregate_type, event_type, "
                       "payload) VALUES ('" +
                       event.id + "', 'b', 'Happened', '{}') RETURNING position")) {
            committed({{std::stoll(client.rows().at(0).at(0)), event}});
        }
        world_.sleep(world_.random().between(100, 300) * kMs);
    }
}

void PostgresHistory::operate() {
    Client client(config_.url);
    while (settings_.block_key) {
        world_.sleep(3 * kSecond);
        if (client.run("UPDATE public.outbox_dead_letters SET retry_requested_at = "
                       "clock_timestamp() RETURNING id")) {
            for (const auto& row : client.rows()) judge_.mended(number_of(row[0]));
        }
    }
}

void PostgresHistory::chaos() {
    Random& random = world_.random();
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(random.between(50, 800) * kMs);
        switch (random.between(0, 5)) {
            case 0:
            case 1:
                hurt_a_relay(random);
                break;
            case 2:
                if (!settings_.outages) break;
                broker_.away_fails = random.chance(0.5);
                broker_.away_until_us[static_cast<int>(random.between(0, settings_.routes - 1))] =
                    world_.now_us() + random.between(50, 3'000) * kMs;
                did("an outage of a destination");
                break;
            case 3:
                if (!settings_.database_outages) break;
                lines_.away_until(world_.now_us() + random.between(20, 2'000) * kMs);
                did("an outage of the database");
                break;
            case 4:
                if (lines_.terminate_one()) did("a backend is terminated");
                break;
            default:
                if (!settings_.clock_jumps) break;
                wall_offset_us_ += random.between(-7'200, 7'200) * kSecond;
                did("the clocks on the wall of relays jump");
        }
    }
    settling_ = true;
}

void PostgresHistory::hurt_a_relay(Random& random) {
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

// What the tables say, beside the world.
void PostgresHistory::audit() {
    test::Pg& control = server_.control(kind_.layout);
    std::set<Position> there;
    for (const auto& row : control.query("SELECT position, id FROM public.outbox_events")) {
        const Position number = number_of(*row[1]);
        there.insert(number);
        if (judge_.find(number) == nullptr) {
            judge_.violation("the table holds e" + std::to_string(number) +
                             ", which was not committed");
        }
    }
    // The judge hears of a letter when its relay does, and that is later.
    std::set<std::pair<int, Position>> dead;
    for (const auto& row : control.query("SELECT route, id FROM public.outbox_dead_letters")) {
        dead.insert({Judge::route_of(*row[0]), number_of(*row[1])});
    }
    const auto is_dead = [&](Position number) {
        return dead.contains({0, number}) || dead.contains({1, number});
    };
    for (const auto& [position, number] : numbers_) {
        if (!there.contains(number) && !is_dead(number)) judge_.removed(number);
    }
    const auto ledgers = control.query(
        "SELECT route, segment, done::text FROM public.outbox_ledger WHERE life = "
        "to_regclass('public.outbox_events')::oid::text || '/' || "
        "pg_relation_filenode(pg_get_serial_sequence('public.outbox_events', "
        "'position')::regclass)::text || '/p'");
    for (const auto& row : ledgers) {
        const Position first = std::stoll(*row[1]) * 65'536;
        const std::string& done = *row[2];
        for (auto bit = done.find('1'); bit != std::string::npos; bit = done.find('1', bit + 1)) {
            const auto found = numbers_.find(first + static_cast<Position>(bit));
            const int route = Judge::route_of(*row[0]);
            if (found == numbers_.end() || dead.contains({route, found->second})) continue;
            judge_.in_ledger(route, found->second);
        }
    }
}

// Nothing is kept of what is finished.
bool PostgresHistory::drained() {
    return server_.control(kind_.layout)
               .value(
                   "SELECT EXISTS (SELECT FROM public.outbox_events) OR EXISTS (SELECT FROM "
                   "public.outbox_ledger) OR EXISTS (SELECT FROM public.outbox_delivery)") == "f";
}

}  // namespace outbox::simulation
