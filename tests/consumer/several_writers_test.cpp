// Several write into one mailbox: a position is taken before its message can be seen, so that a
// message of a late commit stands below what was read before it.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <outbox/producer/migrate.h>

#include "core/frontier.h"
#include "databases/postgres/receive/mailbox.h"
#include "databases/postgres/snapshots.h"
#include "tests/consumer/database.h"
#include "tests/support/hand_clock.h"

namespace outbox::test {
namespace {

using testing::ElementsAre;
using testing::IsNull;
using testing::NotNull;

constexpr std::int64_t kSecondUs = 1'000'000;

TEST(Frontier, StaysBelowWhatIsYetToBeSeen) {
    postgres::Snapshots snapshots;
    core::Frontier frontier;
    const auto look = [&](std::string_view said, std::int64_t last) {
        frontier.reach(last, false, snapshots.looked(said, 0));
        return frontier.settled();
    };
    EXPECT_EQ(look("5:9:5,7 10", 100), 0);
    EXPECT_EQ(look("7:12:7,11 13", 110), 0);  // 7 is open still
    EXPECT_EQ(look("11:14:11 15", 120), 100);
    EXPECT_EQ(look("15:16:15 17", 130), 100);  // 15 was given to another before this look
    EXPECT_EQ(look("18:18: 18", 140), 120);
    EXPECT_EQ(look("19:19: 20", 150), 140);  // 19 is open, and above all that ended
    EXPECT_EQ(look("19:21:19 21", 160), 140);
    EXPECT_EQ(look("22:22: 22", 170), 150);
    frontier.go_back_to(135);
    EXPECT_EQ(frontier.settled(), 135);
    EXPECT_EQ(look("23:23: 23", 180), 135);
    EXPECT_EQ(look("24:24: 24", 190), 180);
    EXPECT_EQ(look("4:6:4 7", 200), 180);  // of another server
    EXPECT_EQ(look("8:8: 8", 210), 200);
    // What was seen of a look that ended before is no more than that.
    EXPECT_EQ(look("9:9: 9", 205), 205);
    EXPECT_EQ(look("10:10: 10", 220), 210);
    frontier.reach(0, true, snapshots.looked("11:11: 11", 0));
    EXPECT_EQ(frontier.settled(), 220);
}

TEST(Frontier, GoesOnBesideATransactionThatIsOpenForLongAndDoesNotWrite) {
    postgres::Snapshots snapshots;
    core::Frontier frontier;
    frontier.reach(100, false, snapshots.looked("5:9:5,4294967303 9", 0));
    EXPECT_THAT(snapshots.long_open(1), IsNull());
    ASSERT_THAT(snapshots.long_open(kSecondUs), NotNull());
    EXPECT_THAT(*snapshots.long_open(kSecondUs), ElementsAre(5, 7));
    snapshots.answered(false, kSecondUs);
    // That it did not write before this says nothing of what was seen since.
    frontier.reach(110, false, snapshots.looked("5:20:5 20", kSecondUs));
    EXPECT_EQ(frontier.settled(), 0);
    ASSERT_THAT(snapshots.long_open(2 * kSecondUs), NotNull());
    snapshots.answered(true, 2 * kSecondUs);
    EXPECT_THAT(snapshots.long_open(2 * kSecondUs + 1), IsNull());
    ASSERT_THAT(snapshots.long_open(3 * kSecondUs), NotNull());
    snapshots.answered(false, 3 * kSecondUs);
    frontier.reach(120, false, snapshots.looked("5:21:5 21", 3 * kSecondUs));
    EXPECT_EQ(frontier.settled(), 100);
}

// A server of one table whose snapshots end, as PostgreSQL's, behind the last transaction that
// ended.
class ModelServer {
  public:
    explicit ModelServer(std::uint64_t seed) : random_(seed) {}

    void step() {
        switch (below(4)) {
            case 0:
                open_[next_++] = 0;
                break;
            case 1:
                if (open_.empty()) break;
                if (auto& position = some()->second; position == 0) position = ++last_position_;
                break;
            case 2:
                end();
                break;
            default:
                look();
        }
    }
    void end_all() {
        while (!open_.empty()) end();
    }
    void look() {
        now_us_ += 50'000;
        if (const auto* asked = snapshots_.long_open(now_us_)) {
            snapshots_.answered(
                std::any_of(asked->begin(), asked->end(),
                            [&](std::uint32_t id) { return open_.contains(id) && open_[id] > 0; }),
                now_us_);
        }
        std::string said;
        std::uint64_t oldest = ended_ + 1;
        for (const auto& [id, position] : open_) {
            if (id > ended_) continue;
            oldest = std::min(oldest, id);
            said += (said.empty() ? "" : ",") + std::to_string(id);
        }
        said = std::to_string(oldest) + ":" + std::to_string(ended_ + 1) + ":" + said + " " +
               std::to_string(next_);
        ended_ = next_++;
        std::size_t rows = 1 + below(4);
        std::int64_t last = 0;
        while (!there_.empty() && rows-- > 0) {
            last = there_.extract(there_.begin()).value();
        }
        if (last > 0) frontier_.reach(last, false, snapshots_.looked(said, now_us_));
        for (const auto& [id, position] : open_) {
            ASSERT_FALSE(position > 0 && position <= frontier_.settled())
                << id << " is yet to be seen at " << position << ", settled up to "
                << frontier_.settled();
        }
    }
    void write() { there_.insert(++last_position_); }
    [[nodiscard]] std::int64_t settled() const { return frontier_.settled(); }
    [[nodiscard]] std::int64_t unread() const { return static_cast<std::int64_t>(there_.size()); }

  private:
    std::uint64_t below(std::uint64_t count) { return random_() % count; }
    std::map<std::uint64_t, std::int64_t>::iterator some() {
        return std::next(open_.begin(), static_cast<std::ptrdiff_t>(below(open_.size())));
    }
    void end() {
        if (open_.empty()) return;
        const auto one = some();
        if (one->second > 0 && below(5) > 0) there_.insert(one->second);
        ended_ = std::max(ended_, one->first);
        open_.erase(one);
    }

    std::mt19937_64 random_;
    postgres::Snapshots snapshots_;
    core::Frontier frontier_;
    std::map<std::uint64_t, std::int64_t> open_;  // transactions, with the position they took or 0
    std::set<std::int64_t> there_;                // rows that can be seen and were not read
    std::uint64_t next_ = 5;
    std::uint64_t ended_ = 4;
    std::int64_t last_position_ = 0;
    std::int64_t now_us_ = 0;
};

TEST(Frontier, SettlesNothingThatAnOpenTransactionMayStillShow) {
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
        ModelServer server(seed);
        for (int i = 0; i < 120 && !HasFatalFailure(); ++i) server.step();
        server.end_all();
        while (server.unread() > 0 && !HasFatalFailure()) server.look();
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
        std::int64_t last = 0;
        for (int i = 0; i < 4; ++i) {
            last = server.settled();
            server.write();
            server.look();
        }
        EXPECT_GT(server.settled(), last) << "seed " << seed << ": it goes on";
    }
}

class SeveralWriters : public testing::Test {
  protected:
    SeveralWriters() {
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(db_.url(), options);
    }
    static std::string insert(const std::string& id, const std::string& key) {
        return "INSERT INTO outbox_mailbox (id, topic, key) VALUES ('" + id + "', 't', '" + key +
               "')";
    }
    // As the loop does: all is dealt with.
    std::vector<std::string> read() {
        EXPECT_TRUE(mailbox_.inbox().connect().ok());
        EXPECT_TRUE(mailbox_.hold_mailbox().ok());
        spi::EventBatch batch;
        consumer::Choice choice;
        choice.from = mailbox_.next_from();
        EXPECT_TRUE(mailbox_.fetch(choice, {100, 1'000'000}, batch).ok());
        std::vector<std::string> ids;
        for (const spi::EventView& event : batch.events()) {
            ids.emplace_back(event.id);
            Pg(db_.url()).exec("DELETE FROM outbox_mailbox WHERE id = '" + ids.back() + "'");
        }
        return ids;
    }

    PostgresDatabase db_;
    HandClock clock_;
    consumer::LibpqMailbox mailbox_{db_.url(), {}, clock_};
    Pg late_{db_.url()};
    Pg other_{db_.url()};
};

TEST_F(SeveralWriters, ALateCommitIsReadBeforeALaterMessageOfItsKey) {
    for (const std::string round : {"1", "2", "3"}) {
        late_.exec("BEGIN");
        late_.exec(insert("first" + round, "k"));
        for (const std::string number : {"1", "2", "3"}) {
            const std::string id = "other" + round + number;
            other_.exec(insert(id, "o"));
            EXPECT_THAT(read(), ElementsAre(id));
        }
        late_.exec("COMMIT");
        late_.exec(insert("second" + round, "k"));
        EXPECT_THAT(read(), ElementsAre("first" + round, "second" + round));
    }
    other_.exec(insert("last", "o"));
    read();
    EXPECT_GT(mailbox_.next_from(), 1);
}

// The snapshot of a look ends behind the last transaction that ended: this one is not in it.
TEST_F(SeveralWriters, ALateCommitOfTheYoungestTransactionIsReadBeforeALaterMessageOfItsKey) {
    for (const std::string round : {"1", "2", "3"}) {
        for (Pg* writer : {&other_, &late_}) writer->exec("BEGIN; SELECT pg_current_xact_id()");
        late_.exec(insert("first" + round, "k"));
        other_.exec(insert("other" + round, "o"));
        other_.exec("COMMIT");
        EXPECT_THAT(read(), ElementsAre("other" + round));
        late_.exec("COMMIT");
        late_.exec(insert("second" + round, "k"));
        EXPECT_THAT(read(), ElementsAre("first" + round, "second" + round));
    }
}

TEST_F(SeveralWriters, ATransactionThatWritesElsewhereHoldsUpNothing) {
    late_.exec("CREATE TABLE elsewhere (a int)");
    late_.exec("BEGIN");
    late_.exec("INSERT INTO elsewhere VALUES (1)");
    other_.exec(insert("one", "o"));
    read();
    other_.exec(insert("two", "o"));
    read();
    EXPECT_EQ(mailbox_.next_from(), 0);
    for (const std::string id : {"three", "three more"}) {
        clock_.advance_us(kSecondUs);
        other_.exec(insert(id, "o"));
        read();
    }
    EXPECT_GT(mailbox_.next_from(), 1);
    // From now on it does.
    late_.exec(insert("late", "k"));
    for (const std::string id : {"four", "five", "six"}) {
        clock_.advance_us(kSecondUs);
        other_.exec(insert(id, "o"));
        read();
    }
    late_.exec("COMMIT");
    late_.exec(insert("later", "k"));
    EXPECT_THAT(read(), ElementsAre("late", "later"));
}

}  // namespace
}  // namespace outbox::test
