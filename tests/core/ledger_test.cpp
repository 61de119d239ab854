#include "core/ledger.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <set>
#include <vector>

namespace outbox::core {
namespace {

using Positions = std::vector<Position>;

Positions some_positions() {
    return *rc::gen::container<Positions>(rc::gen::inRange<Position>(1, 120));
}

void expect_same(const Ledger& ledger, const std::set<Position>& model) {
    std::set<Position> held;
    Position end = -1;
    for (const PositionRange& range : ledger.ranges()) {
        RC_ASSERT(range.first <= range.last);
        RC_ASSERT(range.first > end + 1);  // ascending, neither touching nor overlapping
        end = range.last;
        for (Position p = range.first; p <= range.last; ++p) held.insert(p);
    }
    RC_ASSERT(held == model);
    for (Position p = 0; p <= 130; ++p) RC_ASSERT(ledger.contains(p) == model.contains(p));
    RC_ASSERT(ledger.empty() == model.empty());
}

RC_GTEST_PROP(Ledger, HoldsWhatASetHolds, ()) {
    Ledger ledger;
    std::set<Position> model;
    const int steps = *rc::gen::inRange(1, 30);
    for (int step = 0; step < steps; ++step) {
        const int what = *rc::gen::inRange(0, 3);
        if (what == 0) {
            const Positions added = some_positions();
            ledger.add(added);
            model.insert(added.begin(), added.end());
        } else if (what == 1) {
            const Positions removed = some_positions();
            ledger.remove(removed);
            for (const Position p : removed) model.erase(p);
        } else {
            const Position first = *rc::gen::inRange<Position>(1, 120);
            const Position last = *rc::gen::inRange<Position>(first, 121);
            ledger.add(PositionRange{first, last});
            for (Position p = first; p <= last; ++p) model.insert(p);
        }
        expect_same(ledger, model);
    }
}

RC_GTEST_PROP(Ledger, ComesBackFromACheckpointInAnyOrder, ()) {
    std::vector<PositionRange> ranges;
    std::set<Position> model;
    for (const Position first : some_positions()) {
        const Position last = *rc::gen::inRange<Position>(first, 121);
        ranges.push_back({first, last});
        for (Position p = first; p <= last; ++p) model.insert(p);
    }
    expect_same(Ledger(ranges), model);
}

TEST(Ledger, JoinsRangesThatAMissingPositionParted) {
    Ledger ledger;
    ledger.add(Positions{1, 2, 3, 5, 6});
    ASSERT_EQ(ledger.ranges().size(), 2U);
    ledger.add(Positions{4});
    EXPECT_EQ(ledger.ranges(), (std::vector<PositionRange>{{1, 6}}));
}

}  // namespace
}  // namespace outbox::core
