#include "tests/simulation/receiving/history.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <new>
#include <set>
#include <utility>

#include "brokers/mailbox/sink.h"
#include "consumer/env.h"
#include "consumer/queue/headers_json.h"
#include "tests/simulation/receiving/watched_sink.h"
#include "tests/simulation/watched_source.h"

namespace outbox::simulation {

namespace {

constexpr std::int64_t kLook = 500 * kMs;
constexpr std::int64_t kBootedAgo = 17 * kSecond;
constexpr std::size_t kDigits = 12;

// For longer than the one that says so lives.
void callers_clock_is(const core::Clock& clock) {
    alignas(consumer::CallersClock) std::byte storage[sizeof(consumer::CallersClock)];
    new (storage) consumer::CallersClock(clock);
}

std::string digits_of(Position number) {
    std::string digits = std::to_string(number);
    return std::string(kDigits - digits.size(), '0') + digits;
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
    kind.cuts = random.chance(0.5);
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

ReceivingHistory::ReceivingHistory(const ReceivingSettings& settings)
    : kind_(settings),
      settings_(kind_.settings),
      world_(settings_.seed, settings_.tracing),
      judge_(world_, settings_),
      effects_(world_, judge_, kind_.options.max_attempts,
               !kind_.queue || kind_.queues.keeps_order()),
      clock_(world_, wall_offset_us_, kBootedAgo),
      queue_(world_, kind_.queues, broker_.away_until_us[0]),
      around_{.world = world_,
              .judge = judge_,
              .broker = broker_,
              .settings = settings_,
              .wall_offset_us = wall_offset_us_,
              .open_source = [this](int relay) -> Result<std::unique_ptr<spi::Source>> {
                  auto source = open_source(relay);
                  if (!source.ok()) return source;
                  return watched(*std::move(source), world_, judge_, settings_, relay);
              },
              .vanish = [this](int relay, spi::Source*) { vanish(relay); },
              .routes =
                  [this] {
                      std::vector<relay::RouteSpec> routes{route_spec(0, "first", settings_)};
                      routes.front().predicate = {};  // sagas' events, too
                      return routes;
                  },
              .make_sink = [this](int relay, int route) { return make_sink(relay, route); },
              .may_end = [this](int relay, const ErrorInfo& why) { return may_end(relay, why); }},
      receivers_{
          .world = world_,
          .judge = judge_,
          .effects = effects_,
          .wall_offset_us = wall_offset_us_,
          .needs_away_until_us = needs_away_until_us_,
          .options = kind_.options,
          .mailbox = [this](const core::Clock& clock,
                            HandleMessages handle) { return mailbox(clock, std::move(handle)); },
          .queue = kind_.queue ? &queue_ : nullptr,
          .queue_options = kind_.queue_options,
          .appliers = [this](
                          const QueueConsumerOptions& checked,
                          HandleMessages handle) { return appliers(checked, std::move(handle)); },
          .handles_it = [this](
                            OpenTransaction& transaction,
                            const Message& message) { return sagas_.handle(transaction, message); },
          .may_end = [this](int member, const ErrorInfo& why) { return may_end(member, why); }},
      services_(
          world_, judge_, [this] { return connect(); }, clock_, kind_.requests),
      sagas_(
          world_, judge_, [this] { return connect(); }, clock_, kind_.sagas),
      writers_(static_cast<std::size_t>(settings_.writers)) {
    world_.on_switch([this](World::TaskId task) { enter(task); },
                     [this](World::TaskId task) { leave(task); });
    world_.end_ids_with([this] { return next_digits(); });
    broker_.sees = [this](Position number) { find_out(number); };
    broker_.keeps = [this](const Kept& record) { enqueue(record); };
}

std::string ReceivingHistory::id_of(Position number) {
    return "00000000-0000-4000-8000-" + digits_of(number);
}

Result<std::unique_ptr<spi::Sink>> ReceivingHistory::make_sink(int relay, int route) {
    if (kind_.queue) {
        return std::unique_ptr<spi::Sink>(
            std::make_unique<SimSink>(world_, judge_, broker_, settings_, relay, route));
    }
    auto sink = mailbox::make_mailbox_sink("mailbox+" + url());
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

// What somebody wrote is committed when others see it, whether he knows or not; what handlers write
// nobody else tells of.
void ReceivingHistory::find_out(Position number) {
    if (judge_.find(number) != nullptr) return;
    for (const auto& transaction : doubtful_) {
        const bool has = std::ranges::any_of(
            transaction->written, [&](const auto& one) { return one.first.position == number; });
        if (has) return tell(*transaction);
    }
    SimEvent event;
    event.position = number;
    // Where nobody can look a relay has seen it all the same.
    const std::optional<std::string> id = find_event(digits_of(number));
    if (id && id->empty()) return;
    event.id = id.value_or(id_of(number));
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
    if (down_) return;
    const auto ended = [](const auto* process) { return process->ended(); };
    std::erase_if(living_relays_, ended);
    std::erase_if(living_members_, ended);
    while (living_relays_.size() < static_cast<std::size_t>(settings_.relays)) start_relay();
    while (living_members_.size() < static_cast<std::size_t>(kind_.members)) start_member();
    while (services_.missing()) services_.start(next_process_++);
}

void ReceivingHistory::start_writer(int writer) {
    Writer& started = writers_[static_cast<std::size_t>(writer)];
    started.group = writers_group();
    started.task = world_.spawn(started.group, "writer", [this, writer] { write(writer); });
}

std::vector<int> ReceivingHistory::kill_all() {
    down_ = true;
    for (RelayProcess* relay : living_relays_) world_.kill(relay->number());
    for (Receiver* member : living_members_) member->kill();
    living_relays_.clear();
    living_members_.clear();
    while (services_.size() > 0) services_.kill(0);
    std::vector<int> writers;
    for (std::size_t writer = 0; writer < writers_.size(); ++writer) {
        if (world_.ended(writers_[writer].task)) continue;
        world_.kill(writers_[writer].group);
        writers.push_back(static_cast<int>(writer));
    }
    return writers;
}

void ReceivingHistory::start_again(const std::vector<int>& writers) {
    down_ = false;
    start_missing();
    for (const int writer : writers) start_writer(writer);
}

void ReceivingHistory::play(ReceivingVerdict& verdict) {
    start_missing();
    services_.call();
    sagas_.start();
    writing_ = settings_.writers;
    for (int writer = 0; writer < settings_.writers; ++writer) start_writer(writer);
    world_.spawn(World::kNoGroup, "chaos", [this] { chaos(); });
    begin();
    world_.spawn(World::kNoGroup, "watch", [this] { watch(); });
    world_.spawn(World::kNoGroup, "judge", [this] {
        while (true) {
            world_.sleep(kLook);
            look_at_all();
        }
    });
    const auto broken = [&] { return !judge_.violations().empty(); };
    world_.run(settings_.writing_us * 4, [&] { return broken() || (settling_ && writing_ == 0); });
    if (!broken() && writing_ != 0) judge_.violation("a writer hangs");
    if (!broken() && come_to_rest()) finish();
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
}

// What is not applied from here on is lost. False: something was wrong.
bool ReceivingHistory::come_to_rest() {
    world_.trace("--- settling");
    settings_.call_fails = 0;
    settle();
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
    // What would be applied once more would be so by now. A timer of a saga may come even then.
    if (!broken()) world_.run(world_.now_us() + 2 * kSecond, broken);
    if (!broken())
        world_.run(world_.now_us() + settings_.settle_us, [&] { return broken() || done(); });
    return !broken();
}

void ReceivingHistory::finish() {
    std::optional<ReceivingJudge::Tables> tables;
    std::optional<Rows> orders;
    std::optional<Rows> sagas;
    std::optional<Rows> steps;
    const bool looked = world_.run(world_.now_us() + settings_.settle_us, [&] {
        tables = this->tables(true);
        orders = look("SELECT key, body FROM orders ORDER BY seq");
        sagas = look(SagaDesk::kSagas);
        steps = look(SagaDesk::kSteps);
        return tables && orders && sagas && steps;
    });
    if (!looked) return judge_.violation("nobody can look");
    effects_.look(*tables);
    judge_.finish();
    effects_.finish(*tables);
    if (!services_.all_answered()) judge_.violation("a caller has no answer");
    services_.finish(*orders);
    sagas_.finish(*sagas, *steps);
}

// As one snapshot shows them: nobody moves meanwhile.
std::optional<ReceivingJudge::Tables> ReceivingHistory::tables(bool all) {
    using Tables = ReceivingJudge::Tables;
    Tables tables;
    const std::pair<const char*, Rows*> parts[] = {{Tables::kLetters, &tables.letters},
                                                   {Tables::kEffects, &tables.effects},
                                                   {Tables::kInbox, &tables.inbox},
                                                   {Tables::kAccounts, &tables.accounts}};
    for (const auto& [sql, rows] : parts) {
        if (!all && (rows == &tables.inbox || rows == &tables.accounts)) continue;
        auto found = look(sql);
        if (!found) return std::nullopt;
        *rows = *std::move(found);
    }
    return tables;
}

void ReceivingHistory::look_at_all() {
    const auto tables = this->tables(false);
    if (!tables) return;
    effects_.look(*tables);
    if (const auto sagas = look(SagaDesk::kSagas)) sagas_.look(*sagas);
}

void ReceivingHistory::write(int writer) {
    const std::unique_ptr<Connection> client = connect();
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(world_.random().between(1, 300) * kMs);
        if (write_one_transaction(*client)) continue;
        world_.trace("writer " + std::to_string(writer) + " fails: " + client->error());
        client->roll_back();
    }
    --writing_;
}

bool ReceivingHistory::write_one_transaction(Connection& client) {
    Random& random = world_.random();
    std::set<std::string> some;
    for (auto n = random.between(0, 2); n > 0; --n) {
        some.insert("k" + std::to_string(random.between(1, settings_.keys)));
    }
    const std::vector<std::string> keys(some.begin(), some.end());
    if (!begin_order(client, keys)) return false;
    const auto transaction = std::make_shared<Transaction>();
    for (auto count = random.between(1, 5); count > 0; --count) {
        SimEvent event;
        if (!keys.empty()) event.key = keys[random.index(keys.size())];
        event.type = "a";
        event.position = next_number_++;
        event.id = id_of(event.position);
        const Fate fate =
            random.chance(kind_.fates) ? static_cast<Fate>(random.between(1, 5)) : Fate::kApplied;
        if (!client.run("INSERT INTO outbox_events (id, aggregate_type, event_type, payload, key) "
                        "VALUES ('" +
                        event.id + "', 'a', 'Happened', '{}', " +
                        (event.key.empty() ? "NULL" : "'" + event.key + "'") + ")")) {
            return false;
        }
        transaction->written.emplace_back(std::move(event), fate);
        if (random.chance(0.5)) world_.sleep(random.between(10, 20'000));
    }
    if (!random.chance(0.15)) return commit(client, transaction);
    client.roll_back();
    return true;
}

bool ReceivingHistory::commit(Connection& client, const std::shared_ptr<Transaction>& transaction) {
    doubtful_.push_back(transaction);
    const bool done = client.commit();
    std::erase(doubtful_, transaction);
    if (done) {
        tell(*transaction);
    } else if (transaction->told) {
        judge_.violation("a transaction was seen that could not be committed: " + client.error());
    }
    return done;
}

void ReceivingHistory::tell(Transaction& transaction) {
    if (std::exchange(transaction.told, true)) return;
    for (const auto& [event, fate] : transaction.written) {
        world_.trace("committed e" + std::to_string(event.position) + " key=" + event.key +
                     " fate=" + std::to_string(static_cast<int>(fate)));
        judge_.committed(event);
        effects_.committed(event.position, event.key, fate);
    }
}

// A process that ended is started again.
void ReceivingHistory::watch() {
    while (true) {
        world_.sleep(300 * kMs);
        start_missing();
    }
}

ReceivingHistory::Kinds ReceivingHistory::common_kinds() {
    Random& random = world_.random();
    Kinds kinds;
    const auto add = [&](bool has, std::function<void()> kind) {
        if (has) kinds.push_back(std::move(kind));
    };
    add(settings_.kills || settings_.pauses, [this] { hurt_somebody(); });
    add(settings_.kills || settings_.pauses, [this] { hurt_somebody(); });
    add(kind_.queue && settings_.outages, [this, &random] {
        broker_.away_fails = random.chance(0.5);
        broker_.away_until_us[0] = world_.now_us() + random.between(20, 2'000) * kMs;
        did("an outage of the broker");
    });
    add(kind_.queue, [this] {
        if (queue_.cut_one()) did("a member's connection to the broker is cut");
    });
    add(kind_.letters,
        [this] { world_.spawn(World::kNoGroup, "operator", [this] { handle_letters(); }); });
    add(kind_.needs, [this, &random] {
        needs_away_until_us_ = world_.now_us() + random.between(50, 2'000) * kMs;
        did("what handlers need is away");
    });
    return kinds;
}

void ReceivingHistory::chaos() {
    Random& random = world_.random();
    Kinds kinds = common_kinds();
    for (auto& kind : this->kinds()) kinds.push_back(std::move(kind));
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
        if (random.chance(0.3)) vanish(group);
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
        if (random.chance(0.3)) vanish(services_.group(index));
        services_.kill(index);
    } else if (settings_.pauses) {
        did("a service is paused");
        services_.pause(index, random.between(10, 3'000) * kMs);
    }
}

// What was wrong with some letters is mended, and they are asked for again; some without that.
void ReceivingHistory::handle_letters() {
    Random& random = world_.random();
    const std::unique_ptr<Connection> client = connect();
    const std::set<Position> letters = effects_.letters();
    for (const Position number : letters) {
        if (random.chance(0.4)) continue;
        effects_.asked(number);
        if (!random.chance(0.2)) effects_.mended(number);
        if (client->run("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at WHERE "
                        "message_id = '" +
                        id_of(number) + "'")) {
            did("a letter is asked for again");
        }
    }
}

}  // namespace outbox::simulation
