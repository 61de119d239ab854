#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include <outbox/result.h>

#include "core/absence.h"
#include "sources/postgres/client.h"
#include "sources/postgres/identity.h"
#include "sources/postgres/table.h"
#include "sources/postgres/writers.h"

namespace outbox::postgres {

/// Removals that hit fewer rows than they named: removed again and again, until each is hit or
/// proved gone, so that no row that becomes visible late is left. Used by one
/// thread; only for tables with positions.
class Removals {
  public:
    Removals(const Table& table, Identity& identity);

    /// A removal of `positions` hit only `rows` rows.
    void note(std::span<const spi::Position> positions, std::int64_t rows);
    /// Tries those that are due; how many are left.
    Result<std::size_t> retry(Connection& connection);

    [[nodiscard]] bool full() const { return unseen_.size() >= core::Absence::kMax; }
    /// The connection is new.
    void forget_writers() { unseen_.forget_writers(); }

  private:
    using Clock = std::chrono::steady_clock;

    Identity& identity_;
    const std::string sql_;
    const WriterQuery writers_;
    core::Absence unseen_;
    Clock::time_point next_{};
    std::chrono::milliseconds wait_{};
};

}  // namespace outbox::postgres
