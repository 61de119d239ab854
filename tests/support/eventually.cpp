#include "tests/support/eventually.h"

#include <thread>

#include "tests/support/logs.h"

namespace outbox::test {

testing::AssertionResult eventually(std::chrono::milliseconds deadline, std::string_view what,
                                    const std::function<bool()>& predicate) {
    constexpr auto kLongestPause = std::chrono::milliseconds(50);
    const auto end = std::chrono::steady_clock::now() + deadline;
    auto pause = std::chrono::milliseconds(1);
    while (!predicate()) {
        if (std::chrono::steady_clock::now() >= end) {
            return testing::AssertionFailure()
                   << "not within " << deadline.count() << " ms: " << what << '\n'
                   << all_log_tails();
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, kLongestPause);
    }
    return testing::AssertionSuccess();
}

}  // namespace outbox::test
