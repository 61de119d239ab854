#pragma once

#include <array>
#include <optional>
#include <sqlite3.h>
#include <string>

#include <outbox/consumer/mailbox.h>

#include "consumer/mailbox_store.h"
#include "consumer/sqlite_errors.h"

namespace outbox::consumer {

/// A mailbox in an SQLite file. Held by a lock on one byte of FILE-outbox-mailbox-lease (an open
/// file description lock: it ends with this object or its process).
class SqliteStore final : public MailboxStore {
  public:
    SqliteStore(std::string path, const MailboxOptions& options);
    ~SqliteStore() override;

    [[nodiscard]] sqlite3* connection() const { return connection_.get(); }

    Status connect() override;
    void disconnect() override;
    Result<bool> hold_mailbox() override;
    Result<bool> may_have_news() override;
    Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) override;
    Status fetch_retries(std::size_t limit, spi::EventBatch& out) override;
    Result<Taken> begin(const spi::EventView& message) override;
    Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) override;
    Status commit() override;
    Status roll_back(ErrorInfo& cause) override;
    Status bury(const spi::EventView& message, const Burial& burial) override;
    Status report(const Figures& figures) override;

  private:
    enum Statement : std::size_t {
        kBegin,
        kCommit,
        kRollback,
        kVersion,
        kFetch,
        kFetchOnly,
        kFetchRetries,
        kTake,
        kEnter,
        kFloor,
        kTakeRetry,
        kBuryCopy,
        kBuryAgain,
        kReport,
        kStatements
    };
    class Use;

    Status open();
    Status step(Statement statement, const char* doing);
    Status take_in_transaction(const spi::EventView& message, Taken& taken);
    Status enter(const spi::EventView& message, bool& is_new);
    Status check_floor(const spi::EventView& message, std::int64_t time_us, std::int64_t now_us);
    Status bury_in_transaction(const spi::EventView& message, const Burial& burial);
    void end_transaction();
    void reset_open_statements() const;
    [[nodiscard]] ErrorInfo error(const std::string& doing) const {
        return sqlite_error(connection_.get(), doing);
    }

    std::string path_;
    std::string mailbox_;
    std::string consumer_;
    int busy_timeout_ms_;
    SqliteConnection connection_;
    std::array<SqliteStatement, kStatements> statements_;
    int lease_fd_ = -1;
    std::optional<std::int64_t> seen_version_;  // data_version at the last fetch
};

}  // namespace outbox::consumer
