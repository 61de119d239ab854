#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "databases/postgres/source/config.h"
#include "tests/simulation/postgres/client.h"
#include "tests/simulation/postgres/lines.h"
#include "tests/simulation/postgres/server.h"
#include "tests/simulation/process.h"

namespace outbox::simulation {

/// What kind of history a seed makes over a real server.
struct PostgresSettings {
    Settings settings;
    Server::Layout layout = Server::Layout::kDelete;

    static PostgresSettings from_seed(std::uint64_t seed, const Server& server);
};

struct PostgresVerdict {
    std::vector<std::string> violations;
    std::vector<std::string> trace;  ///< The last lines, when tracing.
    std::size_t events = 0;
    std::size_t repeats = 0;
    std::size_t dead = 0;
    std::size_t statements = 0;
    std::size_t blocked = 0;
    std::size_t connections = 0;
    std::map<std::string, std::size_t> happened;  ///< Of what chaos does, how often.
    std::uint64_t epochs = 0;
    std::int64_t ended_us = 0;
    std::uint64_t fingerprint = 0;
};

/// One history over the production source and a real server, from its beginning to the day when
/// everything is through.
class PostgresHistory {
  public:
    PostgresHistory(Server& server, const PostgresSettings& settings);
    ~PostgresHistory();
    PostgresHistory(const PostgresHistory&) = delete;
    PostgresHistory& operator=(const PostgresHistory&) = delete;
    PostgresVerdict run();

  private:
    struct Written {
        Position position = 0;
        SimEvent event;
    };

    void write(int writer);
    void write_one_transaction(Client& client, int writer);
    bool insert(Client& client, Random& random, const std::vector<std::string>& keys,
                std::vector<Written>& written);
    void committed(const std::vector<Written>& written);
    SimEvent make_event(Random& random, const std::vector<std::string>& keys);
    void chaos();
    void hurt_a_relay(Random& random);
    void operate();
    void keep_busy();
    void keep_time();
    void audit();
    bool drained();
    void start_relay();
    void start_missing_relays();
    void did(const std::string& what);

    Server& server_;
    PostgresSettings kind_;
    Settings& settings_;
    World world_;
    Judge judge_;
    std::int64_t wall_offset_us_ = 1'700'000'000 * kSecond;
    Lines lines_;
    Broker broker_;
    postgres::PostgresSourceConfig config_;
    Surroundings around_;
    std::vector<std::unique_ptr<RelayProcess>> relays_;  // dead ones, too
    std::vector<RelayProcess*> living_;
    std::map<Position, Position> numbers_;  // of what was committed since the table began
    Position next_number_ = 1;
    int next_relay_ = 1;
    int next_prepared_ = 1;
    int writing_ = 0;
    bool settling_ = false;
    bool done_ = false;
    std::map<std::string, std::size_t> happened_;
};

}  // namespace outbox::simulation
