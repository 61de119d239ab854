#include "tests/simulation/sqlite/receiving.h"

#include <iterator>
#include <span>
#include <sqlite3.h>
#include <stdexcept>
#include <utility>

#include <outbox/adapters/sqlite_idempotency.h>
#include <outbox/adapters/sqlite_saga.h>

#include "adapters/appliers.h"
#include "databases/sqlite/receive/broker_store.h"
#include "databases/sqlite/receive/mailbox.h"
#include "databases/sqlite/source/source.h"
#include "tests/simulation/receiving/library_calls.h"
#include "tests/simulation/sqlite/client.h"
#include "tests/simulation/sqlite/files.h"

namespace outbox::simulation {

namespace {

constexpr int kCommitTries = 20;
constexpr std::int64_t kApart = 1'000'000 * kSecond;  // more than clocks jump in one

class ServicesConnection final : public ServicesCalls<sqlite3> {
  public:
    // `open`: counts those that are there; null: they need not be.
    ServicesConnection(World& world, const std::string& path, std::shared_ptr<int> open)
        : world_(world), client_(path), open_(std::move(open)) {
        if (open_) ++*open_;
    }
    ~ServicesConnection() override {
        client_.close();
        if (open_) --*open_;
    }
    ServicesConnection(const ServicesConnection&) = delete;
    ServicesConnection& operator=(const ServicesConnection&) = delete;

    bool run(const std::string& sql) override { return client_.run(sql); }
    [[nodiscard]] std::string error() const override { return client_.error(); }
    bool begin() override { return client_.run("BEGIN IMMEDIATE"); }
    // Readers may keep it waiting where there is no write-ahead log.
    bool commit() override {
        bool done = client_.run("COMMIT");
        for (int tries = 1; !done && client_.busy() && tries < kCommitTries; ++tries) {
            world_.sleep(world_.random().between(1, 50) * kMs);
            done = client_.run("COMMIT");
        }
        return done;
    }
    void roll_back() override {
        if (client_.in_transaction()) client_.run("ROLLBACK");
    }
    void close() override { client_.close(); }

  private:
    [[nodiscard]] sqlite3* handle() override { return client_.handle(); }

    World& world_;
    SqliteClient client_;
    std::shared_ptr<int> open_;
};

class HandlersTransaction final : public HandlersCalls<sqlite3> {
  public:
    using HandlersCalls::HandlersCalls;

    void run(const std::string& sql) override {
        if (!done(sql)) throw std::runtime_error(sqlite3_errmsg(handle_));
    }
    [[nodiscard]] bool can_commit() override { return sqlite3_get_autocommit(handle_) == 0; }
    void fail_a_statement() override {
        static_cast<void>(done("INSERT OR ROLLBACK INTO accounts VALUES (NULL, 1)"));
    }
    void end() override { static_cast<void>(done("ROLLBACK")); }

  private:
    bool done(const std::string& sql) {
        return sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
    }
};

// As a consumer's adapter has it.
auto in_transaction(HandleMessages handle) {
    return [handle = std::move(handle)](sqlite3* session, std::span<const Message> messages) {
        HandlersTransaction transaction(session);
        handle(transaction, messages);
    };
}

}  // namespace

SqliteReceivingSettings SqliteReceivingSettings::from_seed(std::uint64_t seed) {
    Random random(seed * 0xd1b54a32d192ed03 + 13);
    SqliteReceivingSettings kind{ReceivingSettings::from_seed(seed), true, {}};
    kind.wal = random.chance(0.8);
    kind.cuts = random.chance(0.2);
    kind.crashes = random.chance(0.2);
    return kind;
}

SqliteReceiving::SqliteReceiving(const SqliteReceivingSettings& settings)
    : ReceivingHistory(settings),
      path_(HistoryFiles::of_process().make_database(HistoryFiles::Side::kBoth, settings.wal)),
      disk_(world_, settings_, wall_offset_us_) {
    // The ids of events ascend from one history to the next.
    static std::int64_t histories = 0;
    wall_offset_us_ += ++histories * kApart;
    config_.url = "sqlite://" + path_;
    disk_.plant(settings.plant);
    if (kind_.crashes) disk_.can_lose_power();
}

SqliteReceiving::~SqliteReceiving() {
    world_.end();
}

ReceivingVerdict SqliteReceiving::run() {
    ReceivingVerdict verdict;
    play(verdict);
    verdict.statements = disk_.statements();
    verdict.waits = disk_.waits();
    verdict.planted = disk_.planted();
    return verdict;
}

std::unique_ptr<Connection> SqliteReceiving::connect() {
    const bool is_counted = world_.group() == World::kNoGroup;
    return std::make_unique<ServicesConnection>(world_, path_, is_counted ? others_ : nullptr);
}

std::optional<Rows> SqliteReceiving::look(const std::string& sql) {
    const World::Reality its_waits;
    SqliteClient tables(path_, 0);
    if (!tables.open()) return std::nullopt;
    sqlite3_db_config(tables.handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    if (!tables.run(sql)) return std::nullopt;
    return tables.rows();
}

Result<std::unique_ptr<spi::Source>> SqliteReceiving::open_source(int relay) {
    auto source = sqlite::make_sqlite_source(config_);
    if (source.ok()) have_begun_.insert(relay);
    return source;
}

MailboxMember SqliteReceiving::mailbox(const core::Clock& clock, HandleMessages handle) {
    auto store = std::make_unique<consumer::SqliteMailbox>(path_, kind_.options, clock);
    const consumer::SqliteMailbox& session = *store;
    return {std::move(store),
            [&session, handle = in_transaction(std::move(handle))](
                std::span<const Message> messages) { handle(session.connection(), messages); }};
}

consumer::MakeApplier SqliteReceiving::appliers(const QueueConsumerOptions& checked,
                                                HandleMessages handle) {
    return consumer::appliers<consumer::SqliteBrokerStore>(
        path_,
        {.consumer = checked.consumer,
         .connect_timeout_s = checked.connect_timeout_s,
         .prunes = checked.inbox_retention_s > 0,
         .counts_begun = checked.max_deliveries > 0},
        in_transaction(std::move(handle)));
}

// Nobody else writes now: what is committed of those who do not know yet can be seen.
bool SqliteReceiving::begin_order(Connection& client, const std::vector<std::string>& /*keys*/) {
    if (!client.begin()) return false;
    for (const auto& transaction : std::vector(doubtful())) {
        if (transaction->told) continue;
        const auto there = look("SELECT 1 FROM outbox_events WHERE id = '" +
                                transaction->written.front().first.id + "'");
        if (!there) return false;
        if (!there->empty()) tell(*transaction);
    }
    return true;
}

std::optional<std::string> SqliteReceiving::find_event(const std::string& digits) {
    const auto found =
        look("SELECT id FROM outbox_events WHERE substr(id, -12) = '" + digits + "'");
    if (!found) return std::nullopt;
    return found->empty() ? "" : found->front().front();
}

// As it starts while the file is away, which may be a wrong path then.
bool SqliteReceiving::may_end(int process, const ErrorInfo& error) {
    return error.code == ErrorCode::kConnectFailed && !have_begun_.contains(process);
}

void SqliteReceiving::settle() {
    disk_.away_until(0);
    disk_.full_until(0);
}

SqliteReceiving::Kinds SqliteReceiving::kinds() {
    Random& random = world_.random();
    Kinds kinds;
    const auto add = [&](bool has, std::function<void()> kind) {
        if (has) kinds.push_back(std::move(kind));
    };
    add(settings_.database_outages, [this, &random] {
        disk_.away_until(world_.now_us() + random.between(20, 2'000) * kMs);
        did("processes cannot reach the file");
    });
    add(settings_.clock_jumps, [this, &random] {
        wall_offset_us_ += random.between(-60, 600) * kSecond;
        services_.forget_leases();
        did("the machine's clock jumps");
    });
    add(kind_.cuts, [this, &random] {
        disk_.full_until(world_.now_us() + random.between(20, 1'500) * kMs);
        did("the disk is full");
    });
    add(kind_.holds, [this] { world_.spawn(World::kNoGroup, "holder", [this] { hold(); }); });
    add(kind_.crashes, [this] { lose_power(); });
    return kinds;
}

// Somebody keeps others from writing, keeps the log from being emptied, or tidies up.
void SqliteReceiving::hold() {
    static constexpr const char* kBegins[] = {"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"};
    static constexpr const char* kTidies[] = {
        "PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(RESTART)",
        "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "ANALYZE"};
    Random& random = world_.random();
    const std::unique_ptr<Connection> client = connect();
    const auto what = random.between(0, 2);
    const std::string sql = what == 0   ? kBegins[random.index(std::size(kBegins))]
                            : what == 1 ? "BEGIN"
                                        : kTidies[random.index(std::size(kTidies))];
    const std::int64_t hold_us = random.between(20, 3'500) * kMs;
    if (!client->run(sql)) return;
    did("somebody: " + sql);
    if (what == 2 || (what == 1 && !client->run("SELECT count(*) FROM outbox_mailbox"))) return;
    world_.sleep(hold_us);
    static_cast<void>(client->run("COMMIT"));
}

// All processes of the machine are gone, and what was not synced.
void SqliteReceiving::lose_power() {
    if (*others_ > 0) return;
    did("the power fails");
    const std::vector<int> writers = kill_all();
    world_.sleep(1);
    disk_.lose_power();
    judge_.set_back();
    world_.sleep(world_.random().between(10, 500) * kMs);
    start_again(writers);
}

}  // namespace outbox::simulation
