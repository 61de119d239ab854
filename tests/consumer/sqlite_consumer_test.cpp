// What only SQLite can show: locks of the file, statements left open, the file replaced.

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/producer/migrate.h>

#include "tests/consumer/database.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

void apply(sqlite3* transaction, const Message& message) {
    Sqlite::query(transaction, "INSERT INTO effects VALUES ('" + std::string(message.id) + "')");
}

class SqliteConsumer : public testing::Test {
  protected:
    SqliteConsumer() {
        migrate(database_.url());
        db_.exec("CREATE TABLE effects (id text)");
    }
    static MailboxOptions quick() {
        MailboxOptions options;
        options.retry_base_ms = 1;
        options.retry_max_ms = 2;
        options.connect_timeout_s = 1;
        return options;
    }
    void put(const std::string& id) {
        db_.exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('" + id + "', 't', 'k')");
    }

    void put_keyless(const std::string& id) {
        db_.exec("INSERT INTO outbox_mailbox (id, topic) VALUES ('" + id + "', 't')");
    }

    // '%' stands for the id.
    void put_as(const std::string& id, std::string headers, std::string payload) {
        for (std::string* text : {&headers, &payload}) {
            if (const auto at = text->find('%'); at != std::string::npos) text->replace(at, 1, id);
        }
        db_.exec("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" + id +
                 "', 't', 'k', '" + headers + "', '" + payload + "')");
    }

    SqliteDatabase database_;
    Sqlite db_{database_.path()};
};

TEST_F(SqliteConsumer, WaitsForAnotherWriterAndCountsNothing) {
    auto member = sqlite_mailbox_consumer(database_.url(), apply, quick());
    put("a");
    db_.exec("BEGIN IMMEDIATE");
    try {
        member.drain();
        FAIL() << "it wrote";
    } catch (const Error& error) {
        EXPECT_EQ(error.advice(), Advice::kRetryDestination);
        EXPECT_THAT(error.what(), HasSubstr("keeps a write transaction open"));
    }
    db_.exec("COMMIT");
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_EQ(member.stats().failed, 0U);
}

// Somebody else has applied it between the last failure and the burial.
TEST_F(SqliteConsumer, AMessageThatWasAppliedElsewhereIsNotGivenUpOn) {
    put("a");
    put("b");
    auto once = quick();
    once.max_attempts = 1;
    AppliedElsewhere elsewhere(database_.path(), "default", "a");
    auto member = sqlite_mailbox_consumer(
        database_.url(),
        [&](sqlite3* connection, const Message& message) {
            if (message.id == "a") elsewhere.after_this(connection);
            throw std::runtime_error("no stock");
        },
        once);
    EXPECT_EQ(member.drain(), 2U);
    EXPECT_TRUE(elsewhere.done());
    EXPECT_EQ(db_.value("SELECT group_concat(message_id) FROM outbox_inbox_dead_letters"), "b");
    EXPECT_EQ(member.stats().repeats, 1U);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_mailbox"), 0);
}

TEST_F(SqliteConsumer, AcceptReportsAConflictWhenTheTransactionCannotWrite) {
    Sqlite other(database_.path());
    sqlite3_busy_timeout(other.handle(), 1);
    other.exec("BEGIN; SELECT * FROM outbox_inbox");
    db_.exec("BEGIN IMMEDIATE");
    EXPECT_TRUE(accept(db_.handle(), "stock", "id-1"));
    db_.exec("COMMIT");
    try {
        accept(other.handle(), "stock", "id-2");
        FAIL() << "accepted on an old snapshot";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kConflict);
        EXPECT_EQ(error.advice(), Advice::kRetryEvent);
    }
}

TEST_F(SqliteConsumer, StatementsThatAHandlerLeavesOpenHinderNothing) {
    db_.exec("CREATE TABLE stock (n integer); INSERT INTO stock VALUES (1), (2)");
    std::vector<sqlite3_stmt*> left_open;
    const auto leave_open = [&](sqlite3* transaction, const char* sql) {
        left_open.emplace_back();
        sqlite3_prepare_v2(transaction, sql, -1, &left_open.back(), nullptr);
        ASSERT_EQ(sqlite3_step(left_open.back()), SQLITE_ROW);
    };
    auto once = quick();
    once.max_attempts = 1;
    auto member = sqlite_mailbox_consumer(
        database_.url(),
        [&](sqlite3* transaction, const Message& message) {
            leave_open(transaction, "INSERT INTO effects VALUES ('x'), ('y') RETURNING id");
            leave_open(transaction, "SELECT n FROM stock");
            if (message.id == "b") throw std::runtime_error("no");
        },
        once);
    for (const char* id : {"a", "b", "c"}) {
        put(id);
        EXPECT_EQ(member.drain(), 1U) << id;
    }
    EXPECT_EQ(db_.number("SELECT count(*) FROM effects"), 4);
    EXPECT_EQ(db_.value("SELECT message_id FROM outbox_inbox_dead_letters"), "b");
    for (sqlite3_stmt* statement : left_open) sqlite3_finalize(statement);
}

// SQLite would commit each statement by itself then: "a" would be applied without the inbox, "b"
// and "c" as well, and once more as they are tried singly.
TEST_F(SqliteConsumer, WhatIsWrittenOnceATransactionIsOverIsNotKept) {
    db_.exec("CREATE TABLE stock (n integer NOT NULL)");
    auto together = quick();
    together.max_attempts = 2;
    together.transaction_size = 4;
    const auto member_that = [&](const std::string& ends) {
        return sqlite_mailbox_consumer(
            database_.url(),
            [ends](sqlite3* transaction, const Message& message) {
                if (message.id == "a") {
                    sqlite3_exec(transaction, ends.c_str(), nullptr, nullptr, nullptr);
                }
                apply(transaction, message);
            },
            together);
    };
    for (const char* ends :
         {"INSERT OR ROLLBACK INTO stock VALUES (NULL)", "ROLLBACK", "COMMIT", "END"}) {
        for (const char* id : {"a", "b", "c"}) put_keyless(id);
        auto member = member_that(ends);
        EXPECT_TRUE(eventually(60s, "it is dealt with", [&] {
            member.drain();
            return db_.number("SELECT count(*) FROM outbox_mailbox") == 0;
        })) << ends;
        EXPECT_EQ(db_.value("SELECT group_concat(id) FROM effects"), "b,c") << ends;
        EXPECT_THAT(db_.value("SELECT message_id || ': ' || error FROM outbox_inbox_dead_letters"),
                    testing::AllOf(HasSubstr("a: "), HasSubstr("ended the transaction")))
            << ends;
        db_.exec(
            "DELETE FROM effects; DELETE FROM outbox_inbox; DELETE FROM "
            "outbox_inbox_dead_letters");
    }
}

TEST_F(SqliteConsumer, AFullDiskIsNotTheMessagesFault) {
    put("a");
    auto once = quick();
    once.max_attempts = 1;
    int calls = 0;
    auto member = sqlite_mailbox_consumer(
        database_.url(),
        [&](sqlite3* transaction, const Message& message) {
            const bool full = ++calls <= 3;
            // As many pages as there are, or as there may be.
            Sqlite::query(transaction, full ? "PRAGMA max_page_count = 1"
                                            : "PRAGMA max_page_count = 1073741823");
            Sqlite::query(transaction,
                          "CREATE TABLE IF NOT EXISTS large (bytes blob); INSERT INTO "
                          "large VALUES (zeroblob(1000000))");
            apply(transaction, message);
        },
        once);
    EXPECT_TRUE(eventually(60s, "it is dealt with", [&] {
        member.drain();
        return db_.number("SELECT count(*) FROM outbox_mailbox") == 0;
    }));
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(db_.value("SELECT group_concat(id) FROM effects"), "a");
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
}

TEST_F(SqliteConsumer, KeepsBytesAndTellsTextFromNothing) {
    db_.exec(
        "INSERT INTO outbox_mailbox (id, topic, payload) VALUES ('a', 't', x'00FF41'), "
        "('b', 't', ''), ('c', 't', NULL)");
    std::vector<std::optional<std::string>> payloads;
    auto member = sqlite_mailbox_consumer(
        database_.url(),
        [&](sqlite3*, const Message& message) {
            payloads.push_back(message.payload.data() == nullptr
                                   ? std::nullopt
                                   : std::optional<std::string>(message.payload));
        },
        quick());
    EXPECT_EQ(member.drain(), 3U);
    EXPECT_THAT(payloads, ElementsAre(std::string("\0\xff\x41", 3), "", std::nullopt));
}

constexpr const char* kBinary =
    R"({"ce_specversion":"1.0","ce_id":"%","ce_source":"/s","ce_type":"Placed",)"
    R"("ce_time":"2026-01-31T23:59:59Z","content-type":"application/json"})";
constexpr const char* kStructured =
    R"({"specversion":"1.0","id":"%","source":"/s","type":"Placed",)"
    R"("time":"2026-01-31T23:59:59Z","data":{"total": 9.90}})";

TEST_F(SqliteConsumer, AMessageOfEachFormatIsHandledAlike) {
    const auto put_all = [&] {
        put_as("raw", R"({"id":"%","type":"Placed","occurred_at":"2026-01-31T23:59:59Z"})",
               R"({"total": 9.90})");
        put_as("binary", kBinary, R"({"total": 9.90})");
        put_as("structured", R"({"content-type":"application/cloudevents+json; charset=UTF-8"})",
               kStructured);
    };
    std::vector<std::string> seen;
    auto options = quick();
    options.transaction_size = 2;
    auto member = sqlite_mailbox_consumer(
        database_.url(),
        [&](sqlite3*, const Message& message) {
            seen.push_back(std::string(message.id) + " " + message.header("type").value_or("") +
                           " " + message.header("occurred_at").value_or("") + " " +
                           std::string(message.payload));
        },
        options);
    put_all();
    EXPECT_EQ(member.drain(), 3U);
    const std::string rest = R"( Placed 2026-01-31T23:59:59Z {"total": 9.90})";
    EXPECT_THAT(seen, ElementsAre("raw" + rest, "binary" + rest, "structured" + rest));
    put_all();  // the row is gone, the inbox knows it
    EXPECT_EQ(member.drain(), 3U);
    EXPECT_EQ(seen.size(), 3U);
    EXPECT_EQ(member.stats().repeats, 3U);
}

// A row's id is the mailbox's, whatever its content says.
TEST_F(SqliteConsumer, AMessageThatCallsItselfByAnotherIdIsAsItIs) {
    put_as("mine", R"({"ce_specversion":"1.0","ce_id":"yours","ce_source":"/s","ce_type":"T"})",
           "{}");
    std::vector<std::string> seen;
    auto member = sqlite_mailbox_consumer(
        database_.url(),
        [&](sqlite3*, const Message& message) {
            seen.push_back(std::string(message.id) + " " + message.header("ce_id").value_or(""));
        },
        quick());
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(seen, ElementsAre("mine yours"));
}

TEST_F(SqliteConsumer, WhatIsNotOfItsFormatGoesToTheDeadLettersAndDelaysNoOther) {
    for (const std::size_t together : {1U, 10U}) {
        db_.exec(
            "DELETE FROM effects; DELETE FROM outbox_inbox; DELETE FROM outbox_inbox_dead_letters");
        put_as("first", kBinary, "{}");
        put("other");
        put_as("broken", R"({"content-type":"application/cloudevents+json"})", "not json");
        put_as("last", kBinary, "{}");
        auto options = quick();
        options.format = MessageFormat::kCloudEvents;
        options.transaction_size = together;
        auto member = sqlite_mailbox_consumer(database_.url(), apply, options);
        EXPECT_EQ(member.drain(), 4U);
        EXPECT_EQ(db_.value("SELECT group_concat(id) FROM effects"), "first,last");
        EXPECT_EQ(db_.value("SELECT group_concat(message_id) FROM (SELECT message_id FROM "
                            "outbox_inbox_dead_letters ORDER BY message_id DESC)"),
                  "other,broken");
        EXPECT_THAT(
            db_.value("SELECT error FROM outbox_inbox_dead_letters WHERE message_id = 'other'"),
            HasSubstr("the message other has no attributes of a CloudEvent"));
        EXPECT_EQ(member.stats().failed, 2U);
    }
}

TEST_F(SqliteConsumer, AStandbyTakesOverWhenTheHolderEnds) {
    std::optional<MailboxConsumer> holder =
        sqlite_mailbox_consumer(database_.url(), apply, quick());
    auto standby = sqlite_mailbox_consumer(database_.url(), apply, quick());
    put("a");
    EXPECT_EQ(holder->drain(), 1U);
    put("b");
    EXPECT_EQ(standby.drain(), 0U);
    holder.reset();
    EXPECT_EQ(standby.drain(), 1U);
}

TEST_F(SqliteConsumer, FollowsThePathToAFileThatTookTheOldOnesPlace) {
    auto member = sqlite_mailbox_consumer(database_.url(), apply, quick());
    put("a");
    EXPECT_EQ(member.drain(), 1U);
    for (const char* suffix : {"", "-wal", "-shm"}) {
        const std::string file = database_.path() + suffix;
        if (std::filesystem::exists(file)) std::filesystem::rename(file, file + ".old");
    }
    migrate(database_.url());
    Sqlite fresh(database_.path());
    fresh.exec(
        "CREATE TABLE effects (id text); "
        "INSERT INTO outbox_mailbox (id, topic) VALUES ('b', 't')");
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_EQ(fresh.value("SELECT id FROM effects"), "b");
}

TEST(SqliteConsumerOfAFile, ThatIsReplacedInATransactionSaysNothingOfItIsApplied) {
    SqliteDatabase database;
    migrate(database.url());
    Sqlite(database.path())
        .exec(
            "CREATE TABLE effects (id text); "
            "INSERT INTO outbox_mailbox (id, topic) VALUES ('a', 't')");
    const ReplacedInTransaction replaced(database.path(), "effects");
    auto member = sqlite_mailbox_consumer(database.url(), apply, MailboxOptions());
    EXPECT_THROW(member.drain(), Error);
    EXPECT_EQ(member.stats().applied, 0U);
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_EQ(Sqlite(database.path()).value("SELECT id FROM effects"), "a");
}

TEST_F(SqliteConsumer, SaysWhatIsWrongWithAUrlOrFile) {
    const auto code_of = [](const std::string& url) {
        try {
            sqlite_mailbox_consumer(url, apply).run();
        } catch (const Error& error) {
            return error.code();
        }
        return ErrorCode::kInternal;
    };
    EXPECT_EQ(code_of("postgresql://h/d"), ErrorCode::kConfigInvalid);
    EXPECT_EQ(code_of("sqlite://relative.db"), ErrorCode::kConfigInvalid);
    EXPECT_EQ(code_of(database_.url() + ".missing"), ErrorCode::kNoSuchDatabase);
}

}  // namespace
}  // namespace outbox::test
