#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "backend/database.h"
#include "core/consumer_operations.h"
#include "core/operations.h"
#include "saga/operate.h"
#include "webhook/registry.h"

namespace outbox::app {

/// What a database says of an outbox and of what else of ours it holds.
struct Report {
    std::string source;
    spi::Recorder::Stats database;
    bool is_other_table = false;    ///< See `Operations::is_other_table`.
    std::vector<LeaseInfo> leases;  ///< See `Operations::leases`.
    std::vector<RouteInfo> routes;
    std::vector<LedgerRoute> ledgers;  ///< Where destinations were asked for.
    std::vector<StandbyInfo> standbys;
    struct Paused {
        PausedTenant tenant;
        BoundedCount kept;     ///< Events of it.
        bool counted = false;  ///< `kept` was looked for.
    };
    std::vector<Paused> paused;          ///< Tenants of the table.
    bool has_source = true;              ///< False: none is there, or the role has no right to it.
    std::vector<std::string> not_shown;  ///< What the role has no right to.
    std::vector<ConsumerInfo> consumers;
    std::vector<MailboxInfo> mailboxes;
    bool has_sagas = false;
    std::vector<SagaCount> sagas;
    bool has_webhooks = false;
    webhook::Delivering delivering;
    std::vector<webhook::EndpointReport> endpoints;
};

/// What there is to remark of a table; empty: nothing. `is_other_table`: see `Operations`.
[[nodiscard]] std::string table_remark(bool is_other_table);

/// As `outbox status --json` prints it.
[[nodiscard]] nlohmann::ordered_json json_of(const Report& report);

/// Reads reports. Its connections stay open from one to the next, until a read fails or `close`.
/// Used by one thread; blocks on the database.
class ReportReader {
  public:
    /// `table_named`: an absent table is an error, whatever else there is.
    ReportReader(SourceConfig config, bool table_named);
    ~ReportReader();
    ReportReader(const ReportReader&) = delete;
    ReportReader& operator=(const ReportReader&) = delete;

    /// `with_destinations`: the ledgers, too, with what each route has not finished.
    Result<Report> read(bool with_destinations = false);
    /// The next read opens anew: what was migrated meanwhile is seen as it is.
    void close();

  private:
    struct Open;
    Status open_source();
    Status open_others();
    Status read_source(Report& report, bool with_destinations);
    Status read_paused(Report& report);
    Result<Report> read_parts(bool with_destinations);

    const SourceConfig config_;
    const bool table_named_;
    std::unique_ptr<Open> open_;
};

}  // namespace outbox::app
