// What is settled of a table that keeps its rows: only what is recorded, without a gap.
#include "relay/record_keeper.h"

#include <gtest/gtest.h>
#include <memory>

#include "tests/relay/options.h"
#include "tests/relay/table.h"

namespace outbox::test {
namespace {

using namespace relay;
using namespace std::chrono_literals;

class KeeperOfRowsThatStay : public testing::Test {
  protected:
    void SetUp() override {
        options_.max_unrecorded = 8;
        for (int i = 1; i <= 10; ++i) table_.insert(std::to_string(i), "k");
        auto lease = source_->open_lease();
        epoch_ = (*(*lease)->acquire("test", 1h)).value();
        recorder_ = std::move(*source_->open_recorder());
        const std::vector<spi::RouteName> names{{"a", {}}, {"b", {}}};
        ASSERT_TRUE(recorder_->begin(epoch_, names).ok());
        remover_ = std::make_unique<Remover>(*recorder_, epoch_);
        keeper_ = std::make_unique<RecordKeeper>(
            RecordKeeper::Deps{*recorder_, queue_, *remover_}, routes_, pointers_, options_,
            std::vector<spi::PositionSet>(2), std::vector<Position>{0, 5}, epoch_);
    }
    void report(std::size_t route, std::vector<Position> finished,
                std::vector<spi::PositionRange> closed = {}) {
        Outcomes outcomes;
        outcomes.finished = std::move(finished);
        outcomes.closed = std::move(closed);
        queue_.push(route, outcomes);
    }
    Status turn() { return keeper_->turn(0ms); }
    Position settled(std::size_t route) const { return stats_[route].settled.load(); }

    Table table_;
    std::unique_ptr<spi::Source> source_ = table_.connect();
    std::uint64_t epoch_ = 0;
    std::unique_ptr<spi::Recorder> recorder_;
    std::unique_ptr<Remover> remover_;
    OutcomeQueue queue_{2};
    std::vector<RouteSpec> routes_{2};
    std::array<relay::RouteStats, 2> stats_;
    std::vector<relay::RouteStats*> pointers_{&stats_[0], &stats_[1]};
    RelayOptions options_;
    std::unique_ptr<RecordKeeper> keeper_;
};

TEST_F(KeeperOfRowsThatStay, SettlesWhatIsRecordedAndNothingBehindAGap) {
    EXPECT_EQ(settled(0), 0);
    EXPECT_EQ(settled(1), 5) << "as the last term left it";
    report(0, {1, 2, 4});
    ASSERT_TRUE(turn().ok());
    EXPECT_EQ(settled(0), 2);
    report(0, {}, {{3, 3}});
    ASSERT_TRUE(turn().ok());
    EXPECT_EQ(settled(0), 4);
    report(1, {7}, {{1, 6}});
    ASSERT_TRUE(turn().ok());
    EXPECT_EQ(settled(1), 7);
    EXPECT_EQ(settled(0), 4);
    EXPECT_EQ(table_.unfinished(), 10U) << "rows stay";
    EXPECT_EQ(remover_->pending(), 0U);
}

TEST_F(KeeperOfRowsThatStay, SettlesNothingBeforeItIsRecorded) {
    report(0, {1, 2, 3});
    table_.set_away(true);
    EXPECT_FALSE(turn().ok());
    EXPECT_EQ(settled(0), 0);
    table_.set_away(false);
    ASSERT_TRUE(turn().ok());
    EXPECT_EQ(settled(0), 3);
}

// Else the relay would wait for the interval whenever its window is full.
TEST_F(KeeperOfRowsThatStay, WaitsForNoMoreThanAPartOfTheWindow) {
    report(0, {1, 2});
    ASSERT_TRUE(keeper_->turn(24h).ok());
    EXPECT_EQ(settled(0), 2);
}

using KeeperOfFailures = KeeperOfRowsThatStay;

// An attempt that is recorded once the event is settled would have it wait in the next term.
TEST_F(KeeperOfFailures, RecordsTheLastOneOfEachEventAndNoneOfWhatIsSettled) {
    Outcomes outcomes;
    outcomes.finished = {1};
    for (const auto& [position, attempts] : {std::pair(1, 1U), {2, 1U}, {3, 1U}, {2, 2U}}) {
        outcomes.failed.push_back({"a", position, "", "", attempts, 0, "", ""});
    }
    queue_.push(0, outcomes);
    ASSERT_TRUE(turn().ok());
    std::vector<std::pair<Position, std::uint32_t>> recorded;
    for (const spi::Delivery& one : recorder_->load_deliveries("a").value_or_throw()) {
        recorded.emplace_back(one.position, one.attempts);
    }
    EXPECT_EQ(recorded, (std::vector<std::pair<Position, std::uint32_t>>{{2, 2}, {3, 1}}));
}

}  // namespace
}  // namespace outbox::test
