#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/routing.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/decode.h"
#include "databases/postgres/source/table.h"
#include "replay/history.h"

namespace outbox::postgres {

/// Events that are done with, as SQL on rows aliased t.
struct HistoryScope {
    std::string from;    ///< Table with alias.
    std::string select;  ///< As `select_list`, and behind it the place of the row.
    std::size_t columns = 0;
    RowLayout layout;
    bool has_positions = false;  ///< Of its own, in the first column.
    /// What rows are in order by: expressions with their types. Never NULL where `there` holds.
    std::vector<std::pair<std::string, std::string>> order;
    std::string there;   ///< The row is of the history.
    std::string behind;  ///< It is behind the history, where that can be; else empty.
    std::string wanted;  ///< It is selected.
    std::string id;      ///< As text.
    std::string time;    ///< When it occurred, a timestamptz; empty: the table does not tell.
    std::string size;    ///< Of its payload.

    [[nodiscard]] std::string place() const;     ///< Of a row, as text.
    [[nodiscard]] std::string in_order() const;  ///< "a, b"
    [[nodiscard]] std::string reversed() const;  ///< "a DESC, b DESC"
    /// `comparison` (">", "<=", "=") of a row with a place; of an empty one: true.
    [[nodiscard]] std::string compared(const char* comparison, const replay::Place& place) const;
};

/// What a route of `source` (`tenants`: that it serves; none: all) has published. `settled`: of a
/// table that keeps its rows. Errors: `kTableShape`.
Result<HistoryScope> published_scope(const Table& table, const PostgresSourceConfig& config,
                                     const replay::Selection& selection,
                                     const core::Predicate& predicate, const std::string& source,
                                     const std::vector<std::string>& tenants,
                                     spi::Position settled);

/// The dead letters of the route of `source`, but those that are being retried.
[[nodiscard]] HistoryScope dead_scope(const Table& table, const std::string& source,
                                      const replay::Selection& selection,
                                      const std::string& default_tenant);

}  // namespace outbox::postgres
