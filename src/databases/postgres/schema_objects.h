#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::postgres {

/// A table, view, function or index that `outbox migrate` makes, and the rights that each kind of
/// role needs on it: the one declaration that `outbox roles`, `relay --check` and the checks of
/// owners and of indexes follow.
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

/// Names of the objects of a side ("producer", "consumer"; "": both), with what both have, without
/// indexes.
[[nodiscard]] std::vector<std::string_view> objects_of_side(std::string_view side);
/// Names of the tables that a relay uses, beside a table of its owner's or with outbox_events.
[[nodiscard]] std::vector<std::string_view> objects_of_relay(bool with_events);
/// A query for those of them that a crash of the server empties. `place`: their schema, quoted, and
/// a dot. One column: the name as in SQL.
[[nodiscard]] std::string unlogged_sql(std::span<const std::string_view> names,
                                       const std::string& place);

}  // namespace outbox::postgres
