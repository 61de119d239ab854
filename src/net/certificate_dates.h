#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <outbox/result.h>

#include "core/tls_use.h"
#include "net/server_access.h"

namespace outbox::net {

/// Until when the certificate that a server shows is valid, in seconds since 1970. Whose it is and
/// who signed it are not looked at, and no password is sent. Blocks up to `timeout`. Errors:
/// kSinkUnavailable with what kept it from being seen.
Result<std::int64_t> certificate_end_of(const Host& host, const TlsPrelude& prelude,
                                        std::chrono::milliseconds timeout);

/// The same of the first certificate in a file in PEM; `any`: of the one in it that is valid for
/// longest. Reads the file. Errors: kConfigInvalid.
Result<std::int64_t> certificate_end_of_file(const std::string& path, bool any);

/// The servers and files of an access; nothing without TLS.
TlsUse tls_use_of(const ServerAccess& access);

}  // namespace outbox::net
