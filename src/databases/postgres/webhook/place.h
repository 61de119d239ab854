#pragma once

#include <string>

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "webhook/store.h"

namespace outbox::postgres {

/// The tables of webhooks, quoted, with their schema.
struct WebhookTables {
    std::string schema;
    std::string endpoints;
    std::string deliveries;
    std::string lease;
};

enum class Missing : std::uint8_t { kMake, kTell };

/// Finds the tables by the role's search path, or makes them where that is wanted and allowed; and
/// asks whose they are, and whether the role has its rights. Errors name the remedy.
Result<WebhookTables> webhook_tables(Connection& connection, const webhook::StoreConfig& config,
                                     Missing missing);

/// As a destination's: what is wrong with the database may come right by itself. Those that blame a
/// row keep their advice.
[[nodiscard]] ErrorInfo webhook_error(const ErrorInfo& error);

}  // namespace outbox::postgres
