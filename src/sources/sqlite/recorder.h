#pragma once

#include <memory>
#include <optional>
#include <string>

#include <outbox/spi/source.h>

#include "sources/position_map.h"
#include "sources/sqlite/client.h"
#include "sources/sqlite/table.h"
#include "sources/sqlite/table_writer.h"

namespace outbox::sqlite {

class SqliteRecorder final : public spi::Recorder {
  public:
    /// `positions` is shared with the source's readers; null where rows have positions.
    SqliteRecorder(const Table& table, std::shared_ptr<sources::PositionMap> positions);

    Status record(const spi::RecordBatch& batch) override;
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
    /// Runs `work` in one write transaction; the connection is made anew after an error.
    template <typename Work>
    Status transact(Work work);
    Result<bool> holds_lease(Database& database, std::uint64_t epoch) const;
    [[nodiscard]] ErrorInfo lease_lost(std::uint64_t epoch) const;

    Status write_batch(Database& database, const spi::RecordBatch& batch) const;
    Status finish(Database& database, const spi::RecordBatch& batch, bool owner) const;
    Status finish_row(Statement& row, spi::Position position) const;
    Status forget_state(Database& database, const spi::RecordBatch& batch) const;
    Status write_attempt(Database& database, const std::string& sql, spi::Position position,
                         std::uint32_t attempts, std::int64_t next_attempt_us,
                         const std::string& error) const;
    Status say_delivered(Database& database, std::int64_t dead_id) const;
    /// The name of an adopted table's row; none: nobody holds it any more.
    [[nodiscard]] std::optional<std::string> raw_id(spi::Position position) const;
    /// A position that was made up means nothing to the next process.
    void bind_position(Statement& statement, spi::Position position) const;
    Status add_failed(Database& database, const std::vector<spi::Delivery>& failed) const;
    Status add_dead(Database& database, const std::vector<spi::DeadLetter>& dead) const;
    Status save_ledger(Database& database, const spi::RecordBatch& batch) const;
    Status settle_retries(Database& database, const spi::RecordBatch& batch) const;
    Result<std::size_t> move_rows(Database& database, std::size_t limit) const;

    const Table table_;
    const TableWriter writer_;
    // Shared by the readers of this source, which give and take positions.
    const std::shared_ptr<sources::PositionMap> positions_;
    Session session_;
};

}  // namespace outbox::sqlite
