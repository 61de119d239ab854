#include "tests/simulation/sqlite/history.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sqlite3.h>
#include <stdexcept>
#include <utility>

#include "databases/sqlite/source/operations.h"
#include "databases/sqlite/source/source.h"
#include "tests/simulation/seeds.h"
#include "tests/simulation/sqlite/files.h"
#include "tests/simulation/watched_source.h"

namespace outbox::simulation {

namespace {

// Of those that outbox recognises: one that is marked, one from which is deleted, whose rowids come
// again.
constexpr SqliteShape kShapes[] = {
    {"outbox",
     "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregate_type TEXT NOT NULL, aggregate_id TEXT "
     "NOT "
     "NULL, event_type TEXT NOT NULL, payload TEXT NOT NULL, created_at TEXT NOT NULL DEFAULT "
     "'2026-01-01T00:00:00.000Z', published_at TEXT, retry_count INTEGER NOT NULL DEFAULT 0, "
     "status "
     "TEXT NOT NULL DEFAULT 'PENDING')",
     "id, aggregate_type, event_type, payload, aggregate_id", "status = 'PENDING'",
     "UPDATE OF status"},
    {"outboxevent",
     "CREATE TABLE outboxevent (id TEXT PRIMARY KEY, aggregatetype TEXT NOT NULL, aggregateid TEXT "
     "NOT NULL, type TEXT NOT NULL, payload TEXT)",
     "id, aggregatetype, type, payload, aggregateid", "1", "DELETE", AfterPublish::kDelete}};

}  // namespace

SqliteSettings SqliteSettings::from_seed(std::uint64_t seed) {
    Random random(seed * 0xd1b54a32d192ed03 + 11);
    SqliteSettings kind;
    kind.settings = Settings::from_seed(seed);
    Settings& s = kind.settings;
    s.writing_us = random.between(2'000, 6'000) * kMs;
    s.settle_us = 150 * kSecond;
    s.writers = static_cast<int>(random.between(1, 4));
    relay::RelayOptions& o = s.options;
    o.poll_busy_ms = random.between(10, 40);
    o.poll_idle_ms = random.between(50, 200);
    o.record_interval_ms = random.between(20, 150);
    kind.wal = random.chance(0.8);
    kind.service_kills = random.chance(0.4);
    kind.holds = random.chance(0.4);
    kind.full = random.chance(0.2);
    kind.refusals = random.chance(0.2);
    kind.power = random.chance(0.2);
    kind.anew = random.chance(0.3);
    kind.tenants = random.chance(0.3);
    kind.letters = random.chance(0.5);
    kind.delays = random.chance(0.3);
    kind.route_changes = random.chance(0.3);
    if (kind.refusals) kind.anew = false;  // the trigger is for everybody
    if (random.chance(0.05)) kind.only("set_backs");
    if (!kind.set_backs && random.chance(0.2)) kind.adopt(random.index(std::size(kShapes)));
    return kind;
}

void SqliteSettings::adopt(std::size_t which) {
    shape = &kShapes[which % std::size(kShapes)];
    anew = false;
    tenants = false;
    delays = false;
}

void SqliteSettings::only(const std::string& kind) {
    shape = nullptr;
    const std::pair<const char*, bool*> kinds[] = {{"service_kills", &service_kills},
                                                   {"holds", &holds},
                                                   {"full", &full},
                                                   {"refusals", &refusals},
                                                   {"power", &power},
                                                   {"anew", &anew},
                                                   {"tenants", &tenants},
                                                   {"letters", &letters},
                                                   {"delays", &delays},
                                                   {"route_changes", &route_changes},
                                                   {"set_backs", &set_backs}};
    bool known = kind == "adopted" || kind == "quiet";
    for (const auto& [name, on] : kinds) known |= * on = kind == name;
    if (!known) throw std::invalid_argument(unknown_kind(kind, kinds));
    if (kind == "quiet") settings.quieten();
    if (kind == "adopted") adopt(settings.seed);
    // A copy's lease may be worth more than one by a clock that was set back.
    if (set_backs) settings.clock_jumps = false;
}

SqliteHistory::SqliteHistory(const SqliteSettings& settings)
    : Deployment(settings),
      kind_(settings),
      path_(HistoryFiles::of_process().make_database(HistoryFiles::Side::kProducer, settings.wal)),
      disk_(world_, settings_, wall_offset_us_) {
    config_.url = "sqlite://" + path_;
    disk_.plant(kind_.plant);
    disk_.on_slow([this](std::int64_t us) { judge_.slow_call(us); });
    if (kind_.power) disk_.can_lose_power();
    judge_.find_out([this](Position number) { find_out(number); });
    services_.resize(static_cast<std::size_t>(settings_.writers));
    if (kind_.shape != nullptr) {
        config_.table = kind_.shape->table;
        config_.after_publish = kind_.shape->after_publish;
        look([&](SqliteClient& tables) { return tables.run(kind_.shape->create); });
    }
    if (!kind_.refusals) return;
    static constexpr const char* kHow[] = {"ABORT, 'mine'", "FAIL, 'mine'", "ROLLBACK, 'mine'",
                                           "IGNORE"};
    look([&](SqliteClient& tables) {
        return tables.run("CREATE TRIGGER mine BEFORE " +
                          std::string(kind_.shape != nullptr ? kind_.shape->ends_rows : "DELETE") +
                          " ON " + table() + " WHEN OLD.rowid % 5 = 0 BEGIN SELECT RAISE(" +
                          std::string(kHow[settings_.seed % std::size(kHow)]) + "); END");
    });
}

SqliteHistory::~SqliteHistory() {
    world_.end();
}

SqliteVerdict SqliteHistory::run() {
    SqliteVerdict verdict;
    play(verdict);
    verdict.planted = disk_.planted();
    verdict.statements = disk_.statements();
    verdict.waits = disk_.waits();
    verdict.failed = disk_.failed();
    return verdict;
}

Result<std::unique_ptr<spi::Source>> SqliteHistory::open_source(int relay) {
    auto source = sqlite::make_sqlite_source(config_);
    if (!source.ok()) return source;
    have_begun_.insert(relay);
    return watched(*std::move(source), world_, judge_, settings_, relay);
}

std::unique_ptr<Operations> SqliteHistory::operations() {
    auto opened = sqlite::open_operations(config_, table());
    if (opened.ok()) return *std::move(opened);
    world_.trace("an operator cannot connect: " + describe(opened.error()));
    return nullptr;
}

bool SqliteHistory::nobody_interferes() const {
    return !kind_.holds && !kind_.full && !kind_.refusals && !kind_.power && !kind_.anew &&
           !kind_.tenants && !kind_.letters && !kind_.delays && !kind_.route_changes &&
           !kind_.set_backs && !kind_.service_kills;
}

// As it starts while the file is away, which may be a wrong path then.
bool SqliteHistory::may_end(int relay, const ErrorInfo& error) {
    return error.code == ErrorCode::kConnectFailed && !have_begun_.contains(relay);
}

void SqliteHistory::begin() {
    world_.spawn(World::kNoGroup, "audit", [this] {
        while (true) {
            world_.sleep(500 * kMs);
            audit();
        }
    });
}

// The owner takes the trigger away, and what relays gave up on then is for those that start.
void SqliteHistory::settle() {
    disk_.away_until(0);
    disk_.full_until(0);
    if (!kind_.refusals) return;
    world_.spawn(World::kNoGroup, "owner", [this] {
        SqliteClient client(path_);
        while (!client.run("DROP TRIGGER IF EXISTS mine")) world_.sleep(100 * kMs);
        did("the owner's trigger goes");
        stop_all_relays();
    });
}

SqliteHistory::Kinds SqliteHistory::kinds() {
    Kinds kinds;
    const auto add = [&](bool has, std::function<void()> kind) {
        if (has) kinds.push_back(std::move(kind));
    };
    add(settings_.kills || settings_.pauses, [this] { hurt_a_relay(); });
    add(settings_.outages, [this] { lose_a_destination(); });
    add(settings_.parts, [this] { lose_a_part(); });
    add(settings_.database_outages, [this] {
        disk_.away_until(world_.now_us() + world_.random().between(20, 2'000) * kMs);
        did("relays cannot reach the file");
    });
    // Back by less than a lease that stands by the clock alone may keep others waiting.
    add(settings_.clock_jumps, [this] {
        wall_offset_us_ += world_.random().between(-60, 600) * kSecond;
        did("the machine's clock jumps");
    });
    add(kind_.service_kills, [this] { kill_a_service(); });
    add(kind_.holds, [this] { world_.spawn(World::kNoGroup, "holder", [this] { hold(); }); });
    add(kind_.full, [this] {
        disk_.full_until(world_.now_us() + world_.random().between(20, 1'500) * kMs);
        did("the disk is full");
    });
    add(kind_.anew, [this] { world_.spawn(World::kNoGroup, "anew", [this] { begin_anew(); }); });
    add(kind_.tenants, [this] { change_tenants(); });
    add(kind_.letters, [this] { handle_letters(); });
    add(kind_.route_changes, [this] { change_routes(); });
    add(kind_.set_backs, [this] { copy_or_set_back(); });
    add(kind_.power, [this] { lose_power(); });
    return kinds;
}

void SqliteHistory::start_writer(int writer) {
    Service& service = services_[static_cast<std::size_t>(writer)];
    service.group = next_group_++;
    service.task = world_.spawn(service.group, "service", [this, writer] { serve(writer); });
}

void SqliteHistory::serve(int writer) {
    SqliteClient client(path_);
    while (world_.now_us() < settings_.writing_us) {
        world_.sleep(world_.random().between(1, 300) * kMs);
        // More than may have come again before a relay looks would pass for sent.
        while (begun_anew_) world_.sleep(20 * kMs);
        if (client.has_moved()) client.close();
        write_one_transaction(client, writer);
    }
    --writing_;
}

// Another one takes its place.
void SqliteHistory::kill_a_service() {
    Random& random = world_.random();
    const std::size_t index = random.index(services_.size());
    const Service service = services_[index];
    if (world_.ended(service.task)) return;
    if (random.chance(0.4)) {
        did("a service stands still");
        world_.pause(service.group, world_.now_us() + random.between(10, 4'000) * kMs);
        return;
    }
    did("a service is killed");
    world_.kill(service.group);
    start_writer(static_cast<int>(index));
}

// A write of its own before any event: from then on it is the only one that writes, and the order
// of its events is that of its commit.
bool SqliteHistory::begin_order(SqliteClient& client, Transaction& transaction) {
    transaction.order = "o" + std::to_string(next_order_++);
    return client.run(world_.random().chance(0.8) ? "BEGIN IMMEDIATE" : "BEGIN") &&
           client.run("INSERT INTO orders VALUES ('" + transaction.order + "')") && !begun_anew_ &&
           settle_doubtful(client);
}

bool SqliteHistory::insert(SqliteClient& client, const std::vector<std::string>& keys,
                           double trouble, std::vector<Written>& written) {
    Random& random = world_.random();
    Written one;
    one.event = make_event(random, keys, trouble);
    one.event.position = next_number_++;
    one.event.id = id_of(one.event.position);
    // Where it comes among those of its key is known once it is due.
    const bool delayed = kind_.delays && random.chance(0.1);
    if (delayed) one.event.key.clear();
    if (kind_.shape != nullptr) return insert_adopted(client, std::move(one), written);
    std::string columns = "(id, aggregate_type, event_type, payload, key";
    std::string values = "('" + one.event.id + "', '" + one.event.type + "', 'Happened', '{}', " +
                         (one.event.key.empty() ? "NULL" : "'" + one.event.key + "'");
    if (!one.event.tenant.empty()) {
        columns += ", tenant_id";
        values += ", '" + one.event.tenant + "'";
    }
    if (delayed) {
        columns += ", available_at";
        values += ", " + std::to_string(disk_.wall_us() + random.between(0, 3'000) * kMs);
    }
    if (!client.run(std::string("INSERT INTO ") +
                    (delayed ? "outbox_scheduled " : "outbox_events ") + columns + ") VALUES " +
                    values + ") RETURNING " + (delayed ? "0" : "position"))) {
        return false;
    }
    one.position = std::stoll(client.rows().at(0).at(0));
    written.push_back(std::move(one));
    return true;
}

// A key that is empty is none.
bool SqliteHistory::insert_adopted(SqliteClient& client, Written one,
                                   std::vector<Written>& written) {
    if (!client.run("INSERT INTO " + table() + " (" + kind_.shape->columns + ") VALUES ('" +
                    one.event.id + "', '" + one.event.type + "', 'Happened', '{}', '" +
                    one.event.key + "') RETURNING rowid")) {
        return false;
    }
    one.position = std::stoll(client.rows().at(0).at(0));
    written.push_back(std::move(one));
    return true;
}

void SqliteHistory::write_one_transaction(SqliteClient& client, int writer) {
    Random& random = world_.random();
    std::vector<std::string> keys;
    for (auto n = random.between(0, 2); n > 0; --n) {
        keys.push_back("k" + std::to_string(random.between(1, settings_.keys)));
    }
    const auto dawdle = [&] {
        if (random.chance(0.5)) return;
        world_.sleep(random.chance(0.02) ? random.between(1, 1'500) * kMs
                                         : random.between(10, 10'000));
    };
    const auto fails = [&] {
        world_.trace("writer " + std::to_string(writer) + " fails: " + client.error());
        if (client.in_transaction()) client.run("ROLLBACK");
    };
    const auto transaction = std::make_shared<Transaction>();
    if (!begin_order(client, *transaction)) return fails();
    std::vector<Written>& written = transaction->written;
    for (auto count = random.between(1, 5); count > 0; --count) {
        const bool takes_back = random.chance(0.1);
        const std::size_t before = written.size();
        if (takes_back && !client.run("SAVEPOINT s")) return fails();
        if (!insert(client, keys, settings_.trouble, written)) return fails();
        dawdle();
        if (takes_back) {
            if (!client.run("ROLLBACK TO s")) return fails();
            written.resize(before);
        }
    }
    if (random.chance(0.15)) {
        if (!client.run("ROLLBACK")) fails();
        return;
    }
    if (!commit(client, transaction)) fails();
}

// It is seen by others before it is known to whoever waits for it; and who is killed then never
// knows.
bool SqliteHistory::commit(SqliteClient& client, const std::shared_ptr<Transaction>& transaction) {
    doubtful_.push_back(transaction);
    bool done = client.run("COMMIT");
    for (int tries = 0; !done && client.busy() && tries < 20; ++tries) {
        world_.sleep(world_.random().between(1, 50) * kMs);
        done = client.run("COMMIT");
    }
    std::erase(doubtful_, transaction);
    if (client.has_moved()) {
        for (const Written& one : transaction->written) {
            judge_.committed(one.event);
            judge_.withdrawn(one.event.position);
        }
    } else if (done) {
        tell(*transaction);
    }
    if (!done && !client.has_moved() && transaction->told) {
        judge_.violation("a transaction was seen that could not be committed: " + client.error());
    }
    return done;
}

void SqliteHistory::tell(Transaction& transaction) {
    if (std::exchange(transaction.told, true)) return;
    if (transaction.takes_out) transaction.takes_out();
    committed(transaction.written);
}

void SqliteHistory::find_out(Position number) {
    for (const auto& transaction : doubtful_) {
        const bool has =
            std::any_of(transaction->written.begin(), transaction->written.end(),
                        [&](const Written& one) { return one.event.position == number; });
        if (has) return tell(*transaction);
    }
}

// Nobody else writes now: what is committed of those that are gone can be seen. What is not is
// written over by the next commit.
bool SqliteHistory::settle_doubtful(SqliteClient& client) {
    for (const auto& transaction : std::vector(doubtful_)) {
        if (transaction->told) continue;
        if (!client.run("SELECT 1 FROM orders WHERE id = '" + transaction->order + "'"))
            return false;
        if (!client.rows().empty()) tell(*transaction);
    }
    return true;
}

bool SqliteHistory::write_heartbeat(Written& written) {
    SqliteClient client(path_);
    const auto transaction = std::make_shared<Transaction>();
    if (!client.run("BEGIN IMMEDIATE") || begun_anew_) return false;
    if (kind_.shape != nullptr) {
        if (!insert_adopted(client, written, transaction->written)) return false;
    } else {
        if (!client.run(
                "INSERT INTO outbox_events (id, aggregate_type, event_type, payload) VALUES "
                "('" +
                written.event.id + "', 'b', 'Happened', '{}') RETURNING position")) {
            return false;
        }
        written.position = std::stoll(client.rows().at(0).at(0));
        transaction->written.push_back(written);
    }
    commit(client, transaction);
    return false;  // who commits has told
}

// Somebody keeps others from writing, keeps the log from being emptied, or tidies up.
void SqliteHistory::hold() {
    static constexpr const char* kBegins[] = {"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"};
    static constexpr const char* kTidies[] = {
        "PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(RESTART)",
        "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "ANALYZE"};
    Random& random = world_.random();
    SqliteClient client(path_);
    const auto what = random.between(0, 2);
    const std::string sql = what == 0   ? kBegins[random.index(std::size(kBegins))]
                            : what == 1 ? "BEGIN"
                                        : kTidies[random.index(std::size(kTidies))];
    const std::int64_t hold_us = random.between(20, 3'500) * kMs;
    ++operators_;
    const std::shared_ptr<void> over(nullptr, [this](void*) { --operators_; });
    if (!client.run(sql)) return;
    did("somebody: " + sql);
    if (what == 2 || (what == 1 && !client.run("SELECT count(*) FROM " + table()))) return;
    world_.sleep(hold_us);
    client.run("COMMIT");
}

// Somebody empties the table, or takes some rows out: those are owed no more.
void SqliteHistory::begin_anew() {
    Random& random = world_.random();
    SqliteClient client(path_);
    // Numbers that have come as far again before a relay looks pass for sent: nobody writes.
    const auto kind = random.between(0, 3);
    ++operators_;
    const std::shared_ptr<void> over(nullptr, [this](void*) { --operators_; });
    const std::string which = kind == 0 ? " WHERE position % 4 = 0" : "";
    if (!client.run("BEGIN IMMEDIATE") || begun_anew_ || !settle_doubtful(client) ||
        !client.run("SELECT id, position FROM outbox_events" + which)) {
        return;
    }
    const auto rows = client.rows();
    std::string made;
    if (kind == 3) {
        if (!client.run("SELECT sql FROM sqlite_master WHERE name = 'outbox_events'")) return;
        made = client.rows().at(0).at(0);
    }
    const bool emptied =
        kind == 3 ? client.run("DROP TABLE outbox_events") && client.run(made)
                  : client.run("DELETE FROM outbox_events" + which) &&
                        (kind < 2 ||
                         client.run("DELETE FROM sqlite_sequence WHERE name = 'outbox_events'"));
    if (!emptied) return;
    const auto transaction = std::make_shared<Transaction>();
    const auto more = kind < 2 && random.chance(0.5) ? random.between(0, 20) : 0;
    while (std::ssize(transaction->written) < more) {
        if (!insert(client, {"k1", "k2"}, 0, transaction->written)) return;
    }
    if (random.chance(0.3)) world_.sleep(random.between(1, 500) * kMs);
    begun_anew_ = kind > 1;
    const std::shared_ptr<void> looked(nullptr, [this](void*) { begun_anew_ = false; });
    transaction->takes_out = [&] {
        for (const auto& row : rows) {
            judge_.withdrawn(number_of(row[0]));
            numbers_.erase(std::stoll(row[1]));
        }
        if (kind > 1) numbers_.clear();
    };
    if (!commit(client, transaction)) return;
    did(kind == 0   ? "rows are deleted"
        : kind == 1 ? "all rows are deleted"
        : kind == 2 ? "the table begins anew"
                    : "the table is made anew");
    if (kind < 2) return;
    const std::int64_t since_us = world_.now_us();
    const auto looks = [&] {
        const auto desk = operations();
        const auto other = desk ? desk->is_other_table() : Result<bool>(true);
        return judge_.looked_us() > since_us && other.ok() && !*other;
    };
    while (!looks()) world_.sleep(50 * kMs);
}

// A copy is put into the file, or takes its place.
void SqliteHistory::copy_or_set_back() {
    if (operators_ > 0 || !doubtful_.empty()) return;
    if (copied_us_ == kNever) {
        const bool done = look([&](SqliteClient& tables) {
            sqlite3_int64 size = 0;
            unsigned char* bytes = sqlite3_serialize(tables.handle(), "main", &size, 0);
            if (bytes == nullptr) return false;
            copy_.assign(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
            sqlite3_free(bytes);
            return true;
        });
        if (!done) return;
        copied();
        did("the file is copied");
        return;
    }
    if (world_.now_us() < copied_us_ + 2 * settings_.options.lease_renew_ms * kMs) return;
    // A rollback journal is found by its path alone: whoever has the old file takes the new one's.
    if (kind_.wal && world_.random().chance(0.5)) {
        HistoryFiles::of_process().replace(copy_);
        set_back();
        did("a copy takes the file's place");
        return;
    }
    const bool restored = look([&](SqliteClient& tables) {
        SqliteClient copy(":memory:");
        if (!copy.open()) return false;
        // Nothing in memory has a log beside it.
        std::string bytes = copy_;
        bytes.replace(18, 2, 2, '\1');
        const auto size = static_cast<sqlite3_int64>(bytes.size());
        sqlite3_deserialize(copy.handle(), "main", reinterpret_cast<unsigned char*>(bytes.data()),
                            size, size, SQLITE_DESERIALIZE_READONLY);
        sqlite3_backup* backup =
            sqlite3_backup_init(tables.handle(), "main", copy.handle(), "main");
        if (backup == nullptr) return false;
        sqlite3_backup_step(backup, -1);
        return sqlite3_backup_finish(backup) == SQLITE_OK;
    });
    if (!restored) return;
    set_back();
    did("a copy is restored into the file");
}

// All processes of the machine are gone, and what was not synced.
void SqliteHistory::lose_power() {
    if (operators_ > 0) return;
    did("the power fails");
    for (const auto& relay : relays_) {
        if (!relay->ended()) relay->kill();
    }
    living_.clear();
    std::vector<int> writers;
    for (std::size_t writer = 0; writer < services_.size(); ++writer) {
        if (world_.ended(services_[writer].task)) continue;
        world_.kill(services_[writer].group);
        writers.push_back(static_cast<int>(writer));
    }
    world_.sleep(1);
    disk_.lose_power();
    judge_.set_back();
    world_.sleep(world_.random().between(10, 500) * kMs);
    for (const int writer : writers) start_writer(writer);
}

bool SqliteHistory::look(const std::function<bool(SqliteClient& tables)>& at) {
    const World::Reality its_waits;
    SqliteClient tables(path_, 0);
    if (!tables.open()) return false;
    sqlite3_db_config(tables.handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    return at(tables);
}

// What the tables say, beside the world.
void SqliteHistory::audit() {
    std::set<Position> there;
    std::set<std::pair<int, Position>> dead;
    std::vector<std::pair<std::string, Position>> done;
    const bool looked = look([&](SqliteClient& tables) {
        if (!tables.run("BEGIN") ||
            !tables.run("SELECT id FROM " + table() + " WHERE " + unfinished())) {
            return false;
        }
        for (const auto& row : tables.rows()) there.insert(number_of(row[0]));
        if (!tables.run("SELECT route, id FROM outbox_dead_letters")) return false;
        for (const auto& row : tables.rows()) {
            dead.insert({judge_.route_of(row[0]), number_of(row[1])});
        }
        const auto take = [&](const std::string& route, Position position) {
            done.emplace_back(route, position);
        };
        return kind_.shape != nullptr ? for_each_mark(tables, take) : for_each_done(tables, take);
    });
    if (!looked) return;
    check_tables(there, dead);
    for (const auto& [route, position] : done) {
        if (kind_.shape == nullptr) {
            check_ledger(route, position, dead);
        } else if (const int of = judge_.route_of(route); !dead.contains({of, position})) {
            judge_.in_ledger(of, position);
        }
    }
}

bool SqliteHistory::for_each_mark(SqliteClient& tables,
                                  const std::function<void(const std::string&, Position)>& use) {
    if (!tables.run("SELECT route, event_id FROM outbox_route_done WHERE route <> ''"))
        return false;
    for (const auto& row : tables.rows()) use(row[0], number_of(row[1]));
    return true;
}

bool SqliteHistory::for_each_done(SqliteClient& tables,
                                  const std::function<void(const std::string&, Position)>& use) {
    constexpr Position kSegment = 65'536;
    if (!tables.run("SELECT route, segment, hex(done) FROM outbox_ledger_segments")) return false;
    for (const auto& row : tables.rows()) {
        const std::string& done = row[2];
        for (auto at = done.find_first_not_of('0'); at != std::string::npos;
             at = done.find_first_not_of('0', at + 1)) {
            const unsigned digit =
                static_cast<unsigned>(std::stoul(done.substr(at, 1), nullptr, 16));
            for (unsigned bit = 0; bit < 4; ++bit) {
                if ((digit & (8U >> bit)) == 0) continue;
                use(row[0], std::stoll(row[1]) * kSegment + static_cast<Position>(at * 4 + bit));
            }
        }
    }
    return true;
}

// Of rows that others deleted before every route had them the ledgers keep their bits.
std::string SqliteHistory::left() {
    std::string left;
    const bool looked = look([&](SqliteClient& tables) {
        for (const std::string& from :
             {table() + " WHERE " + unfinished(), std::string("outbox_scheduled"),
              std::string("outbox_delivery"), std::string("outbox_route_done")}) {
            if (!tables.run("SELECT count(*) FROM " + from)) return false;
            const std::string& rows = tables.rows().at(0).at(0);
            if (rows != "0") left += rows + " rows of " + from + "; ";
        }
        return for_each_done(tables, [&](const std::string& route, Position position) {
            if (numbers_.contains(position)) {
                left += std::to_string(position) + " in the ledger of " + route + "; ";
            }
        });
    });
    return looked ? left : "nobody can look";
}

}  // namespace outbox::simulation
