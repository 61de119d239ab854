#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/letters.h"
#include "tests/support/outbox_binary.h"

namespace outbox::test {

// The relay itself, from a SQLite database to a real broker.
class RelaySuite : public testing::Test {
  protected:
    static constexpr int kEvents = 20'000;

    RelaySuite();
    [[nodiscard]] std::vector<std::string> arguments(const std::string& to) const;
    // Events with a number in their payload, which rises with each key.
    void write(const std::string& topic, int events = kEvents);
    // That are not published yet.
    long long left();
    // Writes all, kills a relay in mid-flight, and lets another finish.
    void publish_all_through_a_kill(const std::string& to, const std::string& topic);
    // That all came, in the order of their keys, with at most so many repeats.
    static void expect_all(const std::vector<Arrived>& arrived, std::size_t most_repeats);
    // Exit code and text of `relay --check`; no password may be in it.
    std::pair<int, std::string> check(const std::string& to);

    OutboxBinary outbox_;
    std::string path_ = outbox_.file("events.db").string();
    std::string url_ = "sqlite://" + path_;
};

}  // namespace outbox::test
