#pragma once

#include <functional>
#include <string>

#include <outbox/consumer/message.h>

#include "sqlite.h"

namespace orders {

/// The event OrderCreated as a consumer reads it.
struct OrderCreated {
    std::string order_id;
    std::string user_id;
    std::string product_id;
    std::int64_t quantity = 0;
};

/// What one service does with the orders in its mailbox.
struct MailboxService {
    std::string name;
    std::string summary;
    std::string tables;  ///< SQL that creates the service's own tables if they are missing.

    /// Applies one order in the open transaction; called once for each event.
    std::function<void(sqlite3* transaction, const outbox::Message& message,
                       const OrderCreated& order)>
        apply;
};

/// `main` of a service: applies what is in the mailbox of the database `DATABASE_URL` until
/// SIGINT or SIGTERM. Returns the exit code.
int run_mailbox_service(const MailboxService& service, int argc, char** argv);

}  // namespace orders
