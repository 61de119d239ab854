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

/// The errors of a term of `source` where `former` serves or served some of the same tenants: a
/// relay of it is running; or its routes have finished events that others of its routes have not.
[[nodiscard]] ErrorInfo tenants_are_served(const std::string& source, const std::string& former,
                                           const std::string& owner);
[[nodiscard]] ErrorInfo tenants_left_open(const std::string& source, const std::string& former);
/// What is said where all that `former` left was taken over.
[[nodiscard]] std::string tenants_taken_over(const std::string& source, const std::string& former,
                                             std::int64_t dead_letters);

}  // namespace outbox::relay
