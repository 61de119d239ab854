#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::relay {

/// The name of the source of `table` that serves these tenants; none: all.
[[nodiscard]] std::string source_name(std::string table, std::vector<std::string> tenants);

/// The tenants that a source of `table` serves, by its name; none: all.
[[nodiscard]] std::vector<std::string> tenants_of(std::string_view source, std::string_view table);

/// Whether some tenant is served by both.
[[nodiscard]] bool overlap(const std::vector<std::string>& one,
                           const std::vector<std::string>& other);
/// Whether `all` serves every tenant of `some`.
[[nodiscard]] bool covers(const std::vector<std::string>& all,
                          const std::vector<std::string>& some);

/// As arguments of a command, for a shell: " --tenant acme --tenant 'a b'"; none: "".
[[nodiscard]] std::string tenant_arguments(const std::vector<std::string>& tenants);
/// How the audit names a route of the relay that serves these tenants.
[[nodiscard]] std::string audited_route(const std::string& route,
                                        const std::vector<std::string>& tenants);
/// As `tenant_arguments`, of the source of `table` among several: the one of all is named, too.
[[nodiscard]] std::string whose_arguments(std::string_view source, std::string_view table);

/// A route as the ledgers of a table have it.
struct HeldRoute {
    std::string source;
    std::string route;
};
/// In whose ledgers the route is that a term of `source` misses, as arguments of a command; `held`
/// is what they were before that term took over what was others'.
[[nodiscard]] std::vector<std::string> whose_route(const std::string& route,
                                                   const std::string& source,
                                                   const std::string& table,
                                                   const std::vector<HeldRoute>& held);

/// The errors of a term of `source` where `former` serves or served some of the same tenants: a
/// relay of it is running; or its routes have finished events that others of its routes have not.
[[nodiscard]] ErrorInfo tenants_are_served(const std::string& source, const std::string& former,
                                           const std::string& owner);
/// `whose`: as arguments of a command, the former's.
[[nodiscard]] ErrorInfo tenants_left_open(const std::string& source, const std::string& former,
                                          const std::string& whose);
/// What is said where all that `former` left was taken over.
[[nodiscard]] std::string tenants_taken_over(const std::string& source, const std::string& former,
                                             std::int64_t dead_letters);

}  // namespace outbox::relay
