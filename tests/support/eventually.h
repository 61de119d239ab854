#pragma once

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <string_view>

namespace outbox::test {

// Asks again and again until the predicate holds or the deadline passes; the failure names what
// was awaited and shows the logs of all running servers and processes.
//   ASSERT_TRUE(eventually(60s, "the row is published", [&] { return rows() == 0; }));
testing::AssertionResult eventually(std::chrono::milliseconds deadline, std::string_view what,
                                    const std::function<bool()>& predicate);

}  // namespace outbox::test
