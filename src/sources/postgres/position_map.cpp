#include "sources/postgres/position_map.h"

namespace outbox::postgres {

spi::Position PositionMap::hold(const std::string& raw_id) {
    const std::lock_guard lock(mutex_);
    const auto [it, is_new] = positions_.try_emplace(raw_id, last_ + 1);
    if (is_new) rows_.emplace(++last_, Row{raw_id, 0});
    ++rows_[it->second].holders;
    return it->second;
}

void PositionMap::release(std::span<const spi::Position> positions) {
    const std::lock_guard lock(mutex_);
    for (const spi::Position position : positions) {
        const auto it = rows_.find(position);
        if (it == rows_.end() || --it->second.holders > 0) continue;
        positions_.erase(it->second.raw_id);
        rows_.erase(it);
    }
}

std::vector<std::string> PositionMap::raw_ids(std::span<const spi::Position> positions) const {
    std::vector<std::string> ids;
    ids.reserve(positions.size());
    const std::lock_guard lock(mutex_);
    for (const spi::Position position : positions) {
        if (const auto it = rows_.find(position); it != rows_.end())
            ids.push_back(it->second.raw_id);
    }
    return ids;
}

}  // namespace outbox::postgres
