#include "order_book.h"

#include <outbox/error.h>

#include "order.h"

namespace orders {

namespace {

outbox::Event settled_event(const std::string& id, const std::string& user_id,
                            const std::string& status, const std::string& reason) {
    outbox::Event event;
    event.aggregate_type = "Order";
    event.aggregate_id = id;
    event.event_type = status == kConfirmed ? "OrderConfirmed" : "OrderCancelled";
    event.payload = "{\"order_id\":" + json_string(id) + ",\"user_id\":" + json_string(user_id) +
                    (reason.empty() ? "" : ",\"reason\":" + json_string(reason)) + "}";
    return event;
}

}  // namespace

std::int64_t next_number(Transaction& transaction, const std::string& user_id) {
    const auto rows = transaction.query(
        "INSERT INTO order_counters (user_id, last_n) VALUES ($1, 1) ON CONFLICT (user_id) "
        "DO UPDATE SET last_n = order_counters.last_n + 1 RETURNING last_n",
        {user_id});
    return std::stoll(rows.at(0)[0]);
}

Settlement settle_order(Transaction& transaction, OrderBy order_by, const std::string& id,
                        const std::string& status, const std::string& reason) {
    if (!is_uuid(id)) return {};
    const auto changed = transaction.query(
        "UPDATE orders SET status = $1, reason = $2 WHERE id = $3 AND status = 'CREATED' "
        "RETURNING user_id",
        {status, reason, id});
    if (changed.empty()) {
        const auto found = transaction.query("SELECT status FROM orders WHERE id = $1", {id});
        return {.done = false, .status = found.empty() ? "" : found[0][0]};
    }
    const std::string& user_id = changed[0][0];
    outbox::Event event = settled_event(id, user_id, status, reason);
    if (order_by == OrderBy::kOrder) {
        transaction.emit(event, 2);
    } else {
        event.key = user_id;
        transaction.emit(event, next_number(transaction, user_id));
    }
    return {.done = true, .status = status};
}

void apply_answer(Transaction& transaction, OrderBy order_by, const OrderEvent& event) {
    const bool paid = event.type() == "PaymentProcessed";
    const bool refused = event.type() == "PaymentRefused";
    if (!paid && !refused && event.type() != "InventoryRejected") return;
    const std::string id = event.order_id();
    const std::string reason =
        paid ? ""
             : (refused ? "not paid: " : "not in stock: ") + event.text_or("reason", "no reason");
    const Settlement settlement =
        settle_order(transaction, order_by, id, paid ? kConfirmed : kCancelled, reason);
    if (settlement.done) return;
    if (settlement.status.empty()) event.refuse("there is no order " + id);
    // The one legitimate crossing: the order was cancelled while this answer was on its way. A
    // payment is given back when the payment service learns of it.
    if (settlement.status != kCancelled)
        event.refuse("order " + id + " is " + settlement.status + " already");
}

}  // namespace orders
