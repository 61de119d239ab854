#pragma once

#include <cstdint>
#include <string>

#include <outbox/consumer/mailbox.h>

#include "core/frontier.h"
#include "databases/postgres/receive/inbox_store.h"
#include "databases/postgres/snapshots.h"
#include "mailbox/store.h"

namespace outbox::consumer {

/// A mailbox in PostgreSQL. Held by a session-level advisory lock: it ends with the session, and so
/// does every transaction that a member which lost it could still commit.
class LibpqMailbox final : public MailboxStore {
  public:
    /// `clock` outlives this.
    LibpqMailbox(std::string url, const MailboxOptions& options, const core::Clock& clock);

    [[nodiscard]] PGconn* connection() const { return inbox_.connection(); }
    [[nodiscard]] InboxStore& inbox() override { return inbox_; }
    void disconnect() override { inbox_.disconnect(); }
    Result<Hold> hold_mailbox() override;
    Result<bool> may_have_news() override { return true; }
    Result<std::int64_t> waiting(std::int64_t most) override;
    Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) override;
    [[nodiscard]] std::int64_t next_from() const override { return next_from_; }
    Result<Taken> begin(const spi::EventView& message) override;
    Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) override;
    Turn commit_and_begin(const spi::EventView& next) override;
    Result<Taken> bury(const spi::EventView& message, const Burial& burial) override;

  private:
    /// How one message is taken.
    struct Take {
        const char* statement;
        Params params;
    };
    [[nodiscard]] Take take(const spi::EventView& message) const;
    Status ask_long_open();
    [[nodiscard]] bool held() {
        return inbox_.session().connected() && held_in_ == inbox_.session().number();
    }

    LibpqInboxStore inbox_;
    const std::string mailbox_;
    const core::Clock& clock_;
    postgres::Snapshots snapshots_;
    core::Frontier frontier_;
    std::int64_t next_from_ = 0;
    std::uint64_t held_in_ = 0;  // the session's number; 0: not held
};

}  // namespace outbox::consumer
