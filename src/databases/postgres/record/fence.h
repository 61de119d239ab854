#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// The lease of a source as its writers see it: what they write is committed only while the lease
/// still has their epoch, which is asked last, so that no wait for a row of somebody else's keeps
/// the lease's row from its owner.
class Fence {
  public:
    explicit Fence(const Table& table) : Fence(table.source, table.side + "outbox_lease") {}
    /// `lease`: the table of the lease, quoted, with its schema.
    Fence(std::string source, std::string lease)
        : source_(std::move(source)), lease_(std::move(lease)) {}

    /// Runs `statements`, asks, and ends the transaction that was begun: rolled back with
    /// `kLeaseLost` where the lease is another's. `affected` gets the row count of each.
    Status commit(Connection& connection, std::uint64_t epoch,
                  std::vector<Connection::Statement> statements,
                  std::vector<std::int64_t>* affected = nullptr) const;

    [[nodiscard]] ErrorInfo lease_lost(std::uint64_t epoch) const;

  private:
    const std::string source_;
    const std::string lease_;
};

}  // namespace outbox::postgres
