#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::runtime {

inline constexpr std::size_t kMaxRouteNameBytes = 63;

/// What `--to` says: `URL` or `NAME=URL`.
struct Destination {
    bool named = false;
    std::string name;
    std::string url;
};

/// "NAME=" counts only in front of the scheme: a URL may hold "=" behind it.
[[nodiscard]] Destination split_destination(std::string_view text);

/// Errors: kConfigInvalid. A name is 1 to 63 letters, digits, and - _ .
[[nodiscard]] Status check_route_name(const std::string& name, std::string_view where);

/// The name of a route that was given none. It comes from the URL alone, whatever else is
/// configured, whatever hosts it lists and whether it has TLS: "kafka", "mailbox",
/// "mailbox-billing", "stdout".
[[nodiscard]] std::string derived_route_name(std::string_view url);

/// What earlier versions called the routes to these destinations, in the same order: a single one
/// "default", of several each by its URL.
[[nodiscard]] std::vector<std::string> former_route_names(const std::vector<std::string>& urls);

}  // namespace outbox::runtime
