#pragma once

#include <optional>
#include <string>

#include <outbox/consumer/mailbox.h>

#include "databases/sqlite/receive/inbox_store.h"
#include "mailbox/store.h"

namespace outbox::consumer {

/// A mailbox in an SQLite file. Held by a lock on one byte of FILE-outbox-mailbox-lease (an open
/// file description lock: it ends with this object or its process).
class SqliteMailbox final : public MailboxStore, public SqliteInboxStore {
  public:
    SqliteMailbox(std::string path, const MailboxOptions& options);
    ~SqliteMailbox() override;
    SqliteMailbox(const SqliteMailbox&) = delete;
    SqliteMailbox& operator=(const SqliteMailbox&) = delete;

    void disconnect() override { release(); }
    Result<Hold> hold_mailbox() override;
    Result<bool> may_have_news() override;
    Result<std::int64_t> waiting(std::int64_t most) override;
    Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) override;
    Result<Taken> begin(const spi::EventView& message) override;
    Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) override;
    Result<Taken> bury(const spi::EventView& message, const Burial& burial) override;

  protected:
    [[nodiscard]] std::string_view letters_of() const override { return mailbox_; }

  private:
    void release();
    Status take(const spi::EventView& message, Taken& taken);
    Status remove(const spi::EventView& message, bool& was_there);
    Status bury_in_transaction(const spi::EventView& message, const Burial& burial, Taken& taken);

    std::string mailbox_;
    int lease_fd_ = -1;
    std::optional<std::int64_t> seen_version_;  // data_version at the last fetch
};

}  // namespace outbox::consumer
