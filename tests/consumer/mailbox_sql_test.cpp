// The mailbox by SQL alone: outbox_mailbox_take, _done and _failed.
#include "tests/consumer/mailbox_sql.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/fence.h>
#include <outbox/producer/emit.h>

#include "tests/support/eventually.h"
#include "tests/support/files.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(MailboxSql, GivesMessagesInOrderAndRemembersWhatIsDone) {
    for (const char* id : {"a", "b", "c"}) arrive(id, "k");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member, 2), ElementsAre("a", "b"));
    apply(member, "a");
    member.exec("COMMIT");
    EXPECT_EQ(db_->value("SELECT string_agg(message_id, ' ') FROM outbox_inbox"), "a");
    // A repeat that the relay delivers again is not given, and goes.
    arrive("a", "k");
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("b", "c"));
    apply(member, "b");
    member.exec("ROLLBACK; BEGIN");
    EXPECT_THAT(take(member), ElementsAre("b", "c"));
    apply(member, "b");
    apply(member, "c");
    member.exec("COMMIT");
    EXPECT_EQ(effects(), "a b c");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox"), 0);
    EXPECT_EQ(db_->value("SELECT applied || ' ' || repeats FROM outbox_inbox_stats"), "3 1");
}

TEST_F(MailboxSql, TwoMembersNeverHaveTheSameKey) {
    arrive("a1", "a");
    arrive("b1", "b");
    arrive("a2", "a");
    arrive("n1", "");
    arrive("n2", "");
    Pg one(url_);
    Pg other(url_);
    one.exec("BEGIN");
    other.exec("BEGIN");
    EXPECT_THAT(take(one, 1), ElementsAre("a1"));
    EXPECT_THAT(take(other), ElementsAre("b1", "n1", "n2"));
    apply(one, "a1");
    one.exec("COMMIT; BEGIN");
    EXPECT_THAT(take(one), ElementsAre("a2"));
    other.exec("ROLLBACK");
    one.exec("ROLLBACK");
}

TEST_F(MailboxSql, MembersAtTheSameTimeKeepTheOrderOfEachKeyAndApplyOnce) {
    constexpr int kKeys = 5;
    constexpr int kEach = 40;
    for (int n = 0; n < kEach; ++n) {
        for (int key = 0; key < kKeys; ++key) {
            arrive("k" + std::to_string(key) + "-" + std::to_string(1000 + n), std::to_string(key));
        }
    }
    const auto work = [&](unsigned seed) {
        Pg member(url_);
        std::mt19937 random(seed);
        while (db_->handle() != nullptr) {
            member.exec("BEGIN");
            const auto ids = take(member, 7);
            for (const std::string& id : ids) apply(member, id);
            // Now and then all of it is undone.
            member.exec(random() % 4 == 0 ? "ROLLBACK" : "COMMIT");
            if (ids.empty() && member.number("SELECT count(*) FROM outbox_mailbox") == 0) return;
        }
    };
    std::vector<std::thread> members;
    for (unsigned seed = 0; seed < 4; ++seed) members.emplace_back(work, seed);
    for (std::thread& member : members) member.join();
    EXPECT_EQ(db_->number("SELECT count(*) FROM effects"), kKeys * kEach);
    EXPECT_EQ(db_->number("SELECT count(DISTINCT id) FROM effects"), kKeys * kEach);
    EXPECT_EQ(db_->number("SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY key ORDER "
                          "BY n) AS wrong FROM effects) e WHERE wrong"),
              0);
    EXPECT_EQ(db_->number("SELECT sum(applied) FROM outbox_inbox_stats"), kKeys * kEach);
}

TEST_F(MailboxSql, PoisonWaitsWithItsKeyAndGoesToTheDeadLettersAfterItsTries) {
    arrive("bad", "k");
    arrive("behind", "k");
    arrive("other", "o");
    Pg member(url_);
    fail("bad", 3);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("other"));
    member.exec("ROLLBACK");
    end_waits();
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("bad", "behind", "other"));
    member.exec("ROLLBACK");
    fail("bad", 3);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
    fail("bad", 3);
    EXPECT_EQ(db_->value("SELECT concat_ws(' ', consumer, message_id, attempts, error_code, error) "
                         "FROM outbox_inbox_dead_letters"),
              "billing bad 3 OB_HANDLER_FAILED no stock");
    EXPECT_EQ(db_->value("SELECT failed || ' ' || dead FROM outbox_inbox_stats"), "3 1");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox_tries"), 0);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("behind", "other"));
    member.exec("ROLLBACK");
    // Retried by an operator it comes behind what was taken, and is applied once.
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = now()");
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("behind", "other", "bad"));
    apply_letter(member, "bad");
    member.exec("COMMIT");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
    EXPECT_EQ(effects(), "bad");
}

TEST_F(MailboxSql, WhatCannotBeKnownAsNewIsQuarantined) {
    // UUIDv7 of 1970 and of the year 2100.
    arrive("00000000-0001-7000-8000-000000000001", "");
    arrive("03bbbb1f-0000-7000-8000-000000000001", "");
    arrive("without a time", "");
    db_->exec("INSERT INTO outbox_inbox_floor (consumer, floor) VALUES ('billing', '2020-01-01')");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("without a time"));
    member.exec("COMMIT");
    EXPECT_EQ(db_->value("SELECT string_agg(DISTINCT error_code, ' ') || count(*) FROM "
                         "outbox_inbox_dead_letters"),
              "OB_QUARANTINED2");
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = now()");
    member.exec("BEGIN");
    EXPECT_EQ(take(member).size(), 3U) << "an operator knows better";
    member.exec("ROLLBACK");
}

TEST_F(MailboxSql, ALetterThatIsRetriedIsNotLostToAMemberThatSeesARepeatOfIt) {
    arrive("bad", "k");
    fail("bad", 1);
    arrive("healthy", "h");
    arrive("bad", "k");  // the relay's repeat
    retry();
    Pg one(url_);
    Pg other(url_);
    one.exec("BEGIN");
    EXPECT_THAT(take(one, 2), ElementsAre("healthy", "bad"));
    other.exec("BEGIN");
    EXPECT_THAT(take(other), IsEmpty()) << "the repeat is removed, the letter is the other's";
    other.exec("COMMIT");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 1);
    apply(one, "healthy");
    apply_letter(one, "bad");
    one.exec("COMMIT");
    EXPECT_EQ(effects(), "healthy bad");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox"), 0);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
}

TEST_F(MailboxSql, ALetterThatFailsAgainIsDeadAgainAndHoldsNothingUp) {
    arrive("bad", "k");
    fail("bad", 1);
    retry();
    arrive("healthy", "h");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("healthy", "bad"));
    member.exec("ROLLBACK");
    EXPECT_EQ(db_->value("SELECT outbox_mailbox_failed('billing', 'default', -letter, 'no stock') "
                         "FROM outbox_inbox_dead_letters"),
              "t");
    EXPECT_EQ(db_->value("SELECT attempts || ' ' || (retry_requested_at IS NULL) FROM "
                         "outbox_inbox_dead_letters"),
              "2 true");
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("healthy"));
    member.exec("ROLLBACK");
}

TEST_F(MailboxSql, HeadersThatNoTextHoldsConcernTheirOwnMessage) {
    for (const char* headers : {R"({"a": "x\u0000y"})", R"({"occurred_at": "\ud800"})"}) {
        db_->exec(
            "INSERT INTO outbox_mailbox (mailbox, id, topic, headers, payload) VALUES "
            "('default', md5(random()::text), 'orders', '" +
            std::string(headers) + "', '{}')");
    }
    arrive("healthy", "h");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_EQ(take(member).size(), 3U);
    member.exec(
        "SELECT outbox_mailbox_done('billing', 'default', VARIADIC array_agg(position)) FROM "
        "outbox_mailbox");
    member.exec("COMMIT");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox"), 0);
}

TEST_F(MailboxSql, WhatWasPrunedMeanwhileIsNotDone) {
    arrive("018f2d3c-0000-7000-8000-000000000001", "k");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_EQ(take(member).size(), 1U);
    db_->exec("INSERT INTO outbox_inbox_floor (consumer, floor) VALUES ('billing', now())");
    EXPECT_THROW(apply(member, "018f2d3c-0000-7000-8000-000000000001"), std::runtime_error);
    member.exec("ROLLBACK");
    member.exec("BEGIN");
    EXPECT_THAT(take(member), IsEmpty());
    member.exec("COMMIT");
    EXPECT_EQ(db_->value("SELECT error_code FROM outbox_inbox_dead_letters"), "OB_QUARANTINED");
}

TEST_F(MailboxSql, PruningByAClockThatIsAheadBuriesNothing) {
    db_->exec(
        "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
        "$$ SELECT pg_catalog.clock_timestamp() + interval '10 years' $$; "
        "ALTER FUNCTION inbox_prune SET search_path = public, pg_catalog");
    const std::string known = new_event_id();
    const std::string fresh = new_event_id();
    arrive(known, "k");
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre(known));
    apply(member, known);
    member.exec("COMMIT");
    db_->exec("SELECT inbox_prune(interval '30 days')");
    EXPECT_EQ(db_->value("SELECT events -> 0 ->> 'why' FROM outbox_wait('billing', '" +
                         fence_token(std::vector{fresh}) + "')"),
              "not_seen");
    arrive(known, "k");
    arrive(fresh, "k");
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre(fresh));
    apply(member, fresh);
    member.exec("COMMIT");
    EXPECT_EQ(effects(), known + " " + fresh);
}

TEST_F(MailboxSql, KeysOfOneMailboxAreNotThoseOfAnother) {
    arrive("here", "eu us");
    arrive("there", "us", "default eu");
    Pg one(url_);
    one.exec("BEGIN");
    EXPECT_EQ(one.query("SELECT id FROM outbox_mailbox_take('billing', 'default eu')").size(), 1U);
    Pg other(url_);
    other.exec("BEGIN");
    EXPECT_THAT(take(other), ElementsAre("here"));
    // Nor is a key in hand the lock of a mailbox.
    arrive("elsewhere", "k", "default eu us");
    EXPECT_EQ(one.query("SELECT id FROM outbox_mailbox_take('billing', 'default eu us')").size(),
              1U);
}

// Which are no lane of their own together.
TEST_F(MailboxSql, MessagesWithoutAKeyWaitForNone) {
    arrive("n1", "");
    arrive("n2", "");
    Pg one(url_);
    Pg other(url_);
    one.exec("BEGIN");
    other.exec("BEGIN");
    EXPECT_THAT(take(one, 1), ElementsAre("n1"));
    EXPECT_THAT(take(other), ElementsAre("n2"));
    fail("n2");
    other.exec("ROLLBACK; BEGIN");
    EXPECT_THAT(take(other), IsEmpty());
}

TEST_F(MailboxSql, AMessageThatWasAppliedElsewhereIsNotGivenUpOn) {
    arrive("a", "k");
    db_->exec("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('billing', 'a')");
    fail("a", 1);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox"), 0);
}

// Its id is known until it is pruned, and again when it is done.
TEST_F(MailboxSql, ALetterThatIsDoneIsKnownThoughItsIdWasPruned) {
    arrive("bad", "k");
    fail("bad", 1);
    db_->exec("DELETE FROM outbox_inbox");
    retry();
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("bad"));
    apply_letter(member, "bad");
    member.exec("COMMIT");
    arrive("bad", "k");  // the relay's repeat
    member.exec("BEGIN");
    EXPECT_THAT(take(member), IsEmpty());
    member.exec("COMMIT");
    EXPECT_EQ(effects(), "bad");
}

// What no index of the inbox takes would stop its key for good.
TEST_F(MailboxSql, AnIdThatTheInboxCannotKeepDoesNotArrive) {
    arrive(std::string(255, 'i'), "k");
    EXPECT_THROW(arrive(std::string(256, 'i'), "k"), std::runtime_error);
}

TEST_F(MailboxSql, ALetterIsRetriedInTheMailboxThatItCameFrom) {
    arrive("bad", "k", "orders");
    db_->exec(
        "SELECT outbox_mailbox_failed('billing', 'orders', position, 'no stock', 1) FROM "
        "outbox_mailbox");
    retry();
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), IsEmpty());
    const std::string letter = member.value("SELECT -letter FROM outbox_inbox_dead_letters");
    EXPECT_THROW(member.exec("SELECT outbox_mailbox_done('billing', 'default', " + letter + ")"),
                 std::runtime_error);
    member.exec("ROLLBACK");
    EXPECT_EQ(
        member.value("SELECT outbox_mailbox_failed('billing', 'default', " + letter + ", 'x')"),
        "f");
    member.exec("BEGIN");
    EXPECT_EQ(member.query("SELECT FROM outbox_mailbox_take('billing', 'orders')").size(), 1U);
    member.exec("SELECT outbox_mailbox_done('billing', 'orders', " + letter + "); COMMIT");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
}

TEST_F(MailboxSql, NothingIsKeptOfTriesWhoseMessageWentAnotherWay) {
    arrive("taken by the library", "a");
    arrive("applied elsewhere", "b");
    fail("taken by the library");
    fail("applied elsewhere");
    db_->exec("DELETE FROM outbox_mailbox WHERE id = 'taken by the library'");
    db_->exec(
        "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('billing', 'applied elsewhere')");
    end_waits();
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), IsEmpty());
    member.exec("COMMIT");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox_tries"), 1);
    arrive("bad", "c");
    fail("bad");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox_tries"), 1);
}

TEST_F(MailboxSql, WhatIsDoneAfterAllIsNoFailure) {
    arrive("a", "k");
    fail("a");
    end_waits();
    const std::string failed = "SELECT outbox_mailbox_failed('billing', 'default', " +
                               db_->value("SELECT position FROM outbox_mailbox") + ", 'late')";
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), ElementsAre("a"));
    apply(member, "a");
    std::string late;
    std::jthread other([&] { late = Pg(url_).value(failed); });
    EXPECT_TRUE(eventually(60s, "it waits for the one that has it", [&] {
        return db_->number("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0;
    }));
    member.exec("COMMIT");
    other.join();
    EXPECT_EQ(late, "f");
    EXPECT_EQ(db_->value(failed), "f");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_mailbox_tries"), 0);
    EXPECT_EQ(effects(), "a");
}

TEST_F(MailboxSql, FiguresOfSessionsThatAreGoneAreKeptTogether) {
    const auto apply_one = [&](const std::string& id) {
        arrive(id, "k");
        Pg member(url_);
        member.exec("BEGIN");
        EXPECT_THAT(take(member), ElementsAre(id));
        apply(member, id);
        member.exec("COMMIT");
    };
    for (const char* id : {"a", "b", "c"}) apply_one(id);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_stats"), 3);
    db_->exec("UPDATE outbox_inbox_stats SET updated_at = updated_at - interval '1 hour'");
    // One of them is not gone: it has only had nothing to do, and is at it again.
    Pg busy(url_);
    busy.exec(
        "BEGIN; UPDATE outbox_inbox_stats SET applied = applied WHERE member = "
        "(SELECT min(member) FROM outbox_inbox_stats)");
    apply_one("d");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_stats"), 3);
    EXPECT_EQ(db_->number("SELECT sum(applied) FROM outbox_inbox_stats"), 4);
    busy.exec("ROLLBACK");
    apply_one("e");
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_stats WHERE member <> ''"), 2);
    EXPECT_EQ(db_->number("SELECT sum(applied) FROM outbox_inbox_stats"), 5);
}

TEST_F(MailboxSql, ReadsTimesAsTheLibraryDoes) {
    EXPECT_EQ(db_->value("SET timezone = 'UTC'; SELECT "
                         "outbox_message_time('0190163d-8694-739b-aea5-966c26f8ad91', NULL)"),
              "2024-06-14 10:14:09.3+00");
    EXPECT_EQ(db_->value("SELECT outbox_message_time('x', '{\"occurred_at\": "
                         "\"2024-06-14T03:00:00.020001Z\"}')"),
              "2024-06-14 03:00:00.020001+00");
    for (const char* wrong : {"{}", "{\"occurred_at\": \"yesterday\"}",
                              "{\"occurred_at\": \"2024-13-14T03:00:00Z\"}"}) {
        EXPECT_EQ(db_->value("SELECT outbox_message_time('x', '" + std::string(wrong) + "')"), "");
    }
}

TEST_F(MailboxSql, MisuseIsRefused) {
    arrive("a", "k");
    Pg member(url_);
    member.exec("BEGIN ISOLATION LEVEL REPEATABLE READ");
    EXPECT_THROW(take(member), std::runtime_error);
    member.exec("ROLLBACK; BEGIN");
    EXPECT_THROW(member.exec("SELECT outbox_mailbox_done('billing', 'default', 77)"),
                 std::runtime_error);
    member.exec("ROLLBACK; BEGIN");
    EXPECT_THAT(take(member), ElementsAre("a"));
    // Somebody else applies it by another way.
    db_->exec("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('billing', 'a')");
    EXPECT_THROW(apply(member, "a"), std::runtime_error);
    member.exec("ROLLBACK");
    EXPECT_EQ(effects(), "");
}

TEST_F(MailboxSql, ATakeThatCouldNeverGiveAnythingIsRefused) {
    for (const char* arguments : {"'billing', 'default', 0", "'billing', 'default', -1",
                                  "'billing', NULL, 1", "NULL, 'default', 1", "'', 'default', 1"}) {
        EXPECT_THROW(db_->exec(std::string("SELECT outbox_mailbox_take(") + arguments + ")"),
                     std::runtime_error)
            << arguments;
    }
}

TEST_F(MailboxSql, AFailureWithoutATextIsAFailure) {
    arrive("a", "k");
    EXPECT_EQ(db_->value("SELECT outbox_mailbox_failed('billing', 'default', position, NULL, 1) "
                         "FROM outbox_mailbox"),
              "t");
    EXPECT_EQ(db_->value("SELECT error FROM outbox_inbox_dead_letters"), "");
}

TEST_F(MailboxSql, WaitsWhileAConsumerOfTheLibraryHoldsTheMailbox) {
    MailboxOptions options;
    options.consumer = "billing";
    options.connect_timeout_s = 60;
    arrive("waits", "k");
    auto library = libpq_mailbox_consumer(
        url_, LibpqHandler([](PGconn*, const Message&) {
            throw Error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "mail is down");
        }),
        options);
    std::jthread thread([&] { static_cast<void>(library.run()); });
    ASSERT_TRUE(eventually(60s, "it holds the mailbox", [&] {
        return db_->number(
                   "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "
                   "AND database = (SELECT oid FROM pg_database WHERE datname = "
                   "current_database())") > 0;
    }));
    Pg member(url_);
    member.exec("BEGIN");
    EXPECT_THAT(take(member), IsEmpty());
    member.exec("ROLLBACK");
    library.stop();
}

// The loop of docs/receiving.md, as plain SQL.
TEST_F(MailboxSql, TheGuideShowsWhatRuns) {
    const std::string page = read_file(GUIDE_PAGE);
    const auto begin =
        page.find("SELECT position, id, topic, key, headers, payload\nFROM outbox_mailbox_take");
    ASSERT_NE(begin, std::string::npos);
    for (const char* call : {"outbox_mailbox_take('billing', 'default', 100)",
                             "outbox_mailbox_done('billing', 'default', ",
                             "outbox_mailbox_failed('billing', 'default', "}) {
        EXPECT_THAT(page, HasSubstr(call));
    }
    arrive("a", "k");
    const std::string sql = page.substr(begin, page.find(';', begin) - begin);
    db_->exec("BEGIN");
    EXPECT_EQ(db_->query(sql).size(), 1U);
    db_->exec("COMMIT");
}

}  // namespace
}  // namespace outbox::test
