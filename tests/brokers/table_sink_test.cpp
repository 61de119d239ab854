// Whose fault an error is that may be a message's or the table's, and how long a batch may take.
#include "mailbox/table_sink.h"

#include <algorithm>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mailbox/config.h"

namespace outbox::mailbox {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::ElementsAre;
using testing::Field;

// A server ends its statements then.
constexpr std::chrono::seconds kStatementTimeout{8};

// Takes all rows but those, as a table with a policy or a trigger does, by a clock of its own.
struct Policy {
    std::set<std::string> refused;
    std::set<std::string> slow;  // for longer than a statement may take
    Advice advice = Advice::kRetryDestination;
    milliseconds per_row{0};
    milliseconds per_refusal{0};
    std::vector<std::string> rows;
    int inserts = 0;
    TableSink::Time now{};
};

class PolicyClient final : public Client {
  public:
    explicit PolicyClient(Policy& policy) : policy_(policy) {}
    Status prepare() override { return {}; }
    Status look() override { return {}; }
    Result<std::string> destination() override { return std::string("here"); }
    Status insert(std::span<const Row> rows) override {
        ++policy_.inserts;
        for (const Row& row : rows) {
            if (policy_.refused.contains(std::string(row.id))) {
                policy_.now += policy_.per_refusal;
                return {ErrorCode::kSinkUnavailable, policy_.advice, "the policy"};
            }
        }
        milliseconds takes = policy_.per_row * rows.size();
        for (const Row& row : rows) {
            if (policy_.slow.contains(std::string(row.id))) takes += 2 * kStatementTimeout;
        }
        policy_.now += std::min<milliseconds>(takes, kStatementTimeout);
        if (takes > kStatementTimeout) {
            return ErrorInfo{ErrorCode::kSinkTimeout, Advice::kRetryDestination, "57014", "long"};
        }
        for (const Row& row : rows) policy_.rows.emplace_back(row.id);
        return {};
    }
    [[nodiscard]] bool may_concern_a_row(const ErrorInfo&) const override { return true; }

  private:
    Policy& policy_;
};

class TableSinkTest : public testing::Test {
  protected:
    // Publishes records of these ids, each with a key of its own; what became of them.
    spi::Completions send(const std::vector<std::string>& ids, const std::string& key = {}) {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const std::string own = key.empty() ? "k-" + ids[i] : key;
            spi::Record record;
            record.token = i;
            record.id = kept_.emplace_back(std::make_unique<std::string>(ids[i]))->c_str();
            record.key = kept_.emplace_back(std::make_unique<std::string>(own))->c_str();
            record.value = "{}";
            if (!sink_.publish(record)) break;
        }
        spi::Completions out;
        sink_.poll(std::chrono::milliseconds(0), out);
        return out;
    }
    // The same, and what is in or failed for itself is taken out of `ids`: these failed, and not
    // with an advice that blames them.
    std::vector<std::string> poll(std::vector<std::string>& ids, const std::string& key = {}) {
        const std::vector<std::string> sent = ids;
        const spi::Completions out = send(sent, key);
        for (const std::uint64_t token : out.acknowledged) std::erase(ids, sent[token]);
        std::vector<std::string> failed;
        for (const spi::FailedRecord& one : out.failed) {
            EXPECT_EQ(one.error.advice, Advice::kRetryDestination);
            if (!one.behind) failed.push_back(sent[one.token]);
        }
        return failed;
    }
    static std::vector<std::string> numbered(int count) {
        std::vector<std::string> ids;
        for (int n = 0; n < count; ++n) ids.push_back(std::to_string(n));
        return ids;
    }

    Policy policy_;
    spi::SinkCapabilities capabilities_;
    TableSink sink_{std::make_unique<PolicyClient>(policy_), capabilities_,
                    [this] { return policy_.now; }};
    std::vector<std::unique_ptr<std::string>> kept_;
};

TEST_F(TableSinkTest, AMemberThatFailsAloneWhileOthersAreTakenIsAtFault) {
    policy_.refused = {"7", "8", "93"};
    const spi::Completions out = send(numbered(100));
    EXPECT_EQ(out.acknowledged.size(), 97U);
    ASSERT_EQ(out.failed.size(), 3U);
    for (const spi::FailedRecord& failed : out.failed) {
        EXPECT_TRUE(policy_.refused.contains(std::to_string(failed.token)));
        EXPECT_EQ(failed.error.advice, Advice::kRetryEvent);
        EXPECT_FALSE(failed.behind);
    }
    // It is known by then, though nothing passes beside it.
    const spi::Completions again = send({"8"});
    ASSERT_EQ(again.failed.size(), 1U);
    EXPECT_EQ(again.failed[0].error.advice, Advice::kRetryEvent);
}

TEST_F(TableSinkTest, WhereNothingIsTakenTheDestinationIsAtFault) {
    const std::vector<std::string> ids = numbered(100);
    policy_.refused = {ids.begin(), ids.end()};
    const spi::Completions out = send(ids);
    EXPECT_TRUE(out.acknowledged.empty());
    ASSERT_EQ(out.failed.size(), 100U);
    for (const spi::FailedRecord& failed : out.failed) {
        EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
        EXPECT_FALSE(failed.behind);
    }
    EXPECT_LE(policy_.inserts, 1'001);
}

TEST_F(TableSinkTest, WhatFollowsTheGuiltyOneOnItsKeyIsNotWritten) {
    policy_.refused = {"1"};
    const spi::Completions out = send({"0", "1", "2", "3"}, "one-key");
    EXPECT_THAT(out.acknowledged, ElementsAre(0U));
    EXPECT_THAT(policy_.rows, ElementsAre("0"));
    ASSERT_EQ(out.failed.size(), 3U);
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryEvent);
    EXPECT_TRUE(out.failed[1].behind);
    EXPECT_TRUE(out.failed[2].behind);
}

// More guilty ones than are looked for at once: the rest goes again, and counts against nobody.
TEST_F(TableSinkTest, WhatWasNotLookedAtIsNoOutageWhileOthersAreTaken) {
    const std::vector<std::string> ids = numbered(1'000);
    for (int n = 1; n < 1'000; n += 2) policy_.refused.insert(std::to_string(n));
    const spi::Completions out = send(ids);
    EXPECT_FALSE(out.acknowledged.empty());
    for (const spi::FailedRecord& failed : out.failed) {
        EXPECT_TRUE(failed.behind || failed.error.advice == Advice::kRetryEvent);
    }
}

// One that refuses each message after some time would keep its route's thread for minutes.
TEST_F(TableSinkTest, ABatchThatTakesLongIsToldAsFarAsItCameAndTheRestGoesAgain) {
    policy_.refused = {"0", "1", "2", "3", "4", "5", "6", "7"};
    policy_.advice = Advice::kRetryEvent;
    policy_.per_refusal = milliseconds(800);
    const TableSink::Time begun = policy_.now;
    const spi::Completions out = send(numbered(16));
    EXPECT_LT(policy_.now - begun, TableSink::kWriteFor + policy_.per_refusal);
    EXPECT_EQ(out.acknowledged.size() + out.failed.size(), 16U);
    std::size_t told = 0;
    for (const spi::FailedRecord& failed : out.failed) {
        if (failed.behind) continue;
        EXPECT_EQ(failed.token, told);
        EXPECT_EQ(failed.error.advice, Advice::kRetryEvent);
        ++told;
    }
    EXPECT_GE(told, 1U);
    EXPECT_LT(told, 8U);
}

TEST_F(TableSinkTest, WhatIsLeftForLackOfTimeKeepsTheOrderOfItsKey) {
    policy_.per_refusal = milliseconds(1'700);
    policy_.refused = {"0"};
    policy_.advice = Advice::kRetryEvent;
    // Refused three times, the last time at 5.1 s: nothing behind it is written.
    const spi::Completions out = send(numbered(8));
    EXPECT_TRUE(out.acknowledged.empty());
    EXPECT_TRUE(policy_.rows.empty());
    EXPECT_EQ(out.failed.size(), 8U);
    EXPECT_THAT(out.failed, Each(Field(&spi::FailedRecord::behind, true)));
}

// However long each refusal takes, one message after the other is decided.
TEST_F(TableSinkTest, EachSlowRefusalIsToldInTheEnd) {
    const std::vector<std::string> ids = numbered(500);
    policy_.refused = {ids.begin(), ids.end()};
    policy_.advice = Advice::kRetryEvent;
    policy_.per_refusal = milliseconds(3'000);
    bool told = false;
    for (int polls = 0; polls < 10 && !told; ++polls) {
        for (const spi::FailedRecord& failed : send(ids).failed) told |= !failed.behind;
    }
    EXPECT_TRUE(told);
}

// 20 ms for each row are more than a statement may take for five hundred.
TEST_F(TableSinkTest, ASlowTableIsSentWhatItTakesInTime) {
    policy_.per_row = milliseconds(20);
    const std::vector<std::string> ids = numbered(500);
    const spi::Completions first = send(ids);
    EXPECT_TRUE(first.acknowledged.empty());
    EXPECT_EQ(first.failed.size(), 500U);
    // Not an outage, and no message's fault.
    EXPECT_THAT(first.failed, Each(Field(&spi::FailedRecord::behind, true)));
    const TableSink::Time begun = policy_.now;
    std::size_t taken = 0;
    for (int polls = 0; polls < 20; ++polls) taken += send(ids).acknowledged.size();
    // Nearly fifty a second.
    EXPECT_GE(taken * policy_.per_row, (policy_.now - begun) * 9 / 10);
    EXPECT_GE(taken, 20 * 50U);
    // It is fast again.
    policy_.per_row = milliseconds(0);
    for (int polls = 0; polls < 5; ++polls) send(ids);
    EXPECT_EQ(send(ids).acknowledged.size(), 500U);
}

// One look finds it, whatever the size of the batch, and the circuit tells whose fault it is.
TEST_F(TableSinkTest, AMessageThatTakesTooLongIsFoundAtOnceAndLeavesTimeToTheOthers) {
    policy_.slow = {"7"};
    std::vector<std::string> ids = numbered(500);
    const TableSink::Time begun = policy_.now;
    EXPECT_THAT(poll(ids), ElementsAre());
    EXPECT_EQ(ids.size(), 500U);
    EXPECT_THAT(poll(ids), ElementsAre("7"));
    EXPECT_THAT(poll(ids), ElementsAre()) << "others are first";
    EXPECT_THAT(ids, ElementsAre("7"));
    EXPECT_EQ(policy_.now - begun, 2 * kStatementTimeout);
    for (int n = 500; n < 510; ++n) {
        const bool its_turn = n % 5 == 4;
        if (its_turn) policy_.now += TableSink::kBetweenSlow;
        ids.push_back(std::to_string(n));
        EXPECT_EQ(poll(ids).size(), its_turn ? 1U : 0U);
        EXPECT_THAT(ids, ElementsAre("7"));
    }
    EXPECT_THAT(poll(ids), ElementsAre("7")) << "nobody else waits";
    policy_.slow.clear();
    EXPECT_THAT(poll(ids), ElementsAre());
    EXPECT_THAT(ids, ElementsAre());
}

TEST_F(TableSinkTest, ThoseThatTakeTooLongAndThoseThatTakeLongHaveTheirTurns) {
    policy_.per_row = milliseconds(7'000);
    policy_.slow = {"a", "b"};
    int failed = 0;
    std::size_t taken = 0;
    for (int n = 0; n < 40; ++n) {
        std::vector<std::string> ids = {"a", "b", std::to_string(n), std::to_string(n + 1'000)};
        failed += static_cast<int>(poll(ids).size());
        taken += 4 - ids.size();
    }
    EXPECT_GE(failed, 10);
    EXPECT_GE(taken, 10U);
}

TEST_F(TableSinkTest, WhatFollowsOneThatTakesTooLongOnItsKeyIsNotWritten) {
    policy_.slow = {"2"};
    std::vector<std::string> ids = numbered(5);
    for (int polls = 0; polls < 5; ++polls) {
        poll(ids, "one-key");
        policy_.now += TableSink::kBetweenSlow;
    }
    EXPECT_THAT(policy_.rows, ElementsAre("0", "1"));
    policy_.slow.clear();
    for (int polls = 0; polls < 5; ++polls) poll(ids, "one-key");
    EXPECT_THAT(policy_.rows, ElementsAre("0", "1", "2", "3", "4"));
}

TEST_F(TableSinkTest, ASingleMessageThatTakesTooLongIsAnOutage) {
    policy_.per_row = milliseconds(9'000);
    const spi::Completions out = send({"0"});
    ASSERT_EQ(out.failed.size(), 1U);
    EXPECT_FALSE(out.failed[0].behind);
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryDestination);
}

// What is ours is taken out of the URL, and the rest is the database's.
TEST(MailboxConfig, TakesItsOptionsFromTheUrlAndTheTable) {
    const std::string url =
        "mailbox+postgresql://app@h/b?owner=a&sslmode=require&mailbox=m%20x&owner=b&mailboxes=1";
    const auto config = parse_mailbox_url(url, 7).value_or_throw();
    EXPECT_EQ(config.target, "postgresql://app@h/b?sslmode=require&mailboxes=1");
    EXPECT_EQ(config.mailbox, "m x");
    EXPECT_THAT(config.owners, ElementsAre("a", "b"));
    EXPECT_EQ(config.connect_timeout_s, 7);
    const auto other =
        parse_mailbox_url(url, 7, {{"mailbox.mailbox", "orders"}, {"mailbox.owner", "c"}})
            .value_or_throw();
    EXPECT_EQ(other.mailbox, "orders");
    EXPECT_THAT(other.owners, ElementsAre("a", "b", "c"));
    EXPECT_EQ(parse_mailbox_url("mailbox+sqlite:///b.db", 5).value_or_throw().mailbox, "default");
}

TEST(MailboxConfig, SaysWhatIsWrong) {
    const auto refusal = [](const std::string& url,
                            const std::map<std::string, std::string>& options) {
        return parse_mailbox_url(url, 5, options).error().message;
    };
    EXPECT_EQ(refusal("mailbox+sqlite:///b.db", {{"mailbox.malbox", "x"}}),
              "a mailbox has no option 'malbox'; there are mailbox and owner; did you mean "
              "'mailbox'?");
    EXPECT_NE(refusal("mailbox+sqlite:///b.db?mailbox=", {}).find("1 to 255 bytes"),
              std::string::npos);
    EXPECT_NE(refusal("sqlite:///b.db", {}).find("names no mailbox"), std::string::npos);
}

}  // namespace
}  // namespace outbox::mailbox
