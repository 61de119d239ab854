#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox {

/// False for this machine: no host, a socket's folder, localhost, a loopback address.
[[nodiscard]] bool is_remote(std::string_view host);

/// The same for a URL's authority: true when any of its hosts is remote.
[[nodiscard]] bool any_remote(std::string_view authority);

/// The hosts of a list "host:port,[::1]:port,host", and their ports; those of this machine's
/// sockets are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::uint16_t>> hosts_of(
    std::string_view list, std::uint16_t default_port);

}  // namespace outbox
