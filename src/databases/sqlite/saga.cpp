#include <cstdint>
#include <string>

#include <outbox/adapters/sqlite.h>
#include <outbox/adapters/sqlite_saga.h>

#include "consumer/env.h"
#include "databases/sqlite/receive/transaction.h"
#include "saga/coordinator.h"

namespace outbox {
namespace {

using consumer::callers_statement;
using sqlite::Statement;

constexpr const char* kDoing = "using outbox_saga";

constexpr const char* kInsert =
    "INSERT INTO outbox_saga "
    "  (saga_id, name, version, state, step, steps, data, topic, timer, leader, started_at, "
    "   updated_at) "
    "VALUES (?1, ?2, ?3, ?4, nullif(?5, ''), ?6, ?7, ?8, ?9, ?10, ?11, ?11) "
    "ON CONFLICT (saga_id) DO NOTHING";

constexpr const char* kLoad =
    "SELECT name, version, state, steps, data, timer, coalesce(cause, ''), coalesce(trouble, ''), "
    "  leader "
    "FROM outbox_saga WHERE saga_id = ?1";

constexpr const char* kSave =
    "UPDATE outbox_saga SET state = ?2, step = nullif(?3, ''), steps = ?4, data = ?5, topic = ?6, "
    "timer = ?7, cause = nullif(?8, ''), trouble = nullif(?9, ''), "
    "due_at = CASE WHEN ?11 THEN ?10 ELSE due_at END, "
    "updated_at = CASE WHEN ?11 THEN ?13 ELSE updated_at END, "
    "finished_at = CASE WHEN ?12 THEN coalesce(finished_at, ?13) END, "
    "requested = CASE WHEN ?14 THEN NULL ELSE requested END WHERE saga_id = ?1";

constexpr const char* kEnterStep =
    "INSERT INTO outbox_saga_steps (leader, saga_id, step, state, updated_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (leader, saga_id, step) DO NOTHING";

constexpr const char* kChangeStep =
    "UPDATE outbox_saga_steps SET state = ?5, updated_at = ?6 "
    "WHERE leader = ?1 AND saga_id = ?2 AND step = ?3 AND state = ?4";

constexpr const char* kCount =
    "SELECT name, state, count(*), CASE WHEN state IN ('completed', 'compensated') THEN 0 ELSE "
    "max(0, (?1 - min(updated_at)) / 1000) END "
    "FROM outbox_saga GROUP BY name, state ORDER BY name, state";

std::int64_t now_us() {
    return consumer::callers_clock().wall_us();
}

class SqliteStore final : public saga::Store {
  public:
    explicit SqliteStore(sqlite3* database) : database_(database) {}

    void require_transaction(const std::string& who) override {
        consumer::require_transaction(database_, who);
    }

    bool insert(const saga::Instance& saga, const saga::Saving& saving) override {
        const std::string steps = to_json(saga.steps);
        const saga::StepRecord* awaited = saga.awaited();
        return callers_statement(database_, kInsert, kDoing)
                   .lend(saga.id)
                   .lend(saga.name)
                   .bind(saga.version)
                   .lend(saga_state_name(saga.state))
                   .lend(awaited == nullptr ? std::string_view() : awaited->name)
                   .lend(steps)
                   .lend(saga.data)
                   .lend(saving.topic)
                   .bind(saga.timer)
                   .lend(saga.leader)
                   .bind(now_us())
                   .changed() == 1;
    }

    // SQLite has one writer, so nobody else changes the row before this transaction ends.
    std::optional<saga::Instance> load(std::string_view id) override {
        Statement row = callers_statement(database_, kLoad, kDoing);
        if (!row.lend(id).step()) return std::nullopt;
        saga::Instance saga;
        saga.id = id;
        saga.name = row.string(0);
        saga.version = static_cast<int>(row.integer(1));
        saga.state = saga::saga_state_of(row.string(2)).value_or(SagaState::kStuck);
        saga.steps = saga::steps_of_json(id, row.string(3));
        saga.data = row.string(4);
        saga.timer = row.integer(5);
        saga.cause = row.string(6);
        saga.trouble = row.string(7);
        saga.leader = row.string(8);
        return saga;
    }

    void save(const saga::Instance& saga, const saga::Saving& saving) override {
        const std::string steps = to_json(saga.steps);
        const saga::StepRecord* awaited = saga.awaited();
        callers_statement(database_, kSave, kDoing)
            .lend(saga.id)
            .lend(saga_state_name(saga.state))
            .lend(awaited == nullptr ? std::string_view() : awaited->name)
            .lend(steps)
            .lend(saga.data)
            .lend(saving.topic)
            .bind(saga.timer)
            .lend(saga.cause)
            .lend(saga.trouble)
            .bind_or_null(saving.due_us)
            .bind(saving.progress ? 1 : 0)
            .bind(saga::is_finished(saga.state) ? 1 : 0)
            .bind(now_us())
            .bind(saving.request ? 1 : 0)
            .step();
    }

    saga::StepEntry enter_step(const saga::StepKey& key, std::string_view state) override {
        const std::int64_t entered = callers_statement(database_, kEnterStep, kDoing)
                                         .lend(key.leader)
                                         .lend(key.saga_id)
                                         .lend(key.step)
                                         .lend(state)
                                         .bind(now_us())
                                         .changed();
        return entered == 1 ? saga::StepEntry::kNew : saga::StepEntry::kThere;
    }

    bool change_step(const saga::StepKey& key, std::string_view from,
                     std::string_view to) override {
        return callers_statement(database_, kChangeStep, kDoing)
                   .lend(key.leader)
                   .lend(key.saga_id)
                   .lend(key.step)
                   .lend(from)
                   .lend(to)
                   .bind(now_us())
                   .changed() == 1;
    }

    std::string emit(const Event& event, const EmitOptions& options) override {
        return outbox::emit(database_, event, options);
    }

  private:
    sqlite3* database_;
};

}  // namespace

std::string start_saga(sqlite3* transaction, const Sagas& sagas, std::string_view name,
                       std::string data, std::string id) {
    SqliteStore store(transaction);
    return saga::start(store, sagas, name, std::move(data), std::move(id));
}

SagaChange advance_saga(sqlite3* transaction, const Sagas& sagas, const Message& message) {
    SqliteStore store(transaction);
    return saga::advance(store, sagas, message);
}

SagaCall begin_saga_step(sqlite3* transaction, const Message& command) {
    SqliteStore store(transaction);
    return saga::begin_step(store, command);
}

std::string answer_saga_step(sqlite3* transaction, const Message& command, Event answer,
                             const EmitOptions& options) {
    SqliteStore store(transaction);
    return saga::answer_step(store, command, std::move(answer), options);
}

std::string refuse_saga_step(sqlite3* transaction, const Message& command, Event answer,
                             const EmitOptions& options) {
    SqliteStore store(transaction);
    return saga::refuse_step(store, command, std::move(answer), options);
}

std::vector<SagaCount> count_sagas(sqlite3* connection) {
    Statement rows = callers_statement(connection, kCount, kDoing);
    rows.bind(now_us());
    std::vector<SagaCount> counts;
    while (rows.step()) {
        counts.push_back({.name = rows.string(0),
                          .state = saga::saga_state_of(rows.string(1)).value_or(SagaState::kStuck),
                          .count = rows.integer(2),
                          .oldest_s = static_cast<double>(rows.integer(3)) / 1000});
    }
    return counts;
}

}  // namespace outbox
