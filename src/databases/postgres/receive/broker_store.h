#pragma once

#include <string>

#include "consumer/broker_store.h"
#include "databases/postgres/receive/inbox_store.h"

namespace outbox::consumer {

/// The inbox in PostgreSQL of a consumer of a broker.
class LibpqBrokerStore final : public BrokerStore {
  public:
    /// `clock` outlives this.
    LibpqBrokerStore(std::string url, const BrokerStoreOptions& options, const core::Clock& clock);

    [[nodiscard]] PGconn* connection() const { return inbox_.connection(); }
    [[nodiscard]] InboxStore& inbox() override { return inbox_; }
    Result<std::vector<Taken>> begin(std::span<const spi::EventView> messages, bool by_id,
                                     std::span<const OtherId> others,
                                     const OffsetStep* step) override;
    Result<Taken> bury(const spi::EventView& message, const Burial& burial, bool by_id,
                       const OffsetStep* step) override;
    Result<std::int64_t> note_begun(std::string_view message_id) override;
    Status note_ended(std::string_view message_id, bool for_good) override;
    Result<std::optional<LogPlace>> place(std::string_view topic, int partition) override;

  private:
    LibpqInboxStore inbox_;
};

}  // namespace outbox::consumer
