#include <algorithm>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <set>
#include <utility>
#include <vector>

#include <outbox/spi/position_set.h>

namespace outbox::spi {
namespace {

using Positions = std::vector<Position>;
constexpr Position kSegment = PositionSet::kSegmentSize;

// Close together around the borders of segments.
Position some_position() {
    const Position border = *rc::gen::element<Position>(1, kSegment, 2 * kSegment, 5 * kSegment);
    return std::max<Position>(1, border + *rc::gen::inRange<Position>(-70, 70));
}

Positions some_positions() {
    return *rc::gen::container<Positions>(rc::gen::exec(some_position));
}

void expect_same(const PositionSet& set, const std::set<Position>& model) {
    RC_ASSERT(set.positions() == Positions(model.begin(), model.end()));
    RC_ASSERT(set.size() == model.size());
    RC_ASSERT(set.empty() == model.empty());
    RC_ASSERT(set.highest() == (model.empty() ? 0 : *model.rbegin()));
}

void expect_missing(const PositionSet& set, const std::set<Position>& model, PositionRange within) {
    std::vector<PositionRange> expected;
    for (Position first = within.first; first <= within.last;) {
        if (model.contains(first)) {
            ++first;
            continue;
        }
        const auto next = model.lower_bound(first);
        const Position end = next == model.end() ? within.last + 1 : *next;
        expected.push_back({first, std::min(end - 1, within.last)});
        first = end;
    }
    std::vector<PositionRange> missing;
    set.append_missing(within, 10'000, missing);
    RC_ASSERT(missing == expected);
    const std::size_t most = expected.size() / 2;
    missing.clear();
    set.append_missing(within, most, missing);
    expected.resize(most);
    RC_ASSERT(missing == expected);

    std::vector<PositionRange> ranges;
    set.append_ranges(within, 10'000, ranges);
    Positions there;
    for (const PositionRange& range : ranges) {
        for (Position p = range.first; p <= range.last; ++p) there.push_back(p);
    }
    const auto above = model.upper_bound(within.last);
    RC_ASSERT(there == Positions(model.lower_bound(within.first), above));
}

RC_GTEST_PROP(PositionSet, HoldsWhatASetHolds, ()) {
    PositionSet set;
    std::set<Position> model;
    const int steps = *rc::gen::inRange(1, 12);
    for (int step = 0; step < steps; ++step) {
        switch (*rc::gen::inRange(0, 6)) {
            case 0:
                for (const Position p : some_positions()) {
                    RC_ASSERT(set.add(p) == model.insert(p).second);
                }
                break;
            case 1:
                for (const Position p : some_positions()) {
                    RC_ASSERT(set.remove(p) == (model.erase(p) > 0));
                }
                break;
            case 2: {
                const Position first = some_position();
                const Position last = first + *rc::gen::inRange<Position>(0, 200);
                set.add(PositionRange{first, last});
                for (Position p = first; p <= last; ++p) model.insert(p);
                break;
            }
            case 3: {
                const auto most = *rc::gen::inRange<std::size_t>(0, 20);
                Positions lowest;
                set.take_lowest(most, lowest);
                Positions expected;
                for (; expected.size() < most && !model.empty(); model.erase(model.begin())) {
                    expected.push_back(*model.begin());
                }
                RC_ASSERT(lowest == expected);
                break;
            }
            case 4: {
                const Position below = some_position();
                set.remove_segments_below(below);
                std::erase_if(model, [&](Position p) { return p / kSegment < below / kSegment; });
                break;
            }
            default: {
                const Positions kept = some_positions();
                PositionSet other;
                other.add(kept);
                other.add(PositionRange{kSegment, 2 * kSegment - 1});  // a full segment
                set.keep_common(other);
                std::erase_if(model, [&](Position p) { return !other.contains(p); });
            }
        }
        expect_same(set, model);
        for (const Position p : some_positions()) RC_ASSERT(set.contains(p) == model.contains(p));
        const Position first = some_position();
        expect_missing(set, model, {first, first + 150});
    }
    expect_missing(set, model, {1, 6 * kSegment});
}

RC_GTEST_PROP(PositionSet, ComesBackFromItsSegments, ()) {
    PositionSet set;
    set.add(some_positions());
    if (*rc::gen::arbitrary<bool>()) set.add(PositionRange{kSegment, 2 * kSegment - 1});
    PositionSet again;
    set.for_each_segment([&](std::int64_t number, const PositionSet::Bits& bits) {
        again.add_segment(number, bits);
    });
    RC_ASSERT(again == set);
    RC_ASSERT(again.size() == set.size());
    PositionSet moved = std::move(again);
    RC_ASSERT(moved == set);
    RC_ASSERT(again.empty());  // NOLINT(bugprone-use-after-move): as the type says
}

TEST(PositionSet, AFullSegmentHasAllItsBits) {
    PositionSet set;
    set.add(PositionRange{1, kSegment * 2});
    EXPECT_EQ(set.size(), static_cast<std::size_t>(kSegment * 2));
    EXPECT_TRUE(set.remove(kSegment + 7));
    EXPECT_FALSE(set.contains(kSegment + 7));
    EXPECT_TRUE(set.contains(kSegment + 8));
    EXPECT_EQ(set.size(), static_cast<std::size_t>(kSegment * 2 - 1));
    EXPECT_TRUE(set.add(kSegment + 7));
    std::vector<PositionRange> missing;
    set.append_missing({1, kSegment * 2 + 3}, 10, missing);
    EXPECT_EQ(missing, (std::vector<PositionRange>{{kSegment * 2 + 1, kSegment * 2 + 3}}));
}

}  // namespace
}  // namespace outbox::spi
