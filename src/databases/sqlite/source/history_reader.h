#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "databases/sqlite/client.h"
#include "databases/sqlite/source/table.h"
#include "replay/history.h"

namespace outbox::sqlite {

/// Events that are done with, as SQL on rows aliased t. A place is a row's number in their order,
/// or a pair of that and what tells rows of one number apart, as literals of SQL.
struct HistoryScope {
    std::string from;    ///< Table with alias.
    std::string select;  ///< As `scan_columns`, and behind it `place()`.
    std::string order;   ///< The number; never NULL where `there` holds.
    std::string tie;     ///< Empty: no two rows have one number.
    std::string there;   ///< The row is of the history.
    std::string wanted;  ///< It is selected.
    std::string id;
    std::string time;  ///< When it occurred, in microseconds since the Unix epoch; or NULL.
    bool letters = false;

    /// An expression for a row's place, and what is compared with one.
    [[nodiscard]] std::string place() const;
    [[nodiscard]] std::string row() const { return tie.empty() ? order : "(" + in_order() + ")"; }
    [[nodiscard]] std::string in_order() const { return tie.empty() ? order : order + ", " + tie; }
};

/// The place of the last row of the first `rows` behind `after`, up to `end`; empty: there is none.
Result<replay::Place> last_of_page(Database& database, const HistoryScope& scope,
                                   const replay::Place& after, const replay::Place& end,
                                   std::size_t rows);
/// `comparison` (">", "<=", "=") of a row with a place; of an empty one: true.
[[nodiscard]] std::string compared(const HistoryScope& scope, const char* comparison,
                                   const replay::Place& place);

/// Reads a history in pages: each statement passes over some thousand rows at most, however few of
/// them are selected. Behind each read the numbers that the table has given are looked at, where
/// they are its order (AUTOINCREMENT): `kTableReset` where all are below `end`, and nothing of the
/// read is used.
class SqliteHistoryReader final : public replay::HistoryReader {
  public:
    SqliteHistoryReader(const Table& table, HistoryScope scope, replay::Place after,
                        replay::Place end)
        : table_(table),
          scope_(std::move(scope)),
          session_(table.path, table.busy_timeout_ms),
          after_(std::move(after)),
          end_(std::move(end)) {}

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position> positions) override;
    [[nodiscard]] replay::Place place_of(spi::Position position) const override {
        return places_.at(position);
    }
    [[nodiscard]] bool at_end() const override { return at_end_; }

  private:
    Status check_life(Database& database) const;
    Status read_page(Database& database, const spi::ReadLimits& limits, spi::EventBatch& out);
    void add(const Statement& row, spi::Position position, spi::EventBatch& out) const;

    const Table table_;
    const HistoryScope scope_;
    Session session_;
    replay::Place after_;  // all up to it was returned
    const replay::Place end_;
    replay::Place page_end_;  // empty: the page is over
    bool at_end_ = false;
    std::map<spi::Position, replay::Place> places_;
    spi::Position last_ = 0;  // made up: rows may have other numbers
};

}  // namespace outbox::sqlite
