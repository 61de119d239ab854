#include "saga/coordinator.h"

#include <charconv>
#include <chrono>
#include <utility>

#include <outbox/error.h>

#include "consumer/env.h"
#include "saga/machine.h"

namespace outbox::saga {
namespace {

using std::chrono::system_clock;

constexpr std::string_view kDone = "done";
constexpr std::string_view kRefused = "refused";
constexpr std::string_view kUndone = "undone";

[[noreturn]] void refuse(ErrorCode code, const std::string& message) {
    throw Error(code, Advice::kDeadLetter, message);
}

/// The headers of one message that the saga needs.
class SagaHeaders {
  public:
    explicit SagaHeaders(const Message& message)
        : message_id_(message.id), headers_(message.headers()) {}

    [[nodiscard]] std::string_view find(std::string_view name) const {
        for (const auto& [known, value] : headers_) {
            if (known == name) return value;
        }
        return {};
    }
    /// Throws when it is missing or empty.
    [[nodiscard]] std::string_view need(std::string_view name) const {
        const std::string_view value = find(name);
        if (value.empty()) {
            refuse(ErrorCode::kInvalidEvent,
                   "message " + std::string(message_id_) + " has no header " + std::string(name) +
                       ": it does not belong to a saga. A participant copies saga_id and "
                       "saga_step from the command to its answer (answer_saga_step)");
        }
        return value;
    }

  private:
    std::string_view message_id_;
    Headers headers_;
};

std::int64_t number_of(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
        refuse(ErrorCode::kInvalidEvent,
               "the header saga_timer is not a number: '" + std::string(text) + "'");
    }
    return number;
}

Input input_of(const SagaHeaders& headers) {
    const std::string_view type = headers.need("type");
    if (type == kTimerType) return Timer{number_of(headers.need(kTimerHeader))};
    if (type == kAbortType) return Request::kAbort;
    if (type == kResumeType) return Request::kResume;
    return Answer{headers.need(kStepHeader), type};
}

void check_data(const Instance& instance) {
    if (instance.data.size() <= kMaxSagaDataBytes) return;
    refuse(ErrorCode::kPayloadTooLarge,
           "the data of saga " + instance.id + " has " + std::to_string(instance.data.size()) +
               " bytes, the limit is " + std::to_string(kMaxSagaDataBytes) +
               ". Keep it in a table of the application, and its key in the saga");
}

void emit_command(Store& store, const Sagas& sagas, const Instance& instance, const Send& send) {
    const SagaView view{instance.id, instance.data, send.step->name};
    Event event = send.undo ? send.step->compensation(view) : send.step->command(view);
    if (event.key.empty()) event.key = instance.id;
    event.headers.emplace_back(kIdHeader, instance.id);
    event.headers.emplace_back(kStepHeader, send.step->name);
    event.headers.emplace_back(kCallHeader, send.undo ? "undo" : "do");
    event.headers.emplace_back(kLeaderHeader, instance.leader);
    event.headers.emplace_back(kReplyHeader, sagas.topic());
    store.emit(event, sagas.emit_options());
}

system_clock::time_point emit_timer(Store& store, const Sagas& sagas, const Instance& instance,
                                    const SagaStep& step) {
    const system_clock::time_point due(
        std::chrono::microseconds(consumer::callers_clock().wall_us()) +
        std::chrono::milliseconds(step.timeout_ms));
    Event timer;
    timer.topic = sagas.topic();
    timer.aggregate_type = "Saga";
    timer.aggregate_id = instance.id;
    timer.event_type = kTimerType;
    timer.headers = {{std::string(kIdHeader), instance.id},
                     {std::string(kTimerHeader), std::to_string(instance.timer)}};
    timer.available_at = due;
    store.emit(timer, sagas.emit_options());
    return due;
}

/// Sends what the reaction says; when its timer is due.
std::optional<std::int64_t> carry_out(Store& store, const Sagas& sagas, const Instance& instance,
                                      const Reaction& reaction) {
    if (!reaction.send) return std::nullopt;
    emit_command(store, sagas, instance, *reaction.send);
    if (reaction.send->step->timeout_ms == 0) return std::nullopt;
    return emit_timer(store, sagas, instance, *reaction.send->step).time_since_epoch() /
           std::chrono::microseconds(1);
}

const SagaDefinition& definition_of(const Sagas& sagas, const Instance& instance) {
    const SagaDefinition* definition = sagas.find(instance.name, instance.version);
    if (definition != nullptr) return *definition;
    refuse(ErrorCode::kUnsupported,
           "saga " + instance.id + " is of '" + instance.name + "' version " +
               std::to_string(instance.version) +
               ", which this program does not know (it knows: " + sagas.versions(instance.name) +
               "); the saga is left as it is. Run a program that has this version, then `outbox "
               "dead retry` this message");
}

SagaChange change_of(const Instance& instance, const Reaction& reaction, bool was_finished) {
    const StepRecord* awaited = instance.awaited();
    return {.what = reaction.what,
            .id = instance.id,
            .name = instance.name,
            .state = instance.state,
            .finished = !was_finished && is_finished(instance.state),
            .step = awaited == nullptr ? std::string() : awaited->name,
            .cause = instance.cause,
            .trouble = instance.trouble,
            .data = instance.data};
}

// A leader of an earlier version names itself only by where it wants its answers.
StepKey step_of(const SagaHeaders& headers) {
    const std::string_view leader = headers.find(kLeaderHeader);
    return {.leader = leader.empty() ? headers.find(kReplyHeader) : leader,
            .saga_id = headers.need(kIdHeader),
            .step = headers.need(kStepHeader)};
}

}  // namespace

std::string start(Store& store, const Sagas& sagas, std::string_view name, std::string data,
                  std::string id) {
    store.require_transaction("start_saga");
    const SagaDefinition* definition = sagas.latest(name);
    if (definition == nullptr) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    "start_saga: there is no saga '" + std::string(name) + "'");
    }
    Instance instance{.id = id.empty() ? new_event_id() : std::move(id),
                      .name = definition->name(),
                      .leader = sagas.topic(),
                      .version = definition->version(),
                      .data = std::move(data)};
    check_data(instance);
    const Reaction first = begin(*definition, instance);
    // The row comes first: its key is what refuses a second start.
    if (!store.insert(instance, {.topic = sagas.topic()})) {
        refuse(ErrorCode::kConflict,
               "there is a saga " + instance.id + " already: it was started before. Roll back");
    }
    if (const auto due_us = carry_out(store, sagas, instance, first)) {
        store.save(instance, {.topic = sagas.topic(), .due_us = due_us});
    }
    return instance.id;
}

SagaChange advance(Store& store, const Sagas& sagas, const Message& message) {
    store.require_transaction("advance_saga");
    const SagaHeaders headers(message);
    const std::string_view id = headers.need(kIdHeader);
    const Input input = input_of(headers);
    std::optional<Instance> instance = store.load(id);
    if (!instance) {
        refuse(ErrorCode::kInvalidEvent,
               "message " + std::string(message.id) + " is for saga " + std::string(id) +
                   ", which is not in outbox_saga: it was pruned, or is another service's");
    }
    const SagaDefinition& definition = definition_of(sagas, *instance);
    const Instance before = *instance;
    const Reaction reaction = react(definition, *instance, input);
    if (reaction.done != nullptr && reaction.done->keep) {
        instance->data = reaction.done->keep(instance->data, message);
        check_data(*instance);
    }
    const auto due_us = carry_out(store, sagas, *instance, reaction);
    const bool progress = reaction.send || instance->state != before.state;
    const bool request = std::holds_alternative<Request>(input);
    if (progress || request || *instance != before) {
        store.save(
            *instance,
            {.topic = sagas.topic(), .due_us = due_us, .progress = progress, .request = request});
    }
    return change_of(*instance, reaction, is_finished(before.state));
}

SagaCall begin_step(Store& store, const Message& command) {
    store.require_transaction("begin_saga_step");
    const SagaHeaders headers(command);
    const StepKey key = step_of(headers);
    const std::string_view call = headers.need(kCallHeader);
    if (call == "do") {
        return store.enter_step(key, kDone) == StepEntry::kNew ? SagaCall::kDo : SagaCall::kRepeat;
    }
    if (call != "undo") {
        refuse(ErrorCode::kInvalidEvent, "message " + std::string(command.id) +
                                             " has the header saga_call '" + std::string(call) +
                                             "': it is do or undo");
    }
    if (store.enter_step(key, kUndone) == StepEntry::kNew) return SagaCall::kNothingToUndo;
    return store.change_step(key, kDone, kUndone) ? SagaCall::kUndo : SagaCall::kNothingToUndo;
}

std::string answer_step(Store& store, const Message& command, Event answer,
                        const EmitOptions& options) {
    store.require_transaction("answer_saga_step");
    const SagaHeaders headers(command);
    const std::string_view id = headers.need(kIdHeader);
    answer.topic = headers.need(kReplyHeader);
    if (answer.key.empty()) answer.key = id;
    answer.headers.emplace_back(kIdHeader, id);
    answer.headers.emplace_back(kStepHeader, headers.need(kStepHeader));
    return store.emit(answer, options);
}

std::string refuse_step(Store& store, const Message& command, Event answer,
                        const EmitOptions& options) {
    store.require_transaction("refuse_saga_step");
    const SagaHeaders headers(command);
    store.change_step(step_of(headers), kDone, kRefused);
    return answer_step(store, command, std::move(answer), options);
}

}  // namespace outbox::saga
