#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "webhook/dispatch_options.h"
#include "webhook/store.h"

namespace outbox::webhook {

/// Where the endpoints are, and how they are sent to.
struct RouteConfig {
    StoreConfig store;
    DispatchOptions dispatch;
    std::string key_file;
    std::string allow;
    bool allow_http = false;
    std::string ca_file;
    std::chrono::milliseconds timeout{20'000};
    std::chrono::milliseconds connect_timeout{5'000};
};

/// From "webhook+" before the URL of the database that has the endpoints, and options named
/// `webhook.<name>` or just the name; options may stand in the URL's query, too. Errors:
/// kConfigInvalid/stop, without secrets.
Result<RouteConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options,
                                std::chrono::seconds connect_timeout);

/// The URL of the database behind "webhook+". Errors: kConfigInvalid.
Result<std::string> database_of(std::string_view url);

}  // namespace outbox::webhook
