#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include <outbox/adapters/libpq.h>
#include <outbox/producer/migrate.h>

#include "tests/support/eventually.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

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

class EmitPostgres : public testing::Test {
  protected:
    EmitPostgres() {
        migrate(url_);
        db_.exec("CREATE TABLE orders (id text PRIMARY KEY, version int NOT NULL DEFAULT 0)");
    }

    ErrorInfo emit_error(const Event& event, const EmitOptions& options = {}) {
        try {
            emit(db_.handle(), event, options);
        } catch (const Error& error) {
            return error.info();
        }
        return {ErrorCode::kInternal, Advice::kStop, "", "emit did not fail"};
    }
    long long events() { return look_.number("SELECT count(*) FROM outbox_events"); }

    std::string url_ = shared_postgres().create_database();
    Pg db_{url_};
    Pg look_{url_};
};

TEST_F(EmitPostgres, WritesEveryFieldAndReturnsTheId) {
    Event event = order_created();
    event.headers = {{"source", "shop"}};
    event.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
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
    EXPECT_EQ(look_.value("SELECT concat_ws('|', id, aggregate_type, aggregate_id, event_type, "
                          "payload, headers, tenant_id, schema_id, schema_version, topic, key, "
                          "routing_key, extract(epoch FROM occurred_at)) FROM outbox_events"),
              id + "|Order|o-1|OrderCreated|{\"order_id\": \"x\"}|{\"source\": \"shop\", "
                   "\"traceparent\": \"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\"}|"
                   "t-7|order|3|orders|k|eu|1700000000.123456");
}

TEST_F(EmitPostgres, TopicAndPayloadAlone) {
    db_.exec("BEGIN");
    const std::string id = emit(db_.handle(), "orders", R"({"a": 1})");
    db_.exec("COMMIT");
    EXPECT_EQ(look_.value("SELECT concat_ws('|', id, topic, payload, tenant_id) FROM outbox_events "
                          "WHERE aggregate_id IS NULL AND key IS NULL"),
              id + "|orders|{\"a\": 1}|default");
}

TEST_F(EmitPostgres, ATombstoneHasNoPayload) {
    Event event = order_created();
    event.payload.reset();
    db_.exec("BEGIN");
    emit(db_.handle(), event);
    db_.exec("COMMIT");
    EXPECT_EQ(look_.number("SELECT count(*) FROM outbox_events WHERE payload IS NULL"), 1);
}

TEST_F(EmitPostgres, RolledBackTransactionsAndSavepointsLeaveNothing) {
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("rolled back"));
    db_.exec("ROLLBACK");
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("kept"));
    db_.exec("SAVEPOINT s");
    emit(db_.handle(), order_created("undone"));
    db_.exec("ROLLBACK TO s");
    EXPECT_EQ(events(), 0);
    db_.exec("COMMIT");
    EXPECT_EQ(look_.value("SELECT string_agg(aggregate_id, ',') FROM outbox_events"), "kept");
}

TEST_F(EmitPostgres, WithoutAnOpenTransactionItThrowsAndWritesNothing) {
    EXPECT_EQ(emit_error(order_created()).code, ErrorCode::kNoTransaction);
    EXPECT_THAT(emit_error(order_created()).message, HasSubstr("BEGIN"));
    db_.exec("BEGIN");
    db_.exec("COMMIT");
    EXPECT_EQ(emit_error(order_created()).code, ErrorCode::kNoTransaction);
    EXPECT_THROW(lock_keys(db_.handle(), std::vector<std::string>{"k"}), Error);
    EXPECT_EQ(events(), 0);
}

TEST_F(EmitPostgres, InAFailedTransactionItSaysSo) {
    db_.exec("BEGIN");
    EXPECT_THROW(db_.exec("SELECT 1/0"), std::runtime_error);
    const auto error = emit_error(order_created());
    EXPECT_EQ(error.code, ErrorCode::kConflict);
    EXPECT_THAT(error.message, HasSubstr("failed already"));
}

TEST_F(EmitPostgres, OnALostConnectionItSaysSo) {
    db_.exec("BEGIN");
    look_.exec("SELECT pg_terminate_backend(" + std::to_string(PQbackendPID(db_.handle())) + ")");
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "the backend is gone", [&] {
        return look_.number("SELECT count(*) FROM pg_stat_activity WHERE pid = " +
                            std::to_string(PQbackendPID(db_.handle()))) == 0;
    }));
    const auto error = emit_error(order_created());
    EXPECT_EQ(error.code, ErrorCode::kConnectionLost);
    EXPECT_EQ(error.advice, Advice::kRetryDestination);
}

// By the function, by a plain INSERT, delayed or not: the table says what is wrong and what to do.
TEST_F(EmitPostgres, WhatNoRelayCouldPublishIsRefusedAtTheInsert) {
    struct Case {
        std::string arguments;
        std::string columns;
        std::string values;
        std::string message;
    };
    const std::string big = "repeat('x', 4097)";
    for (const Case& bad : std::vector<Case>{
             {"topic => 'bad topic!'", "topic", "'bad topic!'", "OB_TOPIC_INVALID"},
             {"topic => E'a\\tb'", "topic", "E'a\\tb'", "OB_TOPIC_INVALID"},
             {"topic => repeat('t', 250)", "topic", "repeat('t', 250)", "1 to 249 bytes"},
             {"topic => 't', headers => '[1]'", "topic, headers", "'t', '[1]'", "JSON object"},
             {"topic => 't', headers => '[1]', traceparent => 'x'", "topic, headers", "'t', '[1]'",
              "JSON object"},
             {"topic => 't', event_type => ''", "topic, event_type", "'t', ''", "event_type"},
             {"topic => 't', key => " + big, "topic, key", "'t', " + big, "4096"},
             {"topic => 't', headers => jsonb_build_object('a', repeat('x', 270000))",
              "topic, headers", "'t', jsonb_build_object('a', repeat('x', 270000))", "262144"},
             {"payload => '{}'", "payload", "'{}'", "a topic or an aggregate_type"},
             {"topic => ''", "topic", "''", "a topic or an aggregate_type"}}) {
        for (const std::string& sql :
             {"SELECT outbox_emit(" + bad.arguments + ")",
              "SELECT outbox_emit(" + bad.arguments + ", available_at => now())",
              "INSERT INTO outbox_events (" + bad.columns + ") VALUES (" + bad.values + ")",
              "INSERT INTO outbox_scheduled (available_at, " + bad.columns + ") VALUES (now(), " +
                  bad.values + ")"}) {
            try {
                db_.exec(sql);
                ADD_FAILURE() << sql;
            } catch (const std::exception& error) {
                EXPECT_THAT(error.what(), HasSubstr(bad.message)) << sql;
                EXPECT_THAT(error.what(), HasSubstr("HINT")) << sql;
            }
        }
    }
    db_.exec(
        "INSERT INTO outbox_events (topic) VALUES ('a.B_c-9'); "
        "INSERT INTO outbox_events (topic, aggregate_type) VALUES ('', 'Order'); "
        "SELECT outbox_emit(aggregate_type => 'Order', event_type => 'Made')");
    EXPECT_EQ(events(), 3);
}

// The outcome is known, as nothing was done: no reason to look for the event before trying again.
TEST_F(EmitPostgres, AStatementTimeoutIsNotALostConnection) {
    look_.exec("BEGIN; LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE");
    db_.exec("BEGIN; SET LOCAL statement_timeout = '10ms'");
    const auto error = emit_error(order_created());
    EXPECT_EQ(error.code, ErrorCode::kQueryFailed);
    EXPECT_EQ(error.backend_code, "57014");
    EXPECT_EQ(error.advice, Advice::kRetryEvent);
    EXPECT_THAT(error.message, HasSubstr("statement_timeout"));
    look_.exec("ROLLBACK");
}

TEST_F(EmitPostgres, AValueOverALimitOfTheServerIsTheEventsOwn) {
    db_.exec(
        "CREATE TABLE seen (id text PRIMARY KEY); "
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO seen SELECT string_agg(md5(n::text), '') FROM generate_series(1, 10000) n; "
        "RETURN NEW; END $$; "
        "CREATE TRIGGER see BEFORE INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION see()");
    db_.exec("BEGIN");
    const auto error = emit_error(order_created());
    EXPECT_EQ(error.backend_code, "54000");
    EXPECT_EQ(error.code, ErrorCode::kInvalidEvent);
    EXPECT_EQ(error.advice, Advice::kDeadLetter);
}

TEST_F(EmitPostgres, RefusesAnotherClientEncoding) {
    db_.exec("SET client_encoding = 'LATIN1'");
    db_.exec("BEGIN");
    EXPECT_THAT(emit_error(order_created()).message, HasSubstr("client_encoding is LATIN1"));
}

// What libpq sends to the server meanwhile, one message a line.
class Trace {
  public:
    explicit Trace(PGconn* connection) : connection_(connection) { PQtrace(connection_, file_); }
    ~Trace() {
        PQuntrace(connection_);
        std::fclose(file_);
    }
    Trace(const Trace&) = delete;
    Trace& operator=(const Trace&) = delete;

    // Messages of this kind that were sent so far.
    int sent(const std::string& kind) {
        std::fflush(file_);
        std::fseek(file_, 0, SEEK_SET);
        int count = 0;
        std::string line;
        for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) {
            if (c != '\n') {
                line += static_cast<char>(c);
                continue;
            }
            if (line.find("\tF\t") != std::string::npos &&
                line.find("\t" + kind + "\t") != std::string::npos) {
                ++count;
            }
            line.clear();
        }
        std::fseek(file_, 0, SEEK_END);
        return count;
    }

  private:
    PGconn* connection_;
    std::FILE* file_ = std::tmpfile();
};

TEST_F(EmitPostgres, CostsTheTransactionOneInsertWithoutALockOrAPreparedStatement) {
    db_.exec("BEGIN");
    {
        Trace trace(db_.handle());
        for (int i = 0; i < 3; ++i) emit(db_.handle(), order_created());
        EXPECT_EQ(trace.sent("Parse"), 3);
        EXPECT_EQ(trace.sent("Execute"), 3);
        EXPECT_EQ(trace.sent("Query"), 0);
    }
    EXPECT_EQ(db_.number("SELECT count(*) FROM pg_prepared_statements"), 0);
    EXPECT_EQ(db_.value("SELECT string_agg(DISTINCT mode, ',') FROM pg_locks WHERE pid = "
                        "pg_backend_pid() AND relation IN ('outbox_events'::regclass, "
                        "'outbox_events_pkey'::regclass)"),
              "RowExclusiveLock");
    EXPECT_EQ(db_.number("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype "
                         "NOT IN ('relation', 'virtualxid', 'transactionid')"),
              0);
    db_.exec("COMMIT");
    // Nothing that an insert would set off, such as a NOTIFY.
    EXPECT_EQ(
        db_.number("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'outbox_events'::regclass"), 0);
}

TEST_F(EmitPostgres, DelayedEventsWaitInTheSchedule) {
    Event event = order_created();
    event.available_at = std::chrono::system_clock::now() + std::chrono::hours(1);
    db_.exec("BEGIN");
    const std::string id = emit(db_.handle(), event);
    db_.exec("COMMIT");
    EXPECT_EQ(events(), 0);
    EXPECT_EQ(look_.value("SELECT id FROM outbox_scheduled WHERE available_at BETWEEN now() + "
                          "interval '59 min' AND now() + interval '61 min'"),
              id);
}

TEST_F(EmitPostgres, InvalidContentIsRefusedByTheDatabaseWithTheRemedy) {
    Event event = order_created();
    event.payload = "{";
    db_.exec("BEGIN");
    EXPECT_EQ(emit_error(event).code, ErrorCode::kInvalidEvent);
    db_.exec("ROLLBACK; BEGIN");
    event = order_created();
    event.id = "not a uuid";
    EXPECT_EQ(emit_error(event).code, ErrorCode::kInvalidEvent);
    db_.exec("ROLLBACK; BEGIN");
    event = order_created();
    event.payload = R"({"a": "\u0000"})";
    EXPECT_THAT(emit_error(event).message, HasSubstr("--payload json"));
    // The table's limit holds also where the caller raised the library's.
    db_.exec("ROLLBACK; BEGIN");
    event = order_created();
    EmitOptions options;
    options.max_payload_bytes = 4 * kMaxPayloadBytes;
    event.payload = "\"" + std::string(kMaxPayloadBytes, 'x') + "\"";
    const auto error = emit_error(event, options);
    EXPECT_EQ(error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_THAT(error.message, HasSubstr("claim check"));
}

TEST_F(EmitPostgres, AnEmptyKeyMeansTheAggregate) {
    Event event = order_created();
    event.key = "";
    db_.exec("BEGIN");
    emit(db_.handle(), event);
    db_.exec("COMMIT");
    EXPECT_EQ(look_.number("SELECT count(*) FROM outbox_events WHERE key IS NULL"), 1);
}

TEST_F(EmitPostgres, PayloadTypesTakeTheirContent) {
    struct Case {
        PayloadType type;
        std::string payload;
        const char* expected;
    };
    const Case cases[] = {{PayloadType::kJson, "{\"b\":1,  \"a\":2}", "{\"b\":1,  \"a\":2}"},
                          {PayloadType::kText, "plain \\ text", "plain \\ text"},
                          {PayloadType::kBytea, std::string("\0\\\xff", 3), "\\x005cff"}};
    for (const Case& c : cases) {
        const std::string url = shared_postgres().create_database();
        migrate(url, {.side = MigrationSide::kProducer, .payload = c.type});
        Pg db(url);
        Event event = order_created();
        event.payload = c.payload;
        EmitOptions options;
        options.binary_payload = c.type == PayloadType::kBytea;
        db.exec("BEGIN");
        emit(db.handle(), event, options);
        db.exec("COMMIT");
        EXPECT_EQ(db.value("SELECT payload FROM outbox_events"), c.expected);
        EXPECT_EQ(db.value("SELECT payload FROM outbox_status"), c.expected);
        if (!options.binary_payload) {
            db.exec("SELECT outbox_emit('t', payload) FROM outbox_events");
            EXPECT_EQ(db.number("SELECT count(*) FROM outbox_events WHERE topic = 't'"), 1);
        }
    }
}

TEST_F(EmitPostgres, WithoutTablesOrRightsItNamesTheRemedy) {
    Pg empty(shared_postgres().create_database());
    empty.exec("BEGIN");
    try {
        emit(empty.handle(), order_created());
        FAIL() << "emit did not fail";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNoSuchTable);
        EXPECT_THAT(error.what(), HasSubstr("outbox migrate"));
    }
    look_.exec("DROP ROLE IF EXISTS writer_without_rights");
    look_.exec("CREATE ROLE writer_without_rights");
    db_.exec("BEGIN; SET LOCAL ROLE writer_without_rights");
    const auto error = emit_error(order_created());
    EXPECT_EQ(error.code, ErrorCode::kNoRights);
    EXPECT_THAT(error.message, HasSubstr("outbox roles --print"));
}

// Without the lock the second writer would take the lower position and commit later.
TEST_F(EmitPostgres, TheKeyLockPutsPositionsInTheOrderOfTheTransactions) {
    EmitOptions options;
    options.lock_key = true;
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("shared"), options);
    Pg second(url_);
    std::thread writer([&] {
        second.exec("BEGIN");
        emit(second.handle(), order_created("shared"), options);
        second.exec("COMMIT");
    });
    const std::string waiting =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT "
        "granted AND pid = " +
        std::to_string(PQbackendPID(second.handle()));
    const auto waits = eventually(std::chrono::seconds(60), "the second writer waits",
                                  [&] { return look_.number(waiting) == 1; });
    // The lock comes before the position: this one must be lower than the waiting one's.
    db_.exec(
        "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) VALUES ('Order', "
        "'shared', 'first transaction')");
    Pg other(url_);
    other.exec("BEGIN");
    emit(other.handle(), order_created("another key"), options);
    other.exec("COMMIT");
    db_.exec("COMMIT");
    writer.join();
    ASSERT_TRUE(waits);
    EXPECT_EQ(look_.value("SELECT string_agg(event_type, ',' ORDER BY position) FROM outbox_events "
                          "WHERE aggregate_id = 'shared'"),
              "OrderCreated,first transaction,OrderCreated");
}

TEST_F(EmitPostgres, KeysLockedTogetherNeverDeadlock) {
    std::vector<std::thread> writers;
    std::vector<std::string> failures(2);
    for (int w = 0; w < 2; ++w) {
        writers.emplace_back([this, w, &failures] {
            Pg db(url_);
            std::vector<std::string> keys{"a", "b", "c", "", "d"};
            if (w == 1) std::reverse(keys.begin(), keys.end());
            try {
                for (int i = 0; i < 50; ++i) {
                    db.exec("BEGIN");
                    lock_keys(db.handle(), keys);
                    for (const auto& key : keys) emit(db.handle(), order_created(key));
                    db.exec("COMMIT");
                }
            } catch (const std::exception& error) {
                failures[static_cast<std::size_t>(w)] = error.what();
            }
        });
    }
    for (auto& writer : writers) writer.join();
    EXPECT_THAT(failures, testing::Each(""));
    EXPECT_EQ(events(), 500);
}

TEST_F(EmitPostgres, SqlFunctionWritesTheSameEvent) {
    db_.exec("SELECT outbox_emit('orders', '{\"a\": 1}')");
    db_.exec(
        "SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => 'o-2', event_type => "
        "'OrderPaid', payload => '{}', traceparent => '00-1', headers => '{\"h\": \"1\"}', "
        "lock_key => true, key => 'k')");
    const std::string id =
        db_.value("SELECT outbox_emit('orders', '{}', available_at => now() + interval '1 hour')");
    EXPECT_EQ(db_.value("SELECT string_agg(concat_ws('|', topic, aggregate_id, key, headers), ';' "
                        "ORDER BY position) FROM outbox_events"),
              "orders;o-2|k|{\"h\": \"1\", \"traceparent\": \"00-1\"}");
    EXPECT_EQ(db_.value("SELECT id FROM outbox_scheduled"), id);
    EXPECT_THROW(db_.exec("SELECT outbox_emit(payload => '{}')"), std::runtime_error);
    try {
        db_.exec("SELECT outbox_emit('t', to_jsonb(repeat('x', 1048576)))");
        FAIL() << "the payload was not refused";
    } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), HasSubstr("claim check"));
    }
}

TEST_F(EmitPostgres, PlainInsertsAndTriggersFallUnderTheSameLimit) {
    db_.exec(
        "INSERT INTO outbox_events (topic, payload) VALUES ('t', to_jsonb(repeat('x', "
        "1048574)))");
    EXPECT_THROW(db_.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', "
                          "to_jsonb(repeat('x', 1048575)))"),
                 std::runtime_error);
    EXPECT_EQ(look_.number("SELECT count(*) FROM outbox_events WHERE id::text LIKE "
                           "'________-____-7___-____-____________'"),
              1);
}

TEST_F(EmitPostgres, StatusShowsPendingRetryingAndDead) {
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("o-1"));
    emit(db_.handle(), order_created("o-2"));
    db_.exec("COMMIT");
    db_.exec(
        "INSERT INTO outbox_delivery (source, route, event_id, position, attempts, "
        "next_attempt_at, error_code, last_error) SELECT 'public.outbox_events', 'default', "
        "id::text, position, 2, now(), 'OB_RECORD_REFUSED', 'no' FROM outbox_events WHERE "
        "aggregate_id = 'o-2'");
    db_.exec(
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_id, payload, "
        "attempts, error_code, error) VALUES ('public.outbox_events', 'default', 0, 'x', "
        "'o-0', '{\"a\": 1}', 5, 'OB_RECORD_REFUSED', 'never')");
    EXPECT_EQ(
        look_.value("SELECT string_agg(concat_ws(' ', aggregate_id, status, attempts, error), "
                    "';' ORDER BY position) FROM outbox_status"),
        "o-0 DEAD 5 OB_RECORD_REFUSED: never;o-1 PENDING 0;"
        "o-2 RETRYING 2 OB_RECORD_REFUSED: no");
    EXPECT_EQ(look_.value("SELECT payload->>'a' FROM outbox_status WHERE status = 'DEAD'"), "1");
}

TEST_F(EmitPostgres, StatusShowsEachEventOnceAndTheDelayedOnesToo) {
    db_.exec("BEGIN");
    emit(db_.handle(), order_created("o-1"));
    db_.exec("COMMIT");
    db_.exec(
        "SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => 'later', payload => '{}', "
        "available_at => '2999-01-01 00:00:00Z')");
    // o-1 is dead in one route and unsent in another, o-0 is dead in both.
    db_.exec(
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_id, attempts, "
        "error_code, error) SELECT 'public.outbox_events', 'a', position, id::text, aggregate_id, "
        "5, 'OB_X', 'no' FROM outbox_events; "
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_id, attempts, "
        "error_code, error) VALUES ('public.outbox_events', 'a', 0, 'x', 'o-0', 5, 'OB_X', 'no'), "
        "('public.outbox_events', 'b', 0, 'x', 'o-0', 6, 'OB_Y', 'never')");
    EXPECT_EQ(
        look_.value("SELECT string_agg(concat_ws(' ', aggregate_id, status, attempts, error, "
                    "extract(year FROM available_at)), ';' ORDER BY position) FROM outbox_status"),
        "o-0 DEAD 6 OB_Y: never;o-1 PENDING 0;later SCHEDULED 0 2999");
}

TEST_F(EmitPostgres, TheOldestUnsentAreReadByIndex) {
    db_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', '{}' FROM generate_series(1, "
        "20000)");
    db_.exec("ANALYZE outbox_events");
    std::string plan;
    for (const auto& row : look_.query("EXPLAIN SELECT * FROM outbox_status WHERE status IN "
                                       "('PENDING', 'RETRYING') ORDER BY position LIMIT 50")) {
        plan += row[0].value_or("") + "\n";
    }
    EXPECT_THAT(plan, HasSubstr("Index Scan using outbox_events_pkey"));
    EXPECT_THAT(plan, testing::Not(HasSubstr("outbox_dead_letters")));
}

}  // namespace
}  // namespace outbox::test
