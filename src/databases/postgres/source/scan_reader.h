#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "databases/postgres/identity.h"
#include "databases/postgres/session.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/decode.h"
#include "databases/postgres/source/table.h"
#include "relay/known_rows.h"
#include "relay/read_ahead.h"

namespace outbox::postgres {

/// Reads a table that has no proving position: each read is one statement over the unfinished
/// rows but those that are known or that the route has finished, in one snapshot, so that no event
/// is overtaken by one that was written after it committed. Behind a full one it reads ahead.
class ScanReader final : public spi::Reader {
  public:
    /// `identity` is the source's and outlives the reader. `positions` is shared with the other
    /// readers and recorders of the source.
    ScanReader(const PostgresSourceConfig& config, const Table& table, Identity& identity,
               const std::string& route, std::shared_ptr<relay::PositionMap> positions);

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position> positions) override { rows_.forget(positions); }

  private:
    Status prepare(Connection& connection);
    [[nodiscard]] std::string scan_sql(const std::string& known, const std::string& limit,
                                       bool beside_many) const;
    Status look_at_done(Connection& connection);
    Status start(Connection& connection, std::size_t limit);
    Status read_some(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out);
    Status take_rows(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out);

    const Table table_;
    Identity& identity_;
    const std::string route_;  // an SQL literal
    const std::string select_;
    const std::string tenants_;
    const std::string id_type_;
    const RowLayout layout_;
    Session session_;
    RowSize row_size_;
    relay::KnownRows rows_;  // by raw id
    std::vector<Field> fields_;
    std::vector<std::string> taken_;  // by the statement under way
    std::size_t returned_ = 0;        // rows of that statement
    bool cut_ = false;                // it was stopped at max_bytes
    bool full_ = false;
    bool at_end_ = false;
    relay::ReadAhead ahead_;
    bool beside_many_ = false;  // rows are done here and not in another route
    std::chrono::steady_clock::time_point looked_at_done_{};
};

}  // namespace outbox::postgres
