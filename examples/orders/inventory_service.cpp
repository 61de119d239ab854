#include "mailbox_service.h"

namespace {

// Stock may go below zero: what to do then is another service's business.
constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS stock (
    product_id text PRIMARY KEY,
    reserved   integer NOT NULL
);
)sql";

void reserve(sqlite3* transaction, const outbox::Message&, const orders::OrderCreated& order) {
    orders::SqliteStatement(transaction,
                            "INSERT INTO stock VALUES (?1, ?2) ON CONFLICT (product_id) "
                            "DO UPDATE SET reserved = reserved + excluded.reserved")
        .bind(1, order.product_id)
        .bind(2, order.quantity)
        .step();
}

}  // namespace

int main(int argc, char** argv) {
    return orders::run_mailbox_service(
        {"inventory-service", "Reserves stock for every order, once.", kTables, reserve}, argc,
        argv);
}
