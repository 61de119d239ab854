#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "databases/sqlite/source/config.h"
#include "tests/simulation/deployment.h"
#include "tests/simulation/sqlite/client.h"
#include "tests/simulation/sqlite/disk.h"

namespace outbox::simulation {

/// An outbox table and how a service writes to it. `table` null: the native one.
struct SqliteShape {
    const char* table = nullptr;
    const char* create = nullptr;
    const char* columns = nullptr;  ///< id, type, type, payload and key, in this order.
    const char* unfinished = "1";   ///< A condition on rows that some route has not finished.
    const char* ends_rows = "";     ///< What a relay does to those that all have.
    AfterPublish after_publish = AfterPublish::kDefault;
};

/// What kind of history a seed makes over SQLite.
struct SqliteSettings : DeploymentSettings {
    const SqliteShape* shape = nullptr;  ///< Of a table that a team brought along; null: native.
    bool wal = true;                     ///< The journal is a write-ahead log.
    bool service_kills = true;           ///< Services are killed, too.
    bool holds = true;     ///< Somebody keeps a lock or a snapshot, checkpoints or vacuums.
    bool full = true;      ///< The disk is full for a while.
    bool refusals = true;  ///< A trigger of the owner's keeps some rows.
    bool power = false;    ///< The power fails.
    Disk::Plant plant;

    static SqliteSettings from_seed(std::uint64_t seed);
    /// A team's table, of one of the shapes.
    void adopt(std::size_t which);
    /// Of what chaos does beside kills, pauses and outages, this alone and surely; `quiet`:
    /// nothing, nor those (`Settings::quieten`). Throws std::invalid_argument for a kind that
    /// nobody knows.
    void only(const std::string& kind);
};

struct SqliteVerdict : DeploymentVerdict {
    std::size_t waits = 0;   ///< Within SQLite.
    std::size_t failed = 0;  ///< Calls of SQLite to its files.
};

/// One history over the production source and a real SQLite in this process, from its beginning to
/// the day when everything is through.
class SqliteHistory final : public Deployment {
  public:
    explicit SqliteHistory(const SqliteSettings& settings);
    ~SqliteHistory() override;
    SqliteHistory(const SqliteHistory&) = delete;
    SqliteHistory& operator=(const SqliteHistory&) = delete;
    SqliteVerdict run();

  private:
    /// What a service commits at once. Whether it did is not known before its COMMIT has answered,
    /// but where somebody has seen it.
    struct Transaction {
        std::string order;  ///< The row of the service's own table.
        std::vector<Written> written;
        std::function<void()> takes_out = {};  ///< What is withdrawn by it.
        bool told = false;
    };

    Result<std::unique_ptr<spi::Source>> open_source(int relay) override;
    std::unique_ptr<Operations> operations() override;
    void start_writer(int writer) override;
    void begin() override;
    Kinds kinds() override;
    bool write_heartbeat(Written& written) override;
    std::string left() override;
    void settle() override;
    bool may_end(int relay, const ErrorInfo& error) override;
    [[nodiscard]] bool nobody_interferes() const override;
    [[nodiscard]] bool may_change() const override {
        return kind_.anew || kind_.set_backs || kind_.power;
    }

    void serve(int writer);
    void write_one_transaction(SqliteClient& client, int writer);
    bool begin_order(SqliteClient& client, Transaction& transaction);
    bool insert(SqliteClient& client, const std::vector<std::string>& keys, double trouble,
                std::vector<Written>& written);
    bool insert_adopted(SqliteClient& client, Written one, std::vector<Written>& written);
    bool commit(SqliteClient& client, const std::shared_ptr<Transaction>& transaction);
    bool settle_doubtful(SqliteClient& client);
    void find_out(Position number);
    void tell(Transaction& transaction);
    void kill_a_service();
    void hold();
    void begin_anew();
    void copy_or_set_back();
    void lose_power();
    void audit();
    /// Beside the world. False: somebody keeps the file from being looked at.
    bool look(const std::function<bool(SqliteClient& tables)>& at);
    /// Routes and numbers of events that the ledger of an adopted table holds.
    static bool for_each_mark(SqliteClient& tables,
                              const std::function<void(const std::string&, Position)>& use);
    static bool for_each_done(SqliteClient& tables,
                              const std::function<void(const std::string&, Position)>& use);
    [[nodiscard]] std::string table() const {
        return kind_.shape != nullptr ? kind_.shape->table : "outbox_events";
    }
    [[nodiscard]] std::string unfinished() const {
        return kind_.shape != nullptr ? kind_.shape->unfinished : "1";
    }

    const SqliteSettings kind_;
    const std::string path_;
    Disk disk_;
    sqlite::SqliteSourceConfig config_;
    struct Service {
        World::Group group = 0;
        World::TaskId task = 0;
    };
    std::vector<Service> services_;
    World::Group next_group_ = kFirstService;
    std::int64_t next_order_ = 1;
    std::vector<std::shared_ptr<Transaction>> doubtful_;
    std::set<int> have_begun_;  // relays that have opened the file
    int operators_ = 0;         // who have a transaction, beside services
    bool begun_anew_ = false;   // and no relay has looked
    std::string copy_;          // the bytes of one
};

}  // namespace outbox::simulation
