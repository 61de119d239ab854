#include "databases/postgres/source/source.h"

#include <algorithm>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/record/ghosts.h"
#include "databases/postgres/record/ledger.h"
#include "databases/postgres/record/recorder.h"
#include "databases/postgres/source/check.h"
#include "databases/postgres/source/lease.h"
#include "databases/postgres/source/position_reader.h"
#include "databases/postgres/source/scan_reader.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/stream/check.h"
#include "databases/postgres/stream/hub.h"
#include "databases/postgres/stream/reader.h"
#include "relay/position_map.h"
#include "relay/restoring_lease.h"

namespace outbox::postgres {
namespace {

// A route's thread waits for as long as that several times in one step, which is to end long before
// the thread passes for one that hangs. Not at the start, which waits for as long as it is told.
constexpr int kMaxConnectS = 15;

class PostgresSource final : public spi::Source {
  public:
    PostgresSource(PostgresSourceConfig config, Table table)
        : config_(std::move(config)),
          table_(std::move(table)),
          positions_(table_.by_position ? nullptr : std::make_shared<relay::PositionMap>()),
          identity_(table_),
          hub_(config_, table_, identity_) {}

    static PostgresSourceConfig begun(PostgresSourceConfig config) {
        config.connect_timeout_s = std::min(config.connect_timeout_s, kMaxConnectS);
        return config;
    }

    [[nodiscard]] std::string table_name() const override {
        return table_.schema + "." + table_.name;
    }

    [[nodiscard]] bool stable_positions() const override { return table_.by_position; }

    [[nodiscard]] bool keeps_rows() const override { return table_.keep; }

    [[nodiscard]] spi::RowShape shape() const override { return shape_of(table_); }

    // All that the last term had is closed by now.
    void begin_term() override { identity_.begin_term(); }

    Result<std::unique_ptr<spi::Reader>> open_reader(const std::string& route,
                                                     spi::PositionSet finished) override {
        if (table_.by_position && config_.mode != Mode::kPolling) {
            return std::unique_ptr<spi::Reader>(
                new StreamReader(config_, table_, identity_, hub_, std::move(finished)));
        }
        if (table_.by_position) {
            return std::unique_ptr<spi::Reader>(
                new PositionReader(config_, table_, identity_, std::move(finished)));
        }
        return std::unique_ptr<spi::Reader>(
            new ScanReader(config_, table_, identity_, route, positions_));
    }

    Result<std::unique_ptr<spi::Recorder>> open_recorder() override {
        return std::unique_ptr<spi::Recorder>(
            new PostgresRecorder(config_, table_, identity_, positions_));
    }

    Result<std::unique_ptr<spi::LeaseStore>> open_lease() override {
        auto lease = std::make_unique<PostgresLease>(config_, table_, identity_);
        if (!config_.make_side_tables) return {std::move(lease)};
        return std::unique_ptr<spi::LeaseStore>(std::make_unique<relay::RestoringLease>(
            std::move(lease), [this] { return restore_side_tables(); }));
    }

    Result<std::vector<spi::Ghost>> ghosts() override {
        return find_ghosts(config_, table_, identity_);
    }

    // The same as at a start, in a transaction that is rolled back.
    Result<spi::Beginning> preview(std::span<const spi::RouteName> routes) override {
        Result<Connection> connection = Connection::open(config_.url, config_.connect_timeout_s);
        if (!connection.ok()) return connection.status();
        connection->name_holders(config_.url, config_.connect_timeout_s);
        const Result<SideTables> side =
            look_for_side_tables(*connection, quote_identifier(table_.schema));
        if (!side.ok()) return side.status();
        if (!side->missing.empty()) return Source::preview(routes);
        Identity identity(table_);
        LedgerTable ledger(table_, identity, tenant_condition(table_, config_),
                           config_.default_tenant);
        const Status rights = require_rights(*connection, table_);
        if (!rights.ok() && rights.error().code == ErrorCode::kNoRights) return rights;
        Status status = connection->execute("BEGIN; SET LOCAL lock_timeout = '2s'");
        if (status.ok()) status = identity.check_table(*connection);
        if (status.ok()) status = ledger.prepare(*connection);
        if (!status.ok()) return status;
        return ledger.begin(*connection, routes);
    }

    Result<std::vector<spi::Finding>> check() override {
        Result<Connection> connection = Connection::open(config_.url, config_.connect_timeout_s);
        if (!connection.ok()) return connection.status();
        connection->name_holders(config_.url, config_.connect_timeout_s);
        if (Status path = connection->follow(table_.path); !path.ok()) return path;
        return check_table(*connection, table_, config_);
    }

  private:
    // Beside the same table in a database that has taken the place of this one.
    [[nodiscard]] Result<bool> restore_side_tables() const {
        // They come with a dump that is restored, or a migration.
        if (table_.native) return false;
        Result<Connection> connection = Connection::open(config_.url, config_.connect_timeout_s);
        if (!connection.ok()) return connection.status();
        const Result<Table> table = resolve_table(*connection, config_);
        if (!table.ok()) return table.status();
        const Result<SideTables> side =
            look_for_side_tables(*connection, quote_identifier(table->schema));
        if (!side.ok()) return side.status();
        Status status = require_owners(*connection, side->schema, config_, &*table);
        if (!status.ok()) return status;
        if (side->missing.empty()) return false;
        status = make_side_tables(*connection, *side, config_);
        if (!status.ok()) return status;
        return true;
    }

    const PostgresSourceConfig config_;
    const Table table_;
    // Shared with the readers and recorders, which must mean the same row by a position. Null where
    // the table has positions.
    const std::shared_ptr<relay::PositionMap> positions_;
    Identity identity_;  // likewise used by readers, recorders and the hub
    StreamHub hub_;      // used by the readers, which do not outlive the source
};

}  // namespace

Result<std::unique_ptr<spi::Source>> make_postgres_source(const PostgresSourceConfig& config) {
    Result<Connection> connection = Connection::open(config.url, config.connect_timeout_s);
    if (!connection.ok()) return connection.status();
    connection->name_holders(config.url, config.connect_timeout_s);
    Result<Table> table = resolve_table(*connection, config);
    if (!table.ok()) return table.status();
    if (config.make_side_tables && table->deletes_unasked) {
        return table->deletion_refusal(table->sql);
    }
    const Result<SideTables> side =
        look_for_side_tables(*connection, quote_identifier(table->schema));
    if (!side.ok()) return side.status();
    table->side = quote_identifier(side->schema) + ".";
    if (Status owners = require_owners(*connection, side->schema, config, &*table); !owners.ok()) {
        return owners;
    }
    if (Status known = require_known_version(*connection, *table); !known.ok()) return known;
    if (config.make_side_tables && !table->has_scheduled) {
        if (Status one = require_one_place(*connection, *table, *side); !one.ok()) return one;
    }
    if (config.make_side_tables && !side->missing.empty()) {
        if (Status made = make_side_tables(*connection, *side, config); !made.ok()) return made;
    } else {
        table->has_side_tables = !side->none;
    }
    // Without the right to make tables it is only being looked at: `check` tells.
    if (config.make_side_tables && config.mode == Mode::kStream) {
        Result<StreamVerdict> verdict = prepare_stream(*connection, *table, config);
        if (!verdict.ok()) return verdict.status();
        if (!verdict->obstacles.empty()) {
            return ErrorInfo{ErrorCode::kUnsupported,
                             Advice::kStop,
                             {},
                             "mode is stream, but " + verdict->text() +
                                 "; or use mode auto, which polls until the stream is possible"};
        }
    }
    return std::unique_ptr<spi::Source>(
        new PostgresSource(PostgresSource::begun(config), std::move(*table)));
}

}  // namespace outbox::postgres
