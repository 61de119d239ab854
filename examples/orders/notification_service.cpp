// Mails the customer: that an order was taken, and what became of it.

#include <CLI/CLI.hpp>
#include <memory>

#include <outbox/error.h>

#include "mail_api.h"
#include "participant.h"

namespace {

using orders::OrderEvent;
using orders::Transaction;

constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS mails (
    idempotency_key text PRIMARY KEY,
    user_id         text NOT NULL,
    body            text NOT NULL
);
)sql";

/// Empty: nobody is to be told.
std::string body_about(const OrderEvent& event) {
    if (event.type() == "OrderCreated") return "We have your order " + event.order_id();
    if (event.type() == "OrderConfirmed") return "Your order " + event.order_id() + " is coming";
    if (event.type() == "OrderCancelled")
        return "Your order " + event.order_id() + " was cancelled: " + event.text("reason");
    return {};
}

/// A mail cannot be rolled back: it goes out before the commit, under the event's id. When this
/// process dies in between, the event comes again and the provider drops the repeat.
void mail(Transaction& transaction, orders::MailApi& provider, const OrderEvent& event) {
    const std::string body = body_about(event);
    if (body.empty()) return;
    const std::string user = event.text("user_id");
    try {
        provider.send(std::string(event.id()), user, body);
    } catch (const std::exception& error) {
        throw outbox::Error(outbox::ErrorCode::kHandlerFailed, outbox::Advice::kRetryDestination,
                            error.what());
    }
    transaction.query("INSERT INTO mails (idempotency_key, user_id, body) VALUES ($1, $2, $3)",
                      {std::string(event.id()), user, body});
}

}  // namespace

int main(int argc, char** argv) {
    std::string path;
    std::unique_ptr<orders::MailApi> provider;
    return orders::run_participant(
        {.name = "notification-service",
         .summary = "Mails the customer about every order, each mail once.",
         .tables = kTables,
         .topics = {"order-events"},
         .add_options =
             [&](CLI::App& app) {
                 app.add_option("--mails", path,
                                "file that stands for the mail provider: what was sent is appended")
                     ->type_name("FILE");
             },
         .start = [&] { provider = std::make_unique<orders::MailApi>(path); },
         .handle = [&](Transaction& transaction,
                       const OrderEvent& event) { mail(transaction, *provider, event); }},
        argc, argv);
}
