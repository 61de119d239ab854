#include "relay/known_rows.h"

namespace outbox::relay {

KnownRows::~KnownRows() {
    std::vector<spi::Position> held;
    for (const auto& [position, raw_id] : raw_ids_) held.push_back(position);
    positions_->remove(held);
}

KnownRows::Row& KnownRows::hold(const std::string& raw_id) {
    const auto [it, is_new] = rows_.try_emplace(raw_id);
    if (is_new) {
        it->second.position = positions_->add(raw_id);
        raw_ids_.emplace(it->second.position, raw_id);
    }
    return it->second;
}

const KnownRows::Row* KnownRows::find(const std::string& raw_id) const {
    const auto it = rows_.find(raw_id);
    return it == rows_.end() ? nullptr : &it->second;
}

const std::string* KnownRows::raw_id(spi::Position position) const {
    const auto it = raw_ids_.find(position);
    return it == raw_ids_.end() ? nullptr : &it->second;
}

std::vector<std::string> KnownRows::known_ids() const {
    std::vector<std::string> ids;
    ids.reserve(rows_.size());
    for (const auto& [raw_id, row] : rows_) {
        if (row.known) ids.push_back(raw_id);
    }
    return ids;
}

void KnownRows::forget(std::span<const spi::Position> positions) {
    std::vector<spi::Position> held;
    for (const spi::Position position : positions) {
        const auto it = raw_ids_.find(position);
        if (it == raw_ids_.end()) continue;
        rows_.erase(it->second);
        raw_ids_.erase(it);
        held.push_back(position);
    }
    positions_->remove(held);
}

}  // namespace outbox::relay
