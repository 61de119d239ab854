// What `outbox saga` and `outbox status` show and do in the database of a service that leads sagas.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_saga.h>
#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/adapters/sqlite_saga.h>

#include "tests/consumer/database.h"
#include "tests/saga/steps.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class SagaCommands : public testing::TestWithParam<Backend> {
  protected:
    SagaCommands() : database_(make_database(GetParam())) {
        const Finished made = outbox_.run({"migrate", "--db", database_->url()});
        EXPECT_EQ(made.status.code, 0) << made.err;
        db_ = database_->connect();
    }
    json result(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", database_->url(), "--json"});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out);
    }
    Finished run(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", database_->url()});
        return outbox_.run(arguments);
    }
    void start(const std::string& id) {
        const auto within = [&](auto& connection, const char* begin) {
            connection.exec(begin);
            start_saga(connection.handle(), sagas_, "order", R"({"order":"o-1"})", id);
            connection.exec("COMMIT");
        };
        if (GetParam() == Backend::kPostgres) {
            Pg connection(database_->url());
            within(connection, "BEGIN");
        } else {
            Sqlite connection(database_->url().substr(std::string("sqlite://").size()));
            within(connection, "BEGIN IMMEDIATE");
        }
    }
    // The service that leads the sagas applies what is in its mailbox.
    std::size_t serve() {
        const auto handler = [&](auto* transaction, const Message& message) {
            advance_saga(transaction, sagas_, message);
        };
        if (GetParam() == Backend::kPostgres) {
            return libpq_mailbox_consumer(database_->url(), LibpqHandler(handler)).drain();
        }
        return sqlite_mailbox_consumer(database_->url(), SqliteHandler(handler)).drain();
    }
    Process relay() {
        const auto route = [](const std::string& topic, const std::string& to) {
            return "[[route]]\nname = \"" + topic + "\"\nto = \"" + to + "\"\ntopic = [\"" + topic +
                   "\"]\n";
        };
        outbox_.write("relay.toml", route("order-saga", database_->mailbox_url()) +
                                        route("commands", database_->mailbox_url("commands")));
        return outbox_.start_relay(
            {"--from", database_->url(), "--config", outbox_.file("relay.toml"), "--admin", "off"});
    }
    std::string state(const std::string& id) {
        return db_->value("SELECT state FROM outbox_saga WHERE saga_id = '" + id + "'");
    }
    testing::AssertionResult becomes(const std::string& id, const std::string& wanted) {
        return eventually(60s, id + " is " + wanted, [&] {
            serve();
            return state(id) == wanted;
        });
    }

    OutboxBinary outbox_;
    std::unique_ptr<Database> database_;
    std::unique_ptr<Database::Connection> db_;
    Sagas sagas_{"order-saga", {SagaDefinition("order", 1, {slow(step("reserve")), step("pay")})}};

  private:
    static SagaStep slow(SagaStep step) {
        step.timeout_ms = 3'600'000;
        return step;
    }
};

INSTANTIATE_TEST_SUITE_P(Databases, SagaCommands,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(SagaCommands, ListFiltersByNameStateAndTimeWithoutProgress) {
    start("s-1");
    start("s-2");
    db_->exec("UPDATE outbox_saga SET updated_at = " +
              std::string(GetParam() == Backend::kPostgres ? "updated_at - interval '1 hour'"
                                                           : "updated_at - 3600000000") +
              " WHERE saga_id = 's-2'");
    const json list = result({"saga", "list"});
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["id"], "s-1");
    EXPECT_EQ(list[0]["state"], "running");
    EXPECT_EQ(list[0]["step"], "reserve");
    EXPECT_EQ(result({"saga", "list", "--limit", "1"}).size(), 1U);
    EXPECT_EQ(result({"saga", "list", "--name", "other"}).size(), 0U);
    EXPECT_EQ(result({"saga", "list", "--state", "stuck"}).size(), 0U);
    const json stuck = result({"saga", "list", "--stuck-for", "10m", "--name", "order"});
    ASSERT_EQ(stuck.size(), 1U);
    EXPECT_EQ(stuck[0]["id"], "s-2");
    EXPECT_GT(stuck[0]["idle_s"], 3'599);
    db_->exec("UPDATE outbox_saga SET state = 'completed', finished_at = updated_at");
    EXPECT_EQ(result({"saga", "list", "--stuck-for", "10m"}).size(), 0U);
    EXPECT_THAT(run({"saga", "list"}).out, HasSubstr("order 1"));
}

TEST_P(SagaCommands, ShowNamesEveryStepAndWhatAConsumerGaveUpOn) {
    start("s-1");
    db_->exec(
        "INSERT INTO outbox_mailbox (id, topic, headers, payload) VALUES ('m', 'order-saga', "
        "'{\"type\":\"Unheard\",\"saga_id\":\"s-1\",\"saga_step\":\"reserve\"}', '{}')");
    EXPECT_EQ(serve(), 1U);
    const json saga = result({"saga", "show", "s-1"})[0];
    EXPECT_EQ(saga["data"], json({{"order", "o-1"}}));
    EXPECT_EQ(saga["topic"], "order-saga");
    EXPECT_EQ(saga["steps"], json::parse(R"([{"step":"reserve","state":"sent","attempts":1,)"
                                         R"("late":0,"can_undo":true}])"));
    EXPECT_EQ(saga["dead_letters"], 1);
    EXPECT_THAT(saga["dead_error"].get<std::string>(),
                HasSubstr("not declared to have the answer 'Unheard'"));
    const std::string shown = run({"saga", "show", "s-1"}).out;
    EXPECT_THAT(shown, HasSubstr("dead letters"));
    EXPECT_THAT(shown, HasSubstr("CAN BE UNDONE"));
    const Finished missing = run({"saga", "show", "s-2"});
    EXPECT_EQ(missing.status.code, 1);
    EXPECT_THAT(missing.err, HasSubstr("no such saga"));
}

TEST_P(SagaCommands, AbortIsAnEventThatTheServiceAppliesAndDryRunOnlySaysSo) {
    start("s-1");
    const json would = result({"saga", "abort", "s-1", "--dry-run"});
    EXPECT_EQ(would["sagas"][0]["does"], "undo reserve");
    EXPECT_EQ(would["dry_run"], true);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_events WHERE event_type = 'SagaAbort'"), 0);
    EXPECT_EQ(result({"saga", "abort", "--state", "running"})["asked"], 1);
    EXPECT_EQ(result({"saga", "show", "s-1"})[0]["requested"], "abort");
    const char* const audited =
        "SELECT count(*) || ' ' || max(source || ' ' || action || ' ' || detail) FROM outbox_audit "
        "WHERE os_user <> ''";
    EXPECT_EQ(db_->value(audited), "1 sagas saga abort s-1");
    const Process running = relay();
    ASSERT_TRUE(becomes("s-1", "compensating"));
    const json saga = result({"saga", "show", "s-1"})[0];
    EXPECT_EQ(saga["cause"], "aborted by an operator");
    EXPECT_EQ(saga["requested"], nullptr);
    const Finished again = run({"saga", "abort", "s-1"});
    EXPECT_EQ(again.status.code, 1);
    EXPECT_THAT(again.out, HasSubstr("is turning back already"));
    EXPECT_EQ(db_->value(audited), "1 sagas saga abort s-1");
}

TEST_P(SagaCommands, ResumeSendsWhatAStuckSagaWaitsFor) {
    start("s-1");
    db_->exec("UPDATE outbox_saga SET state = 'stuck', trouble = 'no answer'");
    EXPECT_THAT(run({"saga", "list"}).out, HasSubstr("no answer"));
    EXPECT_EQ(result({"saga", "resume", "--state", "stuck", "--dry-run"})["sagas"][0]["does"],
              "send again reserve");
    EXPECT_EQ(result({"saga", "resume", "s-1"})["asked"], 1);
    EXPECT_EQ(db_->value("SELECT source || ' ' || action || ' ' || detail FROM outbox_audit"),
              "sagas saga resume s-1");
    const Process running = relay();
    ASSERT_TRUE(becomes("s-1", "running"));
    EXPECT_TRUE(eventually(60s, "the command comes twice", [&] {
        return db_->number(
                   "SELECT count(*) FROM outbox_mailbox WHERE mailbox = 'commands' "
                   "AND headers ->> 'type' = 'reserve'") == 2;
    }));
    EXPECT_EQ(result({"saga", "show", "s-1"})[0]["trouble"], nullptr);
}

TEST_P(SagaCommands, ATimerThatIsLongDueFiresAtOnce) {
    start("s-1");
    db_->exec("UPDATE outbox_scheduled SET available_at = " +
              std::string(GetParam() == Backend::kPostgres ? "now() - interval '1 day'" : "1"));
    const Process running = relay();
    ASSERT_TRUE(becomes("s-1", "compensating"));
    EXPECT_THAT(result({"saga", "show", "s-1"})[0]["cause"].get<std::string>(),
                HasSubstr("no answer within 3600000 ms"));
}

TEST_P(SagaCommands, WhatCannotBeChangedIsSaidAndWhatIsNotNamedIsRefused) {
    start("s-1");
    db_->exec("UPDATE outbox_saga SET state = 'completed', finished_at = updated_at");
    for (const char* command : {"abort", "resume"}) {
        const Finished finished = run({"saga", command, "s-1"});
        EXPECT_EQ(finished.status.code, 1);
        EXPECT_THAT(finished.out, HasSubstr("s-1: is completed"));
        EXPECT_EQ(run({"saga", command, "s-2"}).status.code, 1);
        const Finished nameless = run({"saga", command});
        EXPECT_EQ(nameless.status.code, 2);
        EXPECT_THAT(nameless.err, HasSubstr("which ones?"));
    }
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_events"), 1);
    db_->exec(
        "UPDATE outbox_saga SET state = 'running', finished_at = NULL, steps = "
        "'[{\"step\":\"ship\",\"state\":\"sent\",\"attempts\":1,\"late\":0,"
        "\"can_undo\":false}]'");
    EXPECT_THAT(run({"saga", "abort", "s-1"}).out,
                HasSubstr("cannot be aborted: step 'ship' cannot be undone"));
    EXPECT_EQ(run({"saga", "list", "--state", "lost"}).status.code, 2);
    db_->exec("DROP TABLE outbox_saga");
    const Finished without = run({"saga", "list"});
    EXPECT_NE(without.status.code, 0);
    EXPECT_THAT(without.err, HasSubstr("no table outbox_saga"));
}

TEST_P(SagaCommands, StatusCountsSagasByState) {
    EXPECT_EQ(result({"status"})["sagas"], json::array());
    EXPECT_THAT(run({"status"}).out, Not(HasSubstr("SAGA")));
    start("s-1");
    start("s-2");
    db_->exec("UPDATE outbox_saga SET state = 'stuck' WHERE saga_id = 's-2'");
    const json sagas = result({"status"})["sagas"];
    ASSERT_EQ(sagas.size(), 2U);
    EXPECT_EQ(sagas[0]["state"], "running");
    EXPECT_EQ(sagas[1]["state"], "stuck");
    EXPECT_EQ(sagas[1]["count"], 1);
    EXPECT_THAT(run({"status"}).out, HasSubstr("LONGEST IDLE"));
}

}  // namespace
}  // namespace outbox::test
