#include "databases/postgres/source/history_reader.h"

#include <chrono>
#include <string>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/identity.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kPageRows = 10'000;
constexpr std::chrono::milliseconds kReadFor{300};  // pages of which nothing is selected
constexpr const char* kLife = "outbox_replay_life";

// NULL where positions up to the end of the run are still to be given: they will be others' events.
std::string life_up_to(const Table& table, const HistoryScope& scope, const replay::Place& end) {
    if (!scope.has_positions || end.empty()) return "SELECT " + life_of(table);
    return "SELECT CASE WHEN NOT EXISTS (SELECT FROM (" + last_given(table) +
           ") given WHERE last < " + quote_literal(end) + "::bigint) THEN " + life_of(table) +
           " END";
}

}  // namespace

Result<replay::Place> last_of_page(Connection& connection, const HistoryScope& scope,
                                   const replay::Place& after, const replay::Place& end,
                                   std::size_t rows) {
    std::string inner = "SELECT t.* FROM " + scope.from + " WHERE " + scope.there + " AND " +
                        scope.compared(">", after) + " AND " + scope.compared("<=", end) +
                        " ORDER BY " + scope.in_order() + " LIMIT " + std::to_string(rows);
    const Result<Rows> last = connection.query("SELECT " + scope.place() + " FROM (" + inner +
                                               ") t ORDER BY " + scope.reversed() + " LIMIT 1");
    if (!last.ok()) return last.status();
    return last->empty() ? replay::Place() : last->string(0, 0);
}

PostgresHistoryReader::PostgresHistoryReader(const PostgresSourceConfig& config, const Table& table,
                                             HistoryScope scope, std::string life,
                                             replay::Place after, replay::Place end)
    : scope_(std::move(scope)),
      table_(table.sql),
      life_(std::move(life)),
      session_(
          config,
          [sql = life_up_to(table, scope_, end)](Connection& connection) {
              return connection.prepare(kLife, sql, {});
          },
          table.path),
      fields_(scope_.columns + 1),
      after_(std::move(after)),
      end_(std::move(end)) {}

// Before anything is concluded from what was read.
Status PostgresHistoryReader::check_life() {
    if (life_.empty()) return {};
    const Result<Connection*> connection = session_.get();  // another one, where a cut ended it
    if (!connection.ok()) return connection.status();
    const Result<Rows> rows = (*connection)->query_prepared(kLife, {});
    if (!rows.ok()) return rows.status();
    if (rows->text(0, 0) != life_) return replay::began_anew(table_);
    return {};
}

Status PostgresHistoryReader::turn_page(Connection& connection) {
    auto last = last_of_page(connection, scope_, after_, end_, kPageRows);
    if (!last.ok()) return last.status();
    if (Status same = check_life(); !same.ok()) return same;
    page_end_ = std::move(*last);
    at_end_ = page_end_.empty();
    return {};
}

Status PostgresHistoryReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    const std::size_t before = out.size();
    const auto until = std::chrono::steady_clock::now() + kReadFor;
    Status status;
    while (status.ok() && !at_end_ && out.size() == before &&
           std::chrono::steady_clock::now() < until) {
        if (page_end_.empty()) status = turn_page(**connection);
        if (status.ok() && !at_end_) status = read_page(**connection, limits, out);
    }
    if (!status.ok()) session_.drop();
    return status;
}

Status PostgresHistoryReader::read_page(Connection& connection, const spi::ReadLimits& limits,
                                        spi::EventBatch& out) {
    const std::size_t before = out.size();
    const std::size_t bytes_before = out.bytes();
    const spi::Position last_before = last_;
    const std::size_t limit = row_size_.limit(limits.max_events, limits.max_bytes);
    std::vector<replay::Place> taken;
    Page page;
    Status status = connection.start_copy("SELECT " + scope_.select + " FROM " + scope_.from +
                                          " WHERE " + scope_.there + " AND " + scope_.wanted +
                                          " AND " + scope_.compared(">", after_) + " AND " +
                                          scope_.compared("<=", page_end_) + " ORDER BY " +
                                          scope_.in_order() + " LIMIT " + std::to_string(limit));
    if (status.ok()) status = take_rows(connection, limits, out, taken, page);
    row_size_.note(taken.size(), out.bytes() - bytes_before);
    if (status.ok()) status = check_life();
    if (!status.ok()) {
        out.events().resize(before);
        last_ = last_before;
        return status;
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
        places_[out.events()[before + i].position] = taken[i];
    }
    if (page.cut || page.rows == limit) {
        after_ = std::move(page.last);
    } else {
        after_ = std::exchange(page_end_, {});
    }
    return {};
}

Status PostgresHistoryReader::take_rows(Connection& connection, const spi::ReadLimits& limits,
                                        spi::EventBatch& out, std::vector<replay::Place>& taken,
                                        Page& page) {
    Status status;
    while (connection.next(fields_, status)) {
        ++page.rows;
        const Field& place = fields_.back();
        page.last.assign(place.data == nullptr ? "" : place.data, place.size);
        const spi::Position position =
            scope_.has_positions ? decode_integer(fields_[kPosition]) : last_ + 1;
        // Segments hold a position twice where somebody set the sequence back: one of them counts.
        if (position <= last_) continue;
        last_ = position;
        Status decoded =
            decode_row(std::span(fields_).first(scope_.columns), scope_.layout, position, out);
        if (!decoded.ok()) return decoded;
        taken.push_back(page.last);
        if (out.bytes() >= limits.max_bytes) {
            page.cut = true;
            connection.stop();
            return {};
        }
    }
    return status;
}

Status PostgresHistoryReader::fetch(std::span<const spi::Position> positions,
                                    spi::EventBatch& out) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    const std::size_t before = out.size();
    Status status;
    for (const spi::Position position : positions) {
        const auto place = places_.find(position);
        if (place == places_.end()) continue;
        status = (*connection)
                     ->start_copy("SELECT " + scope_.select + " FROM " + scope_.from + " WHERE " +
                                  scope_.there + " AND " + scope_.compared("=", place->second) +
                                  " LIMIT 1");
        while (status.ok() && (*connection)->next(fields_, status)) {
            status =
                decode_row(std::span(fields_).first(scope_.columns), scope_.layout, position, out);
        }
        if (!status.ok()) break;
    }
    if (status.ok()) status = check_life();
    if (!status.ok()) {
        out.events().resize(before);
        session_.drop();
    }
    return status;
}

void PostgresHistoryReader::forget(std::span<const spi::Position> positions) {
    for (const spi::Position position : positions) places_.erase(position);
}

}  // namespace outbox::postgres
