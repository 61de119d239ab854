// Keeps accounts: charges an order when its stock is reserved, refunds it when it is cancelled.
//
//   InventoryReserved -> PaymentProcessed | PaymentRefused
//   OrderCancelled    -> PaymentRefunded, if it was charged

#include <CLI/CLI.hpp>

#include "money.h"
#include "participant.h"

namespace {

using orders::Money;
using orders::OrderEvent;
using orders::Transaction;

// One payment for an order. CANCELLED is a tombstone: the order was cancelled before there was
// anything to pay, and is never charged.
constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS accounts (
    user_id     text PRIMARY KEY,
    spent_cents bigint NOT NULL CHECK (spent_cents >= 0)
);
CREATE TABLE IF NOT EXISTS payments (
    order_id text PRIMARY KEY,
    user_id  text NOT NULL,
    cents    bigint NOT NULL CHECK (cents >= 0),
    state    text NOT NULL CHECK (state IN ('PROCESSED', 'REFUSED', 'REFUNDED', 'CANCELLED')),
    reason   text NOT NULL DEFAULT ''
);
)sql";

class Payments {
  public:
    static constexpr const char* kCurrency = "EUR";
    std::string credit_text = "10000.00";

    void read_options() {
        const auto read = Money::parse(credit_text);
        if (!read)
            throw std::runtime_error("--credit must be an amount such as 10000.00, not \"" +
                                     credit_text + "\"");
        credit_ = *read;
    }

    void handle(Transaction& transaction, const OrderEvent& event) const {
        if (event.type() == "InventoryReserved") charge(transaction, event);
        if (event.type() == "OrderCancelled") refund(transaction, event);
    }

  private:
    void charge(Transaction& transaction, const OrderEvent& event) const {
        const std::string order = event.order_id();
        const std::string user = event.text("user_id");
        const auto amount = Money::parse(event.number("total_amount"));
        std::string reason;
        if (const std::string currency = event.text_or("currency", kCurrency);
            currency != kCurrency)
            reason = "paid in " + std::string(kCurrency) + " only, not in " + currency;
        else if (!amount)
            reason = event.number("total_amount") + " cannot be charged";
        const auto entered = transaction.query(
            "INSERT INTO payments (order_id, user_id, cents, state) "
            "VALUES ($1, $2, $3, 'PROCESSED') ON CONFLICT (order_id) DO NOTHING RETURNING 1",
            {order, user, amount.value_or(Money{}).cents});
        if (entered.empty()) {
            require_tombstone(transaction, event, order);
            reason = "the order was cancelled before";
        } else if (reason.empty() && !debit(transaction, user, *amount)) {
            reason = amount->text() + " is more than " + user + " has left of " + credit_.text();
        }
        if (!reason.empty())
            transaction.query(
                "UPDATE payments SET state = 'REFUSED', reason = $1 WHERE order_id = $2",
                {reason, order});
        transaction.emit(
            event.answer("Payment", reason.empty() ? "PaymentProcessed" : "PaymentRefused", reason),
            1);
    }

    bool debit(Transaction& transaction, const std::string& user, Money amount) const {
        const auto try_to = [&] {
            return !transaction
                        .query(
                            "UPDATE accounts SET spent_cents = spent_cents + $1 WHERE "
                            "user_id = $2 AND spent_cents + $1 <= $3 RETURNING spent_cents",
                            {amount.cents, user, credit_.cents})
                        .empty();
        };
        if (try_to()) return true;
        transaction.query(
            "INSERT INTO accounts (user_id, spent_cents) VALUES ($1, 0) "
            "ON CONFLICT (user_id) DO NOTHING",
            {user});
        return try_to();
    }

    static void refund(Transaction& transaction, const OrderEvent& event) {
        const std::string order = event.order_id();
        // First the tombstone: where there is a payment, this waits until it is committed.
        const auto tombstone = transaction.query(
            "INSERT INTO payments (order_id, user_id, cents, state) "
            "VALUES ($1, $2, 0, 'CANCELLED') ON CONFLICT (order_id) DO NOTHING RETURNING 1",
            {order, event.text("user_id")});
        if (!tombstone.empty()) return;
        const auto charged = transaction.query(
            "UPDATE payments SET state = 'REFUNDED' WHERE order_id = $1 AND state = 'PROCESSED' "
            "RETURNING user_id, cents",
            {order});
        if (charged.empty()) return;
        transaction.query("UPDATE accounts SET spent_cents = spent_cents - $1 WHERE user_id = $2",
                          {std::int64_t{std::stoll(charged[0][1])}, charged[0][0]});
        transaction.emit(event.answer("Payment", "PaymentRefunded"), 2);
    }

    /// Another event has asked for the money before: who sends two is in error, and it is charged
    /// once.
    static void require_tombstone(Transaction& transaction, const OrderEvent& event,
                                  const std::string& order) {
        const auto found =
            transaction.query("SELECT state FROM payments WHERE order_id = $1", {order});
        if (found.at(0)[0] != "CANCELLED")
            event.refuse("order " + order + " has its payment already: " + found[0][0]);
    }

    Money credit_;
};

}  // namespace

int main(int argc, char** argv) {
    Payments payments;
    return orders::run_participant(
        {.name = "payment-service",
         .summary = "Charges every order whose stock is reserved, once, and refunds it if it is "
                    "cancelled.",
         .tables = kTables,
         .topics = {"order-events", "inventory-events"},
         .add_options =
             [&](CLI::App& app) {
                 app.add_option("--credit", payments.credit_text,
                                "what every user may spend in all, in EUR (10000.00)")
                     ->type_name("AMOUNT");
             },
         .start = [&] { payments.read_options(); },
         .handle = [&](Transaction& transaction,
                       const OrderEvent& event) { payments.handle(transaction, event); }},
        argc, argv);
}
