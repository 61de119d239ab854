#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/error.h>

namespace outbox::postgres {

/// Whose objects a session may use. Who owns a table, view or function can put code into it that
/// runs with the rights of whoever uses it.
struct TrustedOwners {
    std::vector<std::string> named;  ///< Besides the current role and superusers.
    /// Also the owners of database and schema. A superuser gives them more than they have: it
    /// trusts them only when named.
    bool of_place = false;
};

/// A SELECT of one text column: which of `names` in `schema` (its unquoted name) belong to none of
/// the trusted, as "table outbox_lease belongs to role mallory", sorted. Runs with any search_path.
[[nodiscard]] std::string foreign_objects_sql(std::string_view schema,
                                              std::span<const std::string_view> names,
                                              const TrustedOwners& trusted);

/// A DO block that raises `kForeignOwnerState` where that SELECT gives a row.
[[nodiscard]] std::string owner_guard_sql(std::string_view schema,
                                          std::span<const std::string_view> names,
                                          const TrustedOwners& trusted);

inline constexpr std::string_view kForeignOwnerState = "OB003";

/// A SELECT of one text column: what has the name of one of a side's indexes in `schema` (its
/// unquoted name) and is none of our table, as "index outbox_saga_open is of table app.orders, not
/// of outbox_saga": CREATE INDEX IF NOT EXISTS goes by the name alone. `beside_adopted`: only those
/// that the relay keeps beside an adopted table. Runs with any search_path.
[[nodiscard]] std::string misplaced_indexes_sql(std::string_view schema, std::string_view side,
                                                bool beside_adopted = false);

/// A DO block that raises `kMisplacedIndexState` where that SELECT gives a row.
[[nodiscard]] std::string index_guard_sql(std::string_view schema, std::string_view side,
                                          bool beside_adopted = false);

inline constexpr std::string_view kMisplacedIndexState = "OB005";

/// The refusal of a command that takes --owner. `what`: a row of `foreign_objects_sql`.
[[nodiscard]] ErrorInfo foreign_owner(const std::string& what);

}  // namespace outbox::postgres
