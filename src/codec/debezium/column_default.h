#pragma once

#include <optional>
#include <string>

#include <outbox/spi/row_shape.h>

namespace outbox::codec::debezium {

/// The default that Debezium gives the schema of a column, as the text of a value
/// (PostgresDefaultValueConverter): of an expression that computes one, a placeholder of its type.
/// None: there is none, or Debezium does not know it for this type.
[[nodiscard]] std::optional<std::string> default_of(const spi::ColumnShape& column);

}  // namespace outbox::codec::debezium
