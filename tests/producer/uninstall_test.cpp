#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include <outbox/producer/migrate.h>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

template <class Call>
ErrorInfo error_of(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.info();
    }
    return {ErrorCode::kInternal, Advice::kStop, "", "nothing failed"};
}

const MigrateOptions kProducerOnly{.side = MigrationSide::kProducer, .payload = {}};
const MigrateOptions kConsumerOnly{.side = MigrationSide::kConsumer, .payload = {}};

class UninstallPostgres : public testing::Test {
  protected:
    std::string objects() { return objects(db_); }
    static std::string objects(Pg& look) {
        return look.value(
            "SELECT string_agg(name, ' ' ORDER BY name) FROM (SELECT relname::text AS name FROM "
            "pg_class WHERE relnamespace = 'public'::regnamespace UNION ALL SELECT proname::text "
            "FROM pg_proc WHERE pronamespace = 'public'::regnamespace UNION ALL SELECT "
            "'publication ' || pubname FROM pg_publication) o");
    }
    // Looks by a connection of its own.
    ErrorInfo refused(const MigrateOptions& options = {}) {
        Pg look(url_);
        const std::string before = objects(look);
        const ErrorInfo error = error_of([&] { uninstall(url_, options); });
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << error.message;
        EXPECT_THAT(error.message, HasSubstr("Nothing was changed"));
        EXPECT_EQ(objects(look), before);
        return error;
    }

    std::string url_ = shared_postgres().create_database();
    Pg db_{url_};
};

TEST_F(UninstallPostgres, RemovesAllThatMigrateMadeAndLetsItBeMadeAgain) {
    db_.exec(
        "CREATE TABLE orders (id int); CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS "
        "'SELECT 1'");
    const std::string before = objects();
    migrate(url_);
    const std::string installed = objects();
    const auto removed = uninstall(url_);
    EXPECT_THAT(removed, Contains("outbox_events"));
    EXPECT_THAT(removed, Contains("outbox_emit"));
    EXPECT_EQ(objects(), before);
    EXPECT_THAT(uninstall(url_), IsEmpty());
    EXPECT_EQ(objects(), before);
    migrate(url_);
    EXPECT_EQ(objects(), installed);
}

TEST_F(UninstallPostgres, WhatItPrintsDoesTheSame) {
    migrate(url_);
    db_.exec("SELECT outbox_emit('orders', '1')");
    EXPECT_THROW(db_.exec(uninstall_sql(url_)), std::runtime_error);
    db_.exec("ROLLBACK; DELETE FROM outbox_events");
    db_.exec(uninstall_sql(url_));
    EXPECT_EQ(objects(), "");
    db_.exec(uninstall_sql(url_));
}

TEST_F(UninstallPostgres, RemovesOneSideOnly) {
    migrate(url_, kConsumerOnly);
    const std::string consumer = objects();
    migrate(url_, kProducerOnly);
    const auto removed = uninstall(url_, kProducerOnly);
    EXPECT_THAT(removed, Contains("outbox_lease"));
    EXPECT_THAT(removed, Not(Contains("outbox_refuse_change"))) << "the other side needs it";
    EXPECT_EQ(objects(), consumer);
    EXPECT_THAT(migrate(url_, kConsumerOnly), IsEmpty());
    uninstall(url_, kConsumerOnly);
    EXPECT_EQ(objects(), "");
}

TEST_F(UninstallPostgres, IsRefusedWhileAnythingWaitsAndSaysHowMany) {
    migrate(url_);
    db_.exec(
        "SELECT outbox_emit('orders', '1'); SELECT outbox_emit('orders', '2');"
        "SELECT outbox_emit('orders', '3', available_at => now() + interval '1 hour');"
        "INSERT INTO outbox_dead_letters (source, route, id, attempts, error_code, error) VALUES "
        "('public.outbox_events', 'r', 'x', 1, 'OB_X', 'x');"
        "INSERT INTO outbox_mailbox (id, topic) VALUES ('a', 't')");
    const ErrorInfo error = refused();
    for (const char* text : {"2 events", "1 delayed events", "1 dead letters",
                             "1 messages in mailboxes", "outbox dead"}) {
        EXPECT_THAT(error.message, HasSubstr(text));
    }
    db_.exec(
        "DELETE FROM outbox_events; DELETE FROM outbox_scheduled; DELETE FROM "
        "outbox_dead_letters");
    EXPECT_THAT(refused().message, Not(HasSubstr("events,")));
    EXPECT_NO_THROW(uninstall(url_, kProducerOnly));
    db_.exec("DELETE FROM outbox_mailbox");
    EXPECT_NO_THROW(uninstall(url_));
}

TEST_F(UninstallPostgres, WhatIsNotCommittedYetIsWaitedForAndCounted) {
    migrate(url_);
    const std::map<std::string, std::string> rows{
        {"messages in mailboxes",
         "INSERT INTO outbox_mailbox (mailbox, id, topic, payload) VALUES ('m', 'a', 't', '{}')"},
        {"dead letters",
         "INSERT INTO outbox_dead_letters (source, route, id, attempts, "
         "error_code, error) VALUES ('public.outbox_events', 'r', 'a', 1, 'e', 'e')"},
        {"dead letters of consumers",
         "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, "
         "error_code, error) VALUES ('c', 'a', 't', 1, 'e', 'e')"}};
    for (const auto& [what, insert] : rows) {
        Pg writer(url_);
        writer.exec("BEGIN; " + insert);
        auto error = std::async(std::launch::async, [&] { return refused(); });
        ASSERT_TRUE(eventually(std::chrono::seconds(60), "it waits", [&] {
            return db_.number("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0;
        }));
        writer.exec("COMMIT");
        EXPECT_THAT(error.get().message, HasSubstr("1 " + what));
        db_.exec("TRUNCATE outbox_mailbox, outbox_dead_letters, outbox_inbox_dead_letters");
    }
}

TEST_F(UninstallPostgres, NamesWhoHoldsATable) {
    migrate(url_);
    Pg holder(url_);
    holder.exec("SET application_name = 'shop'; BEGIN; LOCK outbox_mailbox");
    const ErrorInfo error = error_of([&] { uninstall(url_); });
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message,
                testing::AllOf(HasSubstr("not to be had in 10 s: probably held by pid " +
                                         std::to_string(PQbackendPID(holder.handle())) +
                                         " (application 'shop', user "),
                               HasSubstr("End that transaction")));
}

TEST_F(UninstallPostgres, RowsThatEveryRouteHasFinishedDoNotWait) {
    migrate(url_);
    db_.exec("SELECT outbox_emit('orders', '1')");
    const std::string segment =
        "INSERT INTO outbox_ledger (source, route, segment, done) VALUES ('public.outbox_events', "
        "'$', 0, set_bit(repeat('0', 65536)::bit(65536), 1, 1));";
    db_.exec(
        "INSERT INTO outbox_routes (source, route) VALUES ('public.outbox_events', 'a'), "
        "('public.outbox_events', 'b');" +
        std::string(segment).replace(segment.find('$'), 1, "a"));
    EXPECT_THAT(refused().message, HasSubstr("1 events"));
    db_.exec(std::string(segment).replace(segment.find('$'), 1, "b"));
    EXPECT_NO_THROW(uninstall(url_));
}

TEST_F(UninstallPostgres, IsRefusedWhileARelayRunsAndOnANewerDatabase) {
    migrate(url_);
    db_.exec(
        "INSERT INTO outbox_lease (source, owner, expires_at) VALUES ('public.outbox_events', "
        "'host:1', now() + interval '1 hour')");
    EXPECT_THAT(refused().message, HasSubstr("1 running relays"));
    db_.exec(
        "DELETE FROM outbox_lease; INSERT INTO outbox_migrations (side, version, name, "
        "checksum) VALUES ('producer', 999, 'later', 'x')");
    EXPECT_THAT(refused().message, HasSubstr("newer than this build"));
}

TEST_F(UninstallPostgres, LeavesATableOfAnotherShapeAndAPublicationOfOthers) {
    migrate(url_, kConsumerOnly);
    db_.exec(
        "CREATE TABLE outbox_events (id bigint PRIMARY KEY, event_type text, payload text, "
        "created_at timestamptz); INSERT INTO outbox_events VALUES (1, 'A', 'x', now());"
        "CREATE TABLE other (id int); CREATE PUBLICATION outbox FOR TABLE outbox_events, other");
    uninstall(url_);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 1);
    EXPECT_EQ(db_.number("SELECT count(*) FROM pg_publication"), 1);
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_inbox')"), "");
}

TEST_F(UninstallPostgres, APartialRemovalIsNamedWithItsRemedyAndMended) {
    for (const char* removal :
         {"DROP TABLE outbox_migrations", "DELETE FROM outbox_migrations WHERE side = 'producer'",
          "DROP VIEW outbox_status", "DROP FUNCTION outbox_lock_keys",
          "DROP TABLE outbox_events CASCADE", "DROP TABLE outbox_migrations, outbox_events CASCADE",
          "DROP FUNCTION inbox_accept", "DROP TABLE outbox_inbox, outbox_saga"}) {
        migrate(url_);
        const std::string complete = objects();
        db_.exec(removal);
        const ErrorInfo error = error_of([&] { migrate(url_); });
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << removal << ": " << error.message;
        EXPECT_THAT(error.message, HasSubstr("outbox migrate --uninstall --only")) << removal;
        uninstall(url_);
        migrate(url_);
        EXPECT_EQ(objects(), complete) << removal;
    }
}

class UninstallSqlite : public testing::Test {
  protected:
    std::string objects() {
        return db().value(
            "SELECT coalesce(group_concat(name, ' '), '') FROM (SELECT name FROM sqlite_master "
            "WHERE name NOT LIKE 'sqlite_%' ORDER BY name)");
    }
    Sqlite db() const { return Sqlite(path_); }
    ErrorInfo refused(const MigrateOptions& options = {}) {
        const std::string before = objects();
        const ErrorInfo error = error_of([&] { uninstall(url_, options); });
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << error.message;
        EXPECT_EQ(objects(), before);
        return error;
    }

    TemporaryFolder folder_{"uninstall"};
    std::string path_ = folder_ / "shop.db";
    std::string url_ = "sqlite://" + path_;
};

TEST_F(UninstallSqlite, RemovesAllThatMigrateMadeAndLetsItBeMadeAgain) {
    db().exec("CREATE TABLE orders (id integer)");
    migrate(url_);
    const std::string installed = objects();
    EXPECT_THAT(uninstall(url_), Contains("outbox_events"));
    EXPECT_EQ(objects(), "orders");
    EXPECT_THAT(uninstall(url_), IsEmpty());
    migrate(url_);
    EXPECT_EQ(objects(), installed);
    uninstall(url_, kConsumerOnly);
    EXPECT_THAT(migrate(url_, kProducerOnly), IsEmpty());
    uninstall(url_, kProducerOnly);
    EXPECT_EQ(objects(), "orders");
}

TEST_F(UninstallSqlite, IsRefusedWhileAnythingWaitsAndSaysHowMany) {
    migrate(url_);
    db().exec(
        "INSERT INTO outbox_events (topic, payload) VALUES ('orders', '1'), ('orders', '2');"
        "INSERT INTO outbox_scheduled (topic, payload, available_at) VALUES ('orders', '3', 1);"
        "INSERT INTO outbox_mailbox (id, topic) VALUES ('a', 't')");
    const ErrorInfo error = refused();
    for (const char* text : {"2 events", "1 delayed events", "1 messages in mailboxes"}) {
        EXPECT_THAT(error.message, HasSubstr(text));
    }
    // Position 1 and 2 are finished by the only route.
    db().exec(
        "DELETE FROM outbox_scheduled; INSERT INTO outbox_routes (source, route, since) VALUES "
        "('outbox_events', 'a', 0); INSERT INTO outbox_ledger_segments (source, route, segment, "
        "done) VALUES ('outbox_events', "
        "'a', 0, CAST(x'60' || zeroblob(8191) AS blob))");
    EXPECT_NO_THROW(uninstall(url_, kProducerOnly));
    EXPECT_THAT(refused().message, HasSubstr("has: 1 messages in mailboxes."));
}

TEST_F(UninstallSqlite, APartialRemovalIsNamedWithItsRemedyAndMended) {
    for (const char* removal :
         {"DROP TABLE outbox_migrations", "DROP VIEW outbox_status",
          "DROP VIEW outbox_status; DROP TABLE outbox_events", "DROP TABLE outbox_inbox"}) {
        migrate(url_);
        const std::string complete = objects();
        db().exec(removal);
        const ErrorInfo error = error_of([&] { migrate(url_); });
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << removal << ": " << error.message;
        EXPECT_THAT(error.message, HasSubstr("outbox migrate --uninstall --only")) << removal;
        uninstall(url_);
        migrate(url_);
        EXPECT_EQ(objects(), complete) << removal;
    }
}

TEST_F(UninstallSqlite, WhatItPrintsDoesTheSame) {
    migrate(url_);
    db().exec("INSERT INTO outbox_events (topic, payload) VALUES ('orders', '1')");
    const std::string bail = ".bail on\n";  // the shell's; this connection ends so anyway
    std::string sql = uninstall_sql(url_);
    ASSERT_TRUE(sql.starts_with(bail));
    sql.erase(0, bail.size());
    EXPECT_THROW(db().exec(sql), std::runtime_error);
    db().exec("DELETE FROM outbox_events");
    db().exec(sql);
    EXPECT_EQ(objects(), "");
}

TEST_F(UninstallSqlite, MakesNoFileWhereThereIsNone) {
    const ErrorInfo error = error_of([&] { uninstall(url_); });
    EXPECT_EQ(error.code, ErrorCode::kNoSuchDatabase);
    EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace outbox::test
