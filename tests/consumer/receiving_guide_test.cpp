// The code of docs/receiving.md, run. The last test fails when the page shows anything else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_idempotency.h>
#include <outbox/producer/migrate.h>

#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

void execute(PGconn* connection, const char* sql, const std::vector<std::string>& values = {}) {
    std::vector<const char*> pointers;
    for (const std::string& value : values) pointers.push_back(value.c_str());
    PGresult* result = PQexecParams(connection, sql, static_cast<int>(pointers.size()), nullptr,
                                    pointers.data(), nullptr, nullptr, 0);
    const auto status = PQresultStatus(result);
    const std::string error = PQerrorMessage(connection);
    PQclear(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) throw std::runtime_error(error);
}

// [inbox]
void reserve_stock(PGconn* connection, const std::string& event_id, const std::string& product) {
    const auto time = outbox::message_time(event_id, {});
    if (outbox::begin_and_accept(connection, "inventory", event_id, time)) {
        execute(connection, "UPDATE stock SET reserved = reserved + 1 WHERE product_id = $1",
                {product});
    }
    execute(connection, "COMMIT");
}
// [end]

// [natural]
void remember_address(PGconn* connection, const std::string& user, const std::string& address) {
    execute(connection,
            "INSERT INTO addresses (user_id, address) VALUES ($1, $2) "
            "ON CONFLICT (user_id) DO UPDATE SET address = excluded.address",
            {user, address});
}
// [end]

// [conditional]
void confirm_order(PGconn* connection, const std::string& order) {
    execute(connection,
            "UPDATE orders SET status = 'CONFIRMED' WHERE id = $1 AND status = 'CREATED'", {order});
}
// [end]

class Payments {
  public:
    void charge(const std::string& key, std::int64_t cents) { charges_.emplace(key, cents); }
    std::size_t count() const { return charges_.size(); }

  private:
    std::map<std::string, std::int64_t> charges_;  // one for each key, as a payment service does
};

// [outside]
void charge(PGconn* connection, Payments& payments, const std::string& event_id) {
    payments.charge(event_id, 9999);  // their idempotency key: a repeat charges nothing
    execute(connection, "BEGIN");
    if (outbox::accept(connection, "billing", event_id)) {
        execute(connection, "INSERT INTO charges (event_id, cents) VALUES ($1, 9999)", {event_id});
    }
    execute(connection, "COMMIT");
}
// [end]

// [two-phase]
IdempotentAnswer pay(PGconn* connection, Payments& payments, const IdempotentRequest& request) {
    outbox::ClaimOptions leased;
    leased.lease_ms = 30'000;  // longer than the work can take
    execute(connection, "BEGIN");
    const auto claim = outbox::claim_key(connection, request, leased);
    execute(connection, "COMMIT");  // a repeat waits here for a synchronous standby, too
    if (!claim.is_new) return claim.answer;
    payments.charge(std::string(request.key), 9999);  // outside, no transaction open
    const outbox::IdempotentAnswer answer{.status = 201, .headers = {}, .body = "paid"};
    execute(connection, "BEGIN");
    execute(connection, "INSERT INTO charges (event_id, cents) VALUES ($1, 9999)",
            {std::string(request.key)});
    outbox::complete_key(connection, request, claim, answer);
    execute(connection, "COMMIT");
    return answer;
}
// [end]

class ReceivingGuide : public testing::Test {
  protected:
    ReceivingGuide() : url_(shared_postgres().create_database()) {
        migrate(url_);
        db_ = std::make_unique<Pg>(url_);
        db_->exec(
            "CREATE TABLE stock (product_id text PRIMARY KEY, reserved integer NOT NULL); "
            "INSERT INTO stock VALUES ('p', 0); "
            "CREATE TABLE addresses (user_id text PRIMARY KEY, address text); "
            "CREATE TABLE orders (id text PRIMARY KEY, status text); "
            "INSERT INTO orders VALUES ('o', 'CREATED'), ('gone', 'CANCELLED'); "
            "CREATE TABLE charges (event_id text, cents bigint)");
    }
    std::string url_;
    std::unique_ptr<Pg> db_;
};

TEST_F(ReceivingGuide, EveryWayOfReceivingAppliesARepeatOnce) {
    Payments payments;
    const std::string event = "01990000-0000-7000-8000-000000000001";
    const IdempotentRequest request{
        .scope = "u", .key = "key-1", .operation = "POST /pay", .body = "{}"};
    for (int delivery = 0; delivery < 2; ++delivery) {
        reserve_stock(db_->handle(), event, "p");
        remember_address(db_->handle(), "u", "Main Street 1");
        confirm_order(db_->handle(), "o");
        confirm_order(db_->handle(), "gone");
        charge(db_->handle(), payments, event);
        EXPECT_EQ(pay(db_->handle(), payments, request).body, "paid");
    }
    EXPECT_EQ(db_->value("SELECT reserved FROM stock"), "1");
    EXPECT_EQ(db_->value("SELECT address FROM addresses"), "Main Street 1");
    EXPECT_EQ(db_->value("SELECT string_agg(status, ',' ORDER BY id DESC) FROM orders"),
              "CONFIRMED,CANCELLED");
    EXPECT_EQ(db_->number("SELECT count(*) FROM charges"), 2);
    EXPECT_EQ(payments.count(), 2U);
}

TEST_F(ReceivingGuide, ThePageShowsThisCode) {
    const std::string source = read_file(GUIDE_SOURCE);
    const std::string page = read_file(GUIDE_PAGE);
    int regions = 0;
    for (std::size_t at = source.find("\n// ["); at != std::string::npos;
         at = source.find("\n// [", at + 1)) {
        const auto start = source.find('\n', at + 1) + 1;
        const std::string name = source.substr(at, start - at);
        if (name.find("[end]") != std::string::npos) continue;
        const auto end = source.find("// [end]", start);
        EXPECT_THAT(page, HasSubstr("```cpp\n" + source.substr(start, end - start) + "```"))
            << name;
        ++regions;
    }
    EXPECT_EQ(regions, 5);
}

}  // namespace
}  // namespace outbox::test
