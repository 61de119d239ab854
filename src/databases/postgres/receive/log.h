#pragma once

#include <string>

#include <outbox/consumer/kafka.h>

#include "consumer/log_store.h"
#include "databases/postgres/receive/inbox_store.h"

namespace outbox::consumer {

/// The inbox in PostgreSQL of a consumer of a log.
class LibpqLog final : public LogStore, public LibpqInboxStore {
  public:
    LibpqLog(std::string url, const KafkaConsumerOptions& options);

    Status connect() override;
    Result<std::vector<Taken>> begin(std::span<const spi::EventView> messages, bool by_id,
                                     const OffsetStep* step) override;
    Result<Taken> bury(const spi::EventView& message, const Burial& burial, bool by_id,
                       const OffsetStep* step) override;
    Result<std::optional<LogPlace>> place(std::string_view topic, int partition) override;
};

}  // namespace outbox::consumer
