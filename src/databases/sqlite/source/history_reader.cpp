#include "databases/sqlite/source/history_reader.h"

#include <chrono>
#include <utility>
#include <vector>

#include "databases/sqlite/source/scan_reader.h"

namespace outbox::sqlite {
namespace {

constexpr std::size_t kPageRows = 10'000;
constexpr std::chrono::milliseconds kReadFor{300};  // pages of which nothing is selected

}  // namespace

// Literals, as a text of a REAL is not that number.
std::string HistoryScope::place() const {
    const std::string number = "quote(" + order + ")";
    return tie.empty() ? number : "'(' || " + number + " || ', ' || quote(" + tie + ") || ')'";
}

std::string compared(const HistoryScope& scope, const char* comparison,
                     const replay::Place& place) {
    return place.empty() ? std::string("true") : scope.row() + " " + comparison + " " + place;
}

Result<replay::Place> last_of_page(Database& database, const HistoryScope& scope,
                                   const replay::Place& after, const replay::Place& end,
                                   std::size_t rows) {
    const std::string tie = scope.tie.empty() ? "0" : scope.tie;
    Statement last(database, "SELECT place FROM (SELECT " + scope.place() + " AS place, " +
                                 scope.order + " AS number, " + tie + " AS tie FROM " + scope.from +
                                 " WHERE " + scope.there + " AND " + compared(scope, ">", after) +
                                 " AND " + compared(scope, "<=", end) + " ORDER BY " +
                                 scope.in_order() + " LIMIT " + std::to_string(rows) +
                                 ") ORDER BY number DESC, tie DESC LIMIT 1");
    replay::Place place;
    if (last.step()) place = last.string(0);
    if (Status status = last.status(); !status.ok()) return status;
    return place;
}

Status SqliteHistoryReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    const std::size_t before = out.size();
    const auto until = std::chrono::steady_clock::now() + kReadFor;
    Status status;
    while (status.ok() && !at_end_ && out.size() == before &&
           std::chrono::steady_clock::now() < until) {
        if (page_end_.empty()) {
            auto last = last_of_page(**database, scope_, after_, end_, kPageRows);
            if (!last.ok()) {
                status = last.status();
                break;
            }
            if (status = check_life(**database); !status.ok()) break;
            page_end_ = std::move(*last);
            at_end_ = page_end_.empty();
        }
        if (!at_end_) status = read_page(**database, limits, out);
    }
    if (!status.ok()) session_.drop();
    return status;
}

// Before anything is concluded from what was read.
Status SqliteHistoryReader::check_life(Database& database) const {
    if (scope_.letters || !scope_.tie.empty()) return {};
    // Where nothing has been inserted since, there is no number.
    Statement below(database,
                    "SELECT 1 WHERE coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = "
                    "?1), " +
                        std::string(table_.autoincrement ? "0" : "NULL") + ") < " + end_);
    below.bind(table_.name);
    if (below.step()) return replay::began_anew(table_.sql);
    return below.status();
}

Status SqliteHistoryReader::read_page(Database& database, const spi::ReadLimits& limits,
                                      spi::EventBatch& out) {
    const std::size_t before = out.size();
    const spi::Position last_before = last_;
    std::vector<replay::Place> taken;
    bool cut = false;
    Statement rows(database, "SELECT " + scope_.select + " FROM " + scope_.from + " WHERE " +
                                 scope_.there + " AND " + scope_.wanted + " AND " +
                                 compared(scope_, ">", after_) + " AND " +
                                 compared(scope_, "<=", page_end_) + " ORDER BY " +
                                 scope_.in_order() + " LIMIT " + std::to_string(limits.max_events));
    while (!cut && rows.step()) {
        add(rows, ++last_, out);
        taken.push_back(rows.string(kScanColumns));
        cut = out.bytes() >= limits.max_bytes;
    }
    Status status = rows.status();
    if (status.ok()) status = check_life(database);
    if (!status.ok()) {
        out.events().resize(before);
        last_ = last_before;
        return status;
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
        places_[out.events()[before + i].position] = taken[i];
    }
    if (cut || taken.size() == limits.max_events) {
        after_ = std::move(taken.back());
    } else {
        after_ = std::exchange(page_end_, {});
    }
    return {};
}

// A letter's id is the event's already.
void SqliteHistoryReader::add(const Statement& row, spi::Position position,
                              spi::EventBatch& out) const {
    if (scope_.letters) {
        add_scanned(row, position, row.text(1), out);
    } else {
        add_scanned_row(table_, row, position, raw_id_of(row, 0, 1), out);
    }
}

Status SqliteHistoryReader::fetch(std::span<const spi::Position> positions, spi::EventBatch& out) {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    const std::size_t before = out.size();
    Status status;
    for (const spi::Position position : positions) {
        const auto place = places_.find(position);
        if (place == places_.end()) continue;
        Statement row(**database, "SELECT " + scope_.select + " FROM " + scope_.from + " WHERE " +
                                      scope_.there + " AND " +
                                      compared(scope_, "=", place->second) + " LIMIT 1");
        if (row.step()) add(row, position, out);
        status = row.status();
        if (!status.ok()) break;
    }
    if (status.ok()) status = check_life(**database);
    if (!status.ok()) {
        out.events().resize(before);
        session_.drop();
    }
    return status;
}

void SqliteHistoryReader::forget(std::span<const spi::Position> positions) {
    for (const spi::Position position : positions) places_.erase(position);
}

}  // namespace outbox::sqlite
