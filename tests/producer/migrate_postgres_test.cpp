#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <utility>
#include <vector>

#include <outbox/producer/migrate.h>

#include "tests/producer/migrate_error.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Everything in the schema that a migration could have touched.
std::string schema_dump(Pg& db) {
    std::string dump;
    for (const auto& row : db.query(
             "SELECT concat(relkind, ' ', relname, (SELECT string_agg(concat(attname, ' ', "
             "format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(d.adbin, "
             "d.adrelid)), ', ' ORDER BY attnum) FROM pg_attribute a LEFT JOIN pg_attrdef d ON "
             "d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = c.oid AND a.attnum "
             "> 0), CASE WHEN relkind = 'v' THEN pg_get_viewdef(c.oid) END) "
             "FROM pg_class c WHERE relnamespace = 'public'::regnamespace "
             "UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE pronamespace = "
             "'public'::regnamespace "
             "UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint WHERE "
             "connamespace = 'public'::regnamespace ORDER BY 1")) {
        dump += row[0].value_or("") + "\n";
    }
    return dump;
}

class MigratePostgres : public testing::Test {
  protected:
    std::string url_ = shared_postgres().create_database();
    Pg db_{url_};
};

TEST_F(MigratePostgres, MakesTheTablesOfBothSides) {
    const auto applied = migrate(url_);
    ASSERT_GE(applied.size(), 2U);
    EXPECT_EQ(applied[0].side, "producer");
    EXPECT_EQ(applied[0].version, 1);
    for (const char* table :
         {"outbox_events", "outbox_scheduled", "outbox_lease", "outbox_ledger", "outbox_delivery",
          "outbox_dead_letters", "outbox_route_stats", "outbox_status", "outbox_inbox"}) {
        EXPECT_EQ(db_.value("SELECT to_regclass('" + std::string(table) + "')"), table);
    }
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_migrations"),
              static_cast<long long>(applied.size()));
}

TEST_F(MigratePostgres, ASecondRunChangesNothing) {
    migrate(url_);
    const std::string before = schema_dump(db_);
    EXPECT_TRUE(migrate(url_).empty());
    EXPECT_EQ(schema_dump(db_), before);
}

TEST_F(MigratePostgres, RunsAtTheSameTimeWaitForEachOther) {
    std::vector<std::thread> runs;
    std::vector<std::size_t> applied(4);
    for (auto& count : applied) runs.emplace_back([&] { count = migrate(url_).size(); });
    for (auto& run : runs) run.join();
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_migrations"),
              static_cast<long long>(applied[0] + applied[1] + applied[2] + applied[3]));
}

TEST_F(MigratePostgres, MakesOnlyTheWantedSide) {
    migrate(url_, {.side = MigrationSide::kConsumer, .payload = {}});
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_events')"), "");
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_inbox')"), "outbox_inbox");
    const auto applied = migrate(url_, {.side = MigrationSide::kProducer, .payload = {}});
    EXPECT_EQ(applied.size(), 7U);
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_events')"), "outbox_events");
}

TEST_F(MigratePostgres, RefusesADatabaseThatIsNewer) {
    migrate(url_);
    db_.exec(
        "INSERT INTO outbox_migrations (side, version, name, checksum) "
        "VALUES ('producer', 999, 'from_the_future', 'x')");
    const auto error = migrate_error(url_);
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, HasSubstr("newer than this build"));
    EXPECT_THAT(error.message, HasSubstr("from_the_future"));
    EXPECT_THAT(error.message, HasSubstr("Use the newer release"));
}

TEST_F(MigratePostgres, RefusesAMigrationThatWasChanged) {
    migrate(url_);
    db_.exec("UPDATE outbox_migrations SET checksum = 'something else' WHERE side = 'producer'");
    const auto error = migrate_error(url_);
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, HasSubstr("applied with other content"));
}

struct Shape {
    const char* preset;
    const char* ddl;
};

TEST_F(MigratePostgres, LeavesTablesOfOtherShapesAloneAndNamesThePreset) {
    const Shape shapes[] = {
        {"pending-published",
         "CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, "
         "event_type text, payload jsonb, created_at timestamptz, published_at timestamptz, "
         "retry_count int, status text)"},
        {"delete-when-sent",
         "CREATE TABLE outbox_events (id bigint PRIMARY KEY, event_type text, payload text, "
         "created_at timestamptz)"},
        {"debezium",
         "CREATE TABLE outbox_events (id uuid, aggregatetype text, aggregateid text, type text, "
         "payload jsonb)"},
    };
    for (const Shape& shape : shapes) {
        db_.exec("DROP TABLE IF EXISTS outbox_events");
        db_.exec(shape.ddl);
        const std::string before = schema_dump(db_);
        const auto error = migrate_error(url_);
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
        EXPECT_THAT(error.message, HasSubstr("\"" + std::string(shape.preset) + "\""));
        EXPECT_THAT(error.message, HasSubstr("outbox relay --table public.outbox_events"));
        EXPECT_EQ(schema_dump(db_), before);
    }
    EXPECT_NO_THROW(migrate(url_, {.side = MigrationSide::kConsumer, .payload = {}}));
}

TEST_F(MigratePostgres, NamesAllPresetsWhereNoneFits) {
    db_.exec("CREATE TABLE outbox_events (number int)");
    const auto error = migrate_error(url_);
    EXPECT_THAT(error.message, HasSubstr("none of the presets"));
    EXPECT_THAT(error.message, HasSubstr("[source.table]"));
}

TEST_F(MigratePostgres, PrintsWhatItApplies) {
    for (const auto payload :
         {PayloadType::kJsonb, PayloadType::kJson, PayloadType::kText, PayloadType::kBytea}) {
        const MigrateOptions options{.side = MigrationSide::kBoth, .payload = payload};
        const std::string applied_url = shared_postgres().create_database();
        migrate(applied_url, options);
        Pg applied(applied_url);
        Pg printed(shared_postgres().create_database());
        printed.exec(migration_sql(url_, options));
        EXPECT_EQ(schema_dump(printed), schema_dump(applied));
        const std::string records =
            "SELECT string_agg(side || version || name || checksum, ' ' ORDER BY side, version) "
            "FROM outbox_migrations";
        EXPECT_EQ(printed.value(records), applied.value(records));
        const std::string published = "SELECT tablename FROM pg_publication_tables";
        EXPECT_EQ(printed.value(published), applied.value(published));
    }
}

TEST_F(MigratePostgres, ADatabaseMadeFromThePrintedSqlIsUpToDate) {
    db_.exec(migration_sql(url_));
    EXPECT_TRUE(migrate(url_).empty());
}

TEST_F(MigratePostgres, RefusesAnotherPayloadTypeForATableThatIsThere) {
    migrate(url_, {.side = MigrationSide::kBoth, .payload = PayloadType::kText});
    EXPECT_TRUE(migrate(url_).empty());
    const auto error =
        migrate_error(url_, {.side = MigrationSide::kBoth, .payload = PayloadType::kBytea});
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, HasSubstr("is text, not bytea"));
}

TEST_F(MigratePostgres, PutsTheTablesIntoTheCurrentSchemaAndPinsTheFunctionsToIt) {
    db_.exec("CREATE SCHEMA \"My App\"");
    migrate(url_ + "?options=-csearch_path%3D%22My%5C%20App%22");
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_events')"), "");
    db_.exec("SELECT \"My App\".outbox_emit('t', '{}')");
    EXPECT_EQ(db_.number("SELECT count(*) FROM \"My App\".outbox_events"), 1);
    EXPECT_EQ(db_.value("SELECT status FROM \"My App\".outbox_status"), "PENDING");
}

TEST_F(MigratePostgres, TellsWhichRightIsMissing) {
    db_.exec("DROP ROLE IF EXISTS nobody_special");
    db_.exec("CREATE ROLE nobody_special LOGIN PASSWORD 'test'");
    std::string url = url_;
    url.replace(url.find("postgres@"), 9, "nobody_special@");
    const auto error = migrate_error(url);
    EXPECT_EQ(error.code, ErrorCode::kNoRights);
    EXPECT_THAT(error.message, HasSubstr("GRANT CREATE"));
}

// As it was before a migration of the producer: 6 changes the view outbox_status, and 7 a function
// that it calls.
void make_former(Pg& db, const std::string& url, int before = 6) {
    std::string sql = migration_sql(url);
    for (int version = before; version <= 7; ++version) {
        const std::size_t record =
            sql.find("VALUES ('producer', " + std::to_string(version) + ", ");
        ASSERT_NE(record, std::string::npos);
        const std::size_t begin = sql.rfind("BEGIN ISOLATION LEVEL", record);
        sql.erase(begin, sql.find("COMMIT;\n", record) - begin);
    }
    db.exec(sql);
}

TEST_F(MigratePostgres, WhoReadsTheStatusGoesOnWherePublicMayRunNothing) {
    db_.exec(
        "DROP ROLE IF EXISTS reads_status; CREATE ROLE reads_status; ALTER DEFAULT PRIVILEGES "
        "REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC");
    make_former(db_, url_);
    db_.exec(
        "GRANT SELECT (status) ON outbox_status TO reads_status; GRANT EXECUTE ON FUNCTION "
        "outbox_source() TO reads_status; SELECT outbox_emit('t', '{}')");
    migrate(url_);
    db_.exec("SET ROLE reads_status");
    EXPECT_EQ(db_.value("SELECT status FROM outbox_status"), "PENDING");
    db_.exec("RESET ROLE; DROP OWNED BY reads_status; DROP ROLE reads_status");
}

// The data alone: table, sequence and its file are those that the ledgers know.
TEST_F(MigratePostgres, TheStatusTellsNumbersThatWereSetBackWhoeverReadsItOnceItIsUpgraded) {
    db_.exec(
        "DROP ROLE IF EXISTS reads_status; CREATE ROLE reads_status; ALTER DEFAULT PRIVILEGES "
        "REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC");
    make_former(db_, url_, 7);
    db_.exec(
        "GRANT SELECT (status) ON outbox_status TO reads_status; GRANT EXECUTE ON FUNCTION "
        "outbox_source(), outbox_ledger_source() TO reads_status; INSERT INTO outbox_routes "
        "(source, route) VALUES ('public.outbox_events', 'a'); INSERT INTO outbox_ledger (source, "
        "route, segment, done) VALUES ('public.outbox_events', 'a', 0, set_bit(set_bit("
        "B'0'::bit(65536), 1, 1), 80, 1)); SELECT setval('outbox_events_position_seq', 80); INSERT "
        "INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE VALUES (1, 't', "
        "'1')");
    EXPECT_EQ(migrate(url_).size(), 1U);
    db_.exec("SET ROLE reads_status");
    const auto status_at = [&](const std::string& last) {
        db_.exec("RESET ROLE; SELECT setval('outbox_events_position_seq', " + last +
                 "); SET ROLE reads_status");
        return db_.value("SELECT status FROM outbox_status");
    };
    EXPECT_EQ(status_at("80"), "PUBLISHED");
    EXPECT_EQ(status_at("81, false"), "PUBLISHED");
    EXPECT_EQ(status_at("80, false"), "PENDING");
    EXPECT_EQ(status_at("79"), "PENDING");
    EXPECT_EQ(status_at("70000"), "PUBLISHED");
    db_.exec("RESET ROLE; UPDATE outbox_ledger SET segment = 1");
    EXPECT_EQ(db_.value("SELECT outbox_ledger_source()"), "public.outbox_events");
    db_.exec("SELECT setval('outbox_events_position_seq', 65615)");  // and 65616 is finished
    EXPECT_EQ(db_.value("SELECT outbox_ledger_source()"), "");
    db_.exec("SELECT setval('outbox_events_position_seq', 65535)");
    EXPECT_EQ(db_.value("SELECT outbox_ledger_source()"), "");
    db_.exec("DROP OWNED BY reads_status; DROP ROLE reads_status");
}

bool waits(Pg& db) {
    return db.number("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'") >
           0;
}

TEST_F(MigratePostgres, BehindAnOpenReaderStopsNoOtherAndIsTriedAgain) {
    make_former(db_, url_);
    Pg holder(url_);
    holder.exec("BEGIN; SELECT count(*) FROM outbox_status");
    std::size_t applied = 0;
    std::thread migrating([&] { applied = migrate(url_).size(); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it waits", [&] { return waits(db_); }));
    db_.exec("SET statement_timeout = '20s'");
    EXPECT_NO_THROW(db_.exec("SELECT count(*) FROM outbox_status"));
    holder.exec("COMMIT");
    migrating.join();
    EXPECT_EQ(applied, 2U);
}

TEST_F(MigratePostgres, BehindReadersInTurnsGivesUpAndNamesNobody) {
    make_former(db_, url_);
    Pg first(url_);
    first.exec("BEGIN; SELECT count(*) FROM outbox_status");
    ErrorInfo error;
    std::thread migrating([&] { error = migrate_error(url_); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it waits", [&] { return waits(db_); }));
    Pg second(url_);
    second.exec("BEGIN; SELECT count(*) FROM outbox_status");
    first.exec("COMMIT");
    migrating.join();
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, HasSubstr("no transaction that has held one of an outbox's tables"));
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_migrations WHERE side = 'producer' AND "
                         "version = 6"),
              0);
}

constexpr const char* kBeginAlone =
    "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('outbox_migrations', 0))";

TEST_F(MigratePostgres, BehindAnotherMigrationGoesOnOnceThatHasEnded) {
    Pg other(url_);
    other.exec(kBeginAlone);
    std::size_t applied = 0;
    std::thread migrating([&] { applied = migrate(url_).size(); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it waits", [&] {
        return db_.number(
                   "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = "
                   "'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = "
                   "current_database())") > 0;
    }));
    other.exec("COMMIT");
    migrating.join();
    EXPECT_GT(applied, 0U);
}

TEST_F(MigratePostgres, BehindAnotherMigrationThatDoesNotEndGivesUpAndNamesIt) {
    Pg reader(url_);
    reader.exec("CREATE TABLE outbox_other (); BEGIN; SELECT * FROM outbox_other");
    Pg other(url_);
    other.exec(std::string("SET application_name = 'another deploy';") + kBeginAlone);
    const ErrorInfo error = migrate_error(url_);
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, AllOf(HasSubstr("another migration is under way, of pid " +
                                               std::to_string(PQbackendPID(other.handle())) +
                                               " (application 'another deploy', user "),
                                     HasSubstr("End that transaction, or run this again"),
                                     Not(HasSubstr("or by"))));
}

TEST_F(MigratePostgres, BehindWhoHoldsTheRecordOfMigrationsGivesUpAndNamesThem) {
    migrate(url_);
    Pg holder(url_);
    holder.exec("SET application_name = 'a dump'; BEGIN; LOCK outbox_migrations");
    const ErrorInfo error = migrate_error(url_);
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message,
                HasSubstr("probably held by pid " + std::to_string(PQbackendPID(holder.handle())) +
                          " (application 'a dump', user "));
    holder.exec("COMMIT");
    EXPECT_TRUE(migrate(url_).empty());
}

TEST_F(MigratePostgres, MakesItsPublicationOnceTheTableIsFree) {
    migrate(url_);
    db_.exec("DROP PUBLICATION outbox");
    Pg holder(url_);
    holder.exec("BEGIN; LOCK outbox_events IN SHARE UPDATE EXCLUSIVE MODE");
    std::thread migrating([&] { migrate(url_); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it waits", [&] { return waits(db_); }));
    EXPECT_TRUE(
        eventually(std::chrono::seconds(60), "its limit ends that", [&] { return !waits(db_); }));
    holder.exec("COMMIT");
    migrating.join();
    EXPECT_EQ(db_.number("SELECT count(*) FROM pg_publication"), 1);
}

constexpr const char* kPublications =
    "SELECT string_agg(concat(pubname, ' ', schemaname, '.', tablename, ' ', pubinsert, pubupdate, "
    "pubdelete, pubtruncate), ', ') FROM pg_publication LEFT JOIN pg_publication_tables "
    "USING (pubname)";

std::vector<std::string> notes_of(const std::string& url, MigrateOptions options = {}) {
    std::vector<std::string> notes;
    options.note = [&](std::string_view note) { notes.emplace_back(note); };
    migrate(url, options);
    return notes;
}

TEST_F(MigratePostgres, MakesAPublicationOfInsertsBesideTheEvents) {
    EXPECT_THAT(notes_of(url_), IsEmpty());
    EXPECT_EQ(db_.value(kPublications), "outbox public.outbox_events tfff");
    EXPECT_THAT(notes_of(url_), IsEmpty());
    db_.exec("DROP PUBLICATION outbox");
    EXPECT_THAT(notes_of(url_), IsEmpty());
    EXPECT_EQ(db_.value(kPublications), "outbox public.outbox_events tfff");
}

TEST_F(MigratePostgres, MakesNoPublicationForAConsumer) {
    notes_of(url_, {.side = MigrationSide::kConsumer, .payload = {}});
    EXPECT_EQ(db_.value(kPublications), "");
}

TEST_F(MigratePostgres, NotesThePublicationThatItMayNotMake) {
    const std::string role = "owner_in_" + db_.value("SELECT current_database()");
    db_.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'test'; GRANT CREATE ON SCHEMA public TO " +
             role);
    std::string url = url_;
    url.replace(url.find("postgres@"), 8, role);
    const auto notes = notes_of(url);
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_THAT(notes[0], HasSubstr("publication outbox is missing"));
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_events')"), "outbox_events");
    // The statement that it names is enough.
    db_.exec(notes[0].substr(notes[0].find("CREATE PUBLICATION")));
    EXPECT_EQ(db_.value(kPublications), "outbox public.outbox_events tfff");
    EXPECT_THAT(notes_of(url), IsEmpty());
}

TEST_F(MigratePostgres, NotesAPublicationThatIsThereForAnotherTable) {
    db_.exec("CREATE TABLE other (a int); CREATE PUBLICATION outbox FOR TABLE other");
    const auto notes = notes_of(url_);
    ASSERT_EQ(notes.size(), 1U);
    db_.exec(notes[0].substr(notes[0].find("ALTER PUBLICATION")));
    EXPECT_THAT(notes_of(url_), IsEmpty());
}

TEST(MigrateServer, WithoutALogicalLogGetsTablesAndPublicationAndANote) {
    PostgresServer server;
    Pg(server.url()).exec("ALTER SYSTEM SET wal_level = replica");
    server.stop();
    server.start();
    const auto notes = notes_of(server.url());
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_THAT(notes[0], HasSubstr("wal_level is replica"));
    EXPECT_THAT(notes[0], HasSubstr("ALTER SYSTEM SET wal_level = logical"));
    EXPECT_EQ(Pg(server.url()).value(kPublications), "outbox public.outbox_events tfff");
}

TEST_F(MigratePostgres, TellsWhatIsWrongWithTheUrl) {
    EXPECT_EQ(migrate_error("mysql://localhost/x").code, ErrorCode::kConfigInvalid);
    EXPECT_EQ(migrate_error("nonsense").code, ErrorCode::kConfigInvalid);
    std::string url = url_;
    url.replace(url.rfind('/') + 1, std::string::npos, "no_such_database");
    EXPECT_EQ(migrate_error(url).code, ErrorCode::kNoSuchDatabase);
    const auto refused =
        migrate_error("postgresql://user:hidden@127.0.0.1:" + std::to_string(free_port()) + "/db");
    EXPECT_EQ(refused.code, ErrorCode::kConnectFailed);
    EXPECT_EQ(refused.advice, Advice::kRetryDestination);
    EXPECT_THAT(refused.message, Not(HasSubstr("hidden")));
}

}  // namespace
}  // namespace outbox::test
