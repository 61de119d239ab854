#pragma once

#include <deque>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/chaos/load.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"

namespace outbox::test {

inline constexpr std::chrono::seconds kDeadline{90};

// The program `outbox relay --mode stream --to stdout:` before a real server. Its lines are kept
// over restarts, so that repeats and the order of each key can be seen.
class StreamRelay : public testing::Test {
  protected:
    // What a kill may repeat, small enough for a test to notice more.
    static constexpr int kMaxUnrecorded = 500;

    // Makes a database with the outbox's tables.
    void use(PostgresServer& server) { use_database(server.create_database()); }
    void use_database(const std::string& url);

    void start(const std::vector<std::string>& more = {}, const std::string& mode = "stream");
    Process& relay() { return relays_.back(); }
    void kill_relay();
    void stop_relay();

    // Waits for the next time that the log tells of the stream.
    testing::AssertionResult joins();
    // Waits for a line of the log of this relay that holds the text.
    testing::AssertionResult tells(const std::string& text);
    int count_in_log(const std::string& text);
    // Waits until the relay ends by itself.
    ExitStatus ends();

    // Inserts the events `first` to `last`, of five keys, in one transaction.
    void emit(int first, int last);
    testing::AssertionResult delivers_all();
    // Waits until the load has committed so many events more.
    static testing::AssertionResult commits(const Load& load, int more);

    // The numbers of all events, in the order of their coming.
    std::vector<int> numbers() const;
    // All of 1 to `last` came, each key in order, with so many repeats.
    void expect_numbers(int last, std::size_t max_repeats = 0);
    // Nothing lost, no ghost, order per key, for what the load has committed.
    void expect_promises(const Load& load, long long max_repeats);

    // Slots of relays. Other databases of a shared server have their own.
    long long slots() { return Pg(url_).number(std::string(kSlots) + "count(*)" + kOfDatabase); }
    // Waits until there is none: the server drops it after the connection has ended.
    testing::AssertionResult loses_its_slot();
    void terminate_walsender() {
        Pg(url_).exec(std::string(kSlots) + "pg_terminate_backend(active_pid)" + kOfDatabase);
    }
    pid_t walsender();

    std::string url_;

  private:
    static constexpr const char* kSlots = "SELECT ";
    static constexpr const char* kOfDatabase =
        " FROM pg_replication_slots WHERE slot_type = 'logical' AND database = current_database()";

    struct Line {
        std::string id;
        std::string key;
        int n = 0;
    };
    std::vector<Line> lines() const;

    std::deque<Process> relays_;
    int joins_told_ = 0;
};

// A copy of a running server's data, from which another one can begin, as pg_basebackup makes it:
// that program does not serve servers newer than itself.
void base_backup(const PostgresServer& server, const std::filesystem::path& to);

// Adds lines to a stopped server's configuration, and makes an empty file in its data.
void configure(const std::filesystem::path& data, const std::string& lines);
void touch(const std::filesystem::path& data, const std::string& name);

// Puts a copy of `from` in the place of a stopped server's data.
void replace_data(const PostgresServer& server, const std::filesystem::path& from);

}  // namespace outbox::test
