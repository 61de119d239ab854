#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace outbox {

/// A shape of outbox table that teams already have; the name is what `[source.table] preset` takes.
struct TableShape {
    std::string_view preset;
    std::string_view description;
};

/// The known shapes, in the order of the documentation (1 to 6).
[[nodiscard]] std::span<const TableShape> table_shapes();

/// The shape that a table with these columns has (names as in the catalog), or none.
[[nodiscard]] std::optional<TableShape> recognise_table_shape(std::span<const std::string> columns);

/// True for the table that `outbox migrate` makes.
[[nodiscard]] bool is_native_table(std::span<const std::string> columns);

/// What to do about something that has the name of one of our indexes. `what`: "index
/// outbox_saga_open is of table app.orders, not of outbox_saga".
[[nodiscard]] std::string misplaced_index(const std::string& what);

}  // namespace outbox
