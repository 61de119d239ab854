#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <outbox/spi/source.h>

#include "sources/position_map.h"
#include "sources/postgres/config.h"
#include "sources/postgres/identity.h"
#include "sources/postgres/removals.h"
#include "sources/postgres/session.h"
#include "sources/postgres/table.h"

namespace outbox::postgres {

/// The statements that write into the outbox table itself.
class TableWriter {
  public:
    explicit TableWriter(const Table& table);

    using Statement = Connection::Statement;

    /// Rows are named by position where those are stable, else by their raw ids.
    struct Keys {
        std::vector<spi::Position> positions;
        std::vector<std::string> raw_ids;
    };
    /// `life`: what `Identity::life` says, so that rows are not touched whose positions were
    /// given anew and mean other events.
    [[nodiscard]] Statement published(const Keys& keys, const std::string& life) const;
    [[nodiscard]] Statement dead(const Keys& keys, const std::string& life) const;
    /// None where the owner's table has no column for it.
    [[nodiscard]] std::optional<Statement> attempt(const Keys& key, std::uint32_t attempts,
                                                   std::int64_t next_attempt_us,
                                                   const std::string& error, bool last) const;
    /// Removes the dead letters, and says in the owner's table that they were published.
    [[nodiscard]] Statement redelivered(const std::vector<std::int64_t>& dead_ids) const;
    [[nodiscard]] std::string prune_sql() const;     ///< Empty: nothing is kept.
    [[nodiscard]] std::string prunable_sql() const;  ///< Counts what `prune_sql` would remove.

  private:
    [[nodiscard]] std::string prunable_rows() const;
    [[nodiscard]] std::string key_condition(int parameter) const;
    [[nodiscard]] Params key_params(const Keys& keys) const;
    [[nodiscard]] std::string finished_columns(const std::string& status, bool sent) const;

    const Table table_;
};

class PostgresRecorder final : public spi::Recorder {
  public:
    /// `positions` is shared with the source's readers; null where positions are stable.
    PostgresRecorder(const PostgresSourceConfig& config, const Table& table, Identity& identity,
                     std::shared_ptr<sources::PositionMap> positions);

    Status record(const spi::RecordBatch& batch) override;
    Result<std::size_t> retry_removals() override;
    Result<std::size_t> move_due(std::uint64_t epoch, std::size_t limit) override;
    Result<std::size_t> prune(std::chrono::seconds retention, std::size_t limit) override;
    Result<std::int64_t> prunable(std::chrono::seconds retention) override;
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view route) override;
    Result<std::vector<spi::PositionRange>> load_ledger(std::string_view route) override;
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view route,
                                                           std::size_t limit) override;
    Result<std::vector<std::string>> load_dead_keys(std::string_view route) override;
    Status save_figures(std::uint64_t epoch, std::span<const spi::RouteFigures> figures) override;
    Result<Stats> stats() override;

  private:
    using Statement = Connection::Statement;

    [[nodiscard]] TableWriter::Keys keys_of(std::span<const spi::Position> positions) const;
    [[nodiscard]] std::string event_id_of(const std::string& raw_id) const;
    [[nodiscard]] std::optional<spi::Position> stable_position(spi::Position position) const;
    Status note_finished(Connection& connection, std::span<const spi::Position> positions);
    Status learn_failing(Connection& connection, std::uint64_t epoch);
    void forget_failing(const TableWriter::Keys& keys, std::vector<Statement>& out);
    void forget_dead(const TableWriter::Keys& keys, std::vector<Statement>& out) const;
    void add_failed(const spi::Delivery& failed, std::vector<Statement>& out);
    void add_dead(const spi::DeadLetter& dead, std::vector<Statement>& out);
    void add_retries(const spi::RecordBatch& batch, std::vector<Statement>& out) const;
    Status commit(Connection& connection, std::uint64_t epoch, bool fenced,
                  std::vector<Statement> statements, std::vector<std::int64_t>* affected = nullptr);
    Result<Rows> query(const std::string& sql, const Params& params);

    const Table table_;
    Identity& identity_;
    const std::string tenants_;  ///< " AND ..." for the tenants of this source.
    const std::string move_due_sql_;
    TableWriter writer_;
    // Shared by the readers of this source, which give and take positions.
    std::shared_ptr<sources::PositionMap> positions_;
    Session session_;
    std::optional<Removals> removals_;  // none where positions are made up
    // Events that have rows in outbox_delivery, so that others cost no look there.
    std::optional<std::uint64_t> failing_epoch_;
    std::unordered_set<spi::Position> failing_positions_;
    std::unordered_set<std::string> failing_ids_;
    bool has_dead_ = false;  // there may be dead letters
};

}  // namespace outbox::postgres
