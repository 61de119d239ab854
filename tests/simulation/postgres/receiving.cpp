#include "tests/simulation/postgres/receiving.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <new>
#include <set>
#include <utility>

#include "brokers/mailbox/sink.h"
#include "consumer/env.h"
#include "consumer/queue/headers_json.h"
#include "databases/postgres/source/source.h"
#include "mailbox/loop.h"
#include "tests/simulation/postgres/watched_sink.h"
#include "tests/simulation/watched_source.h"

namespace outbox::simulation {

namespace {

constexpr std::int64_t kTick = 50 * kMs;  // of the server's own timers
constexpr std::int64_t kLook = 500 * kMs;

// For longer than the one that says so lives.
void callers_clock_is(const core::Clock& clock) {
    alignas(consumer::CallersClock) std::byte storage[sizeof(consumer::CallersClock)];
    new (storage) consumer::CallersClock(clock);
}

std::string id_of(Position number) {
    char id[48];
    std::snprintf(id, sizeof id, "00000000-0000-4000-8000-%012lld", static_cast<long long>(number));
    return id;
}

}  // namespace

ReceivingSettings ReceivingSettings::from_seed(std::uint64_t seed) {
    Random random(seed * 0xd1b54a32d192ed03 + 7);
    ReceivingSettings kind;
    kind.settings = Settings::from_seed(seed);
    Settings& s = kind.settings;
    s.routes = 1;
    s.relays = random.chance(0.5) ? 2 : 1;
    s.writers = static_cast<int>(random.between(1, 3));
    s.writing_us = random.between(2'000, 5'000) * kMs;
    // A message that ends its session costs all of its mailbox some ten seconds an attempt.
    s.settle_us = 400 * kSecond;
    s.trouble = 0;
    s.block_key = false;
    relay::RelayOptions& o = s.options;
    o.poll_busy_ms = random.between(10, 40);
    o.poll_idle_ms = random.between(50, 200);
    // What is applied before its relay has recorded it may come again.
    o.record_interval_ms =
        random.chance(0.5) ? random.between(200, 1'500) : random.between(20, 150);
    kind.members = static_cast<int>(random.between(1, 3));
    kind.fates = random.chance(0.6) ? 0.1 : 0;
    kind.terminations = random.chance(0.5);
    kind.holds = random.chance(0.5);
    kind.letters = random.chance(0.6);
    kind.needs = random.chance(0.3);
    kind.crashes = random.chance(0.03);
    MailboxOptions& m = kind.options;
    m.consumer = "orders";
    m.max_attempts = static_cast<std::uint32_t>(random.between(3, 5));
    m.retry_base_ms = random.between(20, 100);
    m.retry_max_ms = random.between(200, 1'000);
    m.poll_busy_ms = random.between(5, 20);
    m.poll_idle_ms = random.between(30, 150);
    m.transaction_size = random.chance(0.4) ? static_cast<std::size_t>(random.between(2, 8)) : 1;
    m.batch_size = static_cast<std::size_t>(random.between(1, 30));
    m.max_failing_keys = random.chance(0.2) ? 2 : 1'000;
    if (random.chance(0.2)) m.inbox_retention_s = 86'400;
    m = consumer::checked(m);
    RequestSettings& r = kind.requests;
    if (random.chance(0.5)) r.callers = static_cast<int>(random.between(2, 10));
    r.services = static_cast<int>(random.between(1, 3));
    using WhileRunning = IdempotencyOptions::WhileRunning;
    r.options.while_running = random.chance(0.7) ? WhileRunning::kWait : WhileRunning::kConflict;
    r.options.wait_ms = random.between(50, 2'000);
    r.lease_ms = random.chance(0.5) ? random.between(50, 1'500) : 0;
    r.together = random.chance(0.5);
    SagaSettings& saga = kind.sagas;
    if (random.chance(0.5)) saga.sagas = static_cast<int>(random.between(1, 5));
    saga.timeout_ms = random.between(500, 3'000);
    saga.retries = static_cast<std::uint32_t>(random.between(0, 2));
    saga.refused = random.chance(0.5) ? 0.2 : 0;
    kind.queue = random.chance(0.4);
    QueueSettings& q = kind.queues;
    q.one_at_a_time = random.chance(0.5);
    if (random.chance(0.3)) q.again_after_us = random.between(1'000, 8'000) * kMs;
    q.call_fails = random.chance(0.5) ? 0.005 : 0;
    QueueConsumerOptions& o2 = kind.queue_options;
    o2.consumer = m.consumer;
    o2.max_attempts = m.max_attempts;
    o2.retry_base_ms = m.retry_base_ms;
    o2.retry_max_ms = m.retry_max_ms;
    o2.transaction_size = m.transaction_size;
    o2.inbox_retention_s = m.inbox_retention_s;
    o2.workers = static_cast<std::size_t>(random.between(1, 3));
    o2.max_in_flight = static_cast<std::size_t>(random.between(1, 50));
    if (random.chance(0.3)) o2.max_deliveries = 0;
    return kind;
}

ReceivingHistory::ReceivingHistory(Server& server, const ReceivingSettings& settings)
    : server_(server),
      kind_(settings),
      settings_(kind_.settings),
      world_(settings_.seed, settings_.tracing),
      judge_(world_, settings_),
      effects_(world_, judge_, kind_.options.max_attempts,
               !kind_.queue || kind_.queues.keeps_order()),
      lines_(world_, server, settings_),
      queue_(world_, kind_.queues, broker_.away_until_us[0]),
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
              .routes =
                  [this] {
                      std::vector<relay::RouteSpec> routes{route_spec(0, "first", settings_)};
                      routes.front().predicate = {};  // sagas' events, too
                      return routes;
                  },
              .make_sink = [this](int relay, int route) { return make_sink(relay, route); },
              .may_end = [](int, const ErrorInfo&) { return false; }},
      receivers_{.world = world_,
                 .judge = judge_,
                 .effects = effects_,
                 .wall_offset_us = wall_offset_us_,
                 .needs_away_until_us = needs_away_until_us_,
                 .url = server.url(kLayout),
                 .options = kind_.options,
                 .queue = kind_.queue ? &queue_ : nullptr,
                 .queue_options = kind_.queue_options,
                 .handles_it =
                     [this](PGconn* connection, const Message& message) {
                         return sagas_.handle(connection, message);
                     }},
      services_(world_, judge_, receivers_.url, kind_.requests),
      sagas_(world_, judge_, receivers_.url, kind_.sagas) {
    config_.url = receivers_.url;
    config_.mode = postgres::Mode::kPolling;
    server.reset(kLayout);
    world_.on_switch([this](World::TaskId task) { enter(task); },
                     [this](World::TaskId task) { leave(task); });
    lines_.end_ids_with([this] { return next_digits(); });
    broker_.sees = [this](Position number) { find_out(number); };
    broker_.keeps = [this](const Kept& record) { enqueue(record); };
    take_out(kind_.plant);
}

ReceivingHistory::~ReceivingHistory() {
    world_.end();
    for (const std::string& function : functions_) server_.control(kLayout).exec(function);
}

Result<std::unique_ptr<spi::Sink>> ReceivingHistory::make_sink(int relay, int route) {
    if (kind_.queue) {
        return std::unique_ptr<spi::Sink>(
            std::make_unique<SimSink>(world_, judge_, broker_, settings_, relay, route));
    }
    auto sink = mailbox::make_mailbox_sink("mailbox+" + config_.url);
    if (!sink.ok()) return sink;
    return watched(
        *std::move(sink), judge_, [this](Position number) { find_out(number); }, ++broker_.sessions,
        relay, route);
}

void ReceivingHistory::enqueue(const Kept& record) {
    consumer::HeadersJson headers;
    for (const auto& [name, value] : record.headers) headers.add(name, value);
    queue_.put({.where = {},
                .id = record.id,
                .topic = record.topic,
                .key = record.key,
                .payload = record.value,
                .headers = std::move(headers).text()});
}

// What handlers write is committed when its row is there for others.
void ReceivingHistory::find_out(Position number) {
    if (judge_.find(number) != nullptr) return;
    const auto row = server_.control(kLayout).query(
        "SELECT id FROM public.outbox_events WHERE right(id::text, 12) = lpad('" +
        std::to_string(number) + "', 12, '0')");
    if (row.size() != 1) return;
    SimEvent event;
    event.position = number;
    event.id = *row[0][0];
    event.type = "a";
    judge_.committed(event);
}

// The clock of a handler's calls is its thread's: here, its task's.
void ReceivingHistory::enter(World::TaskId task) {
    const auto found = callers_clocks_.find(task);
    if (found != callers_clocks_.end()) callers_clock_is(*found->second);
}

void ReceivingHistory::leave(World::TaskId task) {
    const core::Clock& clock = consumer::callers_clock();
    if (&clock == &consumer::machine_clock()) {
        callers_clocks_.erase(task);
        return;
    }
    callers_clocks_[task] = &clock;
    callers_clock_is(consumer::machine_clock());
}

// The digits of the next number, each in four bits.
std::uint64_t ReceivingHistory::next_digits() {
    std::uint64_t digits = 0;
    int shift = 0;
    for (Position rest = next_number_++; rest > 0; rest /= 10, shift += 4) {
        digits |= static_cast<std::uint64_t>(rest % 10) << shift;
    }
    return digits;
}

// Out of the functions that it stands in.
void ReceivingHistory::take_out(const Lines::Plant& plant) {
    if (plant.from.empty()) return;
    lines_.plant(plant);
    test::Pg& control = server_.control(kLayout);
    const auto with_it = control.query(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace "
        "AND strpos(prosrc, $plant$" +
        plant.from + "$plant$) > 0");
    for (const auto& row : with_it) {
        functions_.push_back(*row[0]);
        std::string without = *row[0];
        without.replace(without.find(plant.from), plant.from.size(), plant.to);
        control.exec(without);
    }
}

void ReceivingHistory::did(const std::string& what) {
    world_.trace(what);
    ++happened_[what];
}

void ReceivingHistory::start_relay() {
    relays_.push_back(std::make_unique<RelayProcess>(around_, next_process_++));
    living_relays_.push_back(relays_.back().get());
}

void ReceivingHistory::start_member() {
    members_.push_back(std::make_unique<Receiver>(receivers_, next_process_++));
    living_members_.push_back(members_.back().get());
}

void ReceivingHistory::start_missing() {
    const auto ended = [](const auto* process) { return process->ended(); };
    std::erase_if(living_relays_, ended);
    std::erase_if(living_members_, ended);
    while (living_relays_.size() < static_cast<std::size_t>(settings_.relays)) start_relay();
    while (living_members_.size() < static_cast<std::size_t>(kind_.members)) start_member();
    while (services_.missing()) services_.start(next_process_++);
}

ReceivingVerdict ReceivingHistory::run() {
    start_missing();
    services_.call();
    sagas_.start();
    writing_ = settings_.writers;
    for (int i = 0; i < settings_.writers; ++i) {
        world_.spawn(World::kNoGroup, "writer", [this, i] { write(i); });
    }
    world_.spawn(World::kNoGroup, "chaos", [this] { chaos(); });
    world_.spawn(World::kNoGroup, "time", [this] { keep_time(); });
    world_.spawn(World::kNoGroup, "watch", [this] { watch(); });
    const auto broken = [&] { return !judge_.violations().empty(); };
    world_.run(settings_.writing_us * 4, [&] { return broken() || (settling_ && writing_ == 0); });
    if (!broken() && writing_ != 0) judge_.violation("a writer hangs");
    if (!broken() && settle()) {
        judge_.finish();
        effects_.finish(server_.control(kLayout));
        if (!services_.all_answered()) judge_.violation("a caller has no answer");
        services_.finish(server_.control(kLayout));
        sagas_.finish(server_.control(kLayout));
    }
    ReceivingVerdict verdict;
    verdict.violations = judge_.violations();
    verdict.events = judge_.events();
    verdict.repeats = effects_.repeats();
    verdict.effects = effects_.effects();
    verdict.handovers = effects_.handovers();
    verdict.deliveries = queue_.deliveries();
    verdict.dead = effects_.dead();
    verdict.completed = sagas_.completed();
    verdict.compensated = sagas_.compensated();
    verdict.answers = services_.answers();
    verdict.ended_us = world_.now_us();
    verdict.fingerprint = world_.fingerprint();
    world_.end();
    verdict.trace.assign(world_.lines().begin(), world_.lines().end());
    verdict.happened = happened_;
    verdict.statements = lines_.statements();
    verdict.blocked = lines_.blocked();
    verdict.planted = lines_.planted() + functions_.size();
    return verdict;
}

// From here on nothing breaks: what is not applied now is lost. False: something was wrong.
bool ReceivingHistory::settle() {
    world_.trace("--- settling");
    settings_.call_fails = 0;
    if (kind_.letters) {
        world_.spawn(World::kNoGroup, "operator", [this] {
            while (true) {
                world_.sleep(1 * kSecond);
                handle_letters();
            }
        });
    }
    const auto broken = [&] { return !judge_.violations().empty(); };
    const auto done = [&] {
        return judge_.all_settled() && effects_.all_done() && services_.all_answered() &&
               sagas_.all_ended();
    };
    world_.run(world_.now_us() + settings_.settle_us, [&] { return broken() || done(); });
    // What would be applied once more would be so by now.
    if (!broken()) world_.run(world_.now_us() + 2 * kSecond, broken);
    if (!broken()) look();
    return !broken();
}

void ReceivingHistory::keep_time() {
    std::int64_t next_look_us = kLook;
    while (true) {
        world_.sleep(kTick);
        lines_.keep_time();
        if (world_.now_us() < next_look_us) continue;
        look();
        next_look_us = world_.now_us() + kLook;
    }
}

void ReceivingHistory::look() {
    if (!tables_are_free()) return;
    effects_.look(server_.control(kLayout));
    sagas_.look(server_.control(kLayout));
}

bool ReceivingHistory::tables_are_free() {
    return server_.control(kLayout).value(
               "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock' "
               "AND locktype = 'relation')") == "t";
}

void ReceivingHistory::write(int writer) {
    Client client(config_.url);
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(world_.random().between(1, 300) * kMs);
        if (write_one_transaction(client)) continue;
        world_.trace("writer " + std::to_string(writer) + " fails: " + client.error());
        if (!client.lost()) client.run("ROLLBACK");
    }
    --writing_;
}

bool ReceivingHistory::write_one_transaction(Client& client) {
    Random& random = world_.random();
    std::set<std::string> some;
    for (auto n = random.between(0, 2); n > 0; --n) {
        some.insert("k" + std::to_string(random.between(1, settings_.keys)));
    }
    const std::vector<std::string> keys(some.begin(), some.end());
    if (!client.run("BEGIN")) return false;
    // Writers of a key serialise before the event is inserted, in sorted order.
    if (!keys.empty()) {
        std::string list;
        for (const std::string& key : keys) list += (list.empty() ? "'" : ", '") + key + "'";
        if (!client.run("SELECT public.outbox_lock_keys(" + list + ")")) return false;
    }
    std::vector<std::pair<SimEvent, Fate>> written;
    for (auto count = random.between(1, 5); count > 0; --count) {
        SimEvent event;
        if (!keys.empty()) event.key = keys[random.index(keys.size())];
        event.type = "a";
        event.position = next_number_++;
        event.id = id_of(event.position);
        const Fate fate =
            random.chance(kind_.fates) ? static_cast<Fate>(random.between(1, 5)) : Fate::kApplied;
        if (!client.run("INSERT INTO public.outbox_events (id, aggregate_type, event_type, "
                        "payload, key) VALUES ('" +
                        event.id + "', 'a', 'Happened', '{}', " +
                        (event.key.empty() ? "NULL" : "'" + event.key + "'") + ")")) {
            return false;
        }
        written.emplace_back(std::move(event), fate);
        if (random.chance(0.5)) world_.sleep(random.between(10, 20'000));
    }
    const bool rolls_back = random.chance(0.15);
    if (!client.run(rolls_back ? "ROLLBACK" : "COMMIT")) return false;
    if (rolls_back) return true;
    for (const auto& [event, fate] : written) {
        world_.trace("committed e" + std::to_string(event.position) + " key=" + event.key +
                     " fate=" + std::to_string(static_cast<int>(fate)));
        judge_.committed(event);
        effects_.committed(event.position, event.key, fate);
    }
    return true;
}

// A process that ended is started again.
void ReceivingHistory::watch() {
    while (true) {
        world_.sleep(300 * kMs);
        start_missing();
    }
}

void ReceivingHistory::chaos() {
    Random& random = world_.random();
    std::vector<std::function<void()>> kinds;
    const auto add = [&](bool has, std::function<void()> kind) {
        if (has) kinds.push_back(std::move(kind));
    };
    add(settings_.kills || settings_.pauses, [&] { hurt_somebody(); });
    add(settings_.kills || settings_.pauses, [&] { hurt_somebody(); });
    add(settings_.database_outages, [&] {
        lines_.away_until(world_.now_us() + random.between(20, 2'000) * kMs);
        did("an outage of the database");
    });
    add(settings_.clock_jumps, [&] {
        wall_offset_us_ += random.between(-7'200, 7'200) * kSecond;
        did("the clocks on the wall of relays and members jump");
    });
    add(kind_.terminations, [&] {
        if (lines_.terminate_one()) did("a backend is terminated");
    });
    add(kind_.queue && settings_.outages, [&] {
        broker_.away_fails = random.chance(0.5);
        broker_.away_until_us[0] = world_.now_us() + random.between(20, 2'000) * kMs;
        did("an outage of the broker");
    });
    add(kind_.queue, [&] {
        if (queue_.cut_one()) did("a member's connection to the broker is cut");
    });
    add(kind_.holds, [&] { world_.spawn(World::kNoGroup, "holder", [this] { hold(); }); });
    add(kind_.letters,
        [&] { world_.spawn(World::kNoGroup, "operator", [this] { handle_letters(); }); });
    add(kind_.needs, [&] {
        needs_away_until_us_ = world_.now_us() + random.between(50, 2'000) * kMs;
        did("what handlers need is away");
    });
    add(kind_.crashes, [&] {
        if (!std::exchange(kind_.crashes, false)) return;  // takes seconds
        did("the server crashes");
        lines_.restart([this] { server_.crash(); });
    });
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(random.between(50, 600) * kMs);
        if (!kinds.empty()) kinds[random.index(kinds.size())]();
    }
    settling_ = true;
}

void ReceivingHistory::hurt_somebody() {
    Random& random = world_.random();
    start_missing();
    // Now and then with its host: the server is not told.
    const auto vanishes = [&](World::Group group) {
        if (random.chance(0.3)) lines_.vanish(group);
    };
    const auto hurt = [&](auto& living, const std::string& what) {
        auto* process = living[random.index(living.size())];
        switch (random.between(0, 2)) {
            case 0:
                if (!settings_.pauses) break;
                did(what + " is paused");
                process->pause(random.between(10, 5'000) * kMs);
                break;
            case 1:
                if (!settings_.kills) break;
                did(what + " is killed");
                vanishes(process->number());
                process->kill();
                std::erase(living, process);
                break;
            default:
                if (!settings_.kills) break;
                did(what + " is asked to stop");
                process->stop();
        }
    };
    if (services_.size() > 0 && random.chance(0.4)) {
        hurt_a_service();
    } else if (random.chance(0.5)) {
        hurt(living_relays_, "a relay");
    } else {
        hurt(living_members_, "a member");
    }
    start_missing();
}

void ReceivingHistory::hurt_a_service() {
    Random& random = world_.random();
    const std::size_t index = random.index(services_.size());
    if (settings_.kills && random.chance(0.5)) {
        did("a service is killed");
        if (random.chance(0.3)) lines_.vanish(services_.group(index));
        services_.kill(index);
    } else if (settings_.pauses) {
        did("a service is paused");
        services_.pause(index, random.between(10, 3'000) * kMs);
    }
}

// Somebody's session holds rows or a table that members need, and goes.
void ReceivingHistory::hold() {
    static constexpr const char* kWhat[] = {
        "SELECT FROM simulation.accounts FOR UPDATE",
        "SELECT FROM simulation.accounts ORDER BY key LIMIT 1 FOR UPDATE",
        "SELECT FROM public.outbox_mailbox FOR UPDATE",
        "SELECT FROM public.outbox_mailbox ORDER BY position LIMIT 1 FOR UPDATE",
        "SELECT FROM public.outbox_inbox FOR UPDATE",
        "SELECT FROM public.outbox_inbox_dead_letters FOR UPDATE",
        "SELECT FROM public.outbox_inbox_stats FOR UPDATE",
        "SELECT FROM public.outbox_inbox_begun FOR UPDATE",
        "LOCK TABLE public.outbox_mailbox IN SHARE MODE",
        "LOCK TABLE public.outbox_inbox IN SHARE MODE",
        "SELECT FROM public.outbox_idempotency FOR UPDATE",
        "LOCK TABLE simulation.orders IN SHARE MODE",
        "SELECT FROM public.outbox_saga FOR UPDATE",
        "SELECT FROM public.outbox_saga_steps FOR UPDATE",
        "LOCK TABLE simulation.effects IN SHARE ROW EXCLUSIVE MODE"};
    Random& random = world_.random();
    Client client(config_.url);
    const std::string what = kWhat[random.index(std::size(kWhat))];
    const std::int64_t hold_us = random.between(20, random.chance(0.1) ? 9'000 : 2'500) * kMs;
    if (!client.run("BEGIN") || !client.run(what)) return;
    did("held: " + what);
    world_.sleep(hold_us);
    client.run("COMMIT");
}

// What was wrong with some letters is mended, and they are asked for again; some without that.
void ReceivingHistory::handle_letters() {
    Random& random = world_.random();
    Client client(config_.url);
    const std::set<Position> letters = effects_.letters();
    for (const Position number : letters) {
        if (random.chance(0.4)) continue;
        effects_.asked(number);
        if (!random.chance(0.2)) effects_.mended(number);
        if (client.run("UPDATE public.outbox_inbox_dead_letters SET retry_requested_at = "
                       "clock_timestamp() WHERE message_id = '" +
                       id_of(number) + "'")) {
            did("a letter is asked for again");
        }
    }
}

}  // namespace outbox::simulation
