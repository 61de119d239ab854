#include "saga/operate.h"

#include <nlohmann/json.hpp>
#include <utility>

#include <outbox/error.h>

#include "saga/coordinator.h"

namespace outbox::saga {
namespace {

using consumer::number;
using consumer::Sql;

constexpr std::int64_t kMicroseconds = 1'000'000;
constexpr double kMicrosecondsPerSecond = 1'000'000;

std::string text(const std::optional<std::string>& cell) {
    return cell.value_or(std::string());
}

double seconds(std::int64_t microseconds) {
    return microseconds > 0 ? static_cast<double>(microseconds) / kMicrosecondsPerSecond : 0;
}

SagaInfo info_of(const Sql::Row& row) {
    SagaInfo saga;
    Instance& instance = saga.instance;
    instance.id = text(row[0]);
    instance.name = text(row[1]);
    instance.version = static_cast<int>(number(row[2]));
    instance.state = saga_state_of(text(row[3])).value_or(SagaState::kStuck);
    instance.steps = steps_of_json(instance.id, text(row[4]));
    instance.timer = number(row[5]);
    instance.cause = text(row[6]);
    instance.trouble = text(row[7]);
    saga.topic = text(row[8]);
    saga.requested = text(row[9]);
    saga.due_us = number(row[10]);
    saga.started_us = number(row[11]);
    saga.updated_us = number(row[12]);
    saga.finished_us = number(row[13]);
    saga.idle_s = saga.finished_us != 0 ? 0 : seconds(number(row[14]) - saga.updated_us);
    saga.dead_letters = number(row[15]);
    saga.dead_error = text(row[16]);
    instance.data = text(row[17]);
    return saga;
}

}  // namespace

std::string objection(const SagaInfo& saga, Request request) {
    const Instance& instance = saga.instance;
    if (is_finished(instance.state)) {
        return "is " + std::string(saga_state_name(instance.state));
    }
    if (request == Request::kResume) return {};
    const StepRecord* awaited = instance.awaited();
    if (awaited == nullptr || awaited->state != StepState::kSent) return "is turning back already";
    const std::string_view last = point_of_no_return(instance);
    if (last.empty()) return {};
    return "cannot be aborted: step '" + std::string(last) + "' cannot be undone";
}

std::string effect(const SagaInfo& saga, Request request) {
    const Instance& instance = saga.instance;
    if (request == Request::kResume) {
        const StepRecord* awaited = instance.awaited();
        if (awaited == nullptr) return "go on undoing";
        return (awaited->state == StepState::kUndoing ? "send again the compensation of "
                                                      : "send again ") +
               awaited->name;
    }
    std::string steps;
    for (auto record = instance.steps.rbegin(); record != instance.steps.rend(); ++record) {
        if (record->state == StepState::kRefused || record->state == StepState::kUndone) continue;
        steps += (steps.empty() ? "" : ", ") + record->name;
    }
    return "undo " + steps;
}

Result<bool> SagaOperations::has_table() {
    const auto rows = sql_->run(sql_->table_count("outbox_saga"), {});
    if (!rows.ok()) return rows.status();
    return number((*rows)[0][0]) > 0;
}

consumer::Where SagaOperations::where_of(const SagaFilter& filter) const {
    consumer::Where where;
    where.in("s.saga_id", filter.ids);
    where.equals("s.name", filter.name);
    where.equals("s.state", filter.state);
    if (filter.stuck_for_s > 0) {
        where.also("s.finished_at IS NULL AND " + sql_->microseconds("s.updated_at") +
                   " <= " + sql_->microseconds(sql_->now()) + " - " +
                   std::to_string(filter.stuck_for_s * kMicroseconds));
    }
    return where;
}

Result<std::vector<SagaInfo>> SagaOperations::sagas(const SagaFilter& filter, std::size_t limit,
                                                    bool with_data) {
    const consumer::Where where = where_of(filter);
    const std::string saga_id = sql_->header("d.headers", std::string(kIdHeader));
    const auto rows = sql_->run(
        "SELECT s.saga_id, s.name, s.version, s.state, s.steps, s.timer, s.cause, s.trouble, "
        "s.topic, s.requested, " +
            sql_->microseconds("s.due_at") + ", " + sql_->microseconds("s.started_at") + ", " +
            sql_->microseconds("s.updated_at") + ", " + sql_->microseconds("s.finished_at") + ", " +
            sql_->microseconds(sql_->now()) +
            ", (SELECT count(*) FROM outbox_inbox_dead_letters d WHERE " + saga_id +
            " = s.saga_id), "
            "(SELECT d.error_code || ': ' || d.error FROM outbox_inbox_dead_letters d WHERE " +
            saga_id + " = s.saga_id ORDER BY d.died_at DESC LIMIT 1), " +
            (with_data ? "s.data" : "NULL") + " FROM outbox_saga s" + where.sql() +
            " ORDER BY s.started_at, s.saga_id LIMIT " + std::to_string(limit),
        where.parameters());
    if (!rows.ok()) return rows.status();
    try {
        std::vector<SagaInfo> sagas;
        for (const Sql::Row& row : *rows) sagas.push_back(info_of(row));
        return sagas;
    } catch (const Error& error) {
        return error.info();
    }
}

Result<std::int64_t> SagaOperations::count(const SagaFilter& filter) {
    const consumer::Where where = where_of(filter);
    const auto rows =
        sql_->run("SELECT count(*) FROM outbox_saga s" + where.sql(), where.parameters());
    if (!rows.ok()) return rows.status();
    return number((*rows)[0][0]);
}

Result<std::vector<SagaCount>> SagaOperations::counts() {
    const auto rows = sql_->run(
        "SELECT name, state, count(*), CASE WHEN state IN ('completed', 'compensated') THEN 0 "
        "ELSE " +
            sql_->microseconds(sql_->now()) + " - " + sql_->microseconds("min(updated_at)") +
            " END FROM outbox_saga GROUP BY name, state ORDER BY name, state",
        {});
    if (!rows.ok()) return rows.status();
    std::vector<SagaCount> counts;
    for (const Sql::Row& row : *rows) {
        counts.push_back({.name = text(row[0]),
                          .state = saga_state_of(text(row[1])).value_or(SagaState::kStuck),
                          .count = number(row[2]),
                          .oldest_s = seconds(number(row[3]))});
    }
    return counts;
}

Status SagaOperations::ask(const SagaInfo& saga, Request request) {
    const bool abort = request == Request::kAbort;
    const std::string headers = nlohmann::json{{kIdHeader, saga.instance.id}}.dump();
    Status status = sql_->run("BEGIN", {}).status();
    if (!status.ok()) return status;
    status = sql_->run(
                     "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, "
                     "headers, topic) VALUES ('Saga', $1, $2, $3, $4)",
                     {saga.instance.id, std::string(abort ? kAbortType : kResumeType), headers,
                      saga.topic})
                 .status();
    if (status.ok()) {
        status = sql_->run("UPDATE outbox_saga SET requested = $1 WHERE saga_id = $2",
                           {abort ? "abort" : "resume", saga.instance.id})
                     .status();
    }
    if (status.ok()) {
        status = consumer::write_audit(*sql_, {.os_user = os_user_,
                                               .source = "sagas",
                                               .action = abort ? "saga abort" : "saga resume",
                                               .detail = saga.instance.id});
    }
    const Status ended = sql_->run(status.ok() ? "COMMIT" : "ROLLBACK", {}).status();
    return status.ok() ? ended : status;
}

}  // namespace outbox::saga
