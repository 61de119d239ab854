#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "core/absence.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/identity.h"
#include "databases/postgres/record/fence.h"
#include "databases/postgres/record/ledger.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/source/writers.h"

namespace outbox::postgres {

/// Takes rows that every route has finished out of a table with positions. A row that is not
/// there, as its commit is not visible yet, that somebody holds, or that the table does not let go
/// (a trigger, a foreign key), is removed later: it stays named until it is hit or proved gone.
/// Used by one thread.
class Removals {
  public:
    Removals(const Table& table, Identity& identity, const LedgerTable& ledger, const Fence& fence);

    /// Once for each connection.
    Status prepare(Connection& connection);
    /// See `spi::Recorder::remove`. After an error nothing is forgotten.
    Result<spi::Removed> remove(Connection& connection, std::uint64_t epoch,
                                std::span<const spi::Position> positions);

  private:
    using Clock = std::chrono::steady_clock;
    using Positions = std::vector<spi::Position>;

    Result<spi::Removed> try_remove(Connection& connection, std::uint64_t epoch,
                                    std::span<const spi::Position> positions, bool careful);
    Status remove_rows(Connection& connection, const char* how,
                       std::span<const spi::Position> positions, Positions& hit);
    Result<bool> remove_part(Connection& connection, std::span<const spi::Position> part,
                             Positions& hit);
    Status remove_free(Connection& connection, std::span<const spi::Position> positions,
                       Positions& hit);
    Status try_kept(Connection& connection, Positions& found);
    Status look_for_unseen(Connection& connection, bool careful, Positions& hit, Positions& held,
                           Positions& gone);
    Status look_for_kept(Connection& connection, Positions& held, Positions& found);
    Result<Positions> present(Connection& connection, std::span<const spi::Position> positions);

    const Table table_;
    Identity& identity_;
    const LedgerTable& ledger_;
    const Fence& fence_;
    const WriterQuery writers_;
    std::string remove_free_sql_;
    core::Absence unseen_;
    bool refused_ = false;  // by the table, now
    std::string refusal_;
    std::set<spi::Position> kept_;  // of `unseen_`: asked for alone, the table keeps them
    spi::Position tried_kept_ = 0;  // the next look tries those behind this one
    Clock::time_point next_{};
    std::chrono::milliseconds wait_{};
};

}  // namespace outbox::postgres
