#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/operations.h"
#include "tests/simulation/broker.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/process.h"

namespace outbox::simulation {

/// What kind of history a seed makes over a production source, whatever the database.
struct DeploymentSettings {
    Settings settings;
    bool anew = true;     ///< The table begins anew, or rows are taken out by hand.
    bool tenants = true;  ///< There are tenants, who are paused and resumed.
    bool letters = true;  ///< Dead letters are retried and discarded.
    bool delays = true;   ///< Some events are delayed.
    bool route_changes = true;
    bool set_backs = false;  ///< A copy of the database is put in its place.
};

struct DeploymentVerdict {
    std::vector<std::string> violations;
    std::vector<std::string> trace;  ///< The last lines, when tracing.
    std::size_t events = 0;
    std::size_t repeats = 0;
    std::size_t dead = 0;
    std::size_t planted = 0;
    std::size_t statements = 0;
    std::map<std::string, std::size_t> happened;  ///< Of what chaos does, how often.
    std::uint64_t epochs = 0;
    std::int64_t ended_us = 0;
    std::int64_t worst_latency_us = 0;  ///< Of events of keys with nothing wrong.
    std::size_t latencies = 0;          ///< Of how many that was compared with its limit.
    std::uint64_t fingerprint = 0;
};

/// One history of relays over a production source, from its beginning to the day when everything is
/// through: those who write, the relays, those who operate them, and what goes wrong. A database's
/// own histories are made of it.
class Deployment {
  public:
    Deployment(const Deployment&) = delete;
    Deployment& operator=(const Deployment&) = delete;

  protected:
    explicit Deployment(const DeploymentSettings& habits);
    virtual ~Deployment() = default;

    struct Written {
        Position position = 0;
        SimEvent event;
    };
    using Kinds = std::vector<std::function<void()>>;

    /// Fills in what is common of a verdict, but for the trace, which ends with the world.
    void play(DeploymentVerdict& verdict);

    // What a database has its own of.
    virtual Result<std::unique_ptr<spi::Source>> open_source(int relay) = 0;
    virtual void vanish(int /*relay*/) {}
    /// Null: it cannot be opened.
    virtual std::unique_ptr<Operations> operations() = 0;
    virtual void start_writer(int writer) = 0;
    /// Spawns what else moves.
    virtual void begin() = 0;
    /// What chaos does, once each.
    virtual Kinds kinds() = 0;
    /// Writes an event that nobody waits for. False: not now.
    virtual bool write_heartbeat(Written& written) = 0;
    /// What is kept of what is finished; empty: nothing.
    virtual std::string left() = 0;
    virtual bool at_rest() { return true; }
    /// From here on nothing breaks.
    virtual void settle() {}
    virtual void watch() {}
    /// An error may end a process, which is started again.
    virtual bool may_end(int relay, const ErrorInfo& error) = 0;
    /// Nobody does what events may wait for; how long they may for another reason.
    /// See `Surroundings::may_change`.
    [[nodiscard]] virtual bool may_change() const { return true; }
    [[nodiscard]] virtual bool nobody_interferes() const = 0;
    [[nodiscard]] virtual std::int64_t may_wait_us() const { return 0; }

    static std::string id_of(Position number);
    SimEvent make_event(Random& random, const std::vector<std::string>& keys, double trouble);
    void committed(const std::vector<Written>& written);
    void did(const std::string& what);

    // Relays and their destinations.
    void start_relay();
    void start_missing_relays();
    void hurt_a_relay();
    void lose_a_destination();
    void lose_a_part();
    bool stop_all_relays();

    // Operators.
    void change_tenants();
    void handle_letters();
    void change_routes();
    /// Again and again where a lock or the lease of a relay is in the way.
    template <typename Change>
    bool insist(Change change) {
        for (int tries = 0; tries < 60; ++tries) {
            const auto done = change();
            if (done.ok()) return true;
            world_.trace("an operator is refused: " + describe(done.error()));
            world_.sleep(200 * kMs);
        }
        return false;
    }

    /// Of a copy of the database: what is committed by now, which is what it holds when it is put
    /// back.
    void copied();
    void set_back();

    /// What a look at the tables found: events and dead letters by route, which it may not lack.
    void check_tables(const std::set<Position>& there,
                      const std::set<std::pair<int, Position>>& dead);
    void check_ledger(const std::string& route, Position position,
                      const std::set<std::pair<int, Position>>& dead);

  private:
    const DeploymentSettings habits_;

  protected:
    Settings settings_;  // what is common of them changes as it settles
    World world_;
    Judge judge_;
    std::int64_t wall_offset_us_ = 1'700'000'000 * kSecond;
    Broker broker_;
    Surroundings around_;
    std::vector<std::unique_ptr<RelayProcess>> relays_;  // dead ones, too
    std::vector<RelayProcess*> living_;
    std::map<Position, Position> numbers_;  // of what was committed since the table began
    Position next_number_ = 1;
    std::vector<std::string> names_{"first", "second"};  // of routes, as they are configured
    int writing_ = 0;
    bool settling_ = false;
    std::size_t timing_out_ = 0;  // events so far that get no answer
    std::int64_t copied_us_ = kNever;

  private:
    void chaos();
    void watch_relays();
    void operate();
    void keep_busy();
    void rename_routes(Operations& desk);
    void change_number_of_routes(Operations& desk);

    int next_relay_ = 1;
    bool changing_routes_ = false;
    bool adding_ = false;  // the second route is configured again
    int next_name_ = 1;
    std::set<int> of_the_past_;  // relays that stood still while routes changed
    // What the copy holds of which the database is set back to.
    std::set<Position> copied_;
    std::map<Position, Position> copied_numbers_;
    std::set<std::string> paused_;  // tenants
    bool done_ = false;
    std::map<std::string, std::size_t> happened_;
};

}  // namespace outbox::simulation
