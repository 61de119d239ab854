#include "tests/simulation/postgres/history.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "databases/postgres/source/operations.h"
#include "databases/postgres/source/source.h"
#include "tests/simulation/seeds.h"
#include "tests/simulation/watched_source.h"

namespace outbox::simulation {

namespace {

constexpr std::int64_t kTick = 50 * kMs;  // of the server's own timers
// wal_sender_timeout of the product, and a look at it.
constexpr std::int64_t kMaxSilenceUs = 11 * kSecond;
// How long a stream may go on that brings nothing, until that is seen.
constexpr std::int64_t kLookAtPublicationUs = 5 * kSecond;
constexpr std::int64_t kMaxKeptLog = std::int64_t{12} << 20;
constexpr const char* kLifeOfTable =
    "to_regclass('public.outbox_events')::oid::text || '/' || "
    "pg_relation_filenode(pg_get_serial_sequence('public.outbox_events', "
    "'position')::regclass)::text || '/p'";

}  // namespace

PostgresSettings PostgresSettings::from_seed(std::uint64_t seed, const Server& server) {
    Random random(seed * 0xd1b54a32d192ed03 + 5);
    PostgresSettings kind;
    kind.settings = Settings::from_seed(seed);
    Settings& s = kind.settings;
    // Histories are shorter, as each statement costs what a server takes for it.
    s.writing_us = random.between(2'000, 5'000) * kMs;
    s.settle_us = 120 * kSecond;
    s.writers = static_cast<int>(random.between(2, 4));
    relay::RelayOptions& o = s.options;
    o.poll_busy_ms = random.between(10, 40);
    o.poll_idle_ms = random.between(50, 200);
    o.record_interval_ms = random.between(20, 150);
    kind.terminations = random.chance(0.5);
    kind.holds = random.chance(0.5);
    kind.anew = random.chance(0.3);
    kind.tenants = random.chance(0.3);
    kind.letters = random.chance(0.5);
    kind.delays = random.chance(0.3);
    kind.route_changes = random.chance(0.3);
    kind.crashes = random.chance(0.03);
    if (random.chance(0.25) && server.has(Server::Layout::kKeep)) {
        kind.layout = Server::Layout::kKeep;
    }
    if (random.chance(0.04)) kind.only("set_backs");
    // By chances of their own: what a history that polls does stays what it was.
    Random of_stream(seed * 0x9fb21c651e98df25 + 7);
    if (of_stream.chance(0.5)) {
        kind.take_stream(of_stream);
    } else if (of_stream.chance(0.3) && kind.layout == Server::Layout::kDelete && !kind.set_backs) {
        kind.adopt();
    }
    Random of_owner(seed * 0xa0761d6478bd642f + 13);
    kind.refusals = of_owner.chance(0.1) && kind.layout == Server::Layout::kDelete && !kind.anew &&
                    !kind.set_backs;
    return kind;
}

void PostgresSettings::adopt() {
    layout = Server::Layout::kAdopted;
    anew = delays = false;
    streams = cuts = growth = hosts = levels = publications = bursts = lingers = false;
}

// Joins wait for what is open, and what goes wrong on the stream shows only where it is on for a
// while.
void PostgresSettings::take_stream(Random& random) {
    streams = true;
    settings.writing_us += 4 * kSecond;
    settings.call_fails /= 20;
    if (random.chance(0.6)) {
        settings.kills = settings.outages = settings.database_outages = terminations = false;
    }
    cuts = random.chance(0.5);
    growth = random.chance(0.2);
    hosts = random.chance(0.1);
    publications = random.chance(0.3);
    bursts = random.chance(0.2);
    levels = random.chance(0.05);
    lingers = random.chance(0.5) && !crashes && !set_backs && !levels;
}

void PostgresSettings::only(const std::string& kind) {
    const std::pair<const char*, bool*> kinds[] = {{"terminations", &terminations},
                                                   {"holds", &holds},
                                                   {"anew", &anew},
                                                   {"tenants", &tenants},
                                                   {"letters", &letters},
                                                   {"delays", &delays},
                                                   {"route_changes", &route_changes},
                                                   {"refusals", &refusals},
                                                   {"crashes", &crashes},
                                                   {"set_backs", &set_backs},
                                                   {"cuts", &cuts},
                                                   {"growth", &growth},
                                                   {"hosts", &hosts},
                                                   {"levels", &levels},
                                                   {"publications", &publications},
                                                   {"bursts", &bursts},
                                                   {"lingers", &lingers}};
    bool known = kind == "adopted" || kind == "quiet";
    for (const auto& [name, on] : kinds) known |= * on = kind == name;
    if (!known) throw std::invalid_argument(unknown_kind(kind, kinds));
    if (kind == "quiet") settings.quieten();
    if (kind == "adopted") adopt();
    if (refusals) layout = Server::Layout::kDelete;
    if (!streams && (cuts || growth || hosts || levels || publications || bursts || lingers)) {
        Random random(settings.seed);
        take_stream(random);
        for (const auto& [name, on] : kinds) *on = kind == name;
    }
}

PostgresHistory::PostgresHistory(Server& server, const PostgresSettings& settings)
    : Deployment(settings),
      server_(server),
      kind_(settings),
      lines_(world_, server, settings_),
      heartbeats_(server.url(kind_.layout)) {
    config_.url = server.url(kind_.layout);
    config_.mode = postgres::Mode::kPolling;
    if (is_adopted()) {
        config_.table = "public." + table();
        for (const char* column : {"id", "position", "aggregate_type", "event_type", "payload",
                                   "key", "tenant_id", "published_at"}) {
            config_.mapping.columns[column] = column;
        }
    }
    server.reset(kind_.layout);
    if (kind_.refusals) server.keep_rows();
    lines_.plant(kind_.plant);
    lines_.on_slow([this](std::int64_t us) { judge_.slow_call(us); });
}

PostgresHistory::~PostgresHistory() {
    world_.end();
}

// Those of one deployment need not be configured alike.
postgres::PostgresSourceConfig PostgresHistory::config_of(int relay) const {
    static constexpr postgres::Mode kModes[] = {postgres::Mode::kAuto,   postgres::Mode::kStream,
                                                postgres::Mode::kStream, postgres::Mode::kStream,
                                                postgres::Mode::kAuto,   postgres::Mode::kPolling};
    postgres::PostgresSourceConfig config = config_;
    if (kind_.streams) {
        config.mode =
            kModes[(settings_.seed + static_cast<std::uint64_t>(relay)) % std::size(kModes)];
        config.max_kept_log = kMaxKeptLog;
    }
    return config;
}

PostgresVerdict PostgresHistory::run() {
    PostgresVerdict verdict;
    play(verdict);
    verdict.joins = judge_.streamed.joins;
    verdict.streamed = judge_.streamed.events;
    verdict.planted = lines_.planted();
    verdict.statements = lines_.statements();
    verdict.blocked = lines_.blocked();
    verdict.connections = lines_.connections();
    return verdict;
}

Result<std::unique_ptr<spi::Source>> PostgresHistory::open_source(int relay) {
    auto source = postgres::make_postgres_source(config_of(relay));
    if (!source.ok()) return source;
    return watched(*std::move(source), world_, judge_, settings_, relay);
}

void PostgresHistory::start_writer(int writer) {
    world_.spawn(World::kNoGroup, "writer", [this, writer] { write(writer); });
}

void PostgresHistory::begin() {
    world_.spawn(World::kNoGroup, "time", [this] { keep_time(); });
}

// The owner takes the trigger away, and what relays gave up on then is for those that start.
void PostgresHistory::settle() {
    if (!kind_.refusals) return;
    world_.spawn(World::kNoGroup, "owner", [this] {
        Client client(config_.url);
        while (!client.run(Server::kLetRowsGo)) world_.sleep(100 * kMs);
        did("the owner's trigger goes");
        stop_all_relays();
    });
}

// But with the stream, which gives way to the table.
bool PostgresHistory::nobody_interferes() const {
    return !kind_.terminations && !kind_.holds && !kind_.anew && !kind_.tenants && !kind_.letters &&
           !kind_.delays && !kind_.route_changes && !kind_.crashes && !kind_.set_backs &&
           !kind_.hosts && !kind_.levels && !kind_.refusals;
}

std::int64_t PostgresHistory::may_wait_us() const {
    return kind_.publications ? kLookAtPublicationUs : 0;
}

void PostgresHistory::keep_time() {
    std::int64_t next_audit_us = 500 * kMs;
    while (true) {
        world_.sleep(kTick);
        lines_.keep_time();
        // As its WAL writer does.
        if (kind_.streams) server_.flush();
        if (world_.now_us() < next_audit_us) continue;
        look([this](test::Pg& control) { audit(control); });
        next_audit_us = world_.now_us() + 500 * kMs;
    }
}

void PostgresHistory::write(int writer) {
    Client client(config_.url);
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(world_.random().between(1, 300) * kMs);
        if (kind_.bursts && world_.random().chance(0.01)) {
            burst(writer);
        } else {
            write_one_transaction(client, writer);
        }
    }
    --writing_;
}

std::string PostgresHistory::values_of(const SimEvent& event, int filling) {
    const std::string key = event.key.empty() ? "NULL" : "'" + event.key + "'";
    const std::string tenant = event.tenant.empty() ? "DEFAULT" : "'" + event.tenant + "'";
    const std::string payload =
        filling == 0 ? "'{}'" : "to_jsonb(repeat('x', " + std::to_string(filling) + "))";
    return "('" + event.id + "', '" + event.type + "', 'Happened', " + payload + ", " + key + ", " +
           tenant;
}

bool PostgresHistory::insert(Client& client, Random& random, const std::vector<std::string>& keys,
                             double trouble, std::vector<Written>& written, int filling) {
    constexpr const char* kColumns = "(id, aggregate_type, event_type, payload, key, tenant_id";
    Written one;
    one.event = make_event(random, keys, trouble);
    one.event.position = next_number_++;
    one.event.id = id_of(one.event.position);
    // Where it comes among those of its key is known once it is due.
    const bool delayed = kind_.delays && random.chance(0.1);
    if (delayed) one.event.key.clear();
    const std::string values = values_of(one.event, filling);
    const std::string due = std::to_string(random.between(0, 3'000));
    if (!client.run(delayed ? std::string("INSERT INTO public.outbox_scheduled ") + kColumns +
                                  ", available_at) VALUES " + values +
                                  ", clock_timestamp() + interval '" + due + " ms') RETURNING 0"
                            : "INSERT INTO public." + table() + " " + kColumns + ") VALUES " +
                                  values + ") RETURNING position")) {
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
        if (!insert(client, random, locked, settings_.trouble, written)) return fails();
        dawdle();
        if (takes_back) {
            if (!client.run("ROLLBACK TO s")) return fails();
            written.resize(before);
        }
    }
    const bool rolls_back = random.chance(0.15);
    // One of a copy would be nobody's.
    if (random.chance(0.1) && !kind_.set_backs) {
        const std::string name = "p" + std::to_string(next_prepared_++);
        if (!client.run("PREPARE TRANSACTION '" + name + "'")) return fails();
        dawdle();
        while (
            !client.run((rolls_back ? "ROLLBACK PREPARED '" : "COMMIT PREPARED '") + name + "'")) {
            if (!client.lost()) return judge_.violation("COMMIT PREPARED: " + client.error());
        }
    } else {
        if (kind_.lingers && !rolls_back && random.chance(0.1)) {
            lines_.linger(client.handle(), random.between(1, 1'500) * kMs);
        }
        if (!client.run(rolls_back ? "ROLLBACK" : "COMMIT")) return fails();
    }
    if (!rolls_back) committed(written);
}

// One transaction that is larger than what a route keeps of the stream.
void PostgresHistory::burst(int writer) {
    Client client(config_.url);
    Random& random = world_.random();
    const std::string key = "k" + std::to_string(random.between(1, settings_.keys));
    if (!client.run("BEGIN") || !client.run("SELECT public.outbox_lock_keys('" + key + "')"))
        return;
    std::vector<Written> written;
    for (int i = 0; i < 12; ++i) {
        if (!insert(client, random, {key}, 0, written, 500'000)) return;
    }
    if (!client.run("COMMIT")) return;
    did("a burst of writer " + std::to_string(writer));
    committed(written);
}

std::unique_ptr<Operations> PostgresHistory::operations() {
    auto opened = postgres::open_operations(config_, "public." + table());
    if (opened.ok()) return *std::move(opened);
    world_.trace("an operator cannot connect: " + describe(opened.error()));
    return nullptr;
}

bool PostgresHistory::write_heartbeat(Written& written) {
    if (!heartbeats_.run("INSERT INTO public." + table() +
                         " (id, aggregate_type, event_type, payload) VALUES ('" + written.event.id +
                         "', 'b', 'Happened', '{}') RETURNING position")) {
        return false;
    }
    written.position = std::stoll(heartbeats_.rows().at(0).at(0));
    return true;
}

bool PostgresHistory::may_end(int /*relay*/, const ErrorInfo& error) {
    // What it saw may have been mended since.
    const bool no_stream = kind_.publications || levels_ % 2 != 0;
    if (no_stream && error.code == ErrorCode::kUnsupported) return true;
    if (error.code != ErrorCode::kTableReset || times_anew_ == 0) return false;
    ++resets_;
    return true;
}

// Where a start does not help a person decides.
void PostgresHistory::watch() {
    if (resets_ < 2) return;
    resets_ = 0;
    if (const auto desk = operations()) {
        did("the ledgers are forgotten");
        insist([&] { return desk->forget_ledgers(); });
    }
}

PostgresHistory::Kinds PostgresHistory::kinds() {
    Kinds kinds;
    const auto add = [&](bool has, std::function<void()> kind) {
        if (has) kinds.push_back(std::move(kind));
    };
    add(settings_.kills || settings_.pauses, [this] { hurt_a_relay(); });
    add(settings_.outages, [this] { lose_a_destination(); });
    add(settings_.parts, [this] { lose_a_part(); });
    add(settings_.database_outages, [this] {
        lines_.away_until(world_.now_us() + world_.random().between(20, 2'000) * kMs);
        did("an outage of the database");
    });
    add(settings_.clock_jumps, [this] {
        wall_offset_us_ += world_.random().between(-7'200, 7'200) * kSecond;
        did("the clocks on the wall of relays jump");
    });
    add(kind_.terminations, [this] {
        if (lines_.terminate_one()) did("a backend is terminated");
    });
    add(kind_.cuts, [this] { hurt_a_stream(); });
    add(kind_.growth, [this] {
        did("somebody writes much");
        server_.grow_log();
    });
    add(kind_.hosts, [this] { lose_a_host(); });
    add(kind_.levels, [this] { change_level(); });
    add(kind_.publications, [this] {
        if (!unpublished_) world_.spawn(World::kNoGroup, "owner", [this] { change_publication(); });
    });
    add(kind_.holds, [this] { world_.spawn(World::kNoGroup, "holder", [this] { hold(); }); });
    add(kind_.anew, [this] { world_.spawn(World::kNoGroup, "anew", [this] { begin_anew(); }); });
    add(kind_.tenants, [this] { change_tenants(); });
    add(kind_.letters, [this] { handle_letters(); });
    add(kind_.route_changes, [this] { change_routes(); });
    add(kind_.crashes, [this] {
        if (!std::exchange(kind_.crashes, false)) return;  // takes seconds
        did("the server crashes");
        lines_.restart([this] { server_.crash(); });
    });
    add(kind_.set_backs, [this] { copy_or_set_back(); });
    return kinds;
}

// An operator's session holds rows or a table, and goes.
void PostgresHistory::hold() {
    static constexpr const char* kRows[] = {"outbox_events WHERE position % 3 = 0",
                                            "outbox_events",
                                            "outbox_ledger",
                                            "outbox_ledger ORDER BY route DESC",
                                            "outbox_lease",
                                            "outbox_routes",
                                            "outbox_delivery",
                                            "outbox_dead_letters",
                                            "outbox_route_stats"};
    static constexpr const char* kStrengths[] = {"UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"};
    static constexpr const char* kTables[] = {"outbox_events",   "outbox_events",
                                              "outbox_ledger",   "outbox_lease",
                                              "outbox_delivery", "outbox_dead_letters"};
    static constexpr const char* kModes[] = {
        "ACCESS SHARE", "ROW SHARE",           "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE",
        "SHARE",        "SHARE ROW EXCLUSIVE", "EXCLUSIVE",     "ACCESS EXCLUSIVE"};
    Random& random = world_.random();
    Client client(config_.url);
    const auto one_of = [&](const auto& some) {
        return std::string(some[random.index(std::size(some))]);
    };
    std::string what;
    if (random.chance(0.5)) {
        what = "SELECT FROM public." + one_of(kRows) + " FOR " + one_of(kStrengths);
    } else {
        what = "LOCK TABLE public." + one_of(kTables) + " IN " + one_of(kModes) + " MODE";
    }
    const std::int64_t hold_us = random.between(20, 2'500) * kMs;
    if (const auto at = what.find("outbox_events"); at != std::string::npos) {
        what.replace(at, std::string_view("outbox_events").size(), table());
    }
    if (!client.run("BEGIN") || !client.run(what)) return;
    did("held: " + what);
    world_.sleep(hold_us);
    client.run("COMMIT");
}

void PostgresHistory::hurt_a_stream() {
    Random& random = world_.random();
    switch (random.between(0, 2)) {
        case 0:
            if (lines_.terminate_stream()) did("a stream is terminated");
            break;
        case 1:
            lines_.hold_streams_until(world_.now_us() + random.between(10, 3'000) * kMs);
            did("streams stand still");
            break;
        default:
            if (!lines_.has_streams() || lines_.holds_up_a_checkpoint()) break;
            did("the server gives up slots");
            server_.give_up_slots();
    }
}

// Nobody tells the server.
void PostgresHistory::lose_a_host() {
    const auto found = std::find_if(living_.begin(), living_.end(), [&](const RelayProcess* relay) {
        return relay->number() == lines_.streaming();
    });
    if (found == living_.end() || (*found)->ended()) return;
    did("the host of a relay that streams is gone");
    lines_.vanish((*found)->number());
    (*found)->kill();
    living_.erase(found);
    start_relay();
}

// For which the server is started again: that takes seconds.
void PostgresHistory::change_level() {
    constexpr int kMost = 2;
    if (levels_ == kMost) return;
    const bool logical = ++levels_ % 2 == 0;
    lines_.restart([&] { server_.set_wal_level(logical); });
    did(logical ? "wal_level is logical again" : "wal_level is replica");
}

// An owner changes what is published, and mends it after a while.
void PostgresHistory::change_publication() {
    static constexpr std::pair<const char*, const char*> kChanges[] = {
        {"DROP PUBLICATION outbox", nullptr},
        {"ALTER PUBLICATION outbox DROP TABLE public.outbox_events",
         "ALTER PUBLICATION outbox ADD TABLE public.outbox_events"},
        {"ALTER PUBLICATION outbox SET (publish = 'update')",
         "ALTER PUBLICATION outbox SET (publish = 'insert')"},
        {"ALTER PUBLICATION outbox SET (publish = 'insert, delete')",
         "ALTER PUBLICATION outbox SET (publish = 'insert')"},
    };
    Random& random = world_.random();
    Client client(config_.url);
    const auto& [change, back] = kChanges[random.index(std::size(kChanges))];
    const std::int64_t while_us = random.between(10, 7'000) * kMs;
    unpublished_ = true;
    if (client.run(change)) {
        did(change);
        world_.sleep(while_us);
        // A relay may have made it anew, and another connection may be gone.
        client.run(back == nullptr ? Server::kPublication : back);
        world_.trace("the publication is as it was");
    }
    unpublished_ = false;
}

// Somebody empties the table, or takes some rows out: those are owed no more.
void PostgresHistory::begin_anew() {
    Random& random = world_.random();
    Client client(config_.url);
    const auto kind = random.between(0, 3);
    const std::vector<std::string> keys{"k1", "k2"};
    if (!client.run("BEGIN") || !client.run("SELECT public.outbox_lock_keys('k1', 'k2')") ||
        !client.run("LOCK TABLE public.outbox_events IN ACCESS EXCLUSIVE MODE")) {
        return;
    }
    const std::string which = kind == 0 ? " WHERE position % 4 = 0" : "";
    if (!client.run("SELECT id, position FROM public.outbox_events" + which)) return;
    const auto rows = client.rows();
    if (!client.run(kind == 0   ? "DELETE FROM public.outbox_events" + which
                    : kind == 1 ? "TRUNCATE public.outbox_events"
                                : "TRUNCATE public.outbox_events RESTART IDENTITY")) {
        return;
    }
    std::vector<Written> written;
    // Fewer than there were, as many, or more.
    const auto more = random.chance(0.5) ? random.between(0, std::min<Position>(next_number_, 200))
                                         : std::int64_t{0};
    while (std::ssize(written) < more) {
        if (!insert(client, random, keys, 0, written)) return;
    }
    if (random.chance(0.3)) world_.sleep(random.between(1, 500) * kMs);
    if (!client.run("COMMIT")) return;
    did(kind == 0   ? "rows are deleted"
        : kind == 1 ? "the table is truncated"
                    : "the table begins anew");
    for (const auto& row : rows) {
        judge_.withdrawn(number_of(row[0]));
        numbers_.erase(std::stoll(row[1]));
    }
    if (kind > 1) {
        numbers_.clear();
        ++times_anew_;
    }
    committed(written);
}

// Nothing that the server says of itself tells that it is the copy. The lease does, where it was
// renewed since.
void PostgresHistory::copy_or_set_back() {
    if (copied_us_ == kNever) {
        copied_us_ = world_.now_us();
        lines_.restart([this] { server_.copy(); });
        copied();
        did("the server is copied");
        return;
    }
    if (world_.now_us() < copied_us_ + 2 * settings_.options.lease_renew_ms * kMs) return;
    lines_.restart([this] { server_.set_back(); });
    set_back();
    did("the server is set back");
}

// False: somebody keeps the tables from being looked at.
bool PostgresHistory::look(const std::function<void(test::Pg& control)>& at) {
    test::Pg& control = server_.control(kind_.layout);
    const bool free = control.value(
                          "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE mode = "
                          "'AccessExclusiveLock' AND locktype = 'relation')") == "t";
    if (free) at(control);
    return free;
}

// Who is killed or stands still does not look at what is kept for it: the server has its limits.
void PostgresHistory::audit_slots(test::Pg& control) {
    const bool looks = !settings_.kills && !settings_.pauses && !kind_.hosts && !kind_.cuts;
    const std::int64_t most_us = looks ? 3 * kSecond : 16 * kSecond;
    const std::set<pid_t> gone = lines_.left(0);
    const std::set<pid_t> long_gone = lines_.left(kMaxSilenceUs);
    keeps_for_nobody_ = false;
    std::map<std::string, std::int64_t> keep_much;
    for (const auto& row : control.query(
             "SELECT coalesce(active_pid, 0), (pg_current_wal_lsn() - restart_lsn)::bigint, "
             "slot_name FROM pg_replication_slots")) {
        const pid_t reader = std::stoi(*row[0]);
        if (reader == 0) judge_.violation("a slot stays that nobody reads");
        if (long_gone.contains(reader)) {
            judge_.violation("the server keeps its log for a relay that is gone");
        }
        keeps_for_nobody_ = keeps_for_nobody_ || gone.contains(reader);
        if (!row[1] || std::stoll(*row[1]) <= kMaxKeptLog) continue;
        const auto before = keep_much_.find(*row[2]);
        const std::int64_t since_us = before == keep_much_.end() ? world_.now_us() : before->second;
        keep_much[*row[2]] = since_us;
        if (world_.now_us() - since_us > most_us) {
            judge_.violation("the server keeps more of its log for a relay than it may");
        }
    }
    keep_much_ = std::move(keep_much);
}

// What the tables say, beside the world.
void PostgresHistory::audit(test::Pg& control) {
    if (kind_.streams) audit_slots(control);
    std::set<Position> there;
    for (const auto& row : control.query("SELECT id FROM " + unfinished())) {
        there.insert(number_of(*row[0]));
    }
    std::set<std::pair<int, Position>> dead;
    for (const auto& row : control.query("SELECT route, id FROM public.outbox_dead_letters")) {
        dead.insert({judge_.route_of(*row[0]), number_of(*row[1])});
    }
    check_tables(there, dead);
    if (is_adopted()) return audit_marks(control, dead);
    for_each_done(control, [&](const std::string& route, Position position) {
        check_ledger(route, position, dead);
    });
}

// Of rows that are not marked yet, by route.
void PostgresHistory::audit_marks(test::Pg& control,
                                  const std::set<std::pair<int, Position>>& dead) {
    for (const auto& row :
         control.query("SELECT route, event_id FROM public.outbox_route_done WHERE route <> ''")) {
        const int route = judge_.route_of(*row[0]);
        const Position number = number_of(*row[1]);
        if (!dead.contains({route, number})) judge_.in_ledger(route, number);
    }
}

// What the ledgers of the table as it is now hold.
void PostgresHistory::for_each_done(
    test::Pg& control, const std::function<void(const std::string& route, Position)>& use) {
    const auto ledgers =
        control.query("SELECT route, segment, done::text FROM public.outbox_ledger WHERE life = " +
                      std::string(kLifeOfTable));
    for (const auto& row : ledgers) {
        const Position first = std::stoll(*row[1]) * 65'536;
        const std::string& done = *row[2];
        for (auto bit = done.find('1'); bit != std::string::npos; bit = done.find('1', bit + 1)) {
            use(*row[0], first + static_cast<Position>(bit));
        }
    }
}

// Nothing is kept of what is finished; but of rows that others deleted before every route had them
// the ledgers keep their bits until the table has moved on by segments.
std::string PostgresHistory::left() {
    std::string left =
        "SELECT EXISTS (SELECT FROM public.outbox_delivery) OR EXISTS (SELECT FROM "
        "public.outbox_scheduled)";
    if (kind_.layout == Server::Layout::kDelete) {
        left +=
            " OR EXISTS (SELECT FROM public.outbox_events) OR EXISTS (SELECT FROM "
            "public.outbox_ledger WHERE life IS DISTINCT FROM " +
            std::string(kLifeOfTable) + ")";
    }
    if (is_adopted()) {
        left += " OR EXISTS (SELECT FROM " + unfinished() +
                ") OR EXISTS (SELECT FROM public.outbox_route_done)";
    }
    std::string found = "nobody can look";
    look([&](test::Pg& control) {
        found = control.value(left) == "f" ? "" : "rows, or the ledgers of a former table";
        if (kind_.layout != Server::Layout::kDelete) return;
        for_each_done(control, [&](const std::string& route, Position position) {
            if (numbers_.contains(position)) {
                found += "; " + std::to_string(position) + " in the ledger of " + route;
            }
        });
    });
    return found;
}

}  // namespace outbox::simulation
