#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/position_set.h>

#include "core/operations.h"
#include "databases/sqlite/client.h"
#include "databases/sqlite/source/config.h"
#include "databases/sqlite/source/table.h"

namespace outbox::sqlite {

/// A relay for some tenants only writes "table/tenant,...": it belongs to the table, too.
inline constexpr const char* kOfTable =
    "(source = ?1 OR substr(source, 1, length(?1) + 1) = ?1 || '/')";

/// What a route has finished, by its ledger. Only of a native table.
Result<spi::PositionSet> load_finished(Database& database, const std::string& source,
                                       const std::string& route);

/// The highest position that a native table ever gave.
Result<spi::Position> last_position(Database& database, const std::string& table);

/// See `Operations::is_other_table`; of a native table with side tables.
Result<bool> is_other_table(Database& database, const std::string& table);

/// What operators do to the routes of `table`; see `Operations`. Used by one thread.
class RouteLedgers {
  public:
    /// `os_user`: whom the audit names when something is changed.
    RouteLedgers(Database& database, const SqliteSourceConfig& config, std::string table,
                 const std::string& os_user)
        : database_(database), config_(config), table_(std::move(table)), os_user_(os_user) {}

    /// The held ones first.
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
    /// SQLite tells by its numbers alone whether a table began anew: nothing is to be settled.
    Result<std::int64_t> keep();
    Result<std::int64_t> forget();

  private:
    // In a transaction that no relay of the table that serves one of `tenants` (none: any) can
    // begin or go on in; `change` says whether it is to be committed.
    Status alone(const std::vector<std::string>& tenants,
                 const std::function<Result<bool>()>& change);
    Status move_replays(const std::vector<std::string>& tenants, const std::string& from,
                        const std::string& to);
    Status move_stats(const std::string& source, const std::string& from, const std::string& to);
    [[nodiscard]] std::string source_of(const std::vector<std::string>& tenants) const;
    // Hands over the tenant of each row that the route has not finished, until `take` says no.
    // Without a name it is a route that has finished nothing.
    Status unfinished_rows(const std::string& source, const std::string& route,
                           const std::function<bool(const std::string&)>& take,
                           bool nameless = false);
    Result<BoundedCount> count_unfinished(const std::string& source, const std::string& route,
                                          const std::string* tenant = nullptr);
    // Statements with ?1 the source or table, ?2 and ?3.
    Result<std::int64_t> number(const std::string& sql, const std::string& source,
                                const std::string& second, const std::string& third = {});
    Status run(const std::string& sql, const std::string& source, const std::string& second,
               const std::string& third = {});
    // The line of the audit, in the transaction of the change.
    Status note(const std::string& action, const std::string& detail);

    Database& database_;
    const SqliteSourceConfig& config_;
    const std::string table_;
    const std::string& os_user_;
};

}  // namespace outbox::sqlite
