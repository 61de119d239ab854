#include "databases/postgres/record/halves.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace outbox::postgres {
namespace {

std::vector<int> numbers(int count) {
    std::vector<int> out;
    for (int n = 0; n < count; ++n) out.push_back(n);
    return out;
}

TEST(Halves, LeaveThoseAloneForWhichItFails) {
    std::vector<int> done;
    std::vector<int> refused;
    const std::vector<int> items = numbers(1'000);
    const Status status = in_halves(
        std::span<const int>(items),
        [&](std::span<const int> part) -> Result<bool> {
            if (std::any_of(part.begin(), part.end(), [](int n) { return n % 400 == 7; })) {
                return false;
            }
            done.insert(done.end(), part.begin(), part.end());
            return true;
        },
        [&](int alone) { refused.push_back(alone); });
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(refused, (std::vector<int>{7, 407, 807}));
    EXPECT_EQ(done.size(), items.size() - refused.size());
}

// Else a table that is slow to refuse would be asked for the same whole for ever.
TEST(Halves, ComeOnHoweverSlowTheAttempts) {
    std::vector<int> left = numbers(16);
    for (int call = 0; call < 2; ++call) {
        const std::vector<int> items = left;
        const Status status = in_halves(
            std::span<const int>(items),
            [](std::span<const int>) -> Result<bool> {
                std::this_thread::sleep_for(std::chrono::milliseconds(170));
                return false;
            },
            [&](int alone) { std::erase(left, alone); });
        ASSERT_TRUE(status.ok());
        ASSERT_LT(left.size(), items.size());
    }
}

}  // namespace
}  // namespace outbox::postgres
