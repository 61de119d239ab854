#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <outbox/spi/source.h>

#include "sources/postgres/config.h"
#include "sources/postgres/decode.h"
#include "sources/postgres/position_map.h"
#include "sources/postgres/session.h"
#include "sources/postgres/table.h"

namespace outbox::postgres {

/// Reads a table that has no proving position: each read is one statement over the unfinished
/// rows but those that are known, in one snapshot, so that no event is overtaken by one that
/// was written after it committed.
class ScanReader final : public spi::Reader {
  public:
    /// Unfinished rows that a reader has returned; at this many it waits for some to end.
    static constexpr std::size_t kMaxKnown = 100'000;

    /// `positions` is shared with the other readers and recorders of the source.
    ScanReader(const PostgresSourceConfig& config, const Table& table,
               std::shared_ptr<PositionMap> positions);
    ~ScanReader() override;

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position> positions) override;
    void rewind() override;

  private:
    struct Row {
        spi::Position position = 0;
        bool known = false;  // not to be returned again
    };

    Status prepare(Connection& connection) const;
    [[nodiscard]] std::string scan_sql(const std::string& known, const std::string& limit) const;
    [[nodiscard]] std::vector<std::string> known_ids() const;
    Status start(Connection& connection, std::size_t limit);
    Status read_some(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out);
    Status take_rows(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out);
    Row& hold(const std::string& raw_id);
    void release_gone();
    void let_go(std::span<const spi::Position> positions);

    const Table table_;
    const std::string select_;
    const std::string tenants_;
    const std::string id_type_;
    const RowLayout layout_;
    // Shared by the readers and the recorder of a source, which name rows by these positions.
    const std::shared_ptr<PositionMap> positions_;
    Session session_;
    RowSize row_size_;
    std::unordered_map<std::string, Row> rows_;  // held, by raw id
    std::unordered_map<spi::Position, std::string> raw_ids_;
    std::vector<Field> fields_;
    // This route has finished them, another has not: still unfinished in the table.
    std::vector<spi::Position> forgotten_;
    std::vector<std::string> taken_;  // by the statement under way
    std::size_t returned_ = 0;        // rows of that statement
    bool cut_ = false;                // it was stopped at max_bytes
    bool full_ = false;
    bool at_end_ = false;
    bool rewound_ = false;
};

}  // namespace outbox::postgres
