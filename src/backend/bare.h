#pragma once

#include <string>
#include <string_view>

#include "backend/broker.h"
#include "core/backend_options.h"
#include "core/url.h"

namespace outbox {

/// For a broker without options: that the URL is a scheme alone, and that no table says more. A
/// word that nobody reads would pass for one that counts. Errors: kConfigInvalid/stop.
[[nodiscard]] inline Status check_bare(const Destination& destination, std::string_view scheme) {
    const auto url = parse_url(destination.url);
    if (!url.ok()) return url.status();
    const std::string who = std::string(scheme) + ":";
    const auto none = read_backend_options({who, "", {}}, url->query, destination.options);
    if (!none.ok()) return none.status();
    if (url->user.empty() && url->authority.empty() && url->path.empty()) return {};
    return {
        ErrorCode::kConfigInvalid, Advice::kStop, {}, "write '" + who + "' with nothing behind it"};
}

}  // namespace outbox
