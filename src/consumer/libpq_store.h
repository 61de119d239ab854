#pragma once

#include <libpq-fe.h>
#include <string>

#include <outbox/consumer/mailbox.h>

#include "consumer/libpq_session.h"
#include "consumer/mailbox_store.h"

namespace outbox::consumer {

/// A mailbox in PostgreSQL. Held by a session-level advisory lock: it ends with the session, and so
/// does every transaction that a member which lost it could still commit.
class LibpqStore final : public MailboxStore {
  public:
    LibpqStore(std::string url, const MailboxOptions& options);

    [[nodiscard]] PGconn* connection() const { return session_.connection(); }

    Status connect() override;
    void disconnect() override;
    Result<bool> hold_mailbox() override;
    Result<bool> may_have_news() override { return true; }
    Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) override;
    Status fetch_retries(std::size_t limit, spi::EventBatch& out) override;
    Result<Taken> begin(const spi::EventView& message) override;
    Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) override;
    Status commit() override;
    Status roll_back(ErrorInfo& cause) override;
    Status bury(const spi::EventView& message, const Burial& burial) override;
    Status report(const Figures& figures) override;

  private:
    Result<Taken> take(const char* statement, const Params& params);

    LibpqSession session_;
    std::string mailbox_;
    std::string consumer_;
    bool held_ = false;
};

}  // namespace outbox::consumer
