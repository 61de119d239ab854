#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/consumer/idempotency.h>
#include <outbox/producer/unit_of_work.h>

#include "journal.h"
#include "order.h"
#include "order_book.h"

namespace orders {

/// The orders' database. Thread-safe; calls block. Failures throw `outbox::Error`, with advice
/// `kRetryDestination` while the database is away.
class Store {
  public:
    static constexpr std::size_t kMaxConnections = 8;

    Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    virtual ~Store() = default;

    /// Creates the tables that are missing, those of the outbox included.
    virtual void prepare() = 0;

    /// How the answer to a request is made from its new order.
    using AnswerFor = std::function<outbox::IdempotentAnswer(const Order&)>;

    /// Writes the order, its event OrderCreated and the answer for repeats in one transaction. A
    /// repeat gets the answer of the first.
    virtual outbox::IdempotentAnswer create(const NewOrder& details,
                                            const outbox::IdempotentRequest& request,
                                            const AnswerFor& answer_for) = 0;

    virtual std::optional<Order> find(const std::string& id) = 0;

    /// Cancels an order that has no outcome yet, with its event OrderCancelled.
    virtual Settlement cancel(const std::string& id) = 0;

    /// Unsent events, oldest first, each a JSON object.
    virtual std::vector<std::string> pending(int limit) = 0;
    virtual std::int64_t pending_count() = 0;
};

/// `url`: postgresql://… or sqlite:///path. Does not connect. The journal outlives the store.
std::unique_ptr<Store> open_store(const std::string& url, Journal& journal, OrderBy order_by);
std::unique_ptr<Store> open_postgres_store(const std::string& url, Journal& journal,
                                           OrderBy order_by);
std::unique_ptr<Store> open_sqlite_store(const std::string& path, Journal& journal,
                                         OrderBy order_by);

/// A row of `outbox_status`.
struct PendingEvent {
    std::string id;
    std::string aggregate_type;
    std::string aggregate_id;
    std::string event_type;
    std::string payload;  ///< JSON.
    std::string created_at;
    std::string retry_count;
    std::string status;
};

[[nodiscard]] std::string pending_json(const PendingEvent& event);

/// An order as the unit of work tracks it: saved first, then its event is written.
class OrderAggregate {
  public:
    OrderAggregate(const NewOrder& details, OrderBy order_by);

    [[nodiscard]] const Order& order() const { return order_; }

    /// What the journal says about the event.
    [[nodiscard]] JournalEntry entry() const { return {event_id_, key(), n_}; }

    /// The place of this order among those of its key, known only inside the transaction.
    void set_n(std::int64_t n) { n_ = n; }

    /// The event OrderCreated. Called by the unit of work after saving.
    [[nodiscard]] std::vector<outbox::Event> take_events() const;

  private:
    [[nodiscard]] const std::string& key() const {
        return order_by_ == OrderBy::kUser ? order_.details.user_id : order_.id;
    }

    OrderBy order_by_;
    Order order_;
    std::string event_id_;
    std::int64_t n_ = 1;
};

/// Commits, with the journal told of the event before and after.
void commit_with_journal(outbox::UnitOfWork& unit, const JournalEntry& entry, Journal& journal);

/// The same for what is committed otherwise.
void commit_with_journal(const JournalEntry& entry, Journal& journal,
                         const std::function<void()>& commit);

inline constexpr const char* kCancelReason = "as you asked";

}  // namespace orders
