// The order saga over four services, choreographed: what becomes of an order, and of answers that
// should not come.

#include <chrono>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/e2e/shop.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kDeadline = 120s;

class SagaServices : public testing::Test {
  protected:
    static json shown(const Shop& shop, const std::string& order) {
        return json::parse(shop.show(order).body);
    }
    static void expect_status(const Shop& shop, const std::string& order,
                              const std::string& status) {
        ASSERT_TRUE(eventually(kDeadline, "the order is " + status, [&] {
            return shown(shop, order).at("status") == status;
        })) << shop.logs();
    }
    static std::string payment(const Shop& shop, const std::string& order) {
        return shop.value("payment", "SELECT state FROM payments WHERE order_id = '" + order + "'");
    }
    static std::string reservation(const Shop& shop, const std::string& order) {
        return shop.value("inventory",
                          "SELECT state FROM reservations WHERE order_id = '" + order + "'");
    }
    static void expect_books_balance(const Shop& shop) {
        ASSERT_TRUE(eventually(kDeadline, "all is settled", [&] { return shop.settled(); }))
            << shop.logs();
        ASSERT_TRUE(eventually(kDeadline, "every event is accounted for", [&] {
            return shop.verified();
        })) << shop.logs();
        const Finished audit = shop.audit();
        EXPECT_EQ(audit.status.code, 0) << audit.out << audit.err;
        EXPECT_NE(audit.out.find("faults 0"), std::string::npos) << audit.out;
    }
    // As a service that is in error would send it, past all relays.
    static void send(const Shop& shop, const std::string& to, const std::string& type,
                     const std::string& payload) {
        static int number = 0;
        const std::string id = "by-hand-" + std::to_string(++number);
        shop.exec(to, "INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" +
                          id + "', 'by-hand', 'by-hand', '{\"type\":\"" + type +
                          "\",\"aggregate_type\":\"By hand\"}', '" + payload + "')");
        ASSERT_TRUE(eventually(kDeadline, "the message is dealt with", [&] {
            return shop.number(to, "SELECT count(*) FROM outbox_inbox WHERE message_id = '" + id +
                                       "'") == 1;
        })) << shop.logs();
        last_sent = id;
    }
    // Why the last message sent by hand was given up on; "" where it was not.
    static std::string cause(const Shop& shop, const std::string& at) {
        return shop.value(at, "SELECT error FROM outbox_inbox_dead_letters WHERE message_id = '" +
                                  last_sent + "'");
    }
    static std::string about(const std::string& order, const std::string& more = {}) {
        return R"({"order_id":")" + order + R"(","user_id":"u-1")" + more + "}";
    }
    static std::string reserved(const std::string& order, const std::string& amount) {
        return about(order, R"(,"product_id":"p-1","quantity":2,"total_amount":)" + amount);
    }

    static inline std::string last_sent;
};

constexpr const char* kNoOrder = "00000000-0000-7000-8000-000000000000";

TEST_F(SagaServices, ConfirmAnOrderThatIsInStockAndPaid) {
    const Shop shop;
    const std::string order = shop.order();
    expect_status(shop, order, "CONFIRMED");
    EXPECT_EQ(reservation(shop, order), "RESERVED");
    EXPECT_EQ(payment(shop, order), "PROCESSED");
    EXPECT_EQ(shop.number("inventory", "SELECT available FROM stock WHERE product_id = 'p-1'"),
              998);
    EXPECT_EQ(shop.number("payment", "SELECT spent_cents FROM accounts WHERE user_id = 'u-1'"),
              2000);
    expect_books_balance(shop);
    EXPECT_EQ(shop.cancel(order).status, 409);
    EXPECT_EQ(shown(shop, order).at("status"), "CONFIRMED");
}

TEST_F(SagaServices, CompensateAPaymentThatIsRefused) {
    const Shop shop({.payment = {"--credit", "100.00"}});
    const std::string paid = shop.order("u-1", 1, "80.00");
    expect_status(shop, paid, "CONFIRMED");
    const std::string refused = shop.order("u-1", 5, "20.01");
    expect_status(shop, refused, "CANCELLED");
    EXPECT_EQ(shown(shop, refused).at("reason"),
              "not paid: 20.01 is more than u-1 has left of 100.00");
    expect_books_balance(shop);
    EXPECT_EQ(reservation(shop, refused), "RELEASED");
    EXPECT_EQ(payment(shop, refused), "REFUSED");
    EXPECT_EQ(shop.number("inventory", "SELECT available FROM stock"), 999);
    EXPECT_EQ(shop.number("payment", "SELECT spent_cents FROM accounts"), 8000);
    EXPECT_EQ(shop.cancel(refused).status, 200) << "a cancellation may be sent again";
}

TEST_F(SagaServices, RejectWhatIsNotInStock) {
    const Shop shop({.inventory = {"--stock", "3"}});
    const std::string first = shop.order("u-1", 2);
    expect_status(shop, first, "CONFIRMED");
    const std::string second = shop.order("u-2", 2);
    expect_status(shop, second, "CANCELLED");
    EXPECT_EQ(shown(shop, second).at("reason"), "not in stock: fewer than 2 of p-1 in stock");
    expect_books_balance(shop);
    EXPECT_EQ(reservation(shop, second), "REJECTED");
    EXPECT_NE(payment(shop, second), "PROCESSED");
}

TEST_F(SagaServices, RefuseAnotherCurrency) {
    const Shop shop;
    const std::string order = shop.order("u-1", 1, "5.00", R"(,"currency":"USD")");
    expect_status(shop, order, "CANCELLED");
    EXPECT_EQ(shown(shop, order).at("reason"), "not paid: paid in EUR only, not in USD");
    EXPECT_EQ(shown(shop, order).at("currency"), "USD");
    const std::string same = shop.order("u-1", 1, "5.00", R"(,"currency":"EUR")");
    expect_status(shop, same, "CONFIRMED");
    expect_books_balance(shop);
    EXPECT_EQ(shop.post(R"({"user_id":"u","product_id":"p","quantity":1,"total_amount":1,)"
                        R"("currency":"euro"})")
                  .status,
              400);
}

TEST_F(SagaServices, NeverChargeAnOrderThatWasCancelledBeforeItsPayment) {
    Shop shop;
    shop.kill("inventory-relay");
    const std::string order = shop.order();
    ASSERT_TRUE(eventually(kDeadline, "stock is reserved",
                           [&] { return reservation(shop, order) == "RESERVED"; }));
    EXPECT_EQ(shop.cancel(order).status, 200);
    ASSERT_TRUE(eventually(kDeadline, "the payment service knows of the cancellation", [&] {
        return payment(shop, order) == "CANCELLED";
    })) << shop.logs();
    shop.start("inventory-relay");
    expect_books_balance(shop);
    EXPECT_EQ(payment(shop, order), "REFUSED");
    EXPECT_EQ(reservation(shop, order), "RELEASED");
    EXPECT_EQ(shown(shop, order).at("reason"), "as you asked");
}

TEST_F(SagaServices, RefundAnOrderThatWasCancelledWhileItWasPaid) {
    Shop shop;
    shop.kill("payment-relay");
    const std::string order = shop.order();
    ASSERT_TRUE(eventually(kDeadline, "the order is charged",
                           [&] { return payment(shop, order) == "PROCESSED"; }));
    EXPECT_EQ(shop.cancel(order).status, 200);
    ASSERT_TRUE(eventually(kDeadline, "the order is refunded", [&] {
        return payment(shop, order) == "REFUNDED";
    })) << shop.logs();
    shop.start("payment-relay");  // PaymentProcessed comes after the cancellation
    expect_books_balance(shop);
    EXPECT_EQ(shown(shop, order).at("status"), "CANCELLED");
    EXPECT_EQ(shop.number("payment", "SELECT spent_cents FROM accounts"), 0);
}

TEST_F(SagaServices, ReserveNothingForAnOrderWhoseCancellationCameFirst) {
    const Shop shop;
    const std::string order = kNoOrder;
    send(shop, "inventory", "OrderCancelled", about(order));
    EXPECT_EQ(reservation(shop, order), "CANCELLED");
    send(shop, "inventory", "OrderCreated", reserved(order, "20.00"));
    EXPECT_EQ(cause(shop, "inventory"), "");
    EXPECT_EQ(reservation(shop, order), "REJECTED");
    EXPECT_EQ(shop.value("inventory", "SELECT available FROM stock"), "");
}

TEST_F(SagaServices, RefuseAnswersThatComeTwiceOrContradict) {
    const Shop shop;
    const std::string order = shop.order();
    expect_status(shop, order, "CONFIRMED");
    expect_books_balance(shop);

    send(shop, "inventory", "OrderCreated", reserved(order, "20.00"));
    EXPECT_NE(cause(shop, "inventory").find("has its reservation already: RESERVED"),
              std::string::npos);
    send(shop, "payment", "InventoryReserved", reserved(order, "20.00"));
    EXPECT_NE(cause(shop, "payment").find("has its payment already: PROCESSED"), std::string::npos);
    for (const char* type : {"PaymentProcessed", "PaymentRefused", "InventoryRejected"}) {
        send(shop, "order", type, about(order));
        EXPECT_NE(cause(shop, "order").find("order " + order + " is CONFIRMED already"),
                  std::string::npos)
            << type;
    }
    EXPECT_EQ(shown(shop, order).at("status"), "CONFIRMED");
    EXPECT_EQ(shop.number("inventory", "SELECT available FROM stock"), 998);
    EXPECT_EQ(shop.number("payment", "SELECT spent_cents FROM accounts"), 2000);
    const Finished audit = shop.audit();
    EXPECT_EQ(audit.status.code, 1) << "what was given up on is for a person to see";
    EXPECT_NE(audit.out.find("gave up on message"), std::string::npos) << audit.out;
    EXPECT_NE(audit.out.find("faults 5"), std::string::npos) << audit.out;
}

TEST_F(SagaServices, LeaveACancelledOrderAsItIsWhateverAnswersComeLate) {
    const Shop shop({.inventory = {"--stock", "1"}});
    const std::string order = shop.order();
    expect_status(shop, order, "CANCELLED");
    expect_books_balance(shop);
    const json before = shown(shop, order);
    for (const char* type : {"PaymentRefused", "InventoryRejected", "PaymentProcessed"}) {
        send(shop, "order", type, about(order, R"(,"reason":"late")"));
        EXPECT_EQ(cause(shop, "order"), "") << type;
    }
    for (const char* type : {"InventoryReleased", "PaymentRefunded", "NobodyKnowsThis"}) {
        send(shop, "order", type, about(order));
        EXPECT_EQ(cause(shop, "order"), "") << type;
    }
    EXPECT_EQ(shown(shop, order), before);
    expect_books_balance(shop);
}

TEST_F(SagaServices, SetAsideWhatTheyCannotReadWithItsCause) {
    const Shop shop;
    const std::string order = kNoOrder;
    struct Case {
        std::string to;
        std::string type;
        std::string payload;
        std::string cause;
    };
    const Case cases[] = {
        {"order", "PaymentProcessed", about(order), "there is no order " + order},
        {"order", "PaymentProcessed", about("no uuid"), "there is no order no uuid"},
        {"order", "PaymentRefused", "[]", "the payload: "},
        {"payment", "InventoryReserved", "{", "the payload: invalid JSON"},
        {"payment", "InventoryReserved", about(order), "has no field \"total_amount\""},
        {"payment", "InventoryReserved", about(order, R"(,"total_amount":"20.00")"),
         "\"total_amount\" must be a number"},
        {"inventory", "OrderCreated", "{}", "has no field \"order_id\""},
        {"inventory", "OrderCreated", about(order, R"(,"product_id":"p-1","quantity":1.5)"),
         "\"quantity\" must be a whole number"},
        {"notification", "OrderConfirmed", R"({"order_id":"o","user_id":7})",
         "\"user_id\" must be a text"},
    };
    for (const Case& bad : cases) {
        send(shop, bad.to, bad.type, bad.payload);
        EXPECT_NE(cause(shop, bad.to).find(bad.cause), std::string::npos)
            << bad.type << " " << bad.payload << ": " << cause(shop, bad.to);
    }
    for (const char* side : {"inventory", "payment"})
        EXPECT_EQ(shop.number(side, "SELECT count(*) FROM outbox_events"), 0);
    EXPECT_EQ(shop.number("payment", "SELECT count(*) FROM payments"), 0);
    EXPECT_EQ(shop.number("inventory", "SELECT count(*) FROM reservations"), 0);
}

TEST_F(SagaServices, NeverReserveOrChargeANegativeNumber) {
    const Shop shop;
    const std::string order = shop.order();
    expect_status(shop, order, "CONFIRMED");
    expect_books_balance(shop);
    const std::string stranger = kNoOrder;
    send(shop, "inventory", "OrderCreated",
         about(stranger, R"(,"product_id":"p-1","quantity":-3,"total_amount":20.00)"));
    EXPECT_EQ(cause(shop, "inventory"), "");
    EXPECT_EQ(reservation(shop, stranger), "REJECTED");
    EXPECT_EQ(shop.number("inventory", "SELECT available FROM stock"), 998);
    send(shop, "payment", "InventoryReserved", reserved(stranger, "-20.00"));
    EXPECT_EQ(cause(shop, "payment"), "");
    EXPECT_EQ(shop.value("payment", "SELECT reason FROM payments WHERE state = 'REFUSED'"),
              "-20.00 cannot be charged");
    EXPECT_EQ(shop.number("payment", "SELECT spent_cents FROM accounts"), 2000);
    ASSERT_TRUE(eventually(kDeadline, "the order service says that there is no such order", [&] {
        return shop.number("order",
                           "SELECT count(*) FROM outbox_inbox_dead_letters WHERE error LIKE "
                           "'%there is no order%'") == 2;
    })) << shop.logs();
}

// Keeps a copy of every message that reaches a mailbox, and can put them all there again.
class Copies {
  public:
    explicit Copies(const Shop& shop) : shop_(shop) {
        for (const char* side : kSides)
            shop_.exec(side,
                       "CREATE TABLE copies AS SELECT id, topic, key, headers, payload FROM "
                       "outbox_mailbox LIMIT 0; CREATE TRIGGER copy AFTER INSERT ON "
                       "outbox_mailbox BEGIN INSERT INTO copies VALUES (new.id, new.topic, "
                       "new.key, new.headers, new.payload); END");
    }
    void send_again() const {
        for (const char* side : kSides)
            shop_.exec(side,
                       "DROP TRIGGER IF EXISTS copy; INSERT INTO outbox_mailbox (id, topic, key, "
                       "headers, payload) SELECT id, topic, key, headers, payload FROM copies");
    }
    static constexpr const char* kSides[] = {"inventory", "payment", "notification", "order"};

  private:
    const Shop& shop_;
};

TEST_F(SagaServices, ApplyARepeatOnceAndSendItsMailOnce) {
    const Shop shop;
    const Copies copies(shop);
    for (int i = 0; i < 10; ++i) shop.order("u-" + std::to_string(i % 3));
    expect_books_balance(shop);
    copies.send_again();
    expect_books_balance(shop);
    EXPECT_EQ(shop.number("payment", "SELECT sum(spent_cents) FROM accounts"), 20'000);
    const Finished verified = shop.verify("order");
    EXPECT_NE(verified.out.find("repeats applied 0"), std::string::npos) << verified.out;
}

TEST_F(SagaServices, WithoutTheInboxARepeatIsSeenInTheAudit) {
    const Shop shop;
    const Copies copies(shop);
    for (int i = 0; i < 4; ++i) shop.order();
    expect_books_balance(shop);
    for (const char* side : Copies::kSides) shop.exec(side, "DELETE FROM outbox_inbox");
    copies.send_again();
    ASSERT_TRUE(eventually(kDeadline, "all is settled", [&] { return shop.settled(); }))
        << shop.logs();
    const Finished audit = shop.audit();
    EXPECT_EQ(audit.status.code, 1) << audit.out;
    EXPECT_NE(audit.out.find("has its payment already"), std::string::npos) << audit.out;
    EXPECT_EQ(shop.verify("order").status.code, 1) << "the journals show it, too";
}

TEST_F(SagaServices, TheAuditFindsEachKindOfFault) {
    const Shop shop;
    const std::string order = shop.order();
    const std::string cancelled = shop.order("u-2", 1, "5.00", R"(,"currency":"USD")");
    expect_books_balance(shop);
    struct Case {
        std::string side;
        std::string damage;
        std::string repair;
        std::string fault;
    };
    const Case cases[] = {
        {"payment", "UPDATE accounts SET spent_cents = spent_cents + 2000 WHERE user_id = 'u-1'",
         "UPDATE accounts SET spent_cents = spent_cents - 2000 WHERE user_id = 'u-1'",
         "account of u-1: charged 40.00, but payments of 20.00"},
        {"payment", "UPDATE payments SET cents = 1999 WHERE state = 'PROCESSED'",
         "UPDATE payments SET cents = 2000 WHERE state = 'PROCESSED'", "not the amount"},
        {"payment", "UPDATE payments SET state = 'REFUNDED' WHERE state = 'PROCESSED'",
         "UPDATE payments SET state = 'PROCESSED' WHERE state = 'REFUNDED'",
         "is CONFIRMED, its reservation RESERVED, its payment REFUNDED"},
        {"inventory", "UPDATE stock SET available = available - 1",
         "UPDATE stock SET available = available + 1", "3 taken, but reservations of 2"},
        {"inventory", "UPDATE reservations SET state = 'RESERVED' WHERE state = 'RELEASED'",
         "UPDATE reservations SET state = 'RELEASED' WHERE order_id = '" + cancelled + "'",
         "is CANCELLED, its reservation RESERVED"},
        {"inventory", "UPDATE reservations SET order_id = 'other' WHERE state = 'RESERVED'",
         "UPDATE reservations SET order_id = '" + order + "' WHERE order_id = 'other'",
         "a reservation for no order: other"},
        {"order", "UPDATE orders SET status = 'CREATED' WHERE status = 'CONFIRMED'",
         "UPDATE orders SET status = 'CONFIRMED' WHERE status = 'CREATED'", "1 without an outcome"},
        {"notification", "INSERT INTO mails VALUES ('never-sent', 'u-1', '')",
         "DELETE FROM mails WHERE idempotency_key = 'never-sent'", "is noted but was not sent"},
    };
    for (const Case& broken : cases) {
        shop.exec(broken.side, broken.damage);
        const Finished audit = shop.audit();
        EXPECT_EQ(audit.status.code, 1) << broken.damage;
        EXPECT_NE(audit.out.find(broken.fault), std::string::npos) << broken.damage << "\n"
                                                                   << audit.out;
        shop.exec(broken.side, broken.repair);
    }
    expect_books_balance(shop);
}

}  // namespace
}  // namespace outbox::test
