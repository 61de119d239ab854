#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/letters.h"
#include "tests/support/outbox_binary.h"
#include "verify/verify.h"

namespace outbox::test {

// The relay itself, from a SQLite database (or one of PostgreSQL) to a real broker. What was
// committed is kept as a journal, and `outbox verify` judges what arrived.
class RelaySuite : public testing::Test {
  protected:
    static constexpr int kEvents = 20'000;

    RelaySuite();
    [[nodiscard]] std::vector<std::string> arguments(const std::string& to) const;
    // Events with a number in their payload, which rises with each key, from `from` + 1 on.
    void write(const std::string& topic, int events = kEvents, int from = 0);
    // One event with all that an event can have, the text `payload` or what is bytes; through a
    // route of the format, until it is published. Its key is its aggregate id.
    static constexpr const char* kEventId = "01939d3e-7c00-7aaa-8000-000000000001";
    static constexpr const char* kAggregateId = "o 1 \xC3\xA9";
    void publish_one(const std::string& to, const std::string& topic, const std::string& format,
                     const std::string& payload = R"({"total": 99.990})");
    // That are not published yet.
    long long left();
    // Writes some, kills a relay in mid-flight, writes the rest, and lets another finish.
    void publish_all_through_a_kill(const std::string& to, const std::string& topic,
                                    int events = kEvents);
    // Of a route that is renamed between the two relays, which is no reason for a repeat.
    void publish_all_through_a_kill_and_a_rename(const std::string& to, const std::string& topic);
    // How many records are in the topic, repeats included.
    using Count = std::function<std::size_t()>;
    // A route is retired, and made anew under its old name: it is sent what is there once more.
    void retire_and_begin_anew(const std::string& to, const std::string& topic, const Count& count);
    // Another file with a table of the same name takes the path: its ids mean other events.
    void replace_the_file(const std::string& to, const Count& count);
    // Published events of a table that keeps them are sent again by `outbox replay`, twice.
    void publish_and_replay(const std::string& to, const std::string& topic, int events);
    // From PostgreSQL, by `--mode`: writers of which some roll back and some commit late go on
    // while relays are killed in mid-flight, one after the other.
    void publish_a_load_through_kills(const std::string& to, const std::string& topic,
                                      const std::string& mode);
    // How many events were committed.
    std::size_t committed() const { return produced_.size(); }
    // Their keys by their ids, for where records arrive without.
    std::map<std::string, std::string> keys() const;
    // That all that was committed came and nothing else, in the order of the keys, with at most so
    // many repeats.
    void expect_all(const std::vector<Arrived>& arrived, std::size_t most_repeats);
    void publish_all_through_a_kill(const std::string& first, const std::string& second,
                                    const std::string& topic, int events,
                                    const std::function<void()>& between);
    // Exit code and text of `relay --check`; no password may be in it.
    std::pair<int, std::string> check(const std::string& to);

    OutboxBinary outbox_;
    std::string path_ = outbox_.file("events.db").string();
    std::string url_ = "sqlite://" + path_;

  private:
    std::vector<core::JournalLine> produced_;
};

}  // namespace outbox::test
