#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "databases/sqlite/source/config.h"
#include "tests/simulation/receiving/history.h"
#include "tests/simulation/sqlite/disk.h"

namespace outbox::simulation {

/// What kind of history of the receiving side a seed makes over SQLite. `cuts`: the disk is full;
/// `crashes`: the power fails.
struct SqliteReceivingSettings : ReceivingSettings {
    bool wal = true;    ///< The journal is a write-ahead log.
    Disk::Plant plant;  ///< A guard that is taken out.

    static SqliteReceivingSettings from_seed(std::uint64_t seed);
};

/// One history of the receiving side over the production source, sink and stores and a real SQLite
/// in this process.
class SqliteReceiving final : public ReceivingHistory {
  public:
    explicit SqliteReceiving(const SqliteReceivingSettings& settings);
    ~SqliteReceiving() override;
    SqliteReceiving(const SqliteReceiving&) = delete;
    SqliteReceiving& operator=(const SqliteReceiving&) = delete;
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
    World::Group writers_group() override { return next_group_++; }
    bool may_end(int process, const ErrorInfo& error) override;
    Kinds kinds() override;
    void settle() override;
    void hold();
    void lose_power();

    const std::string path_;
    Disk disk_;
    sqlite::SqliteSourceConfig config_;
    World::Group next_group_ = kFirstService;
    std::shared_ptr<int> others_ =
        std::make_shared<int>(0);  // who have the file open, and no process
    std::set<int> have_begun_;     // relays that have opened the file
};

}  // namespace outbox::simulation
