#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "core/backend_options.h"
#include "core/url.h"

namespace outbox::mailbox {

inline constexpr std::string_view kDefaultMailbox = "default";

/// Where messages are put: "mailbox+" before the URL of the database, `?mailbox=NAME` beside its
/// own parameters.
struct MailboxConfig {
    std::string target;  ///< The URL of the database.
    std::string mailbox = std::string(kDefaultMailbox);
    /// Roles that may own the table, besides the current one, superusers and the owners of database
    /// and schema: `?owner=ROLE`, may be repeated.
    std::vector<std::string> owners;
    int connect_timeout_s = kConnectTimeoutS;
};

inline constexpr std::array kOptions{
    BackendOption{.name = "mailbox",
                  .fallback = kDefaultMailbox,
                  .help = "the name of the mailbox, as one database may have several"},
    BackendOption{.name = "owner",
                  .repeatable = true,
                  .help = "role that may own the table in PostgreSQL, besides the current one, "
                          "superusers and the owners of database and schema"},
};

/// The URL of the database inside one with `prefix` before it, without the parameters that are
/// `own`; the rest is the database's, untouched.
[[nodiscard]] std::string database_url(std::string_view url, std::string_view prefix,
                                       std::span<const BackendOption> own);

/// The parameters of the URL that are `own`.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> own_query(
    const Url& url, std::span<const BackendOption> own);

/// `options`: of the table [route.mailbox]. Errors: kConfigInvalid/stop, without secrets.
Result<MailboxConfig> parse_mailbox_url(std::string_view url, int connect_timeout_s,
                                        const std::map<std::string, std::string>& options = {});

}  // namespace outbox::mailbox
