#include "tests/simulation/postgres/receiving.h"

#include <iterator>
#include <libpq-fe.h>
#include <span>
#include <stdexcept>
#include <utility>

#include <outbox/adapters/libpq_idempotency.h>
#include <outbox/adapters/libpq_saga.h>

#include "adapters/appliers.h"
#include "databases/postgres/receive/broker_store.h"
#include "databases/postgres/receive/mailbox.h"
#include "databases/postgres/source/source.h"
#include "tests/simulation/postgres/client.h"
#include "tests/simulation/receiving/library_calls.h"

namespace outbox::simulation {

namespace {

constexpr std::int64_t kTick = 50 * kMs;  // of the server's own timers

struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
};
using PgResult = std::unique_ptr<PGresult, Clear>;

class ServicesConnection final : public ServicesCalls<PGconn> {
  public:
    explicit ServicesConnection(std::string url) : client_(std::move(url)) {}

    bool run(const std::string& sql) override { return client_.run(sql); }
    [[nodiscard]] std::string error() const override { return client_.error(); }
    bool begin() override { return client_.run("BEGIN"); }
    void roll_back() override {
        if (!client_.lost()) client_.run("ROLLBACK");
    }
    void close() override { client_.close(); }
    IdempotencyClaim begin_and_claim(const IdempotentRequest& request) override {
        return begin_and_claim_key(handle(), request);
    }
    void complete_and_commit(const IdempotentRequest& request, const IdempotencyClaim& claim,
                             const IdempotentAnswer& answer) override {
        complete_key_and_commit(handle(), request, claim, answer);
    }

  private:
    [[nodiscard]] PGconn* handle() override { return client_.handle(); }

    Client client_;
};

class HandlersTransaction final : public HandlersCalls<PGconn> {
  public:
    using HandlersCalls::HandlersCalls;

    void run(const std::string& sql) override {
        if (!done(sql)) throw std::runtime_error(PQerrorMessage(handle_));
    }
    [[nodiscard]] bool can_commit() override { return done("SELECT 1"); }
    void fail_a_statement() override { static_cast<void>(done("SELECT 1 / 0")); }
    void end() override {
        static_cast<void>(done("SELECT pg_terminate_backend(pg_backend_pid())"));
    }

  private:
    bool done(const std::string& sql) {
        const PgResult result(PQexec(handle_, sql.c_str()));
        const ExecStatusType status = PQresultStatus(result.get());
        return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    }
};

// As a consumer's adapter has it.
auto in_transaction(HandleMessages handle) {
    return [handle = std::move(handle)](PGconn* session, std::span<const Message> messages) {
        HandlersTransaction transaction(session);
        handle(transaction, messages);
    };
}

}  // namespace

PostgresReceiving::PostgresReceiving(Server& server, const PostgresReceivingSettings& settings)
    : ReceivingHistory(settings), server_(server), lines_(world_, server, settings_) {
    config_.url = server.url(kLayout);
    config_.mode = postgres::Mode::kPolling;
    server.reset(kLayout);
    take_out(settings.plant);
}

PostgresReceiving::~PostgresReceiving() {
    world_.end();
    for (const std::string& function : functions_) server_.control(kLayout).exec(function);
}

ReceivingVerdict PostgresReceiving::run() {
    ReceivingVerdict verdict;
    play(verdict);
    verdict.statements = lines_.statements();
    verdict.waits = lines_.blocked();
    verdict.planted = lines_.planted() + functions_.size();
    return verdict;
}

// Out of the functions that it stands in.
void PostgresReceiving::take_out(const Lines::Plant& plant) {
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

std::unique_ptr<Connection> PostgresReceiving::connect() {
    return std::make_unique<ServicesConnection>(config_.url);
}

std::optional<Rows> PostgresReceiving::look(const std::string& sql) {
    if (!tables_are_free()) return std::nullopt;
    Rows rows;
    for (const auto& row : server_.control(kLayout).query(sql)) {
        std::vector<std::string>& values = rows.emplace_back();
        for (const auto& value : row) values.push_back(value.value_or(""));
    }
    return rows;
}

bool PostgresReceiving::tables_are_free() {
    return server_.control(kLayout).value(
               "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock' "
               "AND locktype = 'relation')") == "t";
}

Result<std::unique_ptr<spi::Source>> PostgresReceiving::open_source(int /*relay*/) {
    return postgres::make_postgres_source(config_);
}

MailboxMember PostgresReceiving::mailbox(const core::Clock& clock, HandleMessages handle) {
    auto store = std::make_unique<consumer::LibpqMailbox>(config_.url, kind_.options, clock);
    const consumer::LibpqMailbox& session = *store;
    return {std::move(store),
            [&session, handle = in_transaction(std::move(handle))](
                std::span<const Message> messages) { handle(session.connection(), messages); }};
}

consumer::MakeApplier PostgresReceiving::appliers(const QueueConsumerOptions& checked,
                                                  HandleMessages handle) {
    return consumer::appliers<consumer::LibpqBrokerStore>(
        config_.url,
        {.consumer = checked.consumer,
         .connect_timeout_s = checked.connect_timeout_s,
         .prunes = checked.inbox_retention_s > 0,
         .counts_begun = checked.max_deliveries > 0},
        in_transaction(std::move(handle)));
}

// Writers of a key serialise before the event is inserted, in sorted order.
bool PostgresReceiving::begin_order(Connection& client, const std::vector<std::string>& keys) {
    if (!client.begin()) return false;
    if (keys.empty()) return true;
    std::string list;
    for (const std::string& key : keys) list += (list.empty() ? "'" : ", '") + key + "'";
    return client.run("SELECT public.outbox_lock_keys(" + list + ")");
}

std::optional<std::string> PostgresReceiving::find_event(const std::string& digits) {
    return server_.control(kLayout).value(
        "SELECT max(id::text) FROM public.outbox_events WHERE right(id::text, 12) = '" + digits +
        "'");
}

void PostgresReceiving::begin() {
    world_.spawn(World::kNoGroup, "time", [this] {
        while (true) {
            world_.sleep(kTick);
            lines_.keep_time();
        }
    });
}

PostgresReceiving::Kinds PostgresReceiving::kinds() {
    Random& random = world_.random();
    Kinds kinds;
    const auto add = [&](bool has, std::function<void()> kind) {
        if (has) kinds.push_back(std::move(kind));
    };
    add(settings_.database_outages, [this, &random] {
        lines_.away_until(world_.now_us() + random.between(20, 2'000) * kMs);
        did("an outage of the database");
    });
    add(settings_.clock_jumps, [this, &random] {
        wall_offset_us_ += random.between(-7'200, 7'200) * kSecond;
        did("the clocks on the wall of relays and members jump");
    });
    add(kind_.cuts, [this] {
        if (lines_.terminate_one()) did("a backend is terminated");
    });
    add(kind_.holds, [this] { world_.spawn(World::kNoGroup, "holder", [this] { hold(); }); });
    add(kind_.crashes, [this] {
        if (std::exchange(crashed_, true)) return;  // takes seconds
        did("the server crashes");
        lines_.restart([this] { server_.crash(); });
    });
    return kinds;
}

// Somebody's session holds rows or a table that members need, and goes.
void PostgresReceiving::hold() {
    static constexpr const char* kWhat[] = {
        "SELECT FROM accounts FOR UPDATE",
        "SELECT FROM accounts ORDER BY key LIMIT 1 FOR UPDATE",
        "SELECT FROM public.outbox_mailbox FOR UPDATE",
        "SELECT FROM public.outbox_mailbox ORDER BY position LIMIT 1 FOR UPDATE",
        "SELECT FROM public.outbox_inbox FOR UPDATE",
        "SELECT FROM public.outbox_inbox_dead_letters FOR UPDATE",
        "SELECT FROM public.outbox_inbox_stats FOR UPDATE",
        "SELECT FROM public.outbox_inbox_begun FOR UPDATE",
        "LOCK TABLE public.outbox_mailbox IN SHARE MODE",
        "LOCK TABLE public.outbox_inbox IN SHARE MODE",
        "SELECT FROM public.outbox_idempotency FOR UPDATE",
        "LOCK TABLE orders IN SHARE MODE",
        "SELECT FROM public.outbox_saga FOR UPDATE",
        "SELECT FROM public.outbox_saga_steps FOR UPDATE",
        "LOCK TABLE effects IN SHARE ROW EXCLUSIVE MODE"};
    Random& random = world_.random();
    Client client(config_.url);
    const std::string what = kWhat[random.index(std::size(kWhat))];
    const std::int64_t hold_us = random.between(20, random.chance(0.1) ? 9'000 : 2'500) * kMs;
    if (!client.run("BEGIN") || !client.run(what)) return;
    did("held: " + what);
    world_.sleep(hold_us);
    client.run("COMMIT");
}

}  // namespace outbox::simulation
