#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox {

/// What a server and who connects say in clear before TLS.
struct TlsPrelude {
    std::string_view asked = {};  ///< What the server is told first.
    /// Whether TLS begins, by all that the server has said; none: it has more to say. Null: it says
    /// nothing.
    std::optional<bool> (*begins)(std::string_view said) = nullptr;
};

/// Whose certificates a way depends on: each runs out some day.
struct TlsUse {
    std::vector<std::pair<std::string, std::uint16_t>> servers = {};  ///< Hosts and ports.
    TlsPrelude prelude = {};
    std::vector<std::string> own_files = {};      ///< PEM: what proves who we are.
    std::vector<std::string> trusted_files = {};  ///< PEM: by what servers are known.
};

}  // namespace outbox
