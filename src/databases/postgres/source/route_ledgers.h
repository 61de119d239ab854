#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "core/operations.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// A relay for some tenants only writes "schema.table/tenant,...": it belongs to the table, too.
inline constexpr const char* kOfTable = "(source = $1 OR starts_with(source, $1 || '/'))";

/// See `Operations::is_other_table`; of a table with side tables.
Result<bool> is_other_table(Connection& connection, const Table& table);

/// What operators do to the routes of `table`; see `Operations`. Used by one thread.
class RouteLedgers {
  public:
    /// `os_user`: whom the audit names when something is changed.
    RouteLedgers(Connection& connection, const PostgresSourceConfig& config, std::string side,
                 std::string table, const std::string& os_user)
        : connection_(connection),
          config_(config),
          side_(std::move(side)),
          table_(std::move(table)),
          os_user_(os_user) {}

    Result<std::vector<LeaseInfo>> leases();
    Result<std::vector<LedgerRoute>> list(bool count_unfinished);
    /// See `Operations::is_other_table`.
    Result<bool> are_of_another();
    /// See `Operations::unfinished_of_tenant`.
    Result<BoundedCount> unfinished_of(const std::string& tenant);
    Result<TenantBacklogs> tenant_backlogs();
    Result<std::int64_t> accept(const std::vector<std::string>& tenants, const std::string& route);
    Result<std::int64_t> rename(const std::vector<std::string>& tenants, const std::string& from,
                                const std::string& to);
    Result<RetiredRoute> retire(const std::vector<std::string>& tenants, const std::string& route,
                                bool with_unfinished);
    Result<std::int64_t> keep();
    Result<std::int64_t> forget();

  private:
    // In a transaction that no relay of the table that serves one of `tenants` (none: any) can
    // begin or go on in; `change` says whether it is to be committed.
    Status alone(const std::vector<std::string>& tenants,
                 const std::function<Result<bool>()>& change);
    Status end_leases(const std::vector<std::string>& tenants);
    Status refuse_to_retire_the_last(const std::string& source, const std::string& route,
                                     const std::vector<LedgerRoute>& routes);
    Status move_replays(const std::vector<std::string>& tenants, const std::string& from,
                        const std::string& to);
    Status move_stats(const std::string& source, const std::string& from, const std::string& to);
    [[nodiscard]] std::string source_of(const std::vector<std::string>& tenants) const;
    Result<Table> resolve();
    // SELECT of `columns`, and the parameters of it, for each row that the route has not finished:
    // all of a table that is another than the ledgers are of. Without a name it is a route that
    // has finished nothing.
    Result<std::string> unfinished_rows(const Table& table, const std::string& source,
                                        const std::string& route, const std::string& columns,
                                        Params& params, bool nameless = false) const;
    [[nodiscard]] std::string tenant_of(const Table& table) const;
    Result<BoundedCount> count_unfinished(const std::string& source, const std::string& route,
                                          const std::string* tenant = nullptr);
    Result<std::int64_t> number(const std::string& sql, const Params& params);
    // The line of the audit, in the transaction of the change.
    Status note(const std::string& action, const std::string& detail);

    Connection& connection_;
    const PostgresSourceConfig& config_;
    const std::string side_;  // before the name of a side table
    const std::string table_;
    const std::string& os_user_;
};

}  // namespace outbox::postgres
