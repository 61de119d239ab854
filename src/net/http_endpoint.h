#pragma once

#include <string>
#include <string_view>

#include <outbox/result.h>

#include "net/http_client.h"
#include "net/server_access.h"

namespace outbox::net {

/// A service of one host that is asked over HTTP. Without a user its password is a token.
struct HttpEndpoint : ServerAccess {
    std::string base;  ///< What paths are appended to, without secrets: no '/' at its end.
};

/// From `https://host:port/path`, with `user:password@` or `:token@` before the host, and
/// `ca_file`, `cert_file`, `key_file`, `verify` and `password_file` in its query. Messages call the
/// service `product.name`. Errors: kConfigInvalid/stop.
Result<HttpEndpoint> make_http_endpoint(const Product& product, std::string_view url);

/// Who it is shown to be, and by what it is known.
[[nodiscard]] HttpOptions http_options_of(const HttpEndpoint& endpoint);

/// Adds the header that proves who asks, if anything does; the redactor knows it then. Errors:
/// kAuthFailed, of its password file.
Status add_authorization(const HttpEndpoint& endpoint, HttpHeaders& headers);

}  // namespace outbox::net
