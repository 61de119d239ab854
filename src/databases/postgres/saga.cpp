#include <libpq-fe.h>
#include <string>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_saga.h>

#include "databases/postgres/receive/transaction.h"
#include "saga/coordinator.h"

namespace outbox {
namespace {

using consumer::Params;
using consumer::Rows;

constexpr const char* kDoing = "using outbox_saga";

constexpr const char* kInsert =
    "INSERT INTO outbox_saga "
    "  (saga_id, name, version, state, step, steps, data, topic, timer, leader) "
    "VALUES ($1, $2, $3::integer, $4, $5, $6::json, $7, $8, $9::bigint, $10) "
    "ON CONFLICT (saga_id) DO NOTHING";

constexpr const char* kLoad =
    "SELECT name, version, state, steps::text, data, timer, cause, trouble, leader "
    "FROM outbox_saga "
    "WHERE saga_id = $1 FOR UPDATE";

constexpr const char* kSave =
    "UPDATE outbox_saga SET state = $2, step = $3, steps = $4::json, data = $5, topic = $6, "
    "timer = $7::bigint, cause = $8, trouble = $9, "
    "due_at = CASE WHEN $11::boolean THEN timestamptz 'epoch' + $10::bigint * interval '1 "
    "microsecond' ELSE due_at END, "
    "updated_at = CASE WHEN $11::boolean THEN clock_timestamp() ELSE updated_at END, "
    "finished_at = CASE WHEN $12::boolean THEN coalesce(finished_at, clock_timestamp()) END, "
    "requested = CASE WHEN $13::boolean THEN NULL ELSE requested END WHERE saga_id = $1";

constexpr const char* kEnterStep =
    "INSERT INTO outbox_saga_steps (leader, saga_id, step, state) VALUES ($1, $2, $3, $4) "
    "ON CONFLICT (leader, saga_id, step) DO NOTHING";

constexpr const char* kChangeStep =
    "UPDATE outbox_saga_steps SET state = $5, updated_at = clock_timestamp() "
    "WHERE leader = $1 AND saga_id = $2 AND step = $3 AND state = $4";

constexpr const char* kCount =
    "SELECT name, state, count(*), CASE WHEN state IN ('completed', 'compensated') THEN 0 ELSE "
    "greatest(0, extract(epoch FROM clock_timestamp() - min(updated_at)) * 1000)::bigint END "
    "FROM outbox_saga GROUP BY name, state ORDER BY name, state";

Rows run(PGconn* connection, const Params& params, const char* sql) {
    Rows result = postgres::execute(connection, sql, params);
    if (!result.succeeded()) {
        throw Error(consumer::receive_error(connection, result.get(), kDoing));
    }
    return result;
}

bool changed_one(const Rows& result) {
    return result.affected() == 1;
}

Params& add_text_or_null(Params& params, std::string_view text) {
    return text.empty() ? params.null() : params.text(text);
}

Params& add_boolean(Params& params, bool value) {
    return params.untyped(value ? "true" : "false");
}

class LibpqStore final : public saga::Store {
  public:
    explicit LibpqStore(PGconn* connection) : connection_(connection) {}

    void require_transaction(const std::string& who) override {
        consumer::require_transaction(connection_, who);
    }

    bool insert(const saga::Instance& saga, const saga::Saving& saving) override {
        const std::string steps = to_json(saga.steps);
        const saga::StepRecord* awaited = saga.awaited();
        Params params;
        params.text(saga.id).text(saga.name).number(saga.version);
        params.text(saga_state_name(saga.state));
        add_text_or_null(params, awaited == nullptr ? std::string_view() : awaited->name);
        params.untyped(steps).text(saga.data).text(saving.topic).number(saga.timer);
        params.text(saga.leader);
        return changed_one(run(connection_, params, kInsert));
    }

    std::optional<saga::Instance> load(std::string_view id) override {
        Params params;
        params.text(id);
        const Rows row = run(connection_, params, kLoad);
        if (row.empty()) return std::nullopt;
        saga::Instance saga;
        saga.id = id;
        saga.name = row.string(0, 0);
        saga.version = static_cast<int>(row.integer(0, 1));
        saga.state = saga::saga_state_of(row.text(0, 2)).value_or(SagaState::kStuck);
        saga.steps = saga::steps_of_json(id, row.text(0, 3));
        saga.data = row.string(0, 4);
        saga.timer = row.integer(0, 5);
        saga.cause = row.string(0, 6);
        saga.trouble = row.string(0, 7);
        saga.leader = row.string(0, 8);
        return saga;
    }

    void save(const saga::Instance& saga, const saga::Saving& saving) override {
        const std::string steps = to_json(saga.steps);
        const saga::StepRecord* awaited = saga.awaited();
        Params params;
        params.text(saga.id).text(saga_state_name(saga.state));
        add_text_or_null(params, awaited == nullptr ? std::string_view() : awaited->name);
        params.untyped(steps).text(saga.data).text(saving.topic).number(saga.timer);
        add_text_or_null(params, saga.cause);
        add_text_or_null(params, saga.trouble);
        params.number_or_null(saving.due_us);
        add_boolean(params, saving.progress);
        add_boolean(params, saga::is_finished(saga.state));
        add_boolean(params, saving.request);
        run(connection_, params, kSave);
    }

    saga::StepEntry enter_step(const saga::StepKey& key, std::string_view state) override {
        Params params;
        params.text(key.leader).text(key.saga_id).text(key.step).text(state);
        if (changed_one(run(connection_, params, kEnterStep))) return saga::StepEntry::kNew;
        // Of a repeat nothing else may be written, and its command is forgotten.
        consumer::wait_as_a_write(connection_, kDoing);
        return saga::StepEntry::kThere;
    }

    bool change_step(const saga::StepKey& key, std::string_view from,
                     std::string_view to) override {
        Params params;
        params.text(key.leader).text(key.saga_id).text(key.step).text(from).text(to);
        return changed_one(run(connection_, params, kChangeStep));
    }

    std::string emit(const Event& event, const EmitOptions& options) override {
        return outbox::emit(connection_, event, options);
    }

  private:
    PGconn* connection_;
};

}  // namespace

std::string start_saga(PGconn* transaction, const Sagas& sagas, std::string_view name,
                       std::string data, std::string id) {
    LibpqStore store(transaction);
    return saga::start(store, sagas, name, std::move(data), std::move(id));
}

SagaChange advance_saga(PGconn* transaction, const Sagas& sagas, const Message& message) {
    LibpqStore store(transaction);
    return saga::advance(store, sagas, message);
}

SagaCall begin_saga_step(PGconn* transaction, const Message& command) {
    LibpqStore store(transaction);
    return saga::begin_step(store, command);
}

std::string answer_saga_step(PGconn* transaction, const Message& command, Event answer,
                             const EmitOptions& options) {
    LibpqStore store(transaction);
    return saga::answer_step(store, command, std::move(answer), options);
}

std::string refuse_saga_step(PGconn* transaction, const Message& command, Event answer,
                             const EmitOptions& options) {
    LibpqStore store(transaction);
    return saga::refuse_step(store, command, std::move(answer), options);
}

std::vector<SagaCount> count_sagas(PGconn* connection) {
    const Rows rows = run(connection, {}, kCount);
    std::vector<SagaCount> counts;
    for (int row = 0; row < rows.size(); ++row) {
        counts.push_back(
            {.name = rows.string(row, 0),
             .state = saga::saga_state_of(rows.text(row, 1)).value_or(SagaState::kStuck),
             .count = rows.integer(row, 2),
             .oldest_s = static_cast<double>(rows.integer(row, 3)) / 1000});
    }
    return counts;
}

}  // namespace outbox
