#pragma once

#include <cstdint>
#include <string>

namespace outbox {

/// One life of a route's ledger, as its database tells it.
struct LedgerLife {
    std::string database;       ///< The server's or file's identity.
    std::string table;          ///< Of the table and its numbering, where ids may come again.
    std::int64_t since_us = 0;  ///< When the ledger began; each of a source has another time.
    std::string source;         ///< Table and tenants.
};

/// What a destination remembers repeats under: another for another outbox or route, and after a
/// ledger began anew; the same for all relays and addresses, and when a route is renamed.
[[nodiscard]] std::string producer_name(const LedgerLife& life);

}  // namespace outbox
