// The same behaviour on both databases: each transition is one transaction of the caller's
// connection.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_saga.h>
#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/adapters/sqlite_saga.h>
#include <outbox/producer/migrate.h>

#include "consumer/env.h"
#include "tests/consumer/operations.h"
#include "tests/saga/steps.h"
#include "tests/support/files.h"
#include "tests/support/hand_clock.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class PostgresSide {
  public:
    using Connection = Pg;
    std::string url() const { return url_; }
    Connection connect() const { return Connection(url_); }
    static constexpr const char* kBegin = "BEGIN";
    static constexpr const char* kAgo = "clock_timestamp() - interval '40 days'";
    static constexpr const char* kDueUs =
        "SELECT (extract(epoch FROM due_at) * 1000000)::bigint FROM outbox_saga";
    template <typename Handler>
    MailboxConsumer mailbox(Handler handler, MailboxOptions options) const {
        options.connect_timeout_s = 60;
        return libpq_mailbox_consumer(url_, LibpqHandler(handler), std::move(options));
    }

  private:
    std::string url_ = shared_postgres().create_database();
};

class SqliteSide {
  public:
    using Connection = Sqlite;
    std::string url() const { return "sqlite://" + path(); }
    Connection connect() const { return Connection(path()); }
    static constexpr const char* kBegin = "BEGIN IMMEDIATE";
    static constexpr const char* kAgo = "(unixepoch() - 40 * 86400) * 1000000";
    static constexpr const char* kDueUs = "SELECT due_at FROM outbox_saga";
    template <typename Handler>
    MailboxConsumer mailbox(Handler handler, MailboxOptions options) const {
        return sqlite_mailbox_consumer(url(), SqliteHandler(handler), std::move(options));
    }

  private:
    std::string path() const { return folder_ / "saga.db"; }
    TemporaryFolder folder_{"saga"};
};

std::vector<SagaDefinition> definitions(int version = 1) {
    SagaStep pay = step("pay");
    pay.done[0].keep = [](std::string_view data, const Message& answer) {
        json kept = json::parse(data);
        kept["payment"] = json::parse(answer.payload).at("payment");
        return kept.dump();
    };
    return {SagaDefinition("order", version, {step("reserve"), pay})};
}

template <typename Side>
class SagaConformance : public testing::Test {
  protected:
    SagaConformance() : migrated_(migrate(side_.url())), db_(side_.connect()) {}

    void begin() { db_.exec(Side::kBegin); }
    std::string start(const std::string& data = R"({"order":1})", const std::string& id = "s-1") {
        begin();
        std::string started = start_saga(db_.handle(), sagas_, "order", data, id);
        db_.exec("COMMIT");
        return started;
    }
    static std::string headers(const std::string& type,
                               std::initializer_list<std::pair<std::string, std::string>> more) {
        json object{{"type", type}};
        for (const auto& [name, value] : more) object[name] = value;
        return object.dump();
    }
    // One message in a transaction that the inbox guards, as a runner does it.
    SagaChange deliver(const std::string& id, const std::string& headers_json,
                       const std::string& payload = "{}", const char* ends = "COMMIT") {
        begin();
        try {
            EXPECT_TRUE(accept(db_.handle(), "orders", id));
            SagaChange change =
                advance_saga(db_.handle(), sagas_, message(id, headers_json, payload));
            db_.exec(ends);
            return change;
        } catch (const Error&) {
            db_.exec("ROLLBACK");
            throw;
        }
    }
    SagaChange answer(const std::string& id, const std::string& step, const std::string& type,
                      const std::string& payload = "{}", const char* ends = "COMMIT") {
        return deliver(id, headers(type, {{"saga_id", "s-1"}, {"saga_step", step}}), payload, ends);
    }
    json row(const std::string& columns = "state, step, steps, data, timer, cause, finished_at") {
        json out = json::array();
        const auto rows = db_.query("SELECT " + columns + " FROM outbox_saga");
        for (const auto& cell : rows.at(0)) {
            out.push_back(cell ? json(*cell) : json());
        }
        return out;
    }
    std::string commands() {
        std::string list;
        for (const auto& found :
             db_.query("SELECT event_type FROM outbox_events WHERE topic = 'commands' ORDER BY "
                       "position")) {
            list += (list.empty() ? "" : " ") + found[0].value_or("");
        }
        return list;
    }
    template <typename Call>
    ErrorInfo error_of(Call call) {
        try {
            call();
        } catch (const Error& error) {
            return error.info();
        }
        ADD_FAILURE() << "no error";
        return {};
    }

    Side side_;
    std::vector<Migration> migrated_;
    typename Side::Connection db_;
    Sagas sagas_{"order-saga", definitions()};
};

using Sides = testing::Types<PostgresSide, SqliteSide>;
class SideNames {
  public:
    template <typename Side>
    static std::string GetName(int) {
        return std::is_same_v<Side, PostgresSide> ? "PostgreSQL" : "SQLite";
    }
};
TYPED_TEST_SUITE(SagaConformance, Sides, SideNames);

TYPED_TEST(SagaConformance, StartsInTheTransactionOfTheBusinessWriteOrNotAtAll) {
    this->begin();
    start_saga(this->db_.handle(), this->sagas_, "order", "{}");
    this->db_.exec("ROLLBACK");
    for (const char* table : {"outbox_saga", "outbox_events", "outbox_scheduled"}) {
        EXPECT_EQ(this->db_.number("SELECT count(*) FROM " + std::string(table)), 0) << table;
    }
    EXPECT_EQ(this->start(), "s-1");
    EXPECT_EQ(this->row("saga_id, name, version, state, step, data"),
              json({"s-1", "order", "1", "running", "reserve", R"({"order":1})"}));
    const auto command = this->db_.query(
        "SELECT event_type, key, headers ->> 'saga_id', headers ->> 'saga_step', "
        "headers ->> 'saga_call', headers ->> 'saga_reply_to' FROM outbox_events");
    ASSERT_EQ(command.size(), 1U);
    EXPECT_EQ(command[0], (std::vector<std::optional<std::string>>{"reserve", "s-1", "s-1",
                                                                   "reserve", "do", "order-saga"}));
    const auto timer = this->db_.query(
        "SELECT event_type, topic, aggregate_id, headers ->> 'saga_timer' FROM outbox_scheduled");
    ASSERT_EQ(timer.size(), 1U);
    EXPECT_EQ(timer[0],
              (std::vector<std::optional<std::string>>{"SagaTimer", "order-saga", "s-1", "1"}));
    EXPECT_EQ(this->db_.number("SELECT count(*) FROM outbox_saga s JOIN outbox_scheduled t "
                               "ON t.available_at = s.due_at"),
              1);
}

TYPED_TEST(SagaConformance, AStepTimesOutByTheCallersClock) {
    HandClock clock;
    clock.advance_ms(std::int64_t{1'000} * 86'400'000);
    const consumer::CallersClock scope(clock);
    this->start();
    EXPECT_EQ(this->db_.number(TypeParam::kDueUs),
              clock.wall_us() + step("reserve").timeout_ms * 1000);
}

TYPED_TEST(SagaConformance, RefusesASecondStartUnderAnIdAndAnUnknownName) {
    this->start();
    const ErrorInfo again = this->error_of([&] { this->start(); });
    this->db_.exec("ROLLBACK");
    EXPECT_EQ(again.code, ErrorCode::kConflict);
    EXPECT_EQ(this->commands(), "reserve");
    this->begin();
    EXPECT_EQ(this->error_of([&] { start_saga(this->db_.handle(), this->sagas_, "x", "{}"); }).code,
              ErrorCode::kConfigInvalid);
    EXPECT_EQ(this->error_of([&] {
                      start_saga(this->db_.handle(), this->sagas_, "order",
                                 std::string(kMaxSagaDataBytes + 1, 'x'));
                  })
                  .code,
              ErrorCode::kPayloadTooLarge);
    this->db_.exec("ROLLBACK");
    EXPECT_EQ(
        this->error_of([&] { start_saga(this->db_.handle(), this->sagas_, "order", "{}"); }).code,
        ErrorCode::kNoTransaction);
}

TYPED_TEST(SagaConformance, GoesToItsEndAndKeepsWhatTheAnswersSaid) {
    this->start();
    SagaChange change = this->answer("m-1", "reserve", "reserveDone");
    EXPECT_EQ(change.step, "pay");
    EXPECT_FALSE(change.finished);
    change = this->answer("m-2", "pay", "payDone", R"({"payment":"p-7"})");
    EXPECT_TRUE(change.finished);
    EXPECT_EQ(change.state, SagaState::kCompleted);
    EXPECT_EQ(json::parse(change.data), json({{"order", 1}, {"payment", "p-7"}}));
    EXPECT_EQ(this->commands(), "reserve pay");
    EXPECT_EQ(this->row("state, step, due_at, finished_at IS NULL")[0], "completed");
    EXPECT_EQ(this->row("step, due_at"), json({nullptr, nullptr}));
    change = this->answer("m-3", "pay", "payDone", R"({"payment":"p-8"})");
    EXPECT_EQ(change.what, SagaChange::What::kRepeat);
    EXPECT_FALSE(change.finished);
    EXPECT_THAT(change.data, HasSubstr("p-7"));
}

TYPED_TEST(SagaConformance, ARefusalUndoesWhatWasDoneAndALateAnswerDoesSoAgain) {
    this->start();
    this->answer("m-1", "reserve", "reserveDone");
    SagaChange change = this->answer("m-2", "pay", "payRefused");
    EXPECT_EQ(change.state, SagaState::kCompensating);
    EXPECT_EQ(change.cause, "step 'pay' was refused: payRefused");
    change = this->answer("m-3", "reserve", "reserveUndone");
    EXPECT_TRUE(change.finished);
    EXPECT_EQ(this->commands(), "reserve pay undo-reserve");
    change = this->answer("m-4", "pay", "payDone", R"({"payment":"p-7"})");
    EXPECT_EQ(change.what, SagaChange::What::kLate);
    EXPECT_EQ(this->row("state, finished_at"), json({"compensating", nullptr}));
    change = this->answer("m-5", "pay", "payUndone");
    EXPECT_TRUE(change.finished);
    EXPECT_EQ(this->commands(), "reserve pay undo-reserve undo-pay");
}

TYPED_TEST(SagaConformance, ATransactionThatDiesLeavesNothingAndItsMessageComesAgain) {
    this->start();
    const json before = this->row();
    for (int deaths = 0; deaths < 3; ++deaths) {
        this->answer("m-1", "reserve", "reserveDone", "{}", "ROLLBACK");
        EXPECT_EQ(this->row(), before);
        EXPECT_EQ(this->commands(), "reserve");
        EXPECT_EQ(this->db_.number("SELECT count(*) FROM outbox_inbox"), 0);
    }
    this->answer("m-1", "reserve", "reserveDone");
    EXPECT_EQ(this->commands(), "reserve pay");
}

TYPED_TEST(SagaConformance, TimersSendAgainTurnBackAndGoStale) {
    this->start();
    const auto timer = [&](const std::string& id, const std::string& number) {
        return this->deliver(
            id, this->headers("SagaTimer", {{"saga_id", "s-1"}, {"saga_timer", number}}));
    };
    EXPECT_EQ(timer("m-1", "7").what, SagaChange::What::kStale);
    SagaChange change = timer("m-2", "1");
    EXPECT_EQ(change.state, SagaState::kCompensating);
    EXPECT_THAT(change.cause, HasSubstr("no answer within 1000 ms"));
    EXPECT_EQ(timer("m-3", "1").what, SagaChange::What::kStale);
    EXPECT_EQ(timer("m-4", "2").state, SagaState::kStuck);
    EXPECT_THAT(this->row("trouble")[0].template get<std::string>(), HasSubstr("no answer"));
    change = this->deliver("m-5", this->headers("SagaResume", {{"saga_id", "s-1"}}));
    EXPECT_EQ(change.state, SagaState::kCompensating);
    EXPECT_EQ(this->commands(), "reserve undo-reserve undo-reserve");
    EXPECT_EQ(this->error_of([&] { timer("m-6", "soon"); }).code, ErrorCode::kInvalidEvent);
}

TYPED_TEST(SagaConformance, RefusesMessagesThatAreNoSagasOrNotOurs) {
    this->start();
    const auto error = [&](const std::string& headers_json) {
        return this->error_of([&] { this->deliver("m-1", headers_json); });
    };
    const json before = this->row();
    const ErrorInfo plain = error(R"({"type":"OrderCreated"})");
    EXPECT_EQ(plain.advice, Advice::kDeadLetter);
    EXPECT_THAT(plain.message, HasSubstr("no header saga_id"));
    EXPECT_THAT(error(this->headers("reserveDone", {{"saga_id", "s-1"}})).message,
                HasSubstr("no header saga_step"));
    EXPECT_THAT(
        error(this->headers("reserveDone", {{"saga_id", "s-2"}, {"saga_step", "reserve"}})).message,
        HasSubstr("not in outbox_saga"));
    EXPECT_THAT(error(this->headers("payDone", {{"saga_id", "s-1"}, {"saga_step", "pay"}})).message,
                HasSubstr("which it has not sent"));
    EXPECT_EQ(this->row(), before);
}

TYPED_TEST(SagaConformance, ASagaOfAnUnknownVersionIsLeftAloneUntilAProgramKnowsIt) {
    this->start();
    const json before = this->row();
    this->db_.exec(
        "INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('m-1', "
        "'order-saga', 's-1', '{\"type\":\"reserveDone\",\"saga_id\":\"s-1\","
        "\"saga_step\":\"reserve\"}', '{}')");
    const auto consumer = [&](const Sagas& sagas) {
        MailboxOptions options;
        options.consumer = "orders";
        return this->side_.mailbox(
            [&sagas](auto* transaction, const Message& message) {
                advance_saga(transaction, sagas, message);
            },
            options);
    };
    const Sagas newer("order-saga", definitions(2));
    EXPECT_EQ(consumer(newer).drain(), 1U);
    EXPECT_EQ(this->row(), before);
    EXPECT_EQ(this->db_.value("SELECT error_code FROM outbox_inbox_dead_letters"),
              "OB_UNSUPPORTED");
    EXPECT_THAT(this->db_.value("SELECT error FROM outbox_inbox_dead_letters"),
                HasSubstr("'order' version 1, which this program does not know (it knows: 2)"));
    std::vector<SagaDefinition> both = definitions(2);
    both.push_back(definitions(1).front());
    const Sagas knowing("order-saga", both);
    const auto operations = operations_of(this->side_.url());
    ASSERT_EQ(*operations->dead_letters("orders")->retry_dead({}), 1);
    EXPECT_EQ(consumer(knowing).drain(), 1U);
    EXPECT_EQ(this->commands(), "reserve pay");
    EXPECT_EQ(this->db_.number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
}

TYPED_TEST(SagaConformance, AParticipantDoesAStepOnceAndNeverAfterItsCompensation) {
    const auto call = [&](const std::string& step, const char* what) {
        const std::string headers = this->headers("c", {{"saga_id", "s-1"},
                                                        {"saga_step", step},
                                                        {"saga_call", what},
                                                        {"saga_reply_to", "order-saga"}});
        const Message command = message("c", headers);
        this->begin();
        const SagaCall is = begin_saga_step(this->db_.handle(), command);
        Event answer;
        answer.event_type = step + "-answer";
        answer.payload = "{}";
        if (step == "broke" && is == SagaCall::kDo) {
            refuse_saga_step(this->db_.handle(), command, answer);
        } else if (is != SagaCall::kRepeat) {
            answer_saga_step(this->db_.handle(), command, answer);
        }
        this->db_.exec("COMMIT");
        return is;
    };
    EXPECT_EQ(call("pay", "do"), SagaCall::kDo);
    EXPECT_EQ(call("pay", "do"), SagaCall::kRepeat);
    EXPECT_EQ(call("pay", "undo"), SagaCall::kUndo);
    EXPECT_EQ(call("pay", "undo"), SagaCall::kNothingToUndo);
    EXPECT_EQ(call("pay", "do"), SagaCall::kRepeat);
    EXPECT_EQ(call("late", "undo"), SagaCall::kNothingToUndo);
    EXPECT_EQ(call("late", "do"), SagaCall::kRepeat);
    EXPECT_EQ(call("broke", "do"), SagaCall::kDo);
    EXPECT_EQ(call("broke", "undo"), SagaCall::kNothingToUndo);
    EXPECT_EQ(this->error_of([&] { call("pay", "redo"); }).code, ErrorCode::kInvalidEvent);
    this->db_.exec("ROLLBACK");
    const auto answers = this->db_.query(
        "SELECT topic, key, headers ->> 'saga_step' FROM outbox_events ORDER BY position");
    ASSERT_EQ(answers.size(), 6U);
    EXPECT_EQ(answers[0], (std::vector<std::optional<std::string>>{"order-saga", "s-1", "pay"}));
}

TYPED_TEST(SagaConformance, TwoLeadersWithOneIdDoNotUndoEachOthersSteps) {
    const auto call = [&](const char* what, std::initializer_list<const char*> leader) {
        json headers{{"saga_id", "s-1"}, {"saga_step", "pay"}, {"saga_call", what}};
        const std::vector<std::string> names(leader.begin(), leader.end());
        headers["saga_reply_to"] = names.front();
        if (names.size() > 1) headers["saga_leader"] = names.back();
        const std::string text = headers.dump();
        this->begin();
        const SagaCall is = begin_saga_step(this->db_.handle(), message("c", text));
        this->db_.exec("COMMIT");
        return is;
    };
    EXPECT_EQ(call("do", {"orders", "orders"}), SagaCall::kDo);
    EXPECT_EQ(call("do", {"returns", "returns"}), SagaCall::kDo);
    EXPECT_EQ(call("undo", {"returns", "returns"}), SagaCall::kUndo);
    EXPECT_EQ(call("do", {"orders", "orders"}), SagaCall::kRepeat);
    // It has moved its answers to another topic and is still the same.
    EXPECT_EQ(call("undo", {"orders-2", "orders"}), SagaCall::kUndo);
    // One of an earlier version says only where to answer, also once it is of this version.
    EXPECT_EQ(call("do", {"old"}), SagaCall::kDo);
    EXPECT_EQ(call("undo", {"old", "old"}), SagaCall::kUndo);
}

TYPED_TEST(SagaConformance, ACommandNamesItsLeaderAsItWasAtTheStart) {
    this->start();
    const Sagas moved("answers-elsewhere", definitions());
    const std::string headers =
        this->headers("reserveDone", {{"saga_id", "s-1"}, {"saga_step", "reserve"}});
    this->begin();
    advance_saga(this->db_.handle(), moved, message("m", headers));
    this->db_.exec("COMMIT");
    EXPECT_EQ(this->db_.value("SELECT headers ->> 'saga_leader' || ' ' || (headers ->> "
                              "'saga_reply_to') FROM outbox_events WHERE event_type = 'pay'"),
              "order-saga answers-elsewhere");
}

TYPED_TEST(SagaConformance, TransactionsOfOneSagaWaitForEachOther) {
    this->start();
    this->answer("m-1", "reserve", "reserveDone");
    std::vector<std::thread> members;
    for (int member = 0; member < 2; ++member) {
        members.emplace_back([&] {
            auto own = this->side_.connect();
            for (int i = 0; i < 20; ++i) {
                const std::string headers =
                    this->headers("reserveDone", {{"saga_id", "s-1"}, {"saga_step", "reserve"}});
                own.exec(TypeParam::kBegin);
                advance_saga(own.handle(), this->sagas_, message("m", headers));
                own.exec("COMMIT");
            }
        });
    }
    for (std::thread& member : members) member.join();
    EXPECT_EQ(json::parse(this->row("steps")[0].template get<std::string>())[0]["late"], 40);
}

TYPED_TEST(SagaConformance, CountsByStateAndPrunesOnlyWhatFinishedLongAgo) {
    for (const char* id : {"s-1", "s-2", "s-3"}) this->start("{}", id);
    this->db_.exec(
        "UPDATE outbox_saga SET state = 'completed', finished_at = updated_at "
        "WHERE saga_id <> 's-1'");
    const std::string ago = TypeParam::kAgo;
    this->db_.exec("UPDATE outbox_saga SET finished_at = " + ago + " WHERE saga_id = 's-2'");
    this->db_.exec("UPDATE outbox_saga SET updated_at = " + ago + " WHERE saga_id = 's-1'");
    this->db_.exec(
        "INSERT INTO outbox_saga_steps (leader, saga_id, step, state, updated_at) VALUES "
        "('l', 'x', 'a', 'done', " +
        ago + ")");
    this->db_.exec(
        "INSERT INTO outbox_saga_steps (leader, saga_id, step, state) VALUES ('l', 'y', 'a', "
        "'done')");
    const std::vector<SagaCount> counts = count_sagas(this->db_.handle());
    ASSERT_EQ(counts.size(), 2U);
    EXPECT_EQ(counts[0].state, SagaState::kCompleted);
    EXPECT_EQ(counts[0].count, 2);
    EXPECT_EQ(counts[1].state, SagaState::kRunning);
    EXPECT_GT(counts[1].oldest_s, 86'400);
    const auto operations = operations_of(this->side_.url());
    EXPECT_EQ(operations->prune(30 * 86'400)->sagas, 2);
    EXPECT_EQ(operations->prune(30 * 86'400)->sagas, 0);
    EXPECT_EQ(this->db_.number("SELECT count(*) FROM outbox_saga"), 2);
    EXPECT_EQ(this->db_.value("SELECT saga_id FROM outbox_saga_steps"), "y");
}

}  // namespace
}  // namespace outbox::test
