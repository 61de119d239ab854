#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::mailbox {

/// Where messages are put: `mailbox+postgresql://HOST/DB?mailbox=NAME`, with libpq's parameters
/// beside it, or `mailbox+sqlite:///PATH?mailbox=NAME`.
struct MailboxConfig {
    enum class Store : std::uint8_t { kPostgres, kSqlite };
    Store store = Store::kPostgres;
    std::string target;  ///< The URL for libpq, or the path of the SQLite file.
    std::string mailbox = "default";
    /// Roles that may own the table, besides the current one, superusers and the owners of database
    /// and schema: `?owner=ROLE`, may be repeated. For PostgreSQL.
    std::vector<std::string> owners;
    int connect_timeout_s = 5;
};

/// Errors: kConfigInvalid/stop, without secrets.
Result<MailboxConfig> parse_mailbox_url(std::string_view url, int connect_timeout_s);

}  // namespace outbox::mailbox
