// The mailbox by SQL alone: what bounds a take, tries and their waits, and misuse.
#include <gmock/gmock.h>

#include "tests/consumer/mailbox_sql.h"

namespace outbox::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A client has room for them, however large messages are: 16 MiB at a time, or one message.
TEST_F(MailboxSql, ATakeGivesSoManyBytesAndAtLeastOneMessage) {
    constexpr int kMebibyte = 1 << 20;
    const auto arrive_large = [&](const std::string& id, int payload_bytes, int header_bytes) {
        db_->exec("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" + id +
                  "', 'orders', '" + id + "', json_build_object('h', repeat('h', " +
                  std::to_string(header_bytes) + ")), convert_to(repeat('p', " +
                  std::to_string(payload_bytes) + "), 'UTF8'))");
    };
    arrive_large("half", 8 * kMebibyte - 100, 10);
    arrive_large("half in headers", 10, 8 * kMebibyte - 100);
    arrive_large("whole", 17 * kMebibyte, 10);
    arrive_large("small", 10, 10);
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("half", "half in headers"));
    apply(member, "half");
    apply(member, "half in headers");
    member.exec("COMMIT; BEGIN");
    EXPECT_THAT(take(member), ElementsAre("whole"));
    apply(member, "whole");
    member.exec("COMMIT; BEGIN");
    EXPECT_THAT(take(member), ElementsAre("small"));
    member.exec("ROLLBACK");
}

TEST_F(MailboxSql, LettersThatAreRetriedTakeHalfOfTheBytesAndNeverAllTheMessages) {
    db_->exec(
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, payload, attempts, "
        "error_code, error, retry_requested_at) SELECT 'billing', 'letter' || n, 'orders', "
        "convert_to(repeat('p', 5 << 20), 'UTF8'), 1, '', '', now() + n * interval '1 s' "
        "FROM generate_series(1, 3) n");
    arrive("a", "a");
    arrive("b", "b");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member, 30), ElementsAre("a", "b", "letter1"));
    member.exec("ROLLBACK; BEGIN");
    EXPECT_THAT(take(member, 2), ElementsAre("a", "letter1"));
    member.exec("ROLLBACK; BEGIN");
    EXPECT_THAT(take(member, 1), ElementsAre("letter1")) << "at most one is one";
    member.exec("ROLLBACK");
}

// Positions begin anew where the table was emptied.
TEST_F(MailboxSql, TriesAreThoseOfAMessageAndNotOfItsPlace) {
    arrive("old", "k");
    for (int i = 0; i < 4; ++i) fail("old");
    db_->exec("TRUNCATE outbox_mailbox RESTART IDENTITY");
    arrive("new", "k");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("new")) << "it need not wait";
    member.exec("ROLLBACK");
    fail("new");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
    EXPECT_EQ(db_->value("SELECT id || ' ' || attempts || ' ' || (not_before < clock_timestamp() "
                         "+ interval '1 second') FROM outbox_mailbox_tries"),
              "new 1 true");
}

TEST_F(MailboxSql, NothingIsKeptOfTriesWhosePlaceAnotherMessageHas) {
    arrive("old", "k");
    fail("old");
    db_->exec("TRUNCATE outbox_mailbox RESTART IDENTITY");
    arrive("new", "k");
    arrive("bad", "b");
    fail("bad");
    EXPECT_EQ(db_->value("SELECT string_agg(id, ' ') FROM outbox_mailbox_tries"), "bad");
}

// By what is kept, whatever the clock does meanwhile: 1, 2, 4, ... seconds, a minute at most.
TEST_F(MailboxSql, EachFailureMakesTheWaitTwiceAsLong) {
    arrive("bad", "k");
    for (const int wait_s : {1, 2, 4, 8, 16, 32, 60, 60}) {
        const std::string before = db_->value("SELECT clock_timestamp()");
        fail("bad", 100);
        EXPECT_EQ(db_->value("SELECT not_before BETWEEN '" + before +
                             "'::timestamptz + w.s AND "
                             "clock_timestamp() + w.s FROM outbox_mailbox_tries, "
                             "(SELECT interval '1 second' * " +
                             std::to_string(wait_s) + " AS s) w"),
                  "t")
            << wait_s << " s: " << db_->value("SELECT not_before FROM outbox_mailbox_tries");
    }
}

// No failure makes a wait of more than a minute: it was stored before the clock was set back.
TEST_F(MailboxSql, AWaitIsOfAMinuteAtMostWhereTheClockWasSetBack) {
    arrive("bad", "k");
    fail("bad");
    Pg member(url_);
    for (const auto& [wait, given] : {std::pair{"59 s", 0U}, std::pair{"1 hour", 1U}}) {
        db_->exec(std::string("UPDATE outbox_mailbox_tries SET not_before = clock_timestamp() + "
                              "interval '") +
                  wait + "'");
        member.exec("BEGIN");
        EXPECT_EQ(take(member).size(), given) << wait;
        member.exec("ROLLBACK");
    }
}

TEST_F(MailboxSql, AFailureThatNamesNothingIsRefused) {
    arrive("a", "k");
    for (const char* arguments :
         {"NULL, 'default', 1, 'x'", "'', 'default', 1, 'x'", "'billing', NULL, 1, 'x'",
          "'billing', 'default', NULL, 'x'", "'billing', 'default', 1, 'x', NULL",
          "'billing', 'default', 1, 'x', 0"}) {
        try {
            db_->exec(std::string("SELECT outbox_mailbox_failed(") + arguments + ")");
            ADD_FAILURE() << arguments << " was taken";
        } catch (const std::runtime_error& error) {
            EXPECT_THAT(error.what(), HasSubstr("outbox_mailbox_failed wants")) << arguments;
        }
    }
    constexpr const char* kMisused[] = {
        "NULL, 'default', 1",
        "'', 'default', 1",
        "'billing', NULL, 1",
        "'billing', 'default', NULL",
        "'billing', 'default', VARIADIC NULL::bigint[]",
    };
    for (const char* arguments : kMisused) {
        try {
            db_->exec(std::string("SELECT outbox_mailbox_done(") + arguments + ")");
            ADD_FAILURE() << arguments << " was taken";
        } catch (const std::runtime_error& error) {
            EXPECT_THAT(error.what(), HasSubstr("outbox_mailbox_done wants")) << arguments;
        }
    }
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox"), 1);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox_tries"), 0);
}

TEST_F(MailboxSql, WhatIsSaidTwiceInOneCallIsDoneOnce) {
    arrive("a", "k");
    db_->exec(
        "BEGIN; SELECT outbox_mailbox_take('billing'); "
        "SELECT outbox_mailbox_done('billing', 'default', 1, 1); COMMIT");
    EXPECT_EQ(db_->number("SELECT applied FROM outbox_inbox_stats"), 1);
}

// Who has it under way gets to know; its effect is not kept beside that.
TEST_F(MailboxSql, WhatIsSaidDoneWithoutATakeIsDoneAndWhoTookItRollsBack) {
    arrive("a", "k");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("a"));
    member.exec("INSERT INTO effects (id) VALUES ('a')");
    db_->exec("SELECT outbox_mailbox_done('billing', 'default', 1)");
    try {
        member.exec("SELECT outbox_mailbox_done('billing', 'default', 1)");
        ADD_FAILURE() << "done twice";
    } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), HasSubstr("OB_CONFLICT"));
    }
    member.exec("ROLLBACK");
    EXPECT_EQ(effects(), "");
    EXPECT_EQ(db_->value("SELECT string_agg(message_id, ' ') FROM outbox_inbox"), "a");
    // Nor is there anything that could fail.
    fail("a", 1);
    EXPECT_EQ(db_->value("SELECT outbox_mailbox_failed('billing', 'default', 1, 'x', 1)"), "f");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
}

TEST_F(MailboxSql, AFailureThatIsSaidWithoutATakeCounts) {
    arrive("a", "k");
    EXPECT_EQ(db_->value("SELECT outbox_mailbox_failed('billing', 'default', 1, 'x', 1)"), "t");
    EXPECT_EQ(db_->value("SELECT message_id FROM outbox_inbox_dead_letters"), "a");
}

// Two sessions that are new at once both want the silent ones: the second waits for nobody and
// leaves them to the first.
TEST_F(MailboxSql, OnlyOneSessionAtATimeKeepsFiguresTogether) {
    db_->exec(
        "INSERT INTO outbox_inbox_stats (consumer, member, applied, repeats, failed, dead, "
        "updated_at) VALUES ('billing', 'sql/gone 1', 1, 0, 0, 0, now() - interval '1 hour'), "
        "('billing', 'sql/gone 2', 2, 0, 0, 0, now() - interval '1 hour')");
    Pg one(url_);
    Pg other(url_);
    one.exec("BEGIN; SELECT outbox_mailbox_count('billing', 10, 0, 0, 0)");
    db_->exec(
        "INSERT INTO outbox_inbox_stats (consumer, member, applied, repeats, failed, dead, "
        "updated_at) VALUES ('billing', 'sql/gone 3', 4, 0, 0, 0, now() - interval '1 hour')");
    other.exec("SET lock_timeout = '5s'; BEGIN");
    EXPECT_NO_THROW(other.exec("SELECT outbox_mailbox_count('billing', 20, 0, 0, 0)"))
        << "it waits for the first one's row of what is gone";
    other.exec("COMMIT");
    one.exec("COMMIT");
    EXPECT_EQ(db_->value("SELECT string_agg(applied::text, ' ' ORDER BY applied) FROM "
                         "outbox_inbox_stats"),
              "3 4 10 20");
    Pg third(url_);
    third.exec("SELECT outbox_mailbox_count('billing', 40, 0, 0, 0)");
    EXPECT_EQ(db_->value("SELECT string_agg(applied::text, ' ' ORDER BY applied) FROM "
                         "outbox_inbox_stats"),
              "7 10 20 40");
}

}  // namespace
}  // namespace outbox::test
