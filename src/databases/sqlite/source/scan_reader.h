#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <outbox/spi/source.h>

#include "databases/sqlite/source/identity.h"
#include "databases/sqlite/source/poll_session.h"
#include "databases/sqlite/source/table.h"
#include "relay/known_rows.h"
#include "relay/read_ahead.h"

namespace outbox::sqlite {

/// What is read of a row aliased t, beginning with the type of its id and the id; and how many
/// columns that are.
[[nodiscard]] std::string scan_columns(const Table& table);
inline constexpr int kScanColumns = 17;
/// Adds the event of a row that begins with such columns.
void add_scanned(const Statement& row, spi::Position position, std::string_view id,
                 spi::EventBatch& out);
/// The same of a row of the table.
void add_scanned_row(const Table& table, const Statement& row, spi::Position position,
                     const std::string& raw_id, spi::EventBatch& out);

/// Reads a table that a team brought along: each read is one statement over the unfinished rows, in
/// the order in which they were written, stepping over those that are known. Behind a full one it
/// reads ahead.
class ScanReader final : public spi::Reader {
  public:
    /// `positions` is shared with the other readers and recorders of the source.
    ScanReader(const Table& table, const Identity& identity, const std::string& route,
               std::shared_ptr<relay::PositionMap> positions);

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position> positions) override;

  private:
    struct Statements {
        Statements(Database& file, const Table& table, const std::string& route);
        [[nodiscard]] Status first_error() const;
        Database& database;
        Statement rows;
        Statement by_id;
    };

    Status read_rows(Statements& statements, const spi::ReadLimits& limits, spi::EventBatch& out,
                     bool& at_end);

    const Table table_;
    const Identity& identity_;
    PollSession<Statements, std::string> session_;
    relay::KnownRows rows_;
    relay::ReadAhead ahead_;
    bool full_ = false;  // the last statement returned as much as it might
};

}  // namespace outbox::sqlite
