#include "core/read_mark.h"

#include <algorithm>
#include <limits>

namespace outbox::core {

bool ReadMark::ended(std::uint64_t generation) const {
    const auto it = generations_.find(generation);
    return it != generations_.end() && it->second.captured && it->second.writers.empty();
}

bool ReadMark::wants_writers() const {
    return std::any_of(holes_.begin(), holes_.end(),
                       [this](const Hole& hole) { return !ended(hole.generation); });
}

// What is left of a hole between two rows: closed as far as the read proves it, else kept.
void ReadMark::keep_piece(const Hole& hole, Position first, Position last, Position covered,
                          std::vector<PositionRange>& closed) {
    if (first > last) return;
    if (ended(hole.generation) && first <= covered) {
        closed.push_back({first, std::min(last, covered)});
        if (last <= covered) return;
        first = covered + 1;
    }
    next_.push_back({{first, last}, hole.generation});
}

void ReadMark::read_done(std::span<const Position> seen, bool complete,
                         std::vector<PositionRange>& closed) {
    const Position covered = complete       ? std::numeric_limits<Position>::max()
                             : seen.empty() ? 0
                                            : seen.back();
    next_.clear();
    auto row = seen.begin();
    for (const Hole& hole : holes_) {
        Position first = hole.range.first;
        while (row != seen.end() && *row < first) ++row;
        for (; row != seen.end() && *row <= hole.range.last; ++row) {
            keep_piece(hole, first, *row - 1, covered, closed);
            first = *row + 1;
        }
        keep_piece(hole, first, hole.range.last, covered, closed);
    }
    row = std::upper_bound(seen.begin(), seen.end(), mark_);
    for (; row != seen.end(); ++row) {
        if (*row > mark_ + 1) next_.push_back({{mark_ + 1, *row - 1}, open_generation_});
        mark_ = *row;
    }
    holes_.swap(next_);
}

bool ReadMark::saw(Position position) {
    if (position > mark_) {
        if (position > mark_ + 1) holes_.push_back({{mark_ + 1, position - 1}, open_generation_});
        mark_ = position;
        return true;
    }
    const auto after =
        std::upper_bound(holes_.begin(), holes_.end(), position,
                         [](Position p, const Hole& hole) { return p < hole.range.first; });
    if (after == holes_.begin()) return false;
    const auto hole = std::prev(after);
    if (hole->range.last < position) return false;
    const Hole above{{position + 1, hole->range.last}, hole->generation};
    hole->range.last = position - 1;
    if (hole->range.first > hole->range.last) {
        if (above.range.first > above.range.last) {
            holes_.erase(hole);
        } else {
            *hole = above;
        }
    } else if (above.range.first <= above.range.last) {
        holes_.insert(after, above);
    }
    return true;
}

void ReadMark::writers_now(std::span<const Writer> writers) {
    drop_unused_generations();
    const std::set<Writer> now(writers.begin(), writers.end());
    std::set<Writer> prepared;
    std::set<Writer> newly_prepared;
    for (const Writer& writer : now) {
        if (!writer.prepared) continue;
        prepared.insert(writer);
        if (!last_prepared_.contains(writer)) newly_prepared.insert(writer);
    }
    for (auto& [id, generation] : generations_) {
        if (!generation.captured) continue;
        // A writer that vanished may be one of those that were prepared in the meantime.
        const std::size_t vanished = std::erase_if(generation.writers, [&](const Writer& writer) {
            return !writer.prepared && !now.contains(writer);
        });
        std::erase_if(generation.writers,
                      [&](const Writer& writer) { return !now.contains(writer); });
        if (vanished > 0) generation.writers.insert(newly_prepared.begin(), newly_prepared.end());
    }
    if (!holes_.empty() && std::any_of(holes_.begin(), holes_.end(), [&](const Hole& hole) {
            return hole.generation == open_generation_;
        })) {
        generations_[open_generation_++] = {true, now};
        if (generations_.size() > kMaxGenerations) merge_newest_generations();
    }
    last_prepared_ = std::move(prepared);
}

void ReadMark::drop_unused_generations() {
    std::set<std::uint64_t> used;
    for (const Hole& hole : holes_) used.insert(hole.generation);
    std::erase_if(generations_, [&](const auto& item) { return !used.contains(item.first); });
}

// Holes of two generations wait for the writers of both: late, but safe.
void ReadMark::merge_newest_generations() {
    const auto newest = std::prev(generations_.end());
    const auto before = std::prev(newest);
    before->second.writers.insert(newest->second.writers.begin(), newest->second.writers.end());
    for (Hole& hole : holes_) {
        if (hole.generation == newest->first) hole.generation = before->first;
    }
    generations_.erase(newest);
}

void ReadMark::forget_writers() {
    for (Hole& hole : holes_) hole.generation = open_generation_;
    generations_.clear();
    last_prepared_.clear();
}

void ReadMark::reopen(Position position) {
    if (position > mark_ || position < 1) return;
    const auto after =
        std::upper_bound(holes_.begin(), holes_.end(), position,
                         [](Position p, const Hole& hole) { return p < hole.range.first; });
    if (after != holes_.begin() && std::prev(after)->range.last >= position) return;
    holes_.insert(after, {{position, position}, open_generation_});
}

}  // namespace outbox::core
