#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "webhook/address.h"

namespace outbox::webhook {

/// Where an endpoint is, taken apart. A URL of it comes from a customer: what two readers could
/// read as two hosts is refused rather than understood.
struct EndpointUrl {
    std::string text;  ///< Scheme and host in lower case, else as given.
    bool tls = true;
    std::string host;                ///< A name in lower case, or an address without brackets.
    std::optional<Address> address;  ///< Where the host is one.
    std::uint16_t port = 0;
};

struct EndpointRules {
    bool allow_http = false;  ///< In clear: for tests, and for what lies inside.
};

/// Errors: kConfigInvalid, with what to write instead: another scheme than https (http where it is
/// allowed), user or password, a fragment, anything but visible ASCII, backslashes, a host that is
/// neither a name of letters, digits and hyphens nor a plain address (no `0x7f.1`, no `2130706433`,
/// no `127.1`, no zone), an empty port, port 0, more than 2,048 bytes.
Result<EndpointUrl> parse_endpoint_url(std::string_view text, const EndpointRules& rules = {});

/// Why `host`, which is in lower case, is no name of a host; nothing: it is one.
[[nodiscard]] std::optional<std::string> why_not_host_name(std::string_view host);
/// ASCII alone.
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace outbox::webhook
