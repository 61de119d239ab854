#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <outbox/consumer/mailbox.h>

#include "databases/sqlite/receive/inbox_store.h"
#include "mailbox/store.h"

namespace outbox::consumer {

/// A mailbox in an SQLite file. Held by a lock on one byte of FILE-outbox-mailbox-lease (an open
/// file description lock: it ends with this object or its process).
class SqliteMailbox final : public MailboxStore {
  public:
    /// `clock` outlives this.
    SqliteMailbox(std::string path, const MailboxOptions& options, const core::Clock& clock);
    ~SqliteMailbox() override;
    SqliteMailbox(const SqliteMailbox&) = delete;
    SqliteMailbox& operator=(const SqliteMailbox&) = delete;

    [[nodiscard]] sqlite3* connection() const { return inbox_.connection(); }
    [[nodiscard]] InboxStore& inbox() override { return inbox_; }
    void disconnect() override;
    Result<Hold> hold_mailbox() override;
    Result<bool> may_have_news() override;
    Result<std::int64_t> waiting(std::int64_t most) override;
    Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) override;
    Result<Taken> begin(const spi::EventView& message) override;
    Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) override;
    Result<Taken> bury(const spi::EventView& message, const Burial& burial) override;

  private:
    void release();
    [[nodiscard]] bool held() {
        return inbox_.session().connected() && held_in_ == inbox_.session().number();
    }
    Status take(const spi::EventView& message, Taken& taken);
    Status remove(const spi::EventView& message, bool& was_there);
    Status bury_in_transaction(const spi::EventView& message, const Burial& burial, Taken& taken);

    SqliteInboxStore inbox_;
    const std::string mailbox_;
    int lease_fd_ = -1;
    std::uint64_t held_in_ = 0;                 // the session's number; 0: not held
    std::optional<std::int64_t> seen_version_;  // data_version at the last fetch, while it is held
};

}  // namespace outbox::consumer
