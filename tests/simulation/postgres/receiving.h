#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "databases/postgres/source/config.h"
#include "tests/simulation/postgres/lines.h"
#include "tests/simulation/postgres/server.h"
#include "tests/simulation/receiving/history.h"

namespace outbox::simulation {

/// What kind of history of the receiving side a seed makes over PostgreSQL.
struct PostgresReceivingSettings : ReceivingSettings {
    Lines::Plant plant;  ///< A guard that is taken out.

    static PostgresReceivingSettings from_seed(std::uint64_t seed) {
        return {ReceivingSettings::from_seed(seed), {}};
    }
};

/// One history of the receiving side over a real server.
class PostgresReceiving final : public ReceivingHistory {
  public:
    PostgresReceiving(Server& server, const PostgresReceivingSettings& settings);
    ~PostgresReceiving() override;
    PostgresReceiving(const PostgresReceiving&) = delete;
    PostgresReceiving& operator=(const PostgresReceiving&) = delete;
    ReceivingVerdict run();

  private:
    std::unique_ptr<Connection> connect() override;
    std::optional<Rows> look(const std::string& sql) override;
    [[nodiscard]] std::string url() const override { return config_.url; }
    Result<std::unique_ptr<spi::Source>> open_source(int relay) override;
    MailboxMember mailbox(const core::Clock& clock, HandleMessages handle) override;
    consumer::MakeApplier appliers(const QueueConsumerOptions& checked,
                                   HandleMessages handle) override;
    bool begin_order(Connection& client, const std::vector<std::string>& keys) override;
    std::optional<std::string> find_event(const std::string& digits) override;
    void begin() override;
    Kinds kinds() override;
    void vanish(World::Group group) override { lines_.vanish(group); }
    void hold();
    bool tables_are_free();
    void take_out(const Lines::Plant& plant);

    static constexpr Server::Layout kLayout = Server::Layout::kReceiving;

    Server& server_;
    Lines lines_;
    postgres::PostgresSourceConfig config_;
    bool crashed_ = false;
    std::vector<std::string> functions_;  // as they are without the plant
};

}  // namespace outbox::simulation
