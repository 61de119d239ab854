// The contract for every language, and all of them at once.

#include <deque>
#include <gmock/gmock.h>
#include <numeric>

#include "tests/polyglot/suite.h"
#include "tests/support/eventually.h"
#include "tests/support/pg.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

const std::vector<std::string> kLanguages{"python", "go", "java", "node", "rust"};
constexpr auto kDeadline = 120s;
constexpr int kOrders = 4;
constexpr int kEach = 20;
constexpr auto kVersions = kEach * 5;  // every language places each order as often

const auto kOthers = testing::Values("go", "java", "node", "rust");
const auto kName = [](const testing::TestParamInfo<std::string>& info) { return info.param; };
INSTANTIATE_TEST_SUITE_P(Others, Polyglot, kOthers, kName);
INSTANTIATE_TEST_SUITE_P(Others, PolyglotHttp, kOthers, kName);

class FiveLanguages : public testing::Test {
  protected:
    void SetUp() override {
        for (const auto& language : kLanguages) programs_.emplace_back(language);
        for (std::size_t i = 0; i < kLanguages.size(); ++i) {
            billing_.push_back(shop_.new_billing());
        }
    }

    // All at once, each on the same orders.
    void place() {
        std::deque<Process> running;
        for (const Program& program : programs_) {
            running.emplace_back(program.emit(shop_.url(), order_lines("shared-", kOrders, kEach)));
        }
        for (Process& process : running) {
            EXPECT_EQ(process.wait(kDeadline), (ExitStatus{0, 0})) << process.stderr_text();
        }
    }

    std::deque<Process> consume(const std::string& group) {
        std::deque<Process> running;
        for (std::size_t i = 0; i < programs_.size(); ++i) {
            running.emplace_back(
                programs_[i].consume(billing_[i], shop_.topic(), group + programs_[i].language()));
        }
        return running;
    }

    Shop shop_;
    std::vector<Program> programs_;
    std::vector<std::string> billing_;
};

TEST_F(FiveLanguages, ShareTheirOrdersAndOneRelayInOrderAndWithoutARepeat) {
    place();
    std::vector<int> versions(kVersions);
    std::iota(versions.begin(), versions.end(), 1);
    std::map<std::string, std::vector<int>> expected;
    for (int i = 1; i <= kOrders; ++i) expected["shared-" + std::to_string(i)] = versions;

    for (Process& consumer : consume("first-")) {
        EXPECT_TRUE(eventually(kDeadline, "every event is billed", [&] {
            return told(consumer, "shared-").applied == expected;
        })) << consumer.stdout_text();
        EXPECT_TRUE(ends_in_order(consumer)) << consumer.stderr_text();
    }
    for (Process& consumer : consume("again-")) {
        EXPECT_TRUE(eventually(kDeadline, "every event comes again", [&] {
            return told(consumer, "shared-").repeats == expected;
        })) << consumer.stdout_text();
        EXPECT_TRUE(told(consumer, "shared-").applied.empty());
    }
    const std::string outcome = Pg(shop_.url())
                                    .value(
                                        "SELECT string_agg(concat_ws(' ', id, version, cents), ',' "
                                        "ORDER BY id) FROM orders");
    for (const std::string& url : billing_) {
        EXPECT_EQ(Pg(url).value("SELECT string_agg(concat_ws(' ', order_id, version, cents), ',' "
                                "ORDER BY order_id) FROM invoices"),
                  outcome);
    }
}

}  // namespace
}  // namespace outbox::test
