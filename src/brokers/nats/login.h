#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "brokers/nats/config.h"

namespace outbox::nats {

/// What a server says of itself when a connection begins.
struct ServerInfo {
    bool headers = false;
    bool tls_wanted = false;   ///< It takes nobody without.
    bool tls_offered = false;  ///< It takes both.
    std::size_t max_payload = 0;
    std::string nonce;    ///< To be signed.
    std::string version;  ///< Of the server.
    std::string cluster;  ///< Its name; empty: it is alone.
};

/// Of INFO's JSON. Errors: kSinkUnavailable.
Result<ServerInfo> read_info(std::string_view json);

/// The line CONNECT, with user, token or credentials as they are now. `as` is the name that the
/// server lists. Errors: kAuthFailed where a file of them cannot be used.
Result<std::string> connect_line(const NatsConfig& config, const ServerInfo& server,
                                 std::string_view as);

/// `net::check_files`, and that the file of credentials can be used.
Status check_files(const NatsConfig& config);

/// Who a user's NKey is, and a signature with it.
struct Signature {
    std::string public_key;  ///< "U..."
    std::string text;        ///< As CONNECT has it.
};

/// Of `nonce`, with an NKey's seed ("SU..."). Source of the format: github.com/nats-io/nkeys.
/// Errors: kAuthFailed.
Result<Signature> sign(std::string_view nonce, std::string_view seed);

}  // namespace outbox::nats
