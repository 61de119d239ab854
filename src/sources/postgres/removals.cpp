#include "sources/postgres/removals.h"

#include <algorithm>
#include <vector>

namespace outbox::postgres {
namespace {

constexpr std::chrono::milliseconds kWaitMin{10};  // most commits are visible by then
constexpr std::chrono::milliseconds kWaitMax{1'000};

}  // namespace

// Where the numbering began anew other events have these positions: nothing is removed then, and
// the first row says so.
Removals::Removals(const Table& table, Identity& identity)
    : identity_(identity),
      sql_("WITH removed AS (DELETE FROM " + table.sql + " WHERE " +
           quote_identifier(table.position) + " = ANY($1) AND (SELECT " + life_of(table) +
           ") = $2 RETURNING " + quote_identifier(table.position) +
           " AS position) SELECT 0 AS position, (SELECT " + life_of(table) +
           ") = $2 UNION ALL SELECT position, true FROM removed ORDER BY position"),
      writers_(table) {}

void Removals::note(std::span<const spi::Position> positions, std::int64_t rows) {
    if (rows >= static_cast<std::int64_t>(positions.size())) return;
    unseen_.add(positions);
    wait_ = kWaitMin;
    next_ = Clock::now() + wait_;
}

Result<std::size_t> Removals::retry(Connection& connection) {
    if (unseen_.empty() || Clock::now() < next_) return unseen_.size();
    if (Status same = identity_.check_table(connection); !same.ok()) return same;
    const auto writers = writers_.ask(connection);
    if (!writers.ok()) return writers.status();
    unseen_.writers_now(*writers);
    Result<Rows> rows =
        connection.query(sql_, Params().integers(unseen_.positions()).text(identity_.life()));
    if (!rows.ok()) return rows.status();
    if (!rows->boolean(0, 1)) return unseen_.size();
    std::vector<spi::Position> removed;
    for (int row = 1; row < rows->size(); ++row) removed.push_back(rows->integer(row, 0));
    static_cast<void>(unseen_.looked(removed));
    wait_ = removed.empty() ? std::min(wait_ * 2, kWaitMax) : kWaitMin;
    next_ = Clock::now() + wait_;
    return unseen_.size();
}

}  // namespace outbox::postgres
