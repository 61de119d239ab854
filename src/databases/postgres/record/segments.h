#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <outbox/result.h>

#include "core/absence.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/source/writers.h"

namespace outbox::postgres {

/// The ring of segments of a table that keeps its rows (docs/keep.md): lets writers go on to the
/// next one, and empties those that were left long enough ago and whose rows every route has
/// finished. No insert waits for any of it, nor fails. Used by one thread.
class Segments {
  public:
    explicit Segments(const Table& table);

    /// Does what is due, in several transactions of its own, and returns how many rows went. A
    /// segment that somebody reads or writes stays for now. Blocks for as long as it takes to read
    /// the rows of a segment.
    Result<std::size_t> turn(Connection& connection, std::chrono::seconds retention);
    /// The settled rows in segments that `turn` would look at.
    Result<std::int64_t> rows_due(Connection& connection, std::chrono::seconds retention);
    /// As `ReadMark::forget_writers`: another connection.
    void forget_writers() { leaving_.forget_writers(); }

  private:
    using Numbers = std::vector<spi::Position>;

    Result<Numbers> due(Connection& connection, std::chrono::seconds retention);
    Status wait_for_writers(Connection& connection, const Numbers& due);
    Result<std::size_t> empty(Connection& connection, spi::Position segment,
                              std::chrono::seconds retention);

    const Table table_;
    const std::string place_;  // before the name of a table or function
    const WriterQuery writers_;
    core::Absence leaving_;         // that a writer may still write to, by what it saw as current
    std::set<spi::Position> left_;  // that no writer can
};

}  // namespace outbox::postgres
