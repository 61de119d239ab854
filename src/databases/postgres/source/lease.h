#pragma once

#include <functional>
#include <string>

#include <outbox/spi/source.h>

#include "databases/postgres/identity.h"
#include "databases/postgres/session.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// Where a lease is kept.
struct LeaseRow {
    std::string source;
    std::string table;      ///< Quoted, with its schema.
    std::string side = {};  ///< Before `outbox_standbys`; empty: nobody says that it waits.
};

/// The lease as a row of outbox_lease, or a table like it; the database's clock decides.
class PostgresLease final : public spi::LeaseStore {
  public:
    /// `identity` is the source's and outlives the lease.
    PostgresLease(const PostgresSourceConfig& config, const Table& table, Identity& identity);
    /// `check` looks at each new connection, `wrote` hears what the row says after each change.
    PostgresLease(const PostgresSourceConfig& config, LeaseRow row,
                  std::function<Status(Connection&)> check,
                  std::function<void(const LeaseWritten&)> wrote = {});

    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override;
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override;
    Status release(std::uint64_t epoch) override;
    Status stand_by(const std::string& owner, std::span<const std::string> routes) override;

  private:
    Result<std::optional<LeaseWritten>> take(const std::string& owner,
                                             std::chrono::milliseconds ttl);
    Result<Rows> query(const std::string& sql, const Params& params);
    [[nodiscard]] LeaseWritten written(std::uint64_t epoch) const;
    void wrote(const LeaseWritten& lease);

    const LeaseRow row_;
    const std::function<void(const LeaseWritten&)> tell_wrote_;
    LeaseWritten written_;  // last
    Session session_;
};

}  // namespace outbox::postgres
