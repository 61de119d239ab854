#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/broker.h"
#include "backend/database.h"

namespace outbox {

/// What this program has behind URLs. The build writes these lists, for each program
/// (`outbox_backends` in cmake/).
std::span<const Database* const> databases();
std::span<const Broker* const> brokers();
/// The folders whose client library was not there.
std::span<const std::string_view> left_out();

/// By the URL's scheme. Errors: kConfigInvalid for a scheme that there is not, kUnsupported for one
/// that this program left out.
Result<const Database*> find_database(const std::string& url);
Result<const Broker*> find_broker(const std::string& url);

/// The URLs of what lies in databases: a prefix, and the URL of one that holds it.
class UrlsOverDatabases {
  public:
    UrlsOverDatabases(std::string_view prefix, bool (*holds)(const Database& database));

    /// "mailbox+postgresql", ...; valid as long as this.
    [[nodiscard]] std::span<const std::string_view> schemes() const { return views_; }
    [[nodiscard]] const std::string& help() const { return help_; }

  private:
    std::vector<std::string> schemes_;
    std::vector<std::string_view> views_;
    std::string help_;
};

/// What of the way to a database is in clear or unverified, with the remedy; or "".
std::string weakness_of_database(const std::string& url);
/// Whose certificates the way to a database depends on.
TlsUse tls_of_database(const std::string& url);

/// "kafka://host:port, stdout: or null:", of all that there are.
std::string urls_of_databases();
std::string urls_of_brokers();

}  // namespace outbox
