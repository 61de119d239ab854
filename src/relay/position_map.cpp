#include "relay/position_map.h"

namespace outbox::sources {

spi::Position PositionMap::hold(const std::string& raw_id) {
    const core::Lock lock(mutex_);
    const auto known = positions_.find(raw_id);
    if (known != positions_.end() && !rows_.at(known->second).settled) {
        ++rows_.at(known->second).holders;
        return known->second;
    }
    rows_.emplace(++last_, Row{raw_id, 1, false});
    positions_[raw_id] = last_;
    return last_;
}

void PositionMap::release(std::span<const spi::Position> positions) {
    const core::Lock lock(mutex_);
    for (const spi::Position position : positions) {
        const auto row = rows_.find(position);
        if (row == rows_.end() || --row->second.holders > 0) continue;
        const auto newest = positions_.find(row->second.raw_id);
        if (newest != positions_.end() && newest->second == position) positions_.erase(newest);
        rows_.erase(row);
    }
}

void PositionMap::settle(std::span<const spi::Position> positions) {
    const core::Lock lock(mutex_);
    for (const spi::Position position : positions) {
        if (const auto row = rows_.find(position); row != rows_.end()) row->second.settled = true;
    }
}

std::vector<std::string> PositionMap::raw_ids(std::span<const spi::Position> positions) const {
    std::vector<std::string> ids;
    ids.reserve(positions.size());
    const core::Lock lock(mutex_);
    for (const spi::Position position : positions) {
        if (const auto it = rows_.find(position); it != rows_.end())
            ids.push_back(it->second.raw_id);
    }
    return ids;
}

}  // namespace outbox::sources
