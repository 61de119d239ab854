#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {

// A database whose tables belong to roles_owner, and roles that get what `outbox roles` prints.
class Roles : public testing::Test {
  protected:
    Roles() {
        for (const char* role : {"roles_writer", "roles_relay", "roles_consumer", "roles_operator",
                                 "roles_owner", "roles_mallory"}) {
            admin_.exec(std::string("DO $$ BEGIN CREATE ROLE ") + role +
                        " LOGIN PASSWORD 'test'; EXCEPTION WHEN duplicate_object THEN END $$");
        }
        admin_.exec("GRANT CREATE ON SCHEMA public TO roles_owner, roles_mallory");
    }

    std::string as(const std::string& role) const {
        std::string url = url_;
        return url.replace(url.find("postgres@"), 8, "roles_" + role);
    }
    std::string mailbox_as(const std::string& role) const {
        const std::string url = as(role);
        return "mailbox+postgresql" + url.substr(url.find(':'));
    }
    Finished run(std::vector<std::string> words) { return outbox_.run(std::move(words)); }
    void grant(std::vector<std::string> more = {}) {
        std::vector<std::string> words{
            "roles",       "--print",    "--writer",       "roles_writer", "--relay",
            "roles_relay", "--consumer", "roles_consumer", "--operator",   "roles_operator"};
        words.insert(words.end(), more.begin(), more.end());
        const Finished printed = run(words);
        ASSERT_EQ(printed.status.code, 0) << printed.err;
        Pg(as("owner")).exec(printed.out);
    }
    // Runs a command as the operator, who is told whose tables they are.
    void operate(std::vector<std::string> words) {
        words.insert(words.end(), {"--db", as("operator"), "--owner", "roles_owner"});
        const Finished ended = run(words);
        EXPECT_EQ(ended.status.code, 0)
            << words[0] << " " << words[1] << ": " << ended.out << ended.err;
        EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("permission denied"))) << words[0];
    }
    bool dead_letters_are(long long count) {
        return admin_.number("SELECT count(*) FROM outbox_dead_letters") == count;
    }

    OutboxBinary outbox_;
    std::string url_ = shared_postgres().create_database();
    Pg admin_{url_};
};

}  // namespace outbox::test
