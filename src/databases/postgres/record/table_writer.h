#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// The statements that write into the outbox table itself.
class TableWriter {
  public:
    explicit TableWriter(const Table& table);

    using Statement = Connection::Statement;

    /// Rows are named by position where those are stable, else by their raw ids.
    struct Keys {
        std::vector<spi::Position> positions;
        std::vector<std::string> raw_ids;
    };
    /// Says in the owner's table that these were published, or removes them; of a table without
    /// positions. `free_only`: passes over rows that somebody holds. Returns the raw ids.
    [[nodiscard]] Statement published(const std::vector<std::string>& raw_ids,
                                      bool free_only) const;
    /// The same of those that are dead in a route.
    [[nodiscard]] Statement dead(const std::vector<std::string>& raw_ids, bool free_only) const;
    /// Writes down that these rows, where they still are unfinished, are owed their end.
    [[nodiscard]] Statement owed(const std::vector<std::string>& raw_ids) const;
    /// Those of them that still are unfinished and that nobody holds.
    [[nodiscard]] Statement unfinished(const std::vector<std::string>& raw_ids) const;
    /// None where the owner's table has no column for it.
    [[nodiscard]] std::optional<Statement> attempt(const Keys& key, std::uint32_t attempts,
                                                   std::int64_t next_attempt_us,
                                                   const std::string& error, bool last,
                                                   bool free_only) const;
    [[nodiscard]] Statement remove_letters(const std::vector<std::int64_t>& dead_ids) const;
    /// Removes the dead letters, and says in the owner's table that they were published.
    [[nodiscard]] Statement redelivered(const std::vector<std::int64_t>& dead_ids) const;
    [[nodiscard]] std::string prune_sql() const;     ///< Empty: nothing is kept.
    [[nodiscard]] std::string prunable_sql() const;  ///< Counts what `prune_sql` would remove.
    /// The raw ids of the first `limit` rows that `prune_sql` would remove, behind one of them.
    [[nodiscard]] Statement prunable(std::chrono::seconds retention, std::size_t limit,
                                     const std::optional<std::string>& after) const;
    /// Removes those of them that may go; as `published` returns them. `free_only`, which takes the
    /// right to UPDATE: passes over rows that somebody holds.
    [[nodiscard]] Statement prune(std::chrono::seconds retention,
                                  const std::vector<std::string>& raw_ids, bool free_only) const;

  private:
    [[nodiscard]] std::string prunable_rows() const;
    [[nodiscard]] std::string key_condition(bool free_only) const;
    [[nodiscard]] Params key_params(const Keys& keys) const;
    [[nodiscard]] std::string finished_columns(const std::string& status, bool sent) const;

    const Table table_;
};

}  // namespace outbox::postgres
