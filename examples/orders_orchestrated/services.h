#pragma once

#include <string>

#include <outbox/adapters/libpq_saga.h>
#include <outbox/adapters/sqlite_saga.h>

#include "database.h"
#include "order_saga.h"

/// The three services, each on PGconn* or sqlite3*: what differs lies in overloads.
namespace orchestrated {

constexpr const char* kOrderTables =
    "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, status text NOT NULL)";
constexpr const char* kInventoryTables =
    "CREATE TABLE IF NOT EXISTS stock (product_id text PRIMARY KEY, available bigint NOT NULL)";
constexpr const char* kPaymentTables =
    "CREATE TABLE IF NOT EXISTS payments (order_id text PRIMARY KEY, cents bigint NOT NULL, "
    "status text NOT NULL)";
constexpr std::int64_t kMostCents = 100'000;  // what every account may spend on an order

// [start]
template <typename Connection>
void place(Connection* connection, const outbox::Sagas& sagas, const Order& order) {
    execute(connection, begin(connection));
    execute(connection, "INSERT INTO orders (id, status) VALUES ($1, 'CREATED')", {order.id});
    start_saga(connection, sagas, "order", order.to_json(), order.id);
    execute(connection, "COMMIT");
}
// [end]

// [lead]
template <typename Connection>
void lead(Connection* transaction, const outbox::Sagas& sagas, const outbox::Message& message) {
    const outbox::SagaChange change = advance_saga(transaction, sagas, message);
    if (!change.finished) return;
    const bool completed = change.state == outbox::SagaState::kCompleted;
    execute(transaction, "UPDATE orders SET status = $1 WHERE id = $2 AND status = 'CREATED'",
            {completed ? "CONFIRMED" : "CANCELLED", change.id});
}
// [end]

inline outbox::Event answer(const std::string& type, const outbox::Message& command) {
    outbox::Event event;
    event.event_type = type;
    event.payload = std::string(command.payload);
    return event;
}

// [participant]
template <typename Connection>
void take_part(Connection* transaction, const outbox::Message& command) {
    const Order order = Order::of_json(command.payload);
    const outbox::SagaCall call = begin_saga_step(transaction, command);
    if (call == outbox::SagaCall::kDo) {
        const int reserved = execute(transaction,
                                     "UPDATE stock SET available = available - $1 "
                                     "WHERE product_id = $2 AND available >= CAST($1 AS bigint)",
                                     {std::to_string(order.quantity), order.product_id});
        if (reserved == 1) {
            answer_saga_step(transaction, command, answer("StockReserved", command));
        } else {
            refuse_saga_step(transaction, command, answer("StockRefused", command));
        }
    } else if (call != outbox::SagaCall::kRepeat) {
        if (call == outbox::SagaCall::kUndo) {
            execute(transaction,
                    "UPDATE stock SET available = available + $1 WHERE product_id = $2",
                    {std::to_string(order.quantity), order.product_id});
        }
        answer_saga_step(transaction, command, answer("StockReleased", command));
    }
}
// [end]

template <typename Connection>
void pay(Connection* transaction, const outbox::Message& command) {
    const Order order = Order::of_json(command.payload);
    const outbox::SagaCall call = begin_saga_step(transaction, command);
    if (call == outbox::SagaCall::kDo) {
        if (order.cents > kMostCents) {
            refuse_saga_step(transaction, command, answer("PaymentRefused", command));
            return;
        }
        execute(transaction,
                "INSERT INTO payments (order_id, cents, status) VALUES ($1, $2, 'PAID')",
                {order.id, std::to_string(order.cents)});
        answer_saga_step(transaction, command, answer("PaymentProcessed", command));
    } else if (call != outbox::SagaCall::kRepeat) {
        if (call == outbox::SagaCall::kUndo) {
            execute(transaction, "UPDATE payments SET status = 'REFUNDED' WHERE order_id = $1",
                    {order.id});
        }
        answer_saga_step(transaction, command, answer("PaymentRefunded", command));
    }
}

}  // namespace orchestrated
