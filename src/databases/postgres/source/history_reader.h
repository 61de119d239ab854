#pragma once

#include <map>
#include <span>
#include <vector>

#include "databases/postgres/session.h"
#include "databases/postgres/source/history_scope.h"
#include "replay/history.h"

namespace outbox::postgres {

/// Reads a history in pages: each statement passes over some thousand rows at most, however few of
/// them are selected. `life`: of the table that the places are of (`life_of`); empty: any. Behind
/// each read it is compared with the table's: `kTableReset`, and nothing of what was read is used.
class PostgresHistoryReader final : public replay::HistoryReader {
  public:
    PostgresHistoryReader(const PostgresSourceConfig& config, const Table& table,
                          HistoryScope scope, std::string life, replay::Place after,
                          replay::Place end);

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position> positions) override;
    [[nodiscard]] replay::Place place_of(spi::Position position) const override {
        return places_.at(position);
    }
    [[nodiscard]] bool at_end() const override { return at_end_; }

  private:
    /// What a statement returned.
    struct Page {
        std::size_t rows = 0;
        replay::Place last;
        bool cut = false;  // behind `last`, as it has the bytes that were wanted
    };
    Status check_life();
    Status turn_page(Connection& connection);
    Status read_page(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out);
    Status take_rows(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out,
                     std::vector<replay::Place>& taken, Page& page);

    const HistoryScope scope_;
    const std::string table_;
    std::string life_;
    Session session_;
    RowSize row_size_;
    std::vector<Field> fields_;
    replay::Place after_;  // all up to it was returned
    const replay::Place end_;
    replay::Place page_end_;  // empty: the page is over
    bool at_end_ = false;
    std::map<spi::Position, replay::Place> places_;
    spi::Position last_ = 0;  // that was returned; made up, where rows have none
};

/// The place of the last row of the first `rows` behind `after`, up to `end`; empty: there is none.
Result<replay::Place> last_of_page(Connection& connection, const HistoryScope& scope,
                                   const replay::Place& after, const replay::Place& end,
                                   std::size_t rows);

}  // namespace outbox::postgres
