#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "webhook/endpoint.h"
#include "webhook/resolver.h"

namespace outbox::webhook {

/// How a sender would reach endpoints.
struct Reach {
    std::string allow;  ///< As `AddressGuard::make` takes it.
    bool allow_http = false;
    std::chrono::milliseconds timeout{};  ///< For names of hosts, all in all.
    Lookup lookup = system_lookup;
};

inline constexpr std::size_t kMaxHostsLookedUp = 100;
inline constexpr std::size_t kMaxUnreachableTold = 10;

/// Why endpoints that are enabled would not be sent to as things stand, each with what to do: their
/// URLs are refused, or their hosts have no address that the guard lets through. Connects to none.
/// Blocks up to the timeout; asks for the first `kMaxHostsLookedUp` names. The first
/// `kMaxUnreachableTold` are told, and how many more there are. Errors: kConfigInvalid for `allow`.
Result<std::vector<std::string>> unreachable_endpoints(std::span<const Endpoint> endpoints,
                                                       const Reach& reach);

}  // namespace outbox::webhook
