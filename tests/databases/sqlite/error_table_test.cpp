#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "databases/sqlite/errors.h"

namespace outbox::test {
namespace {

using sqlite::Role;
using testing::EndsWith;
using testing::HasSubstr;

ErrorInfo error(Role role, int code, std::string_view message = "SQLite's words") {
    return sqlite::sqlite_error(role, code, message, "/shop.db");
}

TEST(SqliteErrorTable, AResultHasOneCodeAndAnAdviceForEachRole) {
    for (const Role role : {Role::kRelay, Role::kReceive, Role::kCaller, Role::kEmit}) {
        EXPECT_EQ(error(role, SQLITE_BUSY_SNAPSHOT).code, ErrorCode::kConflict);
        EXPECT_EQ(error(role, SQLITE_IOERR_READ).code, ErrorCode::kConnectionLost);
        EXPECT_EQ(error(role, SQLITE_FULL).code, ErrorCode::kDiskFull);
        EXPECT_EQ(error(role, SQLITE_READONLY_DIRECTORY).code, ErrorCode::kNoRights);
        EXPECT_EQ(error(role, SQLITE_ERROR, "no such table: outbox_inbox").code,
                  ErrorCode::kNoSuchTable);
    }
    EXPECT_EQ(error(Role::kRelay, SQLITE_BUSY).advice, Advice::kRetryDestination);
    EXPECT_EQ(error(Role::kReceive, SQLITE_BUSY).advice, Advice::kRetryDestination);
    EXPECT_EQ(error(Role::kCaller, SQLITE_BUSY).advice, Advice::kRetryEvent);
    EXPECT_EQ(error(Role::kEmit, SQLITE_BUSY).advice, Advice::kRetryEvent);
    EXPECT_EQ(error(Role::kRelay, SQLITE_READONLY).advice, Advice::kStop);
    EXPECT_EQ(error(Role::kReceive, SQLITE_READONLY).advice, Advice::kRetryDestination);
}

TEST(SqliteErrorTable, ARelayThatRunsWaitsForWhatCannotBeOpened) {
    EXPECT_EQ(error(Role::kRelay, SQLITE_CANTOPEN).advice, Advice::kStop);
    EXPECT_EQ(error(Role::kRunning, SQLITE_CANTOPEN).advice, Advice::kRetryDestination);
    EXPECT_EQ(error(Role::kRunning, SQLITE_CANTOPEN_ISDIR).code, ErrorCode::kConnectFailed);
    EXPECT_EQ(error(Role::kRunning, SQLITE_READONLY).advice, Advice::kStop);
}

TEST(SqliteErrorTable, ARelayWhoseFileIsReplacedAsItWritesBeginsANewTerm) {
    EXPECT_EQ(error(Role::kRelay, SQLITE_READONLY_DBMOVED).code, ErrorCode::kServerChanged);
    EXPECT_EQ(error(Role::kEmit, SQLITE_READONLY_DBMOVED).code, ErrorCode::kNoRights);
    EXPECT_EQ(error(Role::kMailbox, SQLITE_READONLY_DBMOVED).code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(error(Role::kReceive, SQLITE_READONLY_DBMOVED).code, ErrorCode::kConnectionLost);
}

TEST(SqliteErrorTable, AConsumerIsToldWhetherATableIsMissingOrAnother) {
    const ErrorInfo missing = error(Role::kReceive, SQLITE_ERROR, "no such table: outbox_inbox");
    EXPECT_THAT(missing.message, EndsWith("outbox migrate --db URL --only consumer`"));
    const ErrorInfo other = error(Role::kReceive, SQLITE_ERROR, "no such column: floor");
    EXPECT_EQ(other.code, ErrorCode::kTableShape);
    EXPECT_THAT(other.message, HasSubstr("not those that `outbox migrate` makes"));
}

TEST(SqliteErrorTable, AMailboxSpeaksAsSinksDo) {
    EXPECT_EQ(error(Role::kMailbox, SQLITE_TOOBIG).code, ErrorCode::kRecordRefused);
    EXPECT_EQ(error(Role::kMailbox, SQLITE_CONSTRAINT_CHECK).advice, Advice::kDeadLetter);
    EXPECT_EQ(error(Role::kMailbox, SQLITE_CONSTRAINT_TRIGGER).advice, Advice::kRetryEvent);
    EXPECT_EQ(error(Role::kMailbox, SQLITE_BUSY).code, ErrorCode::kSinkTimeout);
    EXPECT_EQ(error(Role::kMailbox, SQLITE_IOERR).code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(error(Role::kMailbox, SQLITE_FULL).code, ErrorCode::kDiskFull);
    EXPECT_THAT(error(Role::kMailbox, SQLITE_CANTOPEN).message, EndsWith("sqlite:///shop.db"));
}

TEST(SqliteErrorTable, ConstraintsOfTheTableNameTheErrorOfTheWriter) {
    const auto failed = [](std::string_view message) {
        return error(Role::kEmit, SQLITE_CONSTRAINT_CHECK, message).code;
    };
    EXPECT_EQ(failed("CHECK constraint failed: OB_PAYLOAD_TOO_LARGE: over 1 MiB"),
              ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(failed("CHECK constraint failed: OB_TOPIC_INVALID"), ErrorCode::kTopicInvalid);
    EXPECT_EQ(failed("CHECK constraint failed: owners"), ErrorCode::kInvalidEvent);
}

TEST(SqliteErrorTable, SaysWhetherARowIsInTheWay) {
    for (const int code : {SQLITE_CONSTRAINT_TRIGGER, SQLITE_MISMATCH, SQLITE_TOOBIG}) {
        EXPECT_TRUE(sqlite::refuses_row(error(Role::kRelay, code))) << code;
        EXPECT_EQ(error(Role::kRelay, code).advice, Advice::kStop) << code;
    }
    for (const int code : {SQLITE_BUSY, SQLITE_ERROR, SQLITE_IOERR_WRITE, SQLITE_FULL}) {
        EXPECT_FALSE(sqlite::refuses_row(error(Role::kRelay, code))) << code;
    }
}

}  // namespace
}  // namespace outbox::test
