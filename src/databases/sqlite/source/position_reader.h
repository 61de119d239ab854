#pragma once

#include <outbox/spi/source.h>

#include "databases/sqlite/source/identity.h"
#include "databases/sqlite/source/poll_session.h"
#include "databases/sqlite/source/table.h"

namespace outbox::sqlite {

/// Reads the rows above a mark. SQLite has one writer at a time, which takes its positions inside
/// its transaction: position order is commit order, nothing commits late, and what is missing
/// below a row that was read stays missing.
class PositionReader final : public spi::Reader {
  public:
    /// Rows of `finished` are passed over.
    PositionReader(const Table& table, Identity& identity, spi::PositionSet finished);

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position>) override {}

  private:
    struct Statements {
        Statements(Database& file, const Table& table);
        [[nodiscard]] Status first_error() const;
        Database& database;
        Statement rows;
        Statement by_position;
        Statement last_position;
    };

    Status read_rows(Statements& statements, const spi::ReadLimits& limits, spi::EventBatch& out,
                     bool& at_end);
    Status check_life(Statement& last_position) const;

    const Table table_;
    Identity& identity_;
    const spi::PositionSet finished_;
    PollSession<Statements> session_;
    spi::Position mark_ = 0;
    spi::Position last_ = 0;  // that was read and is no other tenant's
    std::string last_id_;
};

}  // namespace outbox::sqlite
