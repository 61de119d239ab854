#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "webhook/dispatch_options.h"
#include "webhook/resolver.h"
#include "webhook/sender.h"

namespace outbox::net {
struct HttpOutcome;
}

namespace outbox::webhook {

/// How attempts are sent, all endpoints alike.
struct SenderConfig {
    std::string key_file;                       ///< As `KeyRing::read` takes it.
    std::string allow = {};                     ///< As `AddressGuard::make` takes it.
    bool allow_http = false;                    ///< URLs without TLS.
    std::string ca_file = {};                   ///< PEM; empty: the system's.
    std::chrono::milliseconds timeout{20'000};  ///< Of an attempt, all in all.
    std::chrono::milliseconds connect_timeout =
        std::chrono::seconds(kConnectTimeoutS);  ///< Name, connection and TLS.
    /// As many attempts at once have a connection of their own; who begins no more waits for none.
    std::size_t max_connections = DispatchOptions().max_connections;
    std::string user_agent = "outbox";
    Lookup lookup = system_lookup;
    /// Is told of each answer, or of what there was instead of one. For those who look.
    std::function<void(const net::HttpOutcome&)> on_answer = {};
};

/// Sends deliveries by HTTP, signed as Standard Webhooks 1.0 wants it, over HTTP/2 where the
/// receiver has it. For each attempt the host is resolved once, each of its addresses is judged by
/// the guard, and the connection goes to one that was; no redirect is followed. Nobody waits for
/// the name server or the receiver of another endpoint. Errors: kAuthFailed or kConfigInvalid for
/// the key file, kConfigInvalid for `allow` and for a `ca_file` that cannot be used.
Result<std::unique_ptr<Sender>> make_http_sender(SenderConfig config);
/// Whether one could be made, and sign for each of the endpoints that are enabled.
Status check_sender(const SenderConfig& config, std::span<const Endpoint> endpoints);

}  // namespace outbox::webhook
