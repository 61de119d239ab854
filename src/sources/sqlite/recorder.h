#pragma once

#include <outbox/spi/source.h>

#include "sources/sqlite/client.h"
#include "sources/sqlite/table.h"

namespace outbox::sqlite {

class SqliteRecorder final : public spi::Recorder {
  public:
    explicit SqliteRecorder(const Table& table);

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
    Status remove(Database& database, const spi::RecordBatch& batch, bool owner) const;
    Status add_failed(Database& database, const std::vector<spi::Delivery>& failed) const;
    Status add_dead(Database& database, const std::vector<spi::DeadLetter>& dead) const;
    Status save_ledger(Database& database, const spi::RecordBatch& batch) const;
    Status settle_retries(Database& database, const spi::RecordBatch& batch) const;
    Result<std::size_t> move_rows(Database& database, std::size_t limit) const;

    const Table table_;
    Session session_;
};

}  // namespace outbox::sqlite
