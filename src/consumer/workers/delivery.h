#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "consumer/broker_store.h"

namespace outbox::consumer {

/// How much there is of messages: what limits in records and bytes go by.
struct Amount {
    std::size_t records = 0;
    std::size_t bytes = 0;
};

/// Why a text is no id of a message ("has no id, ..."); empty: it is one.
[[nodiscard]] std::string fault_of_id(std::string_view id);

/// The ids other than `id` that a message with this header `id` has where its consumer is of
/// another format, or was.
[[nodiscard]] std::vector<std::string> other_ids(std::string_view header_id, std::string_view id);

/// A message as a broker handed it over; owns its bytes.
class Delivery {
  public:
    Delivery() = default;
    Delivery(const Delivery&) = delete;
    Delivery& operator=(const Delivery&) = delete;
    virtual ~Delivery() = default;

    /// Its id is what tells it from every other; views into this object.
    [[nodiscard]] virtual spi::EventView event() const = 0;
    /// Those under which it is known as well, if it is, but never entered.
    [[nodiscard]] virtual std::vector<std::string> other_ids() const { return {}; }
    /// False: its name is made of its content, and another message may have it.
    [[nodiscard]] virtual bool has_own_name() const { return true; }
    /// Why it is given up without a try; none: nothing is wrong with it.
    [[nodiscard]] virtual std::optional<ErrorInfo> fault() const = 0;
    /// It may be what ends its members: that its handler begins is written down before, and when it
    /// was begun too often without an end it is given up.
    [[nodiscard]] virtual bool is_suspect() const { return false; }
    /// Messages of one lane are applied in their order.
    [[nodiscard]] virtual std::string lane() const = 0;
    [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// Where deliveries came from, and where they are finished: a partition of a log, a connection to a
/// queue. Guarded by the hub's mutex, but for what the offset modes need, which is one worker's.
class Origin {
  public:
    Origin() = default;
    Origin(const Origin&) = delete;
    Origin& operator=(const Origin&) = delete;
    virtual ~Origin() = default;

    /// The message is applied, a repeat, or given up on. `number` is the origin's own.
    virtual void finish(std::uint64_t number) = 0;
    /// Offset modes: what moves on with the message's transaction.
    [[nodiscard]] virtual std::optional<OffsetStep> step_after(const spi::EventView& event) const;
    /// It has moved there,
    virtual void moved_to(std::int64_t next);
    /// or not: the offset in the database is another than was expected.
    virtual void mark_misplaced() {}

    bool taken_away = false;  ///< What is queued of it is dropped.
    /// A message that was begun too often was found: with it gone others that were may be innocent.
    bool guilty_known = false;
    std::size_t in_transaction = 0;
    Amount parked;  ///< What waits behind failing messages of its lane.
};

/// A message on its way through a worker.
struct Task {
    Task(std::unique_ptr<Delivery> came, std::shared_ptr<Origin> from, std::uint64_t number_there)
        : delivery(std::move(came)),
          origin(std::move(from)),
          number(number_there),
          lane(delivery->lane()),
          bytes(delivery->bytes()) {}

    std::unique_ptr<Delivery> delivery;
    std::shared_ptr<Origin> origin;  // shared with who polls
    std::uint64_t number;            // in the origin
    std::string lane;
    std::size_t bytes;
    std::uint32_t attempts = 0;  // those that counted
    std::uint32_t tries = 0;     // all, for the length of the wait
    std::uint32_t lost = 0;      // sessions that ended under it
    bool noted = false;          // that its handler begins, and not that it ended
};

}  // namespace outbox::consumer
