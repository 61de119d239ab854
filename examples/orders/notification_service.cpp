#include "mailbox_service.h"

namespace {

// Sending mail inside the transaction would not be exactly once. So the mail is only noted here,
// under the event's id; who sends it passes that id on as the idempotency key.
constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS mails_to_send (
    idempotency_key text PRIMARY KEY,
    user_id         text NOT NULL,
    body            text NOT NULL
);
)sql";

void note_mail(sqlite3* transaction, const outbox::Message& message,
               const orders::OrderCreated& order) {
    orders::SqliteStatement(transaction, "INSERT INTO mails_to_send VALUES (?1, ?2, ?3)")
        .bind(1, std::string(message.id))
        .bind(2, order.user_id)
        .bind(3, "We have your order " + order.order_id)
        .step();
}

}  // namespace

int main(int argc, char** argv) {
    return orders::run_mailbox_service(
        {"notification-service", "Notes the mail to send for every order, once.", kTables,
         note_mail},
        argc, argv);
}
