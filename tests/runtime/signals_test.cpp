#include "runtime/signals.h"

#include <csignal>
#include <gtest/gtest.h>
#include <unistd.h>

namespace outbox::runtime {
namespace {

using std::chrono::milliseconds;

TEST(StopSignals, GiveTheSignalThatCame) {
    StopSignals signals;
    EXPECT_EQ(signals.wait(milliseconds(0)), std::nullopt);
    kill(getpid(), SIGTERM);
    EXPECT_EQ(signals.wait(milliseconds(5000)), SIGTERM);
    kill(getpid(), SIGINT);
    EXPECT_EQ(signals.wait(milliseconds(5000)), SIGINT);
    kill(getpid(), SIGHUP);
    EXPECT_EQ(signals.wait(milliseconds(5000)), SIGHUP);
}

}  // namespace
}  // namespace outbox::runtime
