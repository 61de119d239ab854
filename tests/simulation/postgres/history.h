#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/operations.h"
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
    bool terminations = true;  ///< Backends of relays are ended.
    bool holds = true;         ///< Operators' sessions hold rows and tables.
    bool anew = true;          ///< The table begins anew, or rows are taken out by hand.
    bool tenants = true;       ///< There are tenants, who are paused and resumed.
    bool letters = true;       ///< Dead letters are retried and discarded.
    bool delays = true;        ///< Some events are delayed.
    bool route_changes = true;
    bool crashes = false;       ///< The server crashes.
    bool streams = false;       ///< Relays take the log where they may.
    bool cuts = false;          ///< Streams end, stand still, and lose their slots.
    bool growth = false;        ///< Much is written to the log by others.
    bool hosts = false;         ///< Hosts of relays that stream are gone.
    bool publications = false;  ///< Somebody changes the publication.
    bool levels = false;        ///< The server's log is not enough for a stream for a while.
    bool bursts = false;        ///< Some transactions are larger than a stream's queue.
    bool lingers = false;       ///< Some commits are in the log before they are seen.
    Lines::Plant plant;
    bool set_backs = false;  ///< A copy of the server is put in its place.

    static PostgresSettings from_seed(std::uint64_t seed, const Server& server);
    /// Of what chaos does beside kills, pauses and outages, this alone and surely.
    void only(const std::string& kind);
    void take_stream(Random& random);
};

struct PostgresVerdict {
    std::vector<std::string> violations;
    std::vector<std::string> trace;  ///< The last lines, when tracing.
    std::size_t events = 0;
    std::size_t repeats = 0;
    std::size_t dead = 0;
    std::size_t planted = 0;
    std::size_t statements = 0;
    std::size_t blocked = 0;
    std::size_t connections = 0;
    std::map<std::string, std::size_t> happened;  ///< Of what chaos does, how often.
    std::size_t joins = 0;                        ///< Of the stream.
    std::size_t streamed = 0;                     ///< Events that it brought.
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
    [[nodiscard]] static std::string values_of(const SimEvent& event, int filling);
    bool insert(Client& client, Random& random, const std::vector<std::string>& keys,
                double trouble, std::vector<Written>& written, int filling = 0);
    void committed(const std::vector<Written>& written);
    SimEvent make_event(Random& random, const std::vector<std::string>& keys, double trouble);
    void chaos();
    void hurt_a_relay(Random& random);
    void hold();
    void hurt_a_stream();
    void lose_a_host();
    void change_level();
    [[nodiscard]] bool nobody_interferes() const;
    void change_publication();
    void burst(int writer);
    [[nodiscard]] postgres::PostgresSourceConfig config_of(int relay) const;
    void begin_anew();
    void set_back();
    void change_tenants();
    void handle_letters();
    void change_routes();
    void rename_routes(Operations& operations);
    void change_number_of_routes(Operations& operations);
    bool stop_all_relays();
    template <typename Change>
    bool insist(Change change);
    void settle_resets();
    std::unique_ptr<Operations> operations();
    bool may_end(const ErrorInfo& error);
    void watch_relays();
    void operate();
    void keep_busy();
    void keep_time();
    bool look(const std::function<void(test::Pg& control)>& at);
    void audit(test::Pg& control);
    void audit_slots(test::Pg& control);
    static void for_each_done(test::Pg& control,
                              const std::function<void(const std::string& route, Position)>& use);
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
    std::vector<std::string> names_{"first", "second"};  // of routes, as they are configured
    bool changing_routes_ = false;
    bool adding_ = false;  // the second route is configured again
    int next_name_ = 1;
    int times_anew_ = 0;
    // What the copy holds of which the server is set back to.
    std::int64_t copied_us_ = kNever;
    std::set<Position> copied_;
    std::map<Position, Position> copied_numbers_;
    int resets_ = 0;  // processes that ended as the table is another, since somebody settled that
    // Since when slots keep more of the log than relays allow.
    std::map<std::string, std::int64_t> keep_much_;
    int levels_ = 0;                 // how often it was changed
    bool keeps_for_nobody_ = false;  // a slot for a relay whose host is gone
    bool unpublished_ = false;       // somebody changes the publication now
    std::set<std::string> paused_;   // tenants
    bool settling_ = false;
    bool done_ = false;
    std::map<std::string, std::size_t> happened_;
};

}  // namespace outbox::simulation
