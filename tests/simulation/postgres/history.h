#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "databases/postgres/source/config.h"
#include "tests/simulation/deployment.h"
#include "tests/simulation/postgres/client.h"
#include "tests/simulation/postgres/lines.h"
#include "tests/simulation/postgres/server.h"

namespace outbox::simulation {

/// What kind of history a seed makes over a real server.
struct PostgresSettings : DeploymentSettings {
    Server::Layout layout = Server::Layout::kDelete;
    bool terminations = true;   ///< Backends of relays are ended.
    bool holds = true;          ///< Operators' sessions hold rows and tables.
    bool refusals = false;      ///< A trigger of the owner's keeps some rows.
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

    static PostgresSettings from_seed(std::uint64_t seed, const Server& server);
    /// Of what chaos does beside kills, pauses and outages, this alone and surely; `quiet`:
    /// nothing, nor those (`Settings::quieten`). Throws std::invalid_argument for a kind that
    /// nobody knows.
    void only(const std::string& kind);
    void take_stream(Random& random);
    void adopt();
};

struct PostgresVerdict : DeploymentVerdict {
    std::size_t blocked = 0;
    std::size_t connections = 0;
    std::size_t joins = 0;     ///< Of the stream.
    std::size_t streamed = 0;  ///< Events that it brought.
};

/// One history over the production source and a real server, from its beginning to the day when
/// everything is through.
class PostgresHistory final : public Deployment {
  public:
    PostgresHistory(Server& server, const PostgresSettings& settings);
    ~PostgresHistory() override;
    PostgresHistory(const PostgresHistory&) = delete;
    PostgresHistory& operator=(const PostgresHistory&) = delete;
    PostgresVerdict run();

  private:
    Result<std::unique_ptr<spi::Source>> open_source(int relay) override;
    void vanish(int relay) override { lines_.vanish(relay); }
    std::unique_ptr<Operations> operations() override;
    void start_writer(int writer) override;
    void begin() override;
    Kinds kinds() override;
    bool write_heartbeat(Written& written) override;
    std::string left() override;
    bool at_rest() override { return !keeps_for_nobody_; }
    void settle() override;
    void watch() override;
    bool may_end(int relay, const ErrorInfo& error) override;
    [[nodiscard]] bool nobody_interferes() const override;
    [[nodiscard]] std::int64_t may_wait_us() const override;

    void write(int writer);
    void write_one_transaction(Client& client, int writer);
    [[nodiscard]] static std::string values_of(const SimEvent& event, int filling);
    bool insert(Client& client, Random& random, const std::vector<std::string>& keys,
                double trouble, std::vector<Written>& written, int filling = 0);
    void hold();
    void hurt_a_stream();
    void lose_a_host();
    void change_level();
    void change_publication();
    void burst(int writer);
    [[nodiscard]] postgres::PostgresSourceConfig config_of(int relay) const;
    void begin_anew();
    void copy_or_set_back();
    void keep_time();
    bool look(const std::function<void(test::Pg& control)>& at);
    void audit(test::Pg& control);
    void audit_slots(test::Pg& control);
    static void for_each_done(test::Pg& control,
                              const std::function<void(const std::string& route, Position)>& use);
    void audit_marks(test::Pg& control, const std::set<std::pair<int, Position>>& dead);
    [[nodiscard]] bool is_adopted() const { return kind_.layout == Server::Layout::kAdopted; }
    [[nodiscard]] std::string table() const {
        return is_adopted() ? "orders_outbox" : "outbox_events";
    }
    [[nodiscard]] std::string unfinished() const {
        return "public." + table() + (is_adopted() ? " WHERE published_at IS NULL" : "");
    }

    Server& server_;
    PostgresSettings kind_;
    Lines lines_;
    postgres::PostgresSourceConfig config_;
    Client heartbeats_;
    int next_prepared_ = 1;
    int times_anew_ = 0;
    int resets_ = 0;  // processes that ended as the table is another, since somebody settled that
    // Since when slots keep more of the log than relays allow.
    std::map<std::string, std::int64_t> keep_much_;
    int levels_ = 0;                 // how often it was changed
    bool keeps_for_nobody_ = false;  // a slot for a relay whose host is gone
    bool unpublished_ = false;       // somebody changes the publication now
};

}  // namespace outbox::simulation
