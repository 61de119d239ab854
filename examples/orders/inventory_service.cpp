// Keeps stock: reserves it for a new order, gives it back when the order is cancelled.
//
//   OrderCreated   -> InventoryReserved | InventoryRejected
//   OrderCancelled -> InventoryReleased, if stock was reserved

#include <CLI/CLI.hpp>

#include "participant.h"

namespace {

using orders::OrderEvent;
using orders::Transaction;

// One reservation for an order, whatever arrives how often and in which order. CANCELLED without a
// reservation is a tombstone: the order was cancelled before it came here.
constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS stock (
    product_id text PRIMARY KEY,
    stocked    bigint NOT NULL,
    available  bigint NOT NULL CHECK (available >= 0)
);
CREATE TABLE IF NOT EXISTS reservations (
    order_id   text PRIMARY KEY,
    product_id text NOT NULL,
    quantity   bigint NOT NULL,
    state      text NOT NULL
        CHECK (state IN ('RESERVED', 'REJECTED', 'RELEASED', 'CANCELLED')),
    reason     text NOT NULL DEFAULT ''
);
)sql";

class Inventory {
  public:
    std::int64_t stocked = 1'000;  ///< Of a product that nobody asked for before.

    void handle(Transaction& transaction, const OrderEvent& event) const {
        if (event.type() == "OrderCreated") reserve(transaction, event);
        if (event.type() == "OrderCancelled") release(transaction, event);
    }

  private:
    void reserve(Transaction& transaction, const OrderEvent& event) const {
        const std::string order = event.order_id();
        const std::string product = event.text("product_id");
        const std::int64_t quantity = event.integer("quantity");
        const auto entered = transaction.query(
            "INSERT INTO reservations (order_id, product_id, quantity, state) "
            "VALUES ($1, $2, $3, 'RESERVED') ON CONFLICT (order_id) DO NOTHING RETURNING 1",
            {order, product, quantity});
        std::string reason;
        if (entered.empty()) {
            require_tombstone(transaction, event, order);
            reason = "the order was cancelled before";
        } else if (quantity < 1) {
            reason = "a quantity of " + std::to_string(quantity) + " cannot be reserved";
        } else if (!take(transaction, product, quantity)) {
            reason = "fewer than " + std::to_string(quantity) + " of " + product + " in stock";
        }
        if (!reason.empty())
            transaction.query(
                "UPDATE reservations SET state = 'REJECTED', reason = $1 WHERE order_id = $2",
                {reason, order});
        transaction.emit(
            event.answer("Inventory", reason.empty() ? "InventoryReserved" : "InventoryRejected",
                         reason),
            1);
    }

    bool take(Transaction& transaction, const std::string& product, std::int64_t quantity) const {
        const auto try_to = [&] {
            return !transaction
                        .query(
                            "UPDATE stock SET available = available - $1 "
                            "WHERE product_id = $2 AND available >= $1 RETURNING available",
                            {quantity, product})
                        .empty();
        };
        if (try_to()) return true;
        transaction.query(
            "INSERT INTO stock (product_id, stocked, available) VALUES ($1, $2, $2) "
            "ON CONFLICT (product_id) DO NOTHING",
            {product, stocked});
        return try_to();
    }

    static void release(Transaction& transaction, const OrderEvent& event) {
        const std::string order = event.order_id();
        // First the tombstone: where there is a reservation, this waits until it is committed.
        const auto tombstone = transaction.query(
            "INSERT INTO reservations (order_id, product_id, quantity, state) "
            "VALUES ($1, '', 0, 'CANCELLED') ON CONFLICT (order_id) DO NOTHING RETURNING 1",
            {order});
        if (!tombstone.empty()) return;
        const auto released = transaction.query(
            "UPDATE reservations SET state = 'RELEASED' WHERE order_id = $1 "
            "AND state = 'RESERVED' RETURNING product_id, quantity",
            {order});
        if (released.empty()) return;
        transaction.query("UPDATE stock SET available = available + $1 WHERE product_id = $2",
                          {std::int64_t{std::stoll(released[0][1])}, released[0][0]});
        transaction.emit(event.answer("Inventory", "InventoryReleased"), 2);
    }

    /// Another event has created the order before: who sends two is in error, and one reservation
    /// is all it gets.
    static void require_tombstone(Transaction& transaction, const OrderEvent& event,
                                  const std::string& order) {
        const auto found =
            transaction.query("SELECT state FROM reservations WHERE order_id = $1", {order});
        if (found.at(0)[0] != "CANCELLED")
            event.refuse("order " + order + " has its reservation already: " + found[0][0]);
    }
};

}  // namespace

int main(int argc, char** argv) {
    Inventory inventory;
    return orders::run_participant(
        {.name = "inventory-service",
         .summary = "Reserves stock for every order, once, and releases it if it is cancelled.",
         .tables = kTables,
         .topics = {"order-events"},
         // All orders meet in the few rows of the stock, where a second one would only wait.
         .workers = 1,
         .add_options =
             [&](CLI::App& app) {
                 app.add_option("--stock", inventory.stocked,
                                "units of a product when it is first asked for (1000)")
                     ->type_name("N")
                     ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}));
             },
         .handle = [&](Transaction& transaction,
                       const OrderEvent& event) { inventory.handle(transaction, event); }},
        argc, argv);
}
