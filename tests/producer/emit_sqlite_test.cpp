#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/adapters/sqlite.h>
#include <outbox/producer/migrate.h>

#include "tests/support/files.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

Event order_created(const std::string& order = "o-1") {
    Event event;
    event.aggregate_type = "Order";
    event.aggregate_id = order;
    event.event_type = "OrderCreated";
    event.payload = R"({"order_id": "x"})";
    return event;
}

class EmitSqlite : public testing::Test {
  protected:
    EmitSqlite() { migrate("sqlite://" + path_); }

    ErrorInfo emit_error(const Event& event, const EmitOptions& options = {}) {
        try {
            emit(db_.handle(), event, options);
        } catch (const Error& error) {
            return error.info();
        }
        return {ErrorCode::kInternal, Advice::kStop, "", "emit did not fail"};
    }

    TemporaryFolder folder_{"emit"};
    std::string path_ = folder_ / "shop.db";
    // After migrate: a connection that was open before would not see the tables' journal mode.
    Sqlite db_{path_};
};

TEST_F(EmitSqlite, WritesEveryFieldAndReturnsTheId) {
    Event event = order_created();
    event.headers = {{"source", "shop"}};
    event.traceparent = "00-1";
    event.tenant_id = "t-7";
    event.schema_id = "order";
    event.schema_version = "3";
    event.topic = "orders";
    event.key = "k";
    event.routing_key = "eu";
    event.occurred_at =
        std::chrono::system_clock::time_point(std::chrono::microseconds(1'700'000'000'123'456));
    db_.exec("BEGIN");
    const std::string id = emit(db_.handle(), event);
    db_.exec("COMMIT");
    EXPECT_EQ(
        db_.value("SELECT id || '|' || aggregate_type || '|' || aggregate_id || '|' || "
                  "event_type || '|' || payload || '|' || headers || '|' || tenant_id || '|' "
                  "|| schema_id || '|' || schema_version || '|' || topic || '|' || key || '|' "
                  "|| routing_key || '|' || occurred_at FROM outbox_events"),
        id + "|Order|o-1|OrderCreated|{\"order_id\": \"x\"}|{\"source\":\"shop\","
             "\"traceparent\":\"00-1\"}|t-7|order|3|orders|k|eu|1700000000123456");
    EXPECT_EQ(db_.value("SELECT status || ' ' || occurred_at FROM outbox_status"),
              "PENDING 2023-11-14T22:13:20.123Z");
}

TEST_F(EmitSqlite, TopicAndPayloadAlone) {
    db_.exec("BEGIN");
    const std::string id = emit(db_.handle(), "orders", R"({"a": 1})");
    db_.exec("COMMIT");
    EXPECT_EQ(db_.value("SELECT id || topic || payload || tenant_id FROM outbox_events"),
              id + "orders{\"a\": 1}default");
}

TEST_F(EmitSqlite, RolledBackTransactionsAndSavepointsLeaveNothing) {
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("rolled back"));
    db_.exec("ROLLBACK");
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("kept"));
    db_.exec("SAVEPOINT s");
    emit(db_.handle(), order_created("undone"));
    db_.exec("ROLLBACK TO s");
    db_.exec("COMMIT");
    EXPECT_EQ(db_.value("SELECT group_concat(aggregate_id) FROM outbox_events"), "kept");
}

TEST_F(EmitSqlite, WithoutAnOpenTransactionItThrowsAndWritesNothing) {
    EXPECT_EQ(emit_error(order_created()).code, ErrorCode::kNoTransaction);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 0);
}

TEST_F(EmitSqlite, DelayedEventsWaitInTheSchedule) {
    Event event = order_created();
    event.available_at =
        std::chrono::system_clock::time_point(std::chrono::microseconds(4'000'000'000'000'000));
    db_.exec("BEGIN");
    const std::string id = emit(db_.handle(), event);
    db_.exec("COMMIT");
    EXPECT_EQ(db_.value("SELECT id || available_at FROM outbox_scheduled"),
              id + "4000000000000000");
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 0);
}

TEST_F(EmitSqlite, InvalidContentIsRefusedWithTheRemedy) {
    db_.exec("BEGIN");
    Event event = order_created();
    event.payload = "{";
    EXPECT_EQ(emit_error(event).code, ErrorCode::kInvalidEvent);
    event = order_created("\xff");
    EXPECT_EQ(emit_error(event).code, ErrorCode::kInvalidEvent);
    event = order_created();
    event.payload = "\"" + std::string(kMaxPayloadBytes, 'x') + "\"";
    EXPECT_THAT(emit_error(event).message, HasSubstr("claim check"));
    EmitOptions options;
    options.max_payload_bytes = 2 * kMaxPayloadBytes;
    const auto error = emit_error(event, options);
    EXPECT_EQ(error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_THAT(error.message, HasSubstr("claim check"));
    // The transaction is still good.
    emit(db_.handle(), order_created());
    db_.exec("COMMIT");
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 1);
}

TEST_F(EmitSqlite, WhatNoRelayCouldPublishIsRefusedAtTheInsert) {
    const std::string big(4097, 'x');
    for (const auto& [columns, values, message] :
         std::vector<std::tuple<std::string, std::string, std::string>>{
             {"topic", "'bad topic!'", "OB_TOPIC_INVALID"},
             {"topic", "'a' || char(9) || 'b'", "OB_TOPIC_INVALID"},
             {"topic", "'a' || char(127)", "OB_TOPIC_INVALID"},
             {"topic, headers", "'t', '[1]'", "JSON object"},
             {"topic, event_type", "'t', ''", "event_type"},
             {"topic, key", "'t', '" + big + "'", "4096"},
             {"topic, id", "'t', '" + big + "'", "255"},
             {"topic, headers", "'t', json_object('a', hex(zeroblob(140000)))", "262144"},
             {"payload", "'{}'", "a topic or an aggregate_type"}}) {
        for (const std::string& sql :
             {"INSERT INTO outbox_events (" + columns + ") VALUES (" + values + ")",
              "INSERT INTO outbox_scheduled (available_at, " + columns + ") VALUES (1, " + values +
                  ")"}) {
            try {
                db_.exec(sql);
                ADD_FAILURE() << sql;
            } catch (const std::exception& error) {
                EXPECT_THAT(error.what(), HasSubstr(message)) << sql;
            }
        }
    }
    db_.exec(
        "INSERT INTO outbox_events (topic) VALUES ('a.B_c-9'); INSERT INTO outbox_events "
        "(topic, aggregate_type, headers) VALUES ('', 'Order', '{}')");
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 2);
    db_.exec("BEGIN");
    Event event = order_created();
    event.topic = "bad topic!";
    EXPECT_EQ(emit_error(event).code, ErrorCode::kTopicInvalid);
}

TEST_F(EmitSqlite, WithoutTablesItNamesTheRemedy) {
    Sqlite empty(folder_ / "empty.db");
    empty.exec("BEGIN");
    try {
        emit(empty.handle(), order_created());
        FAIL() << "emit did not fail";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNoSuchTable);
        EXPECT_THAT(error.what(), HasSubstr("outbox migrate"));
    }
}

TEST_F(EmitSqlite, ABusyDatabaseIsAConflict) {
    Sqlite other(path_);
    other.exec("BEGIN IMMEDIATE");
    sqlite3_busy_timeout(db_.handle(), 1);
    db_.exec("BEGIN");
    const auto error = emit_error(order_created());
    EXPECT_EQ(error.code, ErrorCode::kConflict);
    EXPECT_EQ(error.advice, Advice::kRetryEvent);
    EXPECT_THAT(error.message, HasSubstr("BEGIN IMMEDIATE"));
}

TEST_F(EmitSqlite, AFullDiskIsReportedAndLeavesNothing) {
    db_.exec("PRAGMA max_page_count = " + std::to_string(db_.number("PRAGMA page_count")));
    Event event = order_created();
    event.payload = "\"" + std::string(200'000, 'x') + "\"";
    db_.exec("BEGIN");
    const auto error = emit_error(event);
    EXPECT_EQ(error.code, ErrorCode::kDiskFull);
    EXPECT_EQ(error.advice, Advice::kRetryDestination);
    if (sqlite3_get_autocommit(db_.handle()) == 0) db_.exec("ROLLBACK");
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 0);
}

TEST_F(EmitSqlite, BinaryPayloadsAreStoredAsTheyAre) {
    migrate("sqlite://" + std::string(folder_ / "bytes.db"),
            {.side = MigrationSide::kProducer, .payload = PayloadType::kBytea});
    Sqlite bytes(folder_ / "bytes.db");
    Event event = order_created();
    event.payload = std::string("\0\xff", 2);
    EmitOptions options;
    options.binary_payload = true;
    bytes.exec("BEGIN");
    emit(bytes.handle(), event, options);
    bytes.exec("COMMIT");
    EXPECT_EQ(bytes.value("SELECT typeof(payload) || hex(payload) FROM outbox_events"), "blob00FF");
}

TEST_F(EmitSqlite, PositionsAreNeverUsedTwice) {
    db_.exec("BEGIN");
    emit(db_.handle(), order_created());
    db_.exec("COMMIT; DELETE FROM outbox_events; BEGIN");
    emit(db_.handle(), order_created());
    db_.exec("COMMIT");
    EXPECT_EQ(db_.number("SELECT position FROM outbox_events"), 2);
}

TEST_F(EmitSqlite, StatusShowsPendingRetryingAndDead) {
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("o-1"));
    emit(db_.handle(), order_created("o-2"));
    db_.exec("COMMIT");
    db_.exec(
        "INSERT INTO outbox_delivery SELECT 'outbox_events', 'default', id, position, NULL, 2, "
        "0, 'OB_RECORD_REFUSED', 'no', 0 FROM outbox_events WHERE aggregate_id = 'o-2'");
    db_.exec(
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_id, payload, "
        "attempts, error_code, error, died_at) VALUES ('outbox_events', 'default', 0, 'x', "
        "'o-0', CAST('{}' AS blob), 5, 'OB_RECORD_REFUSED', 'never', 0)");
    EXPECT_EQ(
        db_.value("SELECT group_concat(aggregate_id || ' ' || status || ' ' || attempts || ' ' "
                  "|| coalesce(error, ''), ';') FROM (SELECT * FROM outbox_status ORDER BY "
                  "position)"),
        "o-0 DEAD 5 OB_RECORD_REFUSED: never;o-1 PENDING 0 ;"
        "o-2 RETRYING 2 OB_RECORD_REFUSED: no");
}

TEST_F(EmitSqlite, StatusShowsEachEventOnceAndTheDelayedOnesToo) {
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("o-1"));
    db_.exec("COMMIT");
    db_.exec(
        "INSERT INTO outbox_scheduled (available_at, aggregate_id, topic) "
        "VALUES (32472144000000000, 'later', 't'); "
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_id, attempts, "
        "error_code, error, died_at) SELECT 'outbox_events', 'a', position, id, aggregate_id, 5, "
        "'OB_X', 'no', 0 FROM outbox_events; "
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_id, attempts, "
        "error_code, error, died_at) VALUES ('outbox_events', 'a', 0, 'x', 'o-0', 5, 'OB_X', 'no', "
        "0), ('outbox_events', 'b', 0, 'x', 'o-0', 6, 'OB_Y', 'never', 0)");
    EXPECT_EQ(
        db_.value("SELECT group_concat(aggregate_id || ' ' || status || ' ' || attempts || ' ' || "
                  "coalesce(error, substr(available_at, 1, 4), ''), ';') FROM (SELECT * FROM "
                  "outbox_status ORDER BY status)"),
        "o-0 DEAD 6 OB_Y: never;o-1 PENDING 0 ;later SCHEDULED 0 2999");
}

}  // namespace
}  // namespace outbox::test
