#pragma once

#include <optional>
#include <string>

#include <outbox/result.h>

#include "net/server_access.h"

struct ssl_ctx_st;
struct X509_VERIFY_PARAM_st;

namespace outbox::net {

/// Whether an error of OpenSSL's is one of the alerts by which a server refuses a client's
/// certificate, or misses one (RFC 8446, 6.2). In TLS 1.3 it comes behind the handshake.
[[nodiscard]] bool refuses_our_certificate(unsigned long code);
/// What OpenSSL complained of first on this thread, since it was asked last.
[[nodiscard]] std::string last_tls_error();

/// Has a context trust, and show, what the access names, as its files are now. Returns which of
/// them cannot be used, and why.
std::optional<std::string> load_certificates(ssl_ctx_st* context, const ServerAccess& access);

/// Has a certificate be good for this host alone; false: the host is an address.
bool expect_host(X509_VERIFY_PARAM_st* expected, const Host& host);

/// That the files with password and certificates can be used now. For a start: while it runs a file
/// may be half written for a moment, which is an outage. Reads files alone. Errors:
/// kAuthFailed/stop, kConfigInvalid/stop.
Status check_files(const ServerAccess& access);

}  // namespace outbox::net
