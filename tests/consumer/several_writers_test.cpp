// Several write into one mailbox: a position is taken before its message can be seen, so that a
// message of a late commit stands below what was read before it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
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
    const auto look = [&](std::string_view snapshot, std::int64_t last) {
        frontier.reach(last, false, snapshots.looked(snapshot, 0));
        return frontier.settled();
    };
    EXPECT_EQ(look("5:9:5,7", 100), 0);
    EXPECT_EQ(look("7:12:7,10", 110), 0);  // 7 is open still
    EXPECT_EQ(look("10:14:10", 120), 100);
    EXPECT_EQ(look("13:14:13", 130), 100);  // 13 is open since the look before
    EXPECT_EQ(look("14:14:", 140), 140);    // none is open
    EXPECT_EQ(look("14:16:14", 150), 140);
    frontier.go_back_to(135);
    EXPECT_EQ(frontier.settled(), 135);
    EXPECT_EQ(look("16:18:17", 150), 135);
    EXPECT_EQ(look("18:18:", 150), 150);
    EXPECT_EQ(look("4:6:4", 160), 150);  // of another server
    EXPECT_EQ(look("6:7:6", 170), 160);
    // What was seen of a look that ended before is no more than that.
    EXPECT_EQ(look("7:8:7", 165), 165);
    EXPECT_EQ(look("8:9:8", 180), 170);
    frontier.reach(0, true, snapshots.looked("9:9:", 0));
    EXPECT_EQ(frontier.settled(), 180);
}

TEST(Frontier, GoesOnBesideATransactionThatIsOpenForLongAndDoesNotWrite) {
    postgres::Snapshots snapshots;
    core::Frontier frontier;
    frontier.reach(100, false, snapshots.looked("5:9:5,4294967303", 0));
    EXPECT_THAT(snapshots.long_open(1), IsNull());
    ASSERT_THAT(snapshots.long_open(kSecondUs), NotNull());
    EXPECT_THAT(*snapshots.long_open(kSecondUs), ElementsAre(5, 7));
    snapshots.answered(true, kSecondUs);
    EXPECT_THAT(snapshots.long_open(kSecondUs + 1), IsNull());
    frontier.reach(110, false, snapshots.looked("5:20:5", kSecondUs));
    EXPECT_EQ(frontier.settled(), 0);
    ASSERT_THAT(snapshots.long_open(2 * kSecondUs), NotNull());
    snapshots.answered(false, 2 * kSecondUs);
    frontier.reach(120, false, snapshots.looked("5:20:5", 2 * kSecondUs));
    EXPECT_EQ(frontier.settled(), 100);
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

TEST_F(SeveralWriters, ATransactionThatWritesElsewhereHoldsUpNothing) {
    late_.exec("CREATE TABLE elsewhere (a int)");
    late_.exec("BEGIN");
    late_.exec("INSERT INTO elsewhere VALUES (1)");
    other_.exec(insert("one", "o"));
    read();
    other_.exec(insert("two", "o"));
    read();
    EXPECT_EQ(mailbox_.next_from(), 0);
    clock_.advance_us(kSecondUs);
    other_.exec(insert("three", "o"));
    read();
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
