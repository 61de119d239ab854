#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::mailbox {

/// Where messages are put: "mailbox+" before the URL of the database, `?mailbox=NAME` beside its
/// own parameters.
struct MailboxConfig {
    std::string target;  ///< The URL of the database.
    std::string mailbox = "default";
    /// Roles that may own the table, besides the current one, superusers and the owners of database
    /// and schema: `?owner=ROLE`, may be repeated.
    std::vector<std::string> owners;
    int connect_timeout_s = 5;
};

/// The URL of the database inside one with `prefix` before it, without `own` parameters, which are
/// written as "name="; the rest is the database's, untouched.
[[nodiscard]] std::string database_url(std::string_view url, std::string_view prefix,
                                       std::span<const std::string_view> own);

/// Errors: kConfigInvalid/stop, without secrets.
Result<MailboxConfig> parse_mailbox_url(std::string_view url, int connect_timeout_s);

}  // namespace outbox::mailbox
