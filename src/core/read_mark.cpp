#include "core/read_mark.h"

#include <algorithm>
#include <utility>

namespace outbox::core {

bool ReadMark::ended(std::uint64_t generation) const {
    const auto it = generations_.find(generation);
    return it != generations_.end() && it->second.captured && it->second.writers.empty();
}

// A writer that ended while the read was under way may have filled what the read showed empty.
bool ReadMark::had_ended(std::uint64_t generation) const {
    const auto it = generations_.find(generation);
    return it != generations_.end() && it->second.had_ended;
}

bool ReadMark::wants_writers() const {
    return std::any_of(holes_.begin(), holes_.end(),
                       [this](const Hole& hole) { return !ended(hole.generation); });
}

// What is left of a hole between two rows: closed as far as the read proves it, else kept.
void ReadMark::keep_piece(const Hole& hole, Position first, Position last, Position covered,
                          std::vector<PositionRange>& closed) {
    if (first > last) return;
    if (had_ended(hole.generation) && first <= covered) {
        closed.push_back({first, std::min(last, covered)});
        if (last <= covered) return;
        first = covered + 1;
    }
    next_.push_back({{first, last}, hole.generation});
}

Position ReadMark::append_unread(std::size_t most, std::vector<PositionRange>& out) const {
    if (mark_ < finished_top_) {
        const std::size_t end = out.size() + most;
        finished_.append_missing({mark_ + 1, finished_top_}, most, out);
        if (out.size() == end) return out.back().last;
    }
    out.push_back({std::max(mark_, finished_top_) + 1, kEverything});
    return kEverything;
}

void ReadMark::begin_read() {
    for (auto& [id, generation] : generations_) {
        generation.had_ended = ended(id);
        generation.looks = generation.captured;
    }
}

void ReadMark::append_holes(bool all, std::vector<PositionRange>& out) {
    all = all || holes_.size() <= look_at_all_;
    left_out_ = forgot_left_out_ = false;
    begin_read();
    reading_ = true;
    const auto prepared = [](const Writer& writer) { return writer.prepared; };
    for (auto& [id, generation] : generations_) {
        const std::set<Writer>& writers = generation.writers;
        generation.left_out = !all && generation.captured && !writers.empty() &&
                              generation.unchanged >= kQuietAfter && generation.looked_at &&
                              std::none_of(writers.begin(), writers.end(), prepared);
        left_out_ = left_out_ || generation.left_out;
    }
    for (const Hole& hole : holes_) {
        if (!left_out_ || !is_left_out(hole)) out.push_back(hole.range);
    }
}

bool ReadMark::is_left_out(const Hole& hole) const {
    const auto it = generations_.find(hole.generation);
    return it != generations_.end() && it->second.left_out;
}

// What is not finished of a stretch without rows.
void ReadMark::open_holes(Position first, Position last, std::vector<Hole>& out) {
    if (first > last) return;
    if (first > finished_top_) {
        out.push_back({{first, last}, open_generation_});
        return;
    }
    ranges_.clear();
    finished_.append_missing({first, last}, static_cast<std::size_t>(last - first) + 1, ranges_);
    for (const PositionRange& range : ranges_) out.push_back({range, open_generation_});
}

void ReadMark::read_done(std::span<const Position> seen, Position covered,
                         std::vector<PositionRange>& closed) {
    if (!std::exchange(reading_, false)) begin_read();
    next_.clear();
    auto row = seen.begin();
    for (const Hole& hole : holes_) {
        if (left_out_ && is_left_out(hole)) {
            next_.push_back(hole);
            continue;
        }
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
        open_holes(mark_ + 1, *row - 1, next_);
        mark_ = *row;
    }
    if (covered != kEverything && covered > mark_) {
        open_holes(mark_ + 1, covered, next_);
        mark_ = covered;
    }
    holes_.swap(next_);
    note_looks(covered);
    left_out_ = false;
}

// A read that ends before the last hole of a generation has not looked at all of it.
void ReadMark::note_looks(Position covered) {
    for (auto hole = holes_.rbegin(); hole != holes_.rend() && hole->range.last > covered; ++hole) {
        const auto it = generations_.find(hole->generation);
        if (it != generations_.end()) it->second.looks = false;
    }
    for (auto& [id, generation] : generations_) {
        if (generation.looks && !generation.left_out) generation.looked_at = true;
    }
}

bool ReadMark::saw(Position position) {
    if (position <= finished_top_ && finished_.contains(position)) return false;
    if (position > mark_) {
        open_holes(mark_ + 1, position - 1, holes_);
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

bool ReadMark::writers_now(std::span<const Writer> writers) {
    bool quiet = !std::exchange(forgot_left_out_, false);
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
        const std::set<Writer> before = generation.writers;
        // A writer that vanished may be one of those that were prepared in the meantime.
        const std::size_t vanished = std::erase_if(generation.writers, [&](const Writer& writer) {
            return !writer.prepared && !now.contains(writer);
        });
        std::erase_if(generation.writers,
                      [&](const Writer& writer) { return !now.contains(writer); });
        if (vanished > 0) generation.writers.insert(newly_prepared.begin(), newly_prepared.end());
        const bool changed = generation.writers != before;
        generation.unchanged = changed ? 0 : generation.unchanged + 1;
        if (changed) generation.looked_at = generation.looks = false;
        quiet = quiet && !(changed && generation.left_out);
    }
    if (!holes_.empty() && std::any_of(holes_.begin(), holes_.end(), [&](const Hole& hole) {
            return hole.generation == open_generation_;
        })) {
        generations_[open_generation_++] = {.captured = true, .writers = now};
        if (generations_.size() > kMaxGenerations) merge_equal_generations();
        if (generations_.size() > kMaxGenerations) merge_newest_generations();
    }
    last_prepared_ = std::move(prepared);
    return quiet;
}

void ReadMark::drop_unused_generations() {
    std::set<std::uint64_t> used;
    for (const Hole& hole : holes_) used.insert(hole.generation);
    std::erase_if(generations_, [&](const auto& item) { return !used.contains(item.first); });
}

// Those that wait for the same writers, and have for a while, are one. What a read has left out of
// one of them it has not left out of the whole; none of it can be closed by that read.
void ReadMark::merge_equal_generations() {
    std::map<std::set<Writer>, std::uint64_t> first;
    std::map<std::uint64_t, std::uint64_t> into;
    for (auto& [id, generation] : generations_) {
        if (generation.writers.empty() || generation.unchanged < kQuietAfter) continue;
        const auto [it, is_new] = first.try_emplace(generation.writers, id);
        if (is_new) continue;
        Generation& kept = generations_.at(it->second);
        kept.looks = kept.looks && generation.looks && kept.left_out == generation.left_out;
        kept.left_out = kept.left_out && generation.left_out;
        kept.looked_at = kept.looked_at && generation.looked_at;
        into[id] = it->second;
    }
    if (into.empty()) return;
    for (Hole& hole : holes_) {
        if (const auto it = into.find(hole.generation); it != into.end()) {
            hole.generation = it->second;
        }
    }
    for (const auto& [id, kept] : into) generations_.erase(id);
}

// Holes of two generations wait for the writers of both: late, but safe.
void ReadMark::merge_newest_generations() {
    const auto newest = std::prev(generations_.end());
    const auto before = std::prev(newest);
    before->second.writers.insert(newest->second.writers.begin(), newest->second.writers.end());
    before->second.unchanged = 0;
    before->second.looked_at = before->second.looks = false;
    before->second.had_ended = false;
    before->second.left_out = false;  // as above
    for (Hole& hole : holes_) {
        if (hole.generation == newest->first) hole.generation = before->first;
    }
    generations_.erase(newest);
}

void ReadMark::forget_writers() {
    forgot_left_out_ = left_out_;
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
