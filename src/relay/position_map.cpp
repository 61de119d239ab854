#include "relay/position_map.h"

namespace outbox::relay {

spi::Position PositionMap::add(const std::string& raw_id) {
    const core::Lock lock(mutex_);
    rows_.emplace(++last_, raw_id);
    return last_;
}

void PositionMap::remove(std::span<const spi::Position> positions) {
    const core::Lock lock(mutex_);
    for (const spi::Position position : positions) rows_.erase(position);
}

std::vector<std::string> PositionMap::raw_ids(std::span<const spi::Position> positions) const {
    std::vector<std::string> ids;
    ids.reserve(positions.size());
    const core::Lock lock(mutex_);
    for (const spi::Position position : positions) {
        if (const auto it = rows_.find(position); it != rows_.end()) ids.push_back(it->second);
    }
    return ids;
}

}  // namespace outbox::relay
