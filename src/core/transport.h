#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/url.h"

namespace outbox {

/// False for this machine: no host, a socket's folder, localhost, a loopback address.
[[nodiscard]] bool is_remote(std::string_view host);

/// The same for a URL's authority: true when any of its hosts is remote.
[[nodiscard]] bool any_remote(std::string_view authority);

/// What is wrong with the way to a PostgreSQL server, with the remedy; empty for this machine and
/// for sslmode=verify-full. `sslmode_default`: what PGSSLMODE says, or "".
[[nodiscard]] std::string postgres_transport(const Url& url, std::string_view sslmode_default);

/// The hosts of a list "host:port,[::1]:port,host", and their ports; those of this machine's
/// sockets are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::uint16_t>> hosts_of(
    std::string_view list, std::uint16_t default_port);

/// What to do where libpq itself, in a message without SQLSTATE, refused the server's certificate
/// or had no password; empty where it says something else. libpq before 18 does not say why a
/// certificate was refused.
[[nodiscard]] std::string_view refusal_remedy(std::string_view message);

}  // namespace outbox
