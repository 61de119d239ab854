// The limit of payloads that the outbox's own tables take.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

class MaxPayload : public testing::TestWithParam<std::string> {
  protected:
    MaxPayload() {
        if (GetParam() == "postgres")
            database_ = std::make_unique<PostgresDatabase>();
        else
            database_ = std::make_unique<SqliteDatabase>();
    }
    void limit(std::optional<std::int64_t> bytes) {
        MigrateOptions options;
        options.payload = PayloadType::kText;
        options.max_payload_bytes = bytes;
        migrate(database_->url(), options);
    }
    // What refuses it; empty: it is in.
    std::string insert(const std::string& table, std::size_t bytes) {
        const auto connection = database_->connect();
        const bool scheduled = table == "outbox_scheduled";
        const std::string due = GetParam() == "postgres" ? "'2030-01-01'" : "1893456000000000";
        try {
            connection->exec("INSERT INTO " + table + " (topic, payload" +
                             (scheduled ? ", available_at" : "") + ") VALUES ('t', '" +
                             std::string(bytes, 'x') + "'" + (scheduled ? ", " + due : "") + ")");
        } catch (const std::exception& error) {
            return error.what();
        }
        return "";
    }
    std::unique_ptr<Database> database_;
};

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

TEST_P(MaxPayload, IsRaisedAndStaysWhereItIsUntilSomebodySaysOtherwise) {
    limit(std::nullopt);
    for (const std::string table : {"outbox_events", "outbox_scheduled"}) {
        EXPECT_EQ(insert(table, kMebibyte), "");
        EXPECT_THAT(insert(table, kMebibyte + 1), HasSubstr("1048576"));
    }
    limit(5 * kMebibyte);
    limit(std::nullopt);
    for (const std::string table : {"outbox_events", "outbox_scheduled"}) {
        EXPECT_EQ(insert(table, 5 * kMebibyte), "");
        EXPECT_THAT(insert(table, 5 * kMebibyte + 1), HasSubstr("5242880"));
    }
    limit(2'000);
    for (const std::string table : {"outbox_events", "outbox_scheduled"}) {
        EXPECT_EQ(insert(table, 2'000), "");
        EXPECT_THAT(insert(table, 2'001), HasSubstr("2000"));
    }
    const auto connection = database_->connect();
    EXPECT_EQ(connection->number("SELECT count(*) FROM outbox_events"), 3) << "all rows stay";
    EXPECT_EQ(connection->number("SELECT max(length(payload)) FROM outbox_events"), 5 * kMebibyte);
}

TEST_P(MaxPayload, HoldsInATableThatIsMadeWithIt) {
    limit(3 * kMebibyte);
    EXPECT_EQ(insert("outbox_events", 3 * kMebibyte), "");
    EXPECT_NE(insert("outbox_events", 3 * kMebibyte + 1), "");
}

INSTANTIATE_TEST_SUITE_P(Databases, MaxPayload, testing::Values("postgres", "sqlite"));

TEST(MaxPayloadSqlite, LeavesAFileThatIsWhole) {
    SqliteDatabase database;
    MigrateOptions options;
    migrate(database.url(), options);
    Sqlite open_before(database.path());
    open_before.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '{}')");
    options.max_payload_bytes = 2 * kMebibyte;
    migrate(database.url(), options);
    const std::string large = "\"" + std::string(kMebibyte + 10, 'x') + "\"";
    open_before.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '" + large + "')");
    EXPECT_EQ(open_before.value("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(Sqlite(database.path()).number("SELECT count(*) FROM outbox_events"), 2);
}

}  // namespace
}  // namespace outbox::test
