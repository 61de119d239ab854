#include <algorithm>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "brokers/mailbox/sink.h"
#include "tests/consumer/database.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using mailbox::make_mailbox_sink;
using testing::ElementsAre;
using testing::HasSubstr;

spi::Record record(std::uint64_t token, std::string_view id, std::string_view key,
                   std::string_view value) {
    spi::Record out;
    out.token = token;
    out.topic = "order-events";
    out.key = key;
    out.value = value;
    out.id = id;
    return out;
}

spi::Completions publish_all(spi::Sink& sink, const std::vector<spi::Record>& records) {
    spi::Completions out;
    for (const spi::Record& record : records) {
        while (!sink.publish(record)) sink.poll(0ms, out);
    }
    sink.poll(0ms, out);
    return out;
}

std::vector<std::uint64_t> failed_tokens(const spi::Completions& completions) {
    std::vector<std::uint64_t> tokens;
    for (const auto& failed : completions.failed) tokens.push_back(failed.token);
    return tokens;
}

class MailboxSink : public testing::TestWithParam<Backend> {
  protected:
    std::unique_ptr<spi::Sink> open(const std::string& mailbox = {}) {
        return make_mailbox_sink(database_->mailbox_url(mailbox)).value_or_throw();
    }
    std::vector<std::string> ids(const std::string& mailbox = "default") {
        std::vector<std::string> out;
        for (const auto& row : db().query("SELECT id FROM outbox_mailbox WHERE mailbox = '" +
                                          mailbox + "' ORDER BY position")) {
            out.push_back(row[0].value_or(""));
        }
        return out;
    }
    Database::Connection& db() {
        if (!connection_) connection_ = database_->connect();
        return *connection_;
    }
    // A trigger that refuses one id, with an error that a later attempt may not meet.
    void refuse(const std::string& id) {
        if (GetParam() == Backend::kSqlite) {
            db().exec("CREATE TRIGGER refuse BEFORE INSERT ON outbox_mailbox WHEN NEW.id = '" + id +
                      "' BEGIN SELECT RAISE(ABORT, 'not this one'); END");
            return;
        }
        db().exec(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE 'not this one'; END $$; "
            "CREATE TRIGGER refuse BEFORE INSERT ON outbox_mailbox FOR EACH ROW "
            "WHEN (NEW.id = '" +
            id + "') EXECUTE FUNCTION refuse()");
    }

    std::unique_ptr<Database> database_ = make_database(GetParam());
    std::unique_ptr<Database::Connection> connection_;
};

TEST_P(MailboxSink, CreatesItsTableAndKeepsTheOrderOfPublishing) {
    const auto sink = open();
    const auto out = publish_all(
        *sink, {record(1, "b", "k", "1"), record(2, "a", "k", "2"), record(3, "c", "l", "3")});
    EXPECT_THAT(out.acknowledged, ElementsAre(1, 2, 3));
    EXPECT_THAT(ids(), ElementsAre("b", "a", "c"));
}

TEST_P(MailboxSink, StoresEveryFieldOfARecordAsItIs) {
    const auto sink = open("notification");
    const std::vector<spi::HeaderView> headers = {{"type", "Order\"Created\"\n\x01"},
                                                  {"tenant_id", "zürich"}};
    spi::Record full = record(7, "id-1", "key-1", R"({"a":1})");
    full.headers = headers;
    spi::Record empty = record(8, "id-2", {}, {});
    ASSERT_THAT(publish_all(*sink, {full, empty}).acknowledged, ElementsAre(7, 8));
    const auto rows = db().query("SELECT mailbox, id, topic, key, " + database_->payload_text() +
                                 ", headers ->> 'type', headers ->> 'tenant_id' "
                                 "FROM outbox_mailbox ORDER BY position");
    EXPECT_THAT(rows[0], ElementsAre("notification", "id-1", "order-events", "key-1", R"({"a":1})",
                                     "Order\"Created\"\n\x01", "zürich"));
    EXPECT_THAT(rows[1], ElementsAre("notification", "id-2", "order-events", std::nullopt,
                                     std::nullopt, std::nullopt, std::nullopt));
}

TEST_P(MailboxSink, KeepsTheBytesOfAPayloadThatIsNoText) {
    const auto sink = open();
    const std::string bytes("\x00\xff\x80 x", 5);
    ASSERT_THAT(publish_all(*sink, {record(1, "a", "k", bytes)}).acknowledged, ElementsAre(1));
    const char* hex = GetParam() == Backend::kSqlite ? "SELECT hex(payload) FROM outbox_mailbox"
                                                     : "SELECT upper(encode(payload, 'hex')) "
                                                       "FROM outbox_mailbox";
    EXPECT_EQ(db().value(hex), "00FF802078");
}

TEST_P(MailboxSink, AcknowledgesARepeatWithoutStoringItAgain) {
    const auto sink = open();
    publish_all(*sink, {record(1, "a", "k", "first")});
    const auto out = publish_all(*sink, {record(2, "a", "k", "again"), record(3, "b", "k", "new"),
                                         record(4, "b", "k", "new")});
    EXPECT_THAT(out.acknowledged, ElementsAre(2, 3, 4));
    EXPECT_THAT(ids(), ElementsAre("a", "b"));
    EXPECT_EQ(
        db().value("SELECT " + database_->payload_text() + " FROM outbox_mailbox WHERE id = 'a'"),
        "first");
}

TEST_P(MailboxSink, KeepsMailboxesOfOneTableApart) {
    publish_all(*open("inventory"), {record(1, "a", "k", "1")});
    publish_all(*open("notification"), {record(1, "a", "k", "1")});
    EXPECT_THAT(ids("inventory"), ElementsAre("a"));
    EXPECT_THAT(ids("notification"), ElementsAre("a"));
}

TEST_P(MailboxSink, ARefusedMessageStopsItsKeyAndNoOther) {
    ASSERT_TRUE(open()->check().ok());
    refuse("bad");
    const auto sink = open();
    const auto out =
        publish_all(*sink, {record(1, "a", "poisoned", "1"), record(2, "b", "other", "2"),
                            record(3, "bad", "poisoned", "3"), record(4, "c", "poisoned", "4"),
                            record(5, "d", {}, "5"), record(6, "e", "other", "6"),
                            record(7, "f", "poisoned", "7")});
    EXPECT_THAT(out.acknowledged, testing::UnorderedElementsAre(1, 2, 5, 6));
    EXPECT_THAT(failed_tokens(out), ElementsAre(3, 4, 7));
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryEvent);
    EXPECT_THAT(out.failed[0].error.message, HasSubstr("not this one"));
    EXPECT_FALSE(out.failed[0].behind);
    EXPECT_TRUE(out.failed[1].behind);
    EXPECT_TRUE(out.failed[2].behind);
    EXPECT_THAT(ids(), ElementsAre("a", "b", "d", "e"));

    db().exec(GetParam() == Backend::kSqlite ? "DROP TRIGGER refuse"
                                             : "DROP TRIGGER refuse ON outbox_mailbox");
    const auto again =
        publish_all(*sink, {record(3, "bad", "poisoned", "3"), record(4, "c", "poisoned", "4")});
    EXPECT_THAT(again.acknowledged, ElementsAre(3, 4));
    EXPECT_THAT(ids(), ElementsAre("a", "b", "d", "e", "bad", "c"));
}

TEST_P(MailboxSink, GivesUpOnAMessageThatNoMailboxCanHold) {
    const auto sink = open();
    const auto out = publish_all(*sink, {record(1, "", "k", "no id"), record(2, "b", "l", "2")});
    EXPECT_THAT(out.acknowledged, ElementsAre(2));
    ASSERT_THAT(failed_tokens(out), ElementsAre(1));
    EXPECT_EQ(out.failed[0].error.advice, Advice::kDeadLetter);
}

TEST_P(MailboxSink, TakesABoundedBatchAndASingleRecordOfAnySize) {
    const auto sink = open();
    const std::string large(3U << 20U, 'x');
    ASSERT_TRUE(sink->publish(record(1, "large", "k", large)));
    EXPECT_FALSE(sink->publish(record(2, "next", "k", "x")));
    spi::Completions out;
    sink->poll(0ms, out);
    EXPECT_THAT(out.acknowledged, ElementsAre(1));

    std::deque<std::string> names;
    const auto offer = [&] {
        names.push_back("id" + std::to_string(names.size()));
        return sink->publish(record(names.size(), names.back(), "k", "v"));
    };
    while (offer()) ASSERT_LT(names.size(), 10'000U);
    EXPECT_EQ(names.size(), 1'001U);  // the last one found it full
}

TEST_P(MailboxSink, WritersOfOneMailboxStoreEachMessageOnce) {
    ASSERT_TRUE(open()->check().ok());
    constexpr int kWriters = 3;
    constexpr int kMessages = 300;
    std::deque<std::string> names;
    for (int i = 0; i < kMessages; ++i) names.push_back("id" + std::to_string(i));
    std::vector<std::thread> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
        writers.emplace_back([&] {
            const auto sink = open();
            for (int done = 0; done < kMessages;) {
                std::vector<spi::Record> part;
                for (int i = done; i < std::min(done + 20, kMessages); ++i) {
                    part.push_back(record(static_cast<std::uint64_t>(i), names[i], "k", "v"));
                }
                if (publish_all(*sink, part).failed.empty()) done += 20;
            }
        });
    }
    for (auto& writer : writers) writer.join();
    EXPECT_THAT(ids(), testing::ElementsAreArray(names));
}

TEST_P(MailboxSink, NamesWhatIsWrongWithATableOfAnotherShape) {
    db().exec("CREATE TABLE outbox_mailbox (id integer)");
    const auto sink = open();
    const Status status = sink->check();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kTableShape);
    EXPECT_THAT(status.error().message, HasSubstr("outbox_mailbox is not the table"));
    const auto out = publish_all(*sink, {record(1, "a", "k", "v")});
    ASSERT_THAT(failed_tokens(out), ElementsAre(1));
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryDestination);
}

INSTANTIATE_TEST_SUITE_P(Stores, MailboxSink, testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& backend) { return backend_name(backend.param); });

TEST(MailboxSinkPostgres, BlamesTheDestinationWhileTheServerIsAwayAndGoesOnAfterwards) {
    PostgresServer server;
    PostgresDatabase database(server);
    const auto sink = make_mailbox_sink(database.mailbox_url()).value_or_throw();
    ASSERT_TRUE(publish_all(*sink, {record(1, "a", "k", "v")}).failed.empty());
    server.stop(PostgresServer::Stop::kImmediate);
    const auto away = publish_all(*sink, {record(2, "b", "k", "v"), record(3, "c", "l", "v")});
    EXPECT_THAT(failed_tokens(away), ElementsAre(2, 3));
    for (const auto& failed : away.failed) {
        EXPECT_EQ(failed.error.advice, Advice::kRetryDestination) << describe(failed.error);
        EXPECT_EQ(failed.error.code, ErrorCode::kSinkUnavailable);
    }
    server.start();
    EXPECT_THAT(
        publish_all(*sink, {record(2, "b", "k", "v"), record(3, "c", "l", "v")}).acknowledged,
        ElementsAre(2, 3));
    EXPECT_EQ(Pg(database.url()).number("SELECT count(*) FROM outbox_mailbox"), 3);
}

TEST(MailboxSinkPostgres, WritesTheTableAgainAfterItWasDropped) {
    PostgresDatabase database;
    const auto sink = make_mailbox_sink(database.mailbox_url()).value_or_throw();
    publish_all(*sink, {record(1, "a", "k", "v")});
    Pg(database.url()).exec("DROP TABLE outbox_mailbox");
    const auto out = publish_all(*sink, {record(2, "b", "k", "v")});
    ASSERT_THAT(failed_tokens(out), ElementsAre(2));
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryDestination);
    EXPECT_THAT(publish_all(*sink, {record(2, "b", "k", "v")}).acknowledged, ElementsAre(2));
}

TEST(MailboxSinkPostgres, NamesTheGrantOrTheSqlThatAnOperatorHasToRun) {
    PostgresDatabase database;
    Pg pg(database.url());
    pg.exec("DROP ROLE IF EXISTS mailbox_writer; CREATE ROLE mailbox_writer LOGIN PASSWORD 'test'");
    const std::string url = "mailbox+" + database.url() + "?user=mailbox_writer";
    const auto sink = make_mailbox_sink(url).value_or_throw();
    const Status missing = sink->check();
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().code, ErrorCode::kNoSuchTable);
    const std::string& text = missing.error().message;
    EXPECT_EQ(text.find('\n'), std::string::npos);

    pg.exec(text.substr(text.find("CREATE TABLE")));
    const Status no_rights = sink->check();
    ASSERT_FALSE(no_rights.ok());
    EXPECT_EQ(no_rights.error().code, ErrorCode::kNoRights);
    const std::string& grant = no_rights.error().message;
    const auto at = grant.find("GRANT");
    ASSERT_NE(at, std::string::npos) << grant;
    pg.exec(grant.substr(at, grant.find(';') - at));
    EXPECT_TRUE(sink->check().ok());
    EXPECT_THAT(publish_all(*sink, {record(1, "a", "k", "v")}).acknowledged, ElementsAre(1));
}

TEST(MailboxSinkPostgres, AcknowledgesDurablyWhereTheDatabaseDefaultIsNot) {
    PostgresDatabase database;
    Pg pg(database.url());
    pg.exec("ALTER DATABASE " + pg.value("SELECT quote_ident(current_database())") +
            " SET synchronous_commit = local");
    ASSERT_TRUE(make_mailbox_sink(database.mailbox_url()).value_or_throw()->check().ok());
    pg.exec(
        "CREATE TABLE seen (setting text); "
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$; "
        "CREATE TRIGGER note BEFORE INSERT ON outbox_mailbox FOR EACH ROW "
        "EXECUTE FUNCTION note()");
    // A session looks for triggers when it begins.
    const auto sink = make_mailbox_sink(database.mailbox_url()).value_or_throw();
    publish_all(*sink, {record(1, "a", "k", "v")});
    EXPECT_EQ(pg.value("SELECT setting FROM seen"), "on");
}

// A trigger that asks another server raises what this one raises where it is in trouble itself.
TEST(MailboxSinkPostgres, WhatATriggerMeetsElsewhereIsItsMessagesAndTheServersEndNobodys) {
    PostgresDatabase database;
    Pg pg(database.url());
    ASSERT_TRUE(make_mailbox_sink(database.mailbox_url()).value_or_throw()->check().ok());
    pg.exec(
        "CREATE FUNCTION ask() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.id = 'bad' THEN RAISE 'no server there' USING ERRCODE = '08001'; "
        "ELSIF NEW.id = 'end' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
        "RETURN NEW; END $$; CREATE TRIGGER ask BEFORE INSERT ON outbox_mailbox FOR EACH ROW "
        "EXECUTE FUNCTION ask()");
    const auto sink = make_mailbox_sink(database.mailbox_url()).value_or_throw();
    const auto out = publish_all(*sink, {record(1, "a", "k", "v"), record(2, "b", "l", "v"),
                                         record(3, "bad", "m", "v"), record(4, "end", "n", "v")});
    EXPECT_THAT(out.acknowledged, ElementsAre(1, 2));
    ASSERT_THAT(failed_tokens(out), ElementsAre(3, 4));
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryEvent);
    EXPECT_EQ(out.failed[1].error.advice, Advice::kRetryDestination);
}

// As `statement_timeout` and `lock_timeout` do.
TEST(MailboxSinkPostgres, AMessageForWhichTheServerEndsTheStatementHoldsNoOther) {
    for (const std::string state : {"57014", "55P03"}) {
        PostgresDatabase database;
        Pg pg(database.url());
        ASSERT_TRUE(make_mailbox_sink(database.mailbox_url()).value_or_throw()->check().ok());
        pg.exec(
            "CREATE SEQUENCE ends; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ "
            "BEGIN "
            "IF NEW.id = '7' THEN PERFORM nextval('ends'); RAISE 'slow' USING ERRCODE = '" +
            state +
            "'; END IF; RETURN NEW; END $$; CREATE TRIGGER slow BEFORE INSERT ON outbox_mailbox "
            "FOR EACH ROW EXECUTE FUNCTION slow()");
        const auto sink = make_mailbox_sink(database.mailbox_url()).value_or_throw();
        std::deque<std::string> ids;
        std::vector<spi::Record> left;
        for (std::uint64_t n = 0; n < 100; ++n) {
            const std::string& id = ids.emplace_back(std::to_string(n));
            left.push_back(record(n, id, id, "v"));
        }
        int looks = 0;
        for (int polls = 0; left.size() > 1; ++polls) {
            ASSERT_LT(polls, 20);
            const auto out = publish_all(*sink, left);
            for (const auto& failed : out.failed) {
                EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
                if (failed.behind) continue;
                EXPECT_EQ(failed.token, 7U) << describe(failed.error);
                ++looks;
            }
            std::erase_if(left, [&](const spi::Record& one) {
                return std::ranges::count(out.acknowledged, one.token) > 0;
            });
        }
        EXPECT_GE(looks, 1);
        // With the others, and alone; once more where this machine is slow.
        EXPECT_LE(pg.number("SELECT last_value FROM ends"), 3);
        ASSERT_EQ(left.size(), 1U);
        EXPECT_EQ(left[0].token, 7U);
        pg.exec("DROP TRIGGER slow ON outbox_mailbox");
        EXPECT_THAT(publish_all(*sink, left).acknowledged, ElementsAre(7U));
    }
}

TEST(MailboxSinkPostgres, SaysWhichOfUserDatabaseAndAddressIsWrong) {
    PostgresDatabase database;
    const std::string server = database.url().substr(0, database.url().rfind('/'));
    const auto error_of = [](const std::string& url) {
        const auto sink = make_mailbox_sink("mailbox+" + url, 60).value_or_throw();
        return sink->check().error();
    };
    EXPECT_EQ(error_of(server + "/no_such_db").code, ErrorCode::kNoSuchDatabase);
    EXPECT_EQ(error_of(database.url() + "?user=nobody_here").code, ErrorCode::kAuthFailed);
    const ErrorInfo refused =
        error_of("postgresql://u:hidden@127.0.0.1:" + std::to_string(free_port()) + "/x");
    EXPECT_EQ(refused.code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(describe(refused).find("hidden"), std::string::npos);
    // No event is at fault.
    const ErrorInfo odd = error_of(database.url() + "?options=-cwork_mem%3Dodd");
    EXPECT_EQ(odd.code, ErrorCode::kConnectFailed);
    EXPECT_EQ(odd.advice, Advice::kRetryDestination);
    EXPECT_THAT(describe(odd), HasSubstr("correct the options of the URL"));
}

TEST(MailboxSinkSqlite, ReportsAFileThatItCannotOpenOrRead) {
    TemporaryFolder folder;
    const auto error_of = [](const std::string& path) {
        return make_mailbox_sink("mailbox+sqlite://" + path).value_or_throw()->check().error();
    };
    EXPECT_EQ(error_of(folder / "missing" / "a.db").code, ErrorCode::kNoSuchDatabase);
    const std::string text_file = folder / "text";
    FILE* file = std::fopen(text_file.c_str(), "w");
    std::fputs("this is no database, however long the text in it may become over time", file);
    std::fclose(file);
    EXPECT_EQ(error_of(text_file).code, ErrorCode::kNoSuchDatabase);
}

TEST(MailboxSinkSqlite, WaitsAsADestinationWhileAnotherWriterKeepsTheFile) {
    SqliteDatabase database;
    const auto sink = make_mailbox_sink(database.mailbox_url(), 1).value_or_throw();
    ASSERT_TRUE(sink->check().ok());
    Sqlite writer(database.path());
    writer.exec("BEGIN IMMEDIATE");
    const auto out = publish_all(*sink, {record(1, "a", "k", "v")});
    ASSERT_THAT(failed_tokens(out), ElementsAre(1));
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryDestination);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kSinkTimeout);
    writer.exec("COMMIT");
    EXPECT_THAT(publish_all(*sink, {record(1, "a", "k", "v")}).acknowledged, ElementsAre(1));
}

TEST(MailboxSinkSqlite, WritesToTheFileAtThePathAfterAnotherTookItsPlace) {
    SqliteDatabase database;
    const auto sink = make_mailbox_sink(database.mailbox_url()).value_or_throw();
    publish_all(*sink, {record(1, "a", "k", "v")});
    ASSERT_EQ(std::rename(database.path().c_str(), (database.path() + ".old").c_str()), 0);
    // Not made by us: the volume may be gone.
    EXPECT_THAT(failed_tokens(publish_all(*sink, {record(2, "b", "k", "v")})), ElementsAre(2));
    static_cast<void>(Sqlite(database.path()));
    ASSERT_THAT(publish_all(*sink, {record(2, "b", "k", "v")}).acknowledged, ElementsAre(2));
    EXPECT_EQ(Sqlite(database.path()).value("SELECT id FROM outbox_mailbox"), "b");
}

TEST(MailboxSinkSqlite, WritesToTheFileThatALinkLeadsToNow) {
    SqliteDatabase first;
    SqliteDatabase second;
    const std::string link = first.path() + "-link";
    ASSERT_EQ(::symlink(first.path().c_str(), link.c_str()), 0);
    const auto sink = make_mailbox_sink("mailbox+sqlite://" + link).value_or_throw();
    ASSERT_THAT(publish_all(*sink, {record(1, "a", "k", "v")}).acknowledged, ElementsAre(1));
    ASSERT_EQ(::unlink(link.c_str()), 0);
    ASSERT_EQ(::symlink(second.path().c_str(), link.c_str()), 0);
    ASSERT_THAT(publish_all(*sink, {record(2, "b", "k", "v")}).acknowledged, ElementsAre(2));
    EXPECT_EQ(Sqlite(second.path()).value("SELECT id FROM outbox_mailbox"), "b");
    EXPECT_EQ(Sqlite(first.path()).value("SELECT group_concat(id) FROM outbox_mailbox"), "a");
}

// Whoever put it there had waited with the file's lock, and nobody reads what is written now.
TEST(MailboxSinkSqlite, AcknowledgesNothingThatWentIntoAFileThatWasReplacedMeanwhile) {
    SqliteDatabase database;
    ASSERT_TRUE(make_mailbox_sink(database.mailbox_url()).value_or_throw()->check().ok());
    const ReplacedInTransaction replaced(database.path(), "outbox_mailbox");
    const auto sink = make_mailbox_sink(database.mailbox_url()).value_or_throw();
    const auto out = publish_all(*sink, {record(1, "a", "k", "v")});
    ASSERT_THAT(failed_tokens(out), ElementsAre(1));
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryDestination);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kSinkUnavailable);
    EXPECT_THAT(publish_all(*sink, {record(1, "a", "k", "v")}).acknowledged, ElementsAre(1));
    EXPECT_EQ(Sqlite(database.path()).value("SELECT id FROM outbox_mailbox"), "a");
}

TEST(MailboxUrl, RefusesWhatNamesNoMailbox) {
    const auto message_of = [](const std::string& url) {
        const auto sink = make_mailbox_sink(url);
        return sink.ok() ? "accepted" : sink.error().message;
    };
    EXPECT_THAT(message_of("mailbox+mysql://h/d"), HasSubstr("no database is known by 'mysql:'"));
    EXPECT_THAT(message_of("mailbox+sqlite://relative.db"), HasSubstr("three slashes"));
    EXPECT_THAT(message_of("mailbox+sqlite:///a.db?mode=ro"), HasSubstr("unknown parameter"));
    EXPECT_THAT(message_of("mailbox+sqlite:///a.db?mailbox="), HasSubstr("1 to 255 bytes"));
    const std::string secret = message_of("mailbox+postgresql://u:hidden@h/d?mailbox=m&nope=1");
    EXPECT_THAT(secret, HasSubstr("not a mailbox URL"));
    EXPECT_EQ(secret.find("hidden"), std::string::npos);
}

}  // namespace
}  // namespace outbox::test
