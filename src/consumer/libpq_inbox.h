#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "consumer/libpq_session.h"
#include "consumer/mailbox_store.h"

namespace outbox::consumer {

/// How a consumer of a log moves on: from `expected` (none: its first) to `next`.
struct OffsetStep {
    std::string_view topic;
    int partition = 0;
    std::optional<std::int64_t> expected;
    std::int64_t next = 0;
};

/// The inbox of a consumer whose messages come from elsewhere than a mailbox. Errors as
/// `MailboxStore`. Used by one thread.
class LibpqInbox {
  public:
    LibpqInbox(std::string url, std::string consumer, int connect_timeout_s);

    [[nodiscard]] PGconn* connection() const { return session_.connection(); }

    Status connect() { return session_.connect(); }
    void disconnect() { session_.disconnect(); }

    /// Begins a transaction and enters the messages; `by_id` false: all are new. With a step, moves
    /// the offset; kConflict/stop when another member has moved it.
    Result<std::vector<Taken>> begin(std::span<const spi::EventView> messages, bool by_id,
                                     const OffsetStep* step);
    /// The same for a dead letter that is to be tried once more.
    Result<Taken> begin_retry(std::string_view message_id);
    Status commit() { return session_.commit(); }
    Status roll_back(ErrorInfo& cause) { return session_.roll_back(cause); }

    /// Copies the message to the dead letters and enters it, in a transaction of its own.
    Status bury(const spi::EventView& message, const Burial& burial, const OffsetStep* step);
    /// A dead letter that failed once more.
    Status bury_again(std::string_view message_id, const Burial& burial);

    Status fetch_retries(std::size_t limit, spi::EventBatch& out);
    Result<std::optional<std::int64_t>> next_offset(std::string_view topic, int partition);
    Status report(std::string_view member, const Figures& figures);

  private:
    Status enter(std::span<const spi::EventView> messages, std::vector<Taken>& taken);
    Status move(const OffsetStep& step);

    LibpqSession session_;
    std::string consumer_;
};

}  // namespace outbox::consumer
