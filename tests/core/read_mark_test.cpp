#include "core/read_mark.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <utility>

namespace outbox::core {
namespace {

using Ranges = std::vector<PositionRange>;

Ranges read(ReadMark& mark, std::vector<Position> seen, bool complete = true) {
    Ranges closed;
    const Position covered = complete ? ReadMark::kEverything : seen.empty() ? 0 : seen.back();
    mark.read_done(seen, covered, closed);
    return closed;
}

std::vector<PositionRange> holes(const ReadMark& mark) {
    std::vector<PositionRange> out;
    for (const ReadMark::Hole& hole : mark.holes()) out.push_back(hole.range);
    return out;
}

const Writer kOne{"3/1", false};
const Writer kTwo{"4/7", false};
const Writer kPrepared{"-1/900", true};
const Writer kOtherPrepared{"-1/901", true};

TEST(ReadMark, EverythingBelowTheFirstRowIsAHole) {
    ReadMark mark;
    EXPECT_TRUE(read(mark, {5, 6, 9}).empty());
    EXPECT_EQ(mark.mark(), 9);
    EXPECT_EQ(holes(mark), (Ranges{{1, 4}, {7, 8}}));
}

TEST(ReadMark, ALateRowSplitsItsHole) {
    ReadMark mark;
    read(mark, {10});
    EXPECT_TRUE(read(mark, {4}).empty());
    EXPECT_EQ(holes(mark), (Ranges{{1, 3}, {5, 9}}));
    read(mark, {1, 3, 11});
    EXPECT_EQ(holes(mark), (Ranges{{2, 2}, {5, 9}}));
    EXPECT_EQ(mark.mark(), 11);
}

TEST(ReadMark, AHoleIsClosedWhenItsWritersHaveEndedAndAReadShowsNoRow) {
    ReadMark mark;
    read(mark, {3});
    EXPECT_TRUE(read(mark, {}).empty()) << "writers unknown";
    mark.writers_now({{kOne, kTwo}});
    EXPECT_TRUE(read(mark, {}).empty());
    mark.writers_now({{kTwo}});
    EXPECT_TRUE(read(mark, {}).empty());
    mark.writers_now({});
    EXPECT_FALSE(mark.wants_writers());
    EXPECT_EQ(read(mark, {2}), (Ranges{{1, 1}}));
    EXPECT_TRUE(mark.holes().empty());
}

TEST(ReadMark, ARowThatCameAnotherWayFillsItsHoleOrRaisesTheMark) {
    ReadMark mark;
    EXPECT_TRUE(mark.saw(3));
    EXPECT_EQ(mark.mark(), 3);
    EXPECT_EQ(holes(mark), (Ranges{{1, 2}}));
    EXPECT_TRUE(mark.saw(4));
    EXPECT_TRUE(mark.saw(10));
    EXPECT_EQ(holes(mark), (Ranges{{1, 2}, {5, 9}}));
    EXPECT_TRUE(mark.saw(7));
    EXPECT_TRUE(mark.saw(5));
    EXPECT_TRUE(mark.saw(2));
    EXPECT_EQ(holes(mark), (Ranges{{1, 1}, {6, 6}, {8, 9}}));
    EXPECT_TRUE(mark.saw(6));
    EXPECT_EQ(holes(mark), (Ranges{{1, 1}, {8, 9}}));
    EXPECT_FALSE(mark.saw(6)) << "it comes again";
    EXPECT_FALSE(mark.saw(10));
    EXPECT_EQ(mark.mark(), 10);
}

TEST(ReadMark, ARowThatCameAnotherWayClosesNoHole) {
    ReadMark mark;
    read(mark, {4});
    mark.writers_now({{kOne}});
    EXPECT_TRUE(mark.saw(9));
    EXPECT_TRUE(mark.wants_writers());
    mark.writers_now({{kTwo}});
    EXPECT_EQ(read(mark, {}), (Ranges{{1, 3}})) << "its writer has ended";
    EXPECT_EQ(holes(mark), (Ranges{{5, 8}})) << "writers of this hole live";
    mark.writers_now({});
    EXPECT_EQ(read(mark, {}), (Ranges{{5, 8}}));
}

TEST(ReadMark, WritersThatComeLaterDoNotCount) {
    ReadMark mark;
    read(mark, {3});
    mark.writers_now({{kOne}});
    mark.writers_now({{kTwo}});
    EXPECT_EQ(read(mark, {}), (Ranges{{1, 2}}));
}

TEST(ReadMark, WritersSeenBeforeTheHoleProveNothing) {
    ReadMark mark;
    read(mark, {1});
    mark.writers_now({});
    EXPECT_TRUE(read(mark, {5}).empty());
    EXPECT_TRUE(read(mark, {}).empty());
    mark.writers_now({{kOne}});
    EXPECT_TRUE(read(mark, {}).empty());
}

TEST(ReadMark, AWriterThatIsPreparedMeanwhileStillCounts) {
    ReadMark mark;
    read(mark, {3});
    mark.writers_now({{kOne}});
    mark.writers_now({{kPrepared}});
    EXPECT_TRUE(read(mark, {}).empty());
    // Another prepared later is not it.
    mark.writers_now({{kOtherPrepared}});
    EXPECT_EQ(read(mark, {}), (Ranges{{1, 2}}));
}

TEST(ReadMark, APreparedOneThatWasThereBeforeIsNotTheWriterThatEnded) {
    ReadMark mark;
    mark.writers_now({{kPrepared}});
    read(mark, {1});
    mark.writers_now({{kPrepared}});
    read(mark, {3});
    mark.writers_now({{kOne, kPrepared}});
    mark.writers_now({{kPrepared}});
    EXPECT_TRUE(read(mark, {}).empty()) << "it was there when the hole was seen";
    mark.writers_now({});
    EXPECT_EQ(read(mark, {}), (Ranges{{2, 2}}));
}

TEST(ReadMark, AReadThatWasCutClosesOnlyWhatItCovered) {
    ReadMark mark;
    read(mark, {3, 10, 20});
    mark.writers_now({});
    EXPECT_TRUE(read(mark, {}, false).empty());
    EXPECT_EQ(read(mark, {7}, false), (Ranges{{1, 2}, {4, 6}}));
    EXPECT_EQ(holes(mark), (Ranges{{8, 9}, {11, 19}}));
    EXPECT_EQ(read(mark, {}), (Ranges{{8, 9}, {11, 19}}));
}

TEST(ReadMark, StopsAdvancingAtTheLimitOfHoles) {
    ReadMark mark;
    std::vector<Position> seen;
    for (Position p = 2; p <= 2 * static_cast<Position>(ReadMark::kMaxHoles); p += 2) {
        seen.push_back(p);
    }
    read(mark, {seen.begin(), seen.end() - 1});
    EXPECT_TRUE(mark.may_advance());
    read(mark, {seen.back()});
    EXPECT_FALSE(mark.may_advance());
    mark.writers_now({});
    read(mark, {});
    EXPECT_TRUE(mark.may_advance());
}

TEST(ReadMark, ManyGenerationsUnderOneLongWriterStayBoundedAndSafe) {
    ReadMark mark;
    Position next = 0;
    for (int round = 0; round < 500; ++round) {
        next += 2;
        ASSERT_TRUE(read(mark, {next}).empty());
        mark.writers_now({{kOne, {"5/" + std::to_string(round), false}}});
    }
    EXPECT_TRUE(read(mark, {}).empty());
    mark.writers_now({});
    EXPECT_EQ(read(mark, {}).size(), 500U);
}

// Each writer begins behind a hole that is there, and none ends: no two generations wait for the
// same ones, and there are more than are kept apart.
TEST(ReadMark, HolesOfGenerationsThatWereMergedWaitForTheWritersOfAllOfThem) {
    constexpr int kWriters = 100;
    ReadMark mark;
    std::vector<Writer> writers;
    for (int i = 1; i <= kWriters; ++i) {
        ASSERT_TRUE(read(mark, {2 * i}).empty());
        writers.push_back({"3/" + std::to_string(i), false});
        mark.writers_now(writers);
    }
    const Writer newest = writers.back();
    mark.writers_now({{newest}});
    const Ranges closed = read(mark, {});
    EXPECT_GE(closed.size(), 60U) << "most waited for none that is still there";
    EXPECT_TRUE(std::none_of(closed.begin(), closed.end(), [](const PositionRange& range) {
        return range.last == 2 * kWriters - 1;
    })) << "it may be the newest writer's";
    mark.writers_now({});
    EXPECT_EQ(read(mark, {}).size() + closed.size(), kWriters);
}

// The first of two long writers commits more than one read returns: looks at the other one prove
// nothing of what no read has come to yet.
TEST(ReadMark, WhatNoReadHasCoveredSinceAWriterEndedIsLookedAt) {
    ReadMark mark(0, 1);
    read(mark, {2, 4, 6, 8, 10});  // between rows of two writers
    mark.writers_now({{kOne, kTwo}});
    read(mark, {});
    mark.writers_now({{kTwo}});  // the other has filled 1, 3, 5, 7 and 9
    for (const Position position : {1, 3, 5}) {
        Ranges ranges;
        mark.append_holes(false, ranges);
        EXPECT_FALSE(mark.left_out()) << position;
        for (int look = 0; look < 9; ++look) mark.writers_now({{kTwo}});
        EXPECT_TRUE(read(mark, {position}, false).empty());
    }
    read(mark, {7, 9});
    Ranges ranges;
    mark.append_holes(false, ranges);
    EXPECT_TRUE(ranges.empty()) << "no hole is left";
}

TEST(ReadMark, AWriterThatEndsBehindTheReadHasClosedNothing) {
    ReadMark mark;
    read(mark, {3});
    mark.writers_now({{kOne}});
    Ranges ranges;
    mark.append_holes(false, ranges);
    mark.writers_now({});  // it has filled 1 and 2, which the read could not see
    EXPECT_TRUE(read(mark, {}).empty());
    EXPECT_EQ(read(mark, {1, 2}), Ranges());
    EXPECT_TRUE(mark.holes().empty());
}

TEST(ReadMark, AReadBehindWhichAWriterEndedHasNotLookedAtWhatThatOneFilled) {
    ReadMark mark(0, 1);
    read(mark, {2, 4, 6, 8, 10});
    mark.writers_now({{kOne, kTwo}});
    Ranges ranges;
    mark.append_holes(false, ranges);
    mark.writers_now({{kTwo}});
    read(mark, {});
    for (int look = 0; look < 9; ++look) mark.writers_now({{kTwo}});
    mark.append_holes(false, ranges);
    EXPECT_FALSE(mark.left_out());
}

// PostgreSQL shows the rows of COMMIT PREPARED first, and gives back the locks by which a writer is
// known when it has unlinked files.
TEST(ReadMark, WhatAPreparedWriterMayFillIsLookedAtWhileItIsThere) {
    ReadMark mark(0, 1);
    read(mark, {2, 4, 6, 8, 10});
    const auto look = [&](const Writer& writer) {
        for (int times = 0; times < 9; ++times) {
            Ranges ranges;
            mark.append_holes(false, ranges);
            mark.writers_now({{writer}});
            read(mark, {});
        }
        Ranges ranges;
        mark.append_holes(false, ranges);
        return ranges.size();
    };
    mark.writers_now({{kOne}});
    EXPECT_EQ(look(kOne), 0U);
    EXPECT_EQ(look(kPrepared), 5U);
}

TEST(ReadMark, AskedAnewForWritersAfterTheyLostTheirNames) {
    ReadMark mark;
    read(mark, {3});
    mark.writers_now({{kOne}});
    mark.writers_now({});
    mark.forget_writers();
    EXPECT_TRUE(read(mark, {}).empty());
    mark.writers_now({{kPrepared}});
    EXPECT_TRUE(read(mark, {}).empty());
    mark.writers_now({});
    EXPECT_EQ(read(mark, {}), (Ranges{{1, 2}}));
}

TEST(ReadMark, AReadBehindWhichWritersLostTheirNamesClosesNothing) {
    ReadMark mark;
    read(mark, {3});
    mark.writers_now({{kOne}});
    mark.writers_now({});
    Ranges ranges;
    mark.append_holes(false, ranges);
    mark.forget_writers();
    mark.writers_now({});
    EXPECT_TRUE(read(mark, {}).empty());
    EXPECT_EQ(read(mark, {}), (Ranges{{1, 2}}));
}

// One that lives may have filled them under another name, and then others have written what was
// read.
TEST(ReadMark, WhatWasReadIsDroppedWhereWritersLostTheirNamesAndHolesWereLeftOut) {
    ReadMark mark(0, 1);
    read(mark, {2, 4, 6, 8, 10});
    Ranges ranges;
    for (int look = 0; look < 9; ++look) {
        mark.writers_now({{kOne}});
        mark.append_holes(false, ranges);
        if (!mark.left_out()) read(mark, {});
    }
    ASSERT_TRUE(mark.left_out());
    mark.forget_writers();
    EXPECT_TRUE(mark.left_out());
    EXPECT_FALSE(mark.writers_now({{kOne}}));
    ranges.clear();
    mark.append_holes(false, ranges);
    EXPECT_EQ(ranges.size(), 5U) << "the next read looks at all of them";
    EXPECT_TRUE(mark.writers_now({{kOne}}));
}

TEST(ReadMark, AReopenedPositionIsAHoleOnce) {
    ReadMark mark;
    read(mark, {5, 6});
    mark.reopen(3);
    mark.reopen(6);
    mark.reopen(6);
    mark.reopen(7);
    EXPECT_EQ(holes(mark), (Ranges{{1, 4}, {6, 6}}));
}

// A database in small: transactions take positions when they insert and show their rows when they
// commit. The reader may never close a hole that is filled later, and must close the others.
struct World {
    struct Transaction {
        std::string id;
        bool prepared = false;
        std::vector<Position> rows;
        bool in_stream = false;
        bool seen = false;  // its rows are, and it is still among the writers
    };
    std::vector<Transaction> open;
    std::deque<Position> stream;
    std::set<Position> committed;
    std::set<Position> returned;
    std::set<Position> closed;
    Position sequence = 0;
    int next_id = 0;

    std::vector<Writer> writers() const {
        std::vector<Writer> out;
        for (const Transaction& t : open) out.push_back({t.id, t.prepared});
        return out;
    }

    // The names begin anew, so that another one may have a name that was known.
    void reconnect(ReadMark& mark) {
        next_id = 0;
        for (Transaction& t : open) {
            t.id = (t.prepared ? "-1/" : "1/") + std::to_string(++next_id);
        }
        mark.forget_writers();
    }

    // One snapshot: rows in holes and above the mark, up to `limit`. A transaction may end behind
    // it, and what asks for the writers may be another connection.
    void read(ReadMark& mark, std::size_t limit, bool one_ends = false, bool reconnects = false) {
        std::vector<PositionRange> ranges;
        mark.append_holes(false, ranges);
        Position covered = mark.append_unread(1 + limit % 3, ranges);
        std::vector<Position> rows;
        for (const Position p : committed) {
            const bool wanted = std::any_of(
                ranges.begin(), ranges.end(),
                [&](const PositionRange& range) { return range.first <= p && p <= range.last; });
            if (wanted) rows.push_back(p);
        }
        if (rows.size() >= limit) {
            rows.resize(limit);
            covered = rows.back();
        }
        const std::set<Position> visible = committed;
        if (one_ends && !open.empty()) end(open.begin(), true);
        if (reconnects) reconnect(mark);
        if (mark.left_out() && !mark.writers_now(writers())) return;
        std::vector<PositionRange> now_closed;
        mark.read_done(rows, covered, now_closed);
        for (const Position p : rows) RC_ASSERT(returned.insert(p).second);
        // Nothing overtakes what could be seen as well.
        const Position last = rows.empty() ? 0 : rows.back();
        for (const Position p : visible) RC_ASSERT(p > last || returned.contains(p));
        for (const PositionRange& range : now_closed) {
            for (Position p = range.first; p <= range.last; ++p) {
                RC_ASSERT(!returned.contains(p));
                RC_ASSERT(closed.insert(p).second);
            }
        }
    }

    // In the log, and so in the stream, before others can see it in the table.
    void write_commit(Transaction& transaction) {
        if (std::exchange(transaction.in_stream, true)) return;
        stream.insert(stream.end(), transaction.rows.begin(), transaction.rows.end());
    }

    void show(Transaction& transaction) {
        write_commit(transaction);
        committed.insert(transaction.rows.begin(), transaction.rows.end());
        transaction.seen = true;
    }

    void end(std::vector<Transaction>::iterator it, bool commits) {
        if (commits || it->in_stream) show(*it);
        open.erase(it);
    }

    void take_from_stream(ReadMark& mark) {
        if (stream.empty()) return;
        const Position p = stream.front();
        stream.pop_front();
        RC_ASSERT(mark.saw(p) == returned.insert(p).second);
    }

    void step(int choice, std::size_t which, ReadMark& mark) {
        if (choice == 0) open.push_back({"1/" + std::to_string(++next_id), false, {}});
        if (choice == 1 && which % 11 == 0) reconnect(mark);
        if (choice == 1) mark.writers_now(writers());
        if (choice == 2) read(mark, 1 + which % 7, which % 3 == 0, which % 5 == 0);
        if (choice == 9) take_from_stream(mark);
        if (choice <= 2 || choice == 9 || open.empty()) return;
        const auto it = open.begin() + static_cast<std::ptrdiff_t>(which % open.size());
        if (choice <= 5) {
            if (!it->prepared && !it->in_stream) it->rows.push_back(++sequence);
        } else if (choice == 6) {
            if (!it->prepared && !it->in_stream) {
                *it = {"-1/" + std::to_string(++next_id), true, it->rows};
            }
        } else if (choice == 10) {
            write_commit(*it);
        } else if (choice == 7 && it->prepared && !it->seen) {
            show(*it);
        } else {
            end(it, choice == 7);
        }
        for (const Position p : committed) RC_ASSERT(!closed.contains(p));
    }
};

void expect_nothing_lost(ReadMark mark, int looks_more) {
    World world;
    const auto count = *rc::gen::inRange<std::size_t>(0, 400);
    const auto steps = *rc::gen::container<std::vector<std::pair<int, std::size_t>>>(
        count, rc::gen::pair(rc::gen::inRange(0, 11 + looks_more),
                             rc::gen::inRange<std::size_t>(0, 1000)));
    for (const auto& [choice, which] : steps) {
        world.step(choice > 10 ? 1 + choice % 2 : choice, which, mark);
    }
    // Everything ends; then everything is known.
    while (!world.open.empty()) world.step(7, 0, mark);
    while (!world.stream.empty()) world.take_from_stream(mark);
    world.read(mark, 100'000);
    mark.writers_now({});
    world.read(mark, 100'000);
    RC_ASSERT(world.returned == world.committed);
    RC_ASSERT(mark.holes().empty());
    for (Position p = 1; p <= mark.mark(); ++p) {
        RC_ASSERT(world.returned.contains(p) != world.closed.contains(p));
    }
}

RC_GTEST_PROP(ReadMarkProperty, LosesNoRowAndClosesEveryHole, ()) {
    expect_nothing_lost(ReadMark(), 0);
}

RC_GTEST_PROP(ReadMarkProperty, LosesNoRowWhereHolesAreLeftOut, ()) {
    const auto few = *rc::gen::inRange<std::size_t>(0, 3);
    expect_nothing_lost(ReadMark(0, few), *rc::gen::inRange(0, 30));
}

}  // namespace
}  // namespace outbox::core
