#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox {

/// A table, view, function or index that `outbox migrate` makes in PostgreSQL, and the rights that
/// each kind of role needs on it: the one declaration that `outbox roles`, `relay --check` and the
/// checks of owners and of indexes follow.
struct SchemaObject {
    enum class Kind : std::uint8_t { kTable, kView, kFunction, kIndex };
    Kind kind = Kind::kTable;
    std::string_view side;         ///< "producer" or "consumer"; "": both.
    bool beside_adopted = false;   ///< The relay keeps it beside an adopted table, too.
    std::string_view name;         ///< Functions: of that name is one.
    std::string_view writer = {};  ///< "SELECT, INSERT"; "": no right is needed.
    std::string_view relay = {};
    std::string_view consumer = {};
    std::string_view operating = {};
    std::string_view table = {};  ///< An index: its table, which it belongs to and goes with.
    bool needed = true;           ///< False: an index without which all works, but slower.
    bool on_demand = false;       ///< Beside an adopted table the command that needs it makes it.
};

[[nodiscard]] std::span<const SchemaObject> schema_objects();

/// Whose objects a session may use. Who owns a table, view or function can put code into it that
/// runs with the rights of whoever uses it.
struct TrustedOwners {
    std::vector<std::string> named;  ///< Besides the current role and superusers.
    /// Also the owners of database and schema. A superuser gives them more than they have: it
    /// trusts them only when named.
    bool of_place = false;
};

/// Names of the objects of a side ("producer", "consumer"; "": both), with what both have, without
/// indexes.
[[nodiscard]] std::vector<std::string_view> objects_of_side(std::string_view side);
/// Names of the tables that a relay uses, beside a table of its owner's or with outbox_events.
[[nodiscard]] std::vector<std::string_view> objects_of_relay(bool with_events);

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

/// What to do about a row of that SELECT.
[[nodiscard]] std::string misplaced_index(const std::string& what);

/// The refusal of a command that takes --owner, for a row of that SELECT.
[[nodiscard]] ErrorInfo foreign_owner(const std::string& what);

}  // namespace outbox
