#include "store.h"

#include <iostream>

#include <outbox/error.h>

#include "json_fields.h"

namespace orders {

std::unique_ptr<Store> open_store(const std::string& url, Journal& journal, OrderBy order_by) {
    if (is_postgres(url)) return open_postgres_store(url, journal, order_by);
    if (const std::string path = sqlite_path(url); !path.empty())
        return open_sqlite_store(path, journal, order_by);
    throw outbox::Error(outbox::ErrorCode::kConfigInvalid, outbox::Advice::kStop,
                        "DATABASE_URL must be postgresql://user@host/database or "
                        "sqlite:///path/to/file");
}

std::string pending_json(const PendingEvent& event) {
    return "{\"id\":" + json_string(event.id) +
           ",\"aggregate_type\":" + json_string(event.aggregate_type) +
           ",\"aggregate_id\":" + json_string(event.aggregate_id) +
           ",\"event_type\":" + json_string(event.event_type) + ",\"payload\":" + event.payload +
           ",\"created_at\":" + json_string(event.created_at) +
           ",\"published_at\":null,\"retry_count\":" + event.retry_count +
           ",\"status\":" + json_string(event.status) + "}";
}

OrderAggregate::OrderAggregate(const NewOrder& details, OrderBy order_by)
    : order_by_(order_by), event_id_(outbox::new_event_id()) {
    order_.id = outbox::new_event_id();
    order_.details = details;
    order_.created_at = now_text();
}

std::vector<outbox::Event> OrderAggregate::take_events() const {
    outbox::Event event;
    event.id = event_id_;
    event.aggregate_type = "Order";
    event.aggregate_id = order_.id;
    event.event_type = "OrderCreated";
    event.payload = order_created_json(order_);
    event.headers = {{"n", std::to_string(n_)}};
    if (order_by_ == OrderBy::kUser) event.key = key();
    return {event};
}

void commit_with_journal(outbox::UnitOfWork& unit, const JournalEntry& entry, Journal& journal) {
    commit_with_journal(entry, journal, [&unit] { unit.commit(); });
}

void commit_with_journal(const JournalEntry& entry, Journal& journal,
                         const std::function<void()>& commit) {
    journal.intent(entry);
    try {
        commit();
    } catch (const outbox::Error& error) {
        // A connection that broke leaves it open whether the transaction was committed.
        if (error.code() != outbox::ErrorCode::kConnectionLost) journal.rolled_back(entry);
        throw;
    }
    try {
        journal.committed(entry);
    } catch (const std::exception& error) {
        // The order stands; its intent in the journal lets it arrive.
        std::cerr << "order-service: " << error.what() << std::endl;
    }
}

}  // namespace orders
