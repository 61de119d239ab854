#include "core/ledger.h"

#include <algorithm>

namespace outbox::core {

namespace {

// Appends to an ascending list, joining with the last range where they touch or overlap.
void append(std::vector<PositionRange>& list, PositionRange range) {
    if (!list.empty() && range.first - 1 <= list.back().last) {
        list.back().last = std::max(list.back().last, range.last);
    } else {
        list.push_back(range);
    }
}

}  // namespace

Ledger::Ledger(std::span<const PositionRange> ranges) {
    std::vector<PositionRange> sorted(ranges.begin(), ranges.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const PositionRange& range : sorted) append(ranges_, range);
}

void Ledger::add(PositionRange range) {
    merge({&range, 1});
}

void Ledger::add(std::span<const Position> positions) {
    if (positions.empty()) return;
    collect(positions);
    merge(incoming_);
}

void Ledger::remove(std::span<const Position> positions) {
    if (positions.empty() || ranges_.empty()) return;
    collect(positions);
    auto start = std::lower_bound(ranges_.begin(), ranges_.end(), incoming_.front().first,
                                  [](const PositionRange& r, Position p) { return r.last < p; });
    tail_.assign(start, ranges_.end());
    ranges_.erase(start, ranges_.end());
    auto hole = incoming_.cbegin();
    for (PositionRange range : tail_) {
        for (; hole != incoming_.cend() && hole->first <= range.last; ++hole) {
            if (hole->last < range.first) continue;
            if (hole->first > range.first) ranges_.push_back({range.first, hole->first - 1});
            range.first = hole->last + 1;
            if (range.first > range.last) break;
        }
        if (range.first <= range.last) ranges_.push_back(range);
    }
}

void Ledger::collect(std::span<const Position> positions) {
    sorted_.assign(positions.begin(), positions.end());
    if (!std::is_sorted(sorted_.begin(), sorted_.end())) std::sort(sorted_.begin(), sorted_.end());
    incoming_.clear();
    for (const Position position : sorted_) append(incoming_, {position, position});
}

void Ledger::merge(std::span<const PositionRange> ascending) {
    // Only the ranges from the first affected one on are rewritten: usually a few at the end.
    const auto start =
        std::lower_bound(ranges_.begin(), ranges_.end(), ascending.front().first,
                         [](const PositionRange& r, Position p) { return r.last < p - 1; });
    tail_.assign(start, ranges_.end());
    ranges_.erase(start, ranges_.end());
    auto mine = tail_.begin();
    auto other = ascending.begin();
    while (mine != tail_.end() || other != ascending.end()) {
        const bool take_mine =
            other == ascending.end() || (mine != tail_.end() && mine->first <= other->first);
        append(ranges_, take_mine ? *mine++ : *other++);
    }
}

bool Ledger::contains(Position position) const {
    const auto it = std::lower_bound(ranges_.begin(), ranges_.end(), position,
                                     [](const PositionRange& r, Position p) { return r.last < p; });
    return it != ranges_.end() && it->first <= position;
}

}  // namespace outbox::core
