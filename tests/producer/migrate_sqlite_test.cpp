#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>

#include <outbox/producer/migrate.h>

#include "tests/support/files.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

class MigrateSqlite : public testing::Test {
  protected:
    ErrorInfo migrate_error(const MigrateOptions& options = {}) {
        try {
            migrate(url_, options);
        } catch (const Error& error) {
            return error.info();
        }
        return {ErrorCode::kInternal, Advice::kStop, "", "migrate did not fail"};
    }

    static std::string schema_dump(Sqlite& db) {
        return db.value(
            "SELECT group_concat(sql, char(10)) FROM (SELECT sql FROM sqlite_master "
            "ORDER BY name)");
    }

    TemporaryFolder folder_{"migrate"};
    std::string path_ = folder_ / "shop.db";
    std::string url_ = "sqlite://" + path_;
};

TEST_F(MigrateSqlite, MakesTheFileWithTheTablesOfBothSidesInWalMode) {
    EXPECT_GE(migrate(url_).size(), 2U);
    Sqlite db(path_);
    EXPECT_EQ(db.value("PRAGMA journal_mode"), "wal");
    EXPECT_EQ(db.number("SELECT count(*) FROM sqlite_master WHERE name IN ('outbox_events', "
                        "'outbox_scheduled', 'outbox_status', 'outbox_lease', 'outbox_inbox')"),
              5);
}

TEST_F(MigrateSqlite, ASecondRunChangesNothing) {
    migrate(url_);
    Sqlite db(path_);
    const std::string before = schema_dump(db);
    EXPECT_TRUE(migrate(url_).empty());
    EXPECT_EQ(schema_dump(db), before);
}

TEST_F(MigrateSqlite, RunsAtTheSameTimeWaitForEachOther) {
    std::vector<std::thread> runs;
    std::vector<std::size_t> applied(4);
    for (auto& count : applied) runs.emplace_back([&] { count = migrate(url_).size(); });
    for (auto& run : runs) run.join();
    Sqlite db(path_);
    EXPECT_EQ(db.number("SELECT count(*) FROM outbox_migrations"),
              static_cast<long long>(applied[0] + applied[1] + applied[2] + applied[3]));
}

TEST_F(MigrateSqlite, WaitsForAnotherWriterAsLongAsItIsTold) {
    migrate(url_);
    Sqlite other(path_);
    other.exec("BEGIN IMMEDIATE");
    MigrateOptions patient;
    patient.connect_timeout = std::chrono::seconds(120);
    MigrateOptions impatient;
    impatient.connect_timeout = std::chrono::seconds(1);
    ErrorInfo waited;
    std::thread patiently([&] { waited = migrate_error(patient); });
    EXPECT_THAT(migrate_error(impatient).message, HasSubstr("locked"));
    other.exec("COMMIT");
    patiently.join();
    EXPECT_EQ(waited.message, "migrate did not fail");
}

TEST_F(MigrateSqlite, RefusesNewerAndChangedDatabases) {
    migrate(url_);
    Sqlite db(path_);
    db.exec("UPDATE outbox_migrations SET checksum = 'other' WHERE side = 'producer'");
    auto error = migrate_error();
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, HasSubstr("applied with other content"));
    db.exec(
        "INSERT INTO outbox_migrations (side, version, name, checksum) "
        "VALUES ('consumer', 999, 'later', 'x'); "
        "DELETE FROM outbox_migrations WHERE side = 'producer'");
    error = migrate_error();
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, HasSubstr("newer than this build"));
}

TEST_F(MigrateSqlite, LeavesATableOfAnotherShapeAloneAndNamesThePreset) {
    Sqlite db(path_);
    db.exec(
        "CREATE TABLE outbox_events (id text, event_type text, payload text, created_at text, "
        "processed_at text)");
    const std::string before = schema_dump(db);
    const auto error = migrate_error();
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(error.message, HasSubstr("\"processed-at\""));
    EXPECT_THAT(error.message, HasSubstr("outbox relay --table outbox_events"));
    EXPECT_EQ(error.message.find("PostgreSQL"), std::string::npos);
    EXPECT_EQ(schema_dump(db), before);
    EXPECT_EQ(db.value("PRAGMA journal_mode"), "delete");
}

TEST_F(MigrateSqlite, PrintsWhatItApplies) {
    for (const auto payload : {PayloadType::kJsonb, PayloadType::kText, PayloadType::kBytea}) {
        const std::string name(1, static_cast<char>('a' + static_cast<int>(payload)));
        const MigrateOptions options{.side = MigrationSide::kBoth, .payload = payload};
        migrate("sqlite://" + std::string(folder_ / (name + "1")), options);
        Sqlite applied(folder_ / (name + "1"));
        Sqlite printed(folder_ / (name + "2"));
        printed.exec(migration_sql(url_, options));
        EXPECT_EQ(schema_dump(printed), schema_dump(applied));
        EXPECT_TRUE(migrate("sqlite://" + std::string(folder_ / (name + "2"))).empty());
    }
}

TEST_F(MigrateSqlite, RefusesAnotherPayloadTypeForATableThatIsThere) {
    migrate(url_, {.side = MigrationSide::kBoth, .payload = PayloadType::kBytea});
    EXPECT_TRUE(migrate(url_).empty());
    const auto error = migrate_error({.side = MigrationSide::kBoth, .payload = PayloadType::kText});
    EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
}

TEST_F(MigrateSqlite, PlainInsertsAreChecked) {
    migrate(url_);
    Sqlite db(path_);
    db.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '{\"a\": 1}')");
    EXPECT_EQ(db.number("SELECT count(*) FROM outbox_events WHERE id LIKE "
                        "'________-____-7___-____-____________'"),
              1);
    EXPECT_EQ(db.number("SELECT abs(occurred_at / 1000000 - strftime('%s', 'now')) < 60 FROM "
                        "outbox_events"),
              1);
    const auto refusal = [&](const std::string& sql) -> std::string {
        try {
            db.exec(sql);
        } catch (const std::exception& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_THAT(refusal("INSERT INTO outbox_events (topic, payload) VALUES ('t', '{')"),
                HasSubstr("payload is not JSON"));
    EXPECT_THAT(refusal("INSERT INTO outbox_events (topic, headers) VALUES ('t', '[]')"),
                HasSubstr("headers is not a JSON object"));
    EXPECT_THAT(refusal("INSERT INTO outbox_events (topic, payload) VALUES ('t', '\"' || "
                        "replace(hex(zeroblob(524288)), '0', 'x') || '\"')"),
                HasSubstr("claim check"));
}

TEST_F(MigrateSqlite, TellsThatTheFolderIsMissingOrTheFileNoDatabase) {
    url_ = "sqlite:///no/such/folder/shop.db";
    EXPECT_EQ(migrate_error().code, ErrorCode::kConnectFailed);
    url_ = "sqlite://" + std::string(folder_ / "text");
    std::ofstream(folder_ / "text") << std::string(4096, 'x');
    EXPECT_EQ(migrate_error().code, ErrorCode::kNoSuchDatabase);
}

TEST_F(MigrateSqlite, AnIndexThatIsMissingOrOfAnotherTableIsNamed) {
    migrate(url_);
    Sqlite db(path_);
    std::istringstream names(
        db.value("SELECT group_concat(name, ' ') FROM sqlite_master WHERE type = 'index' AND name "
                 "NOT LIKE 'sqlite_%'"));
    int count = 0;
    db.exec("CREATE TABLE mine (a int)");
    for (std::string name; names >> name; ++count) {
        const std::string sql =
            db.value("SELECT sql FROM sqlite_master WHERE name = '" + name + "'");
        const std::string table =
            db.value("SELECT tbl_name FROM sqlite_master WHERE name = '" + name + "'");
        db.exec("DROP INDEX " + name);
        EXPECT_THAT(migrate_error().message, HasSubstr(name + " is missing"));
        db.exec("CREATE INDEX " + name + " ON mine (a)");
        const ErrorInfo error = migrate_error();
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused);
        EXPECT_THAT(error.message,
                    HasSubstr("index " + name + " is of table mine, not of " + table));
        db.exec("DROP INDEX " + name + "; " + sql);
    }
    EXPECT_GE(count, 10);
    EXPECT_TRUE(migrate(url_).empty());
}

TEST_F(MigrateSqlite, ATakenNameOfAnIndexIsRefusedBeforeAnythingIsMade) {
    Sqlite db(path_);
    db.exec("CREATE TABLE mine (a int); CREATE INDEX outbox_dead_letters_event ON mine (a)");
    EXPECT_THAT(migrate_error().message, HasSubstr("is of table mine, not of outbox_dead_letters"));
    EXPECT_EQ(db.number("SELECT count(*) FROM sqlite_master WHERE name = 'outbox_events'"), 0);
}

}  // namespace
}  // namespace outbox::test
