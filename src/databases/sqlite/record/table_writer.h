#pragma once

#include <string>

#include "databases/sqlite/source/table.h"

namespace outbox::sqlite {

/// The SQL that writes into the outbox table itself, each statement for one row or for old rows.
/// Empty where the table has nothing to write.
class TableWriter {
  public:
    explicit TableWriter(const Table& table);

    /// Parameters: the row's name (a position, or for an adopted table an id); now.
    std::string published;
    std::string dead;
    /// Parameters: the id, attempts, time of the next attempt, error. `last`: there is none.
    std::string attempt;
    std::string last_attempt;
    /// Parameters: the id as text, the id as a blob, now. For a dead row that was delivered.
    std::string redelivered;
    /// Counts, or removes at most so many. Parameters: rows older than this time, and how many.
    std::string prunable;
    std::string prune;
    /// Forgets the attempts of events whose rows are gone or finished. Parameter: the source.
    std::string deleted;
    /// The ids of these rows with their types and places in the order of rows, those behind the
    /// place ?2; removes one of them, its id in place of how many.
    std::string prunable_ids;
    std::string prune_one;

  private:
    [[nodiscard]] std::string finished_columns(const Table& table, const std::string& status,
                                               bool sent, const std::string& now) const;
    [[nodiscard]] std::string attempt_sql(const Table& table, bool last) const;
    [[nodiscard]] std::string prunable_rows(const Table& table) const;
};

}  // namespace outbox::sqlite
