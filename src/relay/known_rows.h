#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "relay/position_map.h"

namespace outbox::relay {

/// The rows that one reader has returned and that are not recorded yet, by their raw ids, with the
/// positions that were made up for them. Not thread-safe, but for the map that it shares.
class KnownRows {
  public:
    /// At this many a reader waits for some to end.
    static constexpr std::size_t kMax = 100'000;

    struct Row {
        spi::Position position = 0;
        bool known = false;  ///< Not to be returned again.
    };

    /// `positions` is shared with the other readers and the recorders of the source.
    explicit KnownRows(std::shared_ptr<PositionMap> positions) : positions_(std::move(positions)) {}
    ~KnownRows();
    KnownRows(const KnownRows&) = delete;
    KnownRows& operator=(const KnownRows&) = delete;

    /// The row with this id, which is held from now on.
    Row& hold(const std::string& raw_id);
    /// A row that is held.
    Row& at(const std::string& raw_id) { return rows_.at(raw_id); }
    [[nodiscard]] const Row* find(const std::string& raw_id) const;
    /// Null: not held.
    [[nodiscard]] const std::string* raw_id(spi::Position position) const;
    [[nodiscard]] std::vector<std::string> known_ids() const;
    [[nodiscard]] std::size_t size() const { return rows_.size(); }
    [[nodiscard]] bool full() const { return rows_.size() >= kMax; }

    /// That the route has finished them is written: reads leave them out by that.
    void forget(std::span<const spi::Position> positions);

  private:
    // Shared by the readers and the recorder of a source, which name rows by these positions.
    const std::shared_ptr<PositionMap> positions_;
    std::unordered_map<std::string, Row> rows_;
    std::unordered_map<spi::Position, std::string> raw_ids_;
};

}  // namespace outbox::relay
