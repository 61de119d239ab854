#pragma once

#include <optional>

#include <outbox/spi/source.h>

#include "sources/sqlite/client.h"
#include "sources/sqlite/table.h"

namespace outbox::sqlite {

/// Reads the rows above a mark. SQLite has one writer at a time, which takes its positions inside
/// its transaction: position order is commit order, nothing commits late, and what is missing
/// below a row that was read stays missing.
class SqliteReader final : public spi::Reader {
  public:
    explicit SqliteReader(const Table& table);

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position>) override {}
    void rewind() override;

  private:
    struct Statements {
        explicit Statements(Database& database, const Table& table);
        Statement version;
        Statement rows;
        Statement by_position;
    };

    Result<Statements*> statements();
    Status read_rows(Statement& rows, const spi::ReadLimits& limits, spi::EventBatch& out,
                     bool& at_end);
    void drop();

    const Table table_;
    Session session_;
    std::optional<Statements> statements_;  // Goes before the connection does.
    spi::Position mark_ = 0;
    std::optional<std::int64_t> version_at_end_;  // The database's, when nothing was left.
};

}  // namespace outbox::sqlite
