#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <outbox/consumer/mailbox.h>
#include <outbox/spi/sink.h>

#include "tests/simulation/process.h"
#include "tests/simulation/receiving/connection.h"
#include "tests/simulation/receiving/judge.h"
#include "tests/simulation/receiving/receiver.h"
#include "tests/simulation/receiving/sagas.h"
#include "tests/simulation/receiving/services.h"

namespace outbox::simulation {

/// What kind of history of the receiving side a seed makes.
struct ReceivingSettings {
    Settings settings;
    MailboxOptions options;
    RequestSettings requests;
    SagaSettings sagas;
    bool queue = false;  ///< Messages come by a broker's queue, and not by the mailbox.
    QueueSettings queues;
    QueueConsumerOptions queue_options;
    int members = 2;
    double fates = 0;      ///< Share of messages that their handler does not apply at once.
    bool cuts = true;      ///< The database cuts its clients off, or takes nothing more of them.
    bool holds = true;     ///< Others hold what members need.
    bool letters = true;   ///< Dead letters are mended and tried again.
    bool needs = true;     ///< What handlers need is away now and then.
    bool crashes = false;  ///< The database goes down with all that it has not flushed.

    static ReceivingSettings from_seed(std::uint64_t seed);
};

struct ReceivingVerdict {
    std::vector<std::string> violations;
    std::vector<std::string> trace;  ///< The last lines, when tracing.
    std::size_t events = 0;
    std::size_t repeats = 0;  ///< That the inbox knew.
    std::size_t effects = 0;
    std::size_t handovers = 0;
    std::size_t deliveries = 0;  ///< By a queue.
    std::size_t dead = 0;
    std::size_t answers = 0;      ///< To requests with an Idempotency-Key.
    std::size_t completed = 0;    ///< Sagas,
    std::size_t compensated = 0;  ///< and those that turned back.
    std::size_t statements = 0;
    std::size_t waits = 0;    ///< For locks.
    std::size_t planted = 0;  ///< Statements and functions that went without a guard.
    std::map<std::string, std::size_t> happened;
    std::int64_t ended_us = 0;
    std::uint64_t fingerprint = 0;
};

/// One history of both sides over a database: relays bring what services write into the mailbox of
/// their own database, or to a broker's queue, and the members of one consumer apply it. Beside
/// them services answer requests with an Idempotency-Key, and sagas are led.
class ReceivingHistory {
  public:
    explicit ReceivingHistory(const ReceivingSettings& settings);
    virtual ~ReceivingHistory() = default;
    ReceivingHistory(const ReceivingHistory&) = delete;
    ReceivingHistory& operator=(const ReceivingHistory&) = delete;

  protected:
    using Kinds = std::vector<std::function<void()>>;

    void play(ReceivingVerdict& verdict);

    // Of the database.
    virtual std::unique_ptr<Connection> connect() = 0;
    /// Beside the world, at once. None: somebody keeps it from being looked at.
    virtual std::optional<Rows> look(const std::string& sql) = 0;
    [[nodiscard]] virtual std::string url() const = 0;
    virtual Result<std::unique_ptr<spi::Source>> open_source(int relay) = 0;
    virtual MailboxMember mailbox(const core::Clock& clock, HandleMessages handle) = 0;
    virtual consumer::MakeApplier appliers(const QueueConsumerOptions& checked,
                                           HandleMessages handle) = 0;
    /// Begins a transaction in which writers of a key come one after the other.
    virtual bool begin_order(Connection& client, const std::vector<std::string>& keys) = 0;
    /// Beside the world: the id of the event that is there and whose id ends so; empty: there is
    /// none. None: as with `look`.
    virtual std::optional<std::string> find_event(const std::string& digits) = 0;
    /// The group of a writer's processes.
    virtual World::Group writers_group() { return World::kNoGroup; }
    virtual bool may_end(int /*process*/, const ErrorInfo& /*error*/) { return false; }

    /// What begins beside the rest, and what else may happen.
    virtual void begin() {}
    virtual Kinds kinds() = 0;
    /// The host of a process goes with it.
    virtual void vanish(World::Group /*group*/) {}
    /// From here on nothing breaks.
    virtual void settle() {}

    void did(const std::string& what);
    /// All processes of relays, members, services and writers. Gives the writers that lived.
    std::vector<int> kill_all();
    void start_again(const std::vector<int>& writers);
    /// A transaction of events. Whether it is committed is not known before its COMMIT has
    /// answered, but where somebody has seen one.
    struct Transaction {
        std::vector<std::pair<SimEvent, Fate>> written;
        bool told = false;
    };
    void tell(Transaction& transaction);
    [[nodiscard]] static std::string id_of(Position number);
    [[nodiscard]] const std::vector<std::shared_ptr<Transaction>>& doubtful() const {
        return doubtful_;
    }

    ReceivingSettings kind_;
    Settings& settings_;
    World world_;
    Judge judge_;
    ReceivingJudge effects_;
    std::int64_t wall_offset_us_ = 1'700'000'000 * kSecond;
    SimClock clock_;  // of services
    std::int64_t needs_away_until_us_ = 0;
    Broker broker_;
    SimQueue queue_;
    Surroundings around_;
    ReceiversSurroundings receivers_;
    Services services_;
    SagaDesk sagas_;

  private:
    void start_missing();
    void start_writer(int writer);
    void write(int writer);
    bool write_one_transaction(Connection& client);
    bool commit(Connection& client, const std::shared_ptr<Transaction>& transaction);
    Kinds common_kinds();
    void chaos();
    void hurt_somebody();
    void hurt_a_service();
    void handle_letters();
    void watch();
    bool come_to_rest();
    void look_at_all();
    [[nodiscard]] std::optional<ReceivingJudge::Tables> tables(bool all);
    void finish();
    void start_relay();
    void start_member();
    Result<std::unique_ptr<spi::Sink>> make_sink(int relay, int route);
    void enqueue(const Kept& record);
    void find_out(Position number);
    std::uint64_t next_digits();
    void enter(World::TaskId task);
    void leave(World::TaskId task);

    struct Writer {
        World::Group group = World::kNoGroup;
        World::TaskId task = 0;
    };
    std::vector<std::unique_ptr<RelayProcess>> relays_;  // dead ones, too
    std::vector<std::unique_ptr<Receiver>> members_;
    std::vector<RelayProcess*> living_relays_;
    std::vector<Receiver*> living_members_;
    std::vector<Writer> writers_;
    int writing_ = 0;
    std::vector<std::shared_ptr<Transaction>> doubtful_;
    Position next_number_ = 1;
    int next_process_ = 1;
    bool settling_ = false;
    bool down_ = false;                                           // nothing is to be started
    std::map<World::TaskId, const core::Clock*> callers_clocks_;  // of tasks inside a handler
    std::map<std::string, std::size_t> happened_;
};

}  // namespace outbox::simulation
