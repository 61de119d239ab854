#pragma once

#include <string>

#include <outbox/consumer/mailbox.h>

#include "databases/postgres/receive/inbox_store.h"
#include "mailbox/store.h"

namespace outbox::consumer {

/// A mailbox in PostgreSQL. Held by a session-level advisory lock: it ends with the session, and so
/// does every transaction that a member which lost it could still commit.
class LibpqMailbox final : public MailboxStore, public LibpqInboxStore {
  public:
    LibpqMailbox(std::string url, const MailboxOptions& options);

    void disconnect() override;
    Result<Hold> hold_mailbox() override;
    Result<bool> may_have_news() override { return true; }
    Result<std::int64_t> waiting(std::int64_t most) override;
    Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) override;
    Result<Taken> begin(const spi::EventView& message) override;
    Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) override;
    Turn commit_and_begin(const spi::EventView& next) override;
    Result<Taken> bury(const spi::EventView& message, const Burial& burial) override;

  protected:
    [[nodiscard]] std::string_view letters_of() const override { return mailbox_; }

  private:
    /// How one message is taken.
    struct Take {
        const char* statement;
        Params params;
    };
    [[nodiscard]] Take take(const spi::EventView& message) const;

    std::string mailbox_;
    bool held_ = false;
};

}  // namespace outbox::consumer
