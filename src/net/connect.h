#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "net/server_access.h"
#include "net/socket.h"

namespace outbox::net {

/// Tries an address, as numbers, for no longer than `most`. True: that was it, none is tried
/// behind it.
using TryAddress = std::function<bool(const std::string& address, std::chrono::milliseconds most)>;

/// Tries the addresses of a host, as the resolver orders them, each for an equal share of what is
/// left of the time: one that swallows packets leaves time for the others. Blocks up to `timeout`,
/// except for the resolver. False: none was it; `fault` says so if there is none at all.
bool try_addresses(const Host& host, std::chrono::milliseconds timeout, const TryAddress& act,
                   SocketFault& fault);

/// A TCP connection that does not block, to the first address that takes it. Returns the
/// descriptor, or -1 and the fault.
int connect_to(const Host& host, std::chrono::milliseconds timeout, SocketFault& fault);

}  // namespace outbox::net
