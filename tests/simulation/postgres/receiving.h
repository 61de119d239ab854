#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/consumer/mailbox.h>
#include <outbox/spi/sink.h>

#include "databases/postgres/source/config.h"
#include "tests/simulation/postgres/client.h"
#include "tests/simulation/postgres/lines.h"
#include "tests/simulation/postgres/receiver.h"
#include "tests/simulation/postgres/receiving_judge.h"
#include "tests/simulation/postgres/sagas.h"
#include "tests/simulation/postgres/server.h"
#include "tests/simulation/postgres/services.h"
#include "tests/simulation/process.h"

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
    double fates = 0;          ///< Share of messages that their handler does not apply at once.
    bool terminations = true;  ///< Backends of relays and members are ended.
    bool holds = true;         ///< Others hold rows that members need.
    bool letters = true;       ///< Dead letters are mended and tried again.
    bool needs = true;         ///< What handlers need is away now and then.
    bool crashes = false;      ///< The server crashes.
    Lines::Plant plant;        ///< A guard that is taken out.

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
    std::size_t blocked = 0;
    std::size_t planted = 0;  ///< Statements and functions that went without a guard.
    std::map<std::string, std::size_t> happened;
    std::int64_t ended_us = 0;
    std::uint64_t fingerprint = 0;
};

/// One history of both sides over a real server: relays bring what services write into the mailbox
/// of their own database, or to a broker's queue, and the members of one consumer apply it. Beside
/// them services answer requests with an Idempotency-Key, and sagas are led.
class ReceivingHistory {
  public:
    ReceivingHistory(Server& server, const ReceivingSettings& settings);
    ~ReceivingHistory();
    ReceivingHistory(const ReceivingHistory&) = delete;
    ReceivingHistory& operator=(const ReceivingHistory&) = delete;
    ReceivingVerdict run();

  private:
    void write(int writer);
    bool write_one_transaction(Client& client);
    void chaos();
    void hurt_somebody();
    void hurt_a_service();
    void hold();
    void handle_letters();
    void watch();
    void keep_time();
    void look();
    bool tables_are_free();
    bool settle();
    void start_relay();
    void start_member();
    void start_missing();
    void did(const std::string& what);
    Result<std::unique_ptr<spi::Sink>> make_sink(int relay, int route);
    void enqueue(const Kept& record);
    void find_out(Position number);
    std::uint64_t next_digits();
    void enter(World::TaskId task);
    void leave(World::TaskId task);
    void take_out(const Lines::Plant& plant);

    static constexpr Server::Layout kLayout = Server::Layout::kReceiving;

    Server& server_;
    ReceivingSettings kind_;
    Settings& settings_;
    World world_;
    Judge judge_;
    ReceivingJudge effects_;
    std::int64_t wall_offset_us_ = 1'700'000'000 * kSecond;
    std::int64_t needs_away_until_us_ = 0;
    Lines lines_;
    Broker broker_;
    SimQueue queue_;
    postgres::PostgresSourceConfig config_;
    Surroundings around_;
    ReceiversSurroundings receivers_;
    Services services_;
    SagaDesk sagas_;
    std::vector<std::unique_ptr<RelayProcess>> relays_;  // dead ones, too
    std::vector<std::unique_ptr<Receiver>> members_;
    std::vector<RelayProcess*> living_relays_;
    std::vector<Receiver*> living_members_;
    Position next_number_ = 1;
    int next_process_ = 1;
    int writing_ = 0;
    bool settling_ = false;
    std::map<World::TaskId, const core::Clock*> callers_clocks_;  // of tasks inside a handler
    std::vector<std::string> functions_;                          // as they are without the plant
    std::map<std::string, std::size_t> happened_;
};

}  // namespace outbox::simulation
