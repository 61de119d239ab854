#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace outbox {

/// How a server comes to TLS.
enum class TlsBegins : std::uint8_t {
    kAtOnce,
    kPostgres,  ///< It is asked for it, and says 'S'.
    kNats       ///< It says a line first.
};

/// Whose certificates a way depends on: each runs out some day.
struct TlsUse {
    std::vector<std::pair<std::string, std::uint16_t>> servers = {};  ///< Hosts and ports.
    TlsBegins begins = TlsBegins::kAtOnce;
    std::vector<std::string> own_files = {};      ///< PEM: what proves who we are.
    std::vector<std::string> trusted_files = {};  ///< PEM: by what servers are known.
};

}  // namespace outbox
