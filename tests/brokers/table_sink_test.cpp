// Whose fault an error is that may be a message's or the table's.
#include "mailbox/table_sink.h"

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

using testing::ElementsAre;

// Takes all rows but those, as a table with a policy does.
struct Policy {
    std::set<std::string> refused;
    std::vector<std::string> rows;
    int inserts = 0;
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
                return {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "the policy"};
            }
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
            EXPECT_TRUE(sink_.publish(record));
        }
        spi::Completions out;
        sink_.poll(std::chrono::milliseconds(0), out);
        return out;
    }
    static std::vector<std::string> numbered(int count) {
        std::vector<std::string> ids;
        for (int n = 0; n < count; ++n) ids.push_back(std::to_string(n));
        return ids;
    }

    Policy policy_;
    spi::SinkCapabilities capabilities_;
    TableSink sink_{std::make_unique<PolicyClient>(policy_), capabilities_};
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
