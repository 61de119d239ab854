#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"

namespace outbox::test {

/// An id that shows its number in its last digit.
inline std::string adopted_uuid(int n) {
    return "018f2d3c-0000-7000-8000-00000000000" + std::to_string(n);
}

/// A table that a team brought along, relayed by the program into a mailbox that refuses what holds
/// the word "poison" until `heal`.
class AdoptedTable : public testing::Test {
  protected:
    static constexpr std::chrono::seconds kDeadline{60};

    virtual std::string url() const = 0;
    virtual std::string mailbox() const = 0;
    virtual void heal() = 0;
    virtual void exec(const std::string& sql) = 0;
    virtual std::string value(const std::string& sql) = 0;
    /// What the mailbox holds, in the order of arrival.
    virtual std::vector<std::string> arrived(const std::string& columns) = 0;

    Process relay(const std::string& table, const std::string& retry_ms = "10",
                  const std::string& to = "") {
        return outbox_.start_relay({"--from", url(), "--to", to.empty() ? mailbox() : to, "--table",
                                    table, "--admin", "off", "--retry-base-ms", retry_ms,
                                    "--retry-max-ms", retry_ms});
    }
    nlohmann::json result(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url(), "--json"});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return nlohmann::json::parse(ended.out);
    }
    std::string check(const std::string& table) {
        const Finished ended =
            outbox_.run({"relay", "--check", "--from", url(), "--to", mailbox(), "--table", table});
        EXPECT_EQ(ended.status.code, 0) << ended.out << ended.err;
        return ended.out;
    }
    testing::AssertionResult is(const std::string& sql, const std::string& wanted) {
        const auto result =
            eventually(kDeadline, sql + " gives " + wanted, [&] { return value(sql) == wanted; });
        return result ? result : testing::AssertionResult(result) << "\nit gives " << value(sql);
    }

    /// `outbox` of shape 1 holds one row, with poison.
    void expect_fresh_attempts_when_set_back() {
        Process running = relay("outbox");
        const std::string state = "SELECT status || ',' || retry_count FROM outbox";
        ASSERT_TRUE(is(state, "FAILED,5"));
        const std::string died_at = value("SELECT died_at FROM outbox_dead_letters");
        exec("UPDATE outbox SET status = 'PENDING', retry_count = 0");
        ASSERT_TRUE(eventually(kDeadline, "it dies again", [&] {
            return value("SELECT died_at FROM outbox_dead_letters") != died_at;
        }));
        // Five attempts of its own, not one more after the first five.
        ASSERT_TRUE(is(state, "FAILED,5"));
        EXPECT_EQ(value("SELECT attempts FROM outbox_dead_letters"), "5");
        heal();
        exec("UPDATE outbox SET status = 'PENDING', retry_count = 0");
        ASSERT_TRUE(is(state, "PUBLISHED,0"));
        EXPECT_EQ(arrived("id").size(), 1U);
        // Nothing is left to be looked at.
        EXPECT_EQ(result({"dead", "list", "--table", "outbox"}), nlohmann::json::array());
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    /// Likewise.
    void expect_the_last_content_in_the_letter() {
        Process running = relay("outbox");
        ASSERT_TRUE(is("SELECT status FROM outbox", "FAILED"));
        const std::string died_at = value("SELECT died_at FROM outbox_dead_letters");
        exec("UPDATE outbox SET status = 'PENDING', payload = '{\"is\": \"poison, corrected\"}'");
        ASSERT_TRUE(eventually(kDeadline, "it dies again", [&] {
            return value("SELECT died_at FROM outbox_dead_letters") != died_at;
        }));
        heal();
        EXPECT_EQ(result({"dead", "retry", "--all", "--table", "outbox"})["matched"], 1);
        ASSERT_TRUE(is("SELECT status FROM outbox", "PUBLISHED"));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    void expect_retried_by_command(const std::string& id) {
        Process running = relay("outbox");
        ASSERT_TRUE(is("SELECT status FROM outbox", "FAILED"));
        heal();
        EXPECT_EQ(result({"dead", "retry", id, "--table", "outbox"})["matched"], 1);
        ASSERT_TRUE(is("SELECT status FROM outbox", "PUBLISHED"));
        EXPECT_EQ(arrived("id").size(), 1U);
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }

    /// `outbox` of shape 1 holds one row, with poison; two routes lead to mailboxes of their own.
    void expect_dead_while_a_route_has_a_dead_letter() {
        std::vector<std::string> words{"--from",         url(), "--table",         "outbox",
                                       "--admin",        "off", "--retry-base-ms", "10",
                                       "--retry-max-ms", "10"};
        for (const std::string name : {"a", "b"}) {
            words.insert(words.end(), {"--to", name + "=" + mailbox() + "?mailbox=" + name});
        }
        Process running = outbox_.start_relay(words);
        ASSERT_TRUE(is("SELECT status FROM outbox", "FAILED"));
        ASSERT_TRUE(is("SELECT count(*) FROM outbox_dead_letters", "2"));
        heal();
        result({"dead", "retry", "--route", "a", "--table", "outbox"});
        ASSERT_TRUE(is("SELECT count(*) FROM outbox_dead_letters", "1"));
        EXPECT_EQ(value("SELECT status FROM outbox"), "FAILED") << "not published in route b";
        result({"dead", "retry", "--route", "b", "--table", "outbox"});
        EXPECT_TRUE(is("SELECT count(*) FROM outbox_dead_letters", "0"));
        EXPECT_EQ(value("SELECT status FROM outbox"), "PUBLISHED");
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }

    /// outbox.toml for "Odd Box", a table of no known shape.
    void write_mapping_of_odd_box() {
        outbox_.write("outbox.toml", "topic_template = \"odd-{event_type}\"\n[source]\nurl = \"" +
                                         url() +
                                         "\"\n[source.table]\nname = \"Odd Box\"\n"
                                         "metadata_columns = [\"trace\"]\n"
                                         "[source.table.columns]\nid = \"nr\"\n"
                                         "event_type = \"Kind\"\npayload = \"body\"\n"
                                         "key = \"who\"\nstatus = \"phase\"\n"
                                         "retry_count = \"tries\"\nerror_message = \"why\"\n"
                                         "[source.table.status]\npending = [\"todo\"]\n"
                                         "sending = [\"doing\"]\nsent = \"done\"\n"
                                         "failed = \"later\"\ndead = \"broken\"\n");
    }

    OutboxBinary outbox_;
};

}  // namespace outbox::test
