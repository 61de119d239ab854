#include "saga/instance.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include <outbox/error.h>

namespace outbox::saga {
namespace {

constexpr std::array<std::pair<StepState, std::string_view>, 6> kStepStates{{
    {StepState::kSent, "sent"},
    {StepState::kDone, "done"},
    {StepState::kRefused, "refused"},
    {StepState::kUnknown, "unknown"},
    {StepState::kUndoing, "undoing"},
    {StepState::kUndone, "undone"},
}};

StepState step_state_of(std::string_view name) {
    for (const auto& [state, text] : kStepStates) {
        if (text == name) return state;
    }
    throw std::invalid_argument("no state of a step");
}

bool is_awaited(const StepRecord& record) {
    return record.state == StepState::kSent || record.state == StepState::kUndoing;
}

}  // namespace

const StepRecord* Instance::awaited() const {
    for (const StepRecord& record : steps) {
        if (is_awaited(record)) return &record;
    }
    return nullptr;
}

StepRecord* Instance::awaited() {
    for (StepRecord& record : steps) {
        if (is_awaited(record)) return &record;
    }
    return nullptr;
}

std::string_view step_state_name(StepState state) {
    return kStepStates.at(static_cast<std::size_t>(state)).second;
}

std::optional<SagaState> saga_state_of(std::string_view name) {
    for (const SagaState state : {SagaState::kRunning, SagaState::kCompensating, SagaState::kStuck,
                                  SagaState::kCompleted, SagaState::kCompensated}) {
        if (saga_state_name(state) == name) return state;
    }
    return std::nullopt;
}

std::string to_json(const std::vector<StepRecord>& steps) {
    auto list = nlohmann::ordered_json::array();
    for (const StepRecord& record : steps) {
        list.push_back({{"step", record.name},
                        {"state", step_state_name(record.state)},
                        {"attempts", record.attempts},
                        {"late", record.late},
                        {"can_undo", record.can_undo}});
    }
    return list.dump();
}

std::vector<StepRecord> steps_of_json(std::string_view saga_id, std::string_view json) {
    try {
        std::vector<StepRecord> steps;
        for (const auto& entry : nlohmann::json::parse(json)) {
            steps.push_back({.name = entry.at("step").get<std::string>(),
                             .state = step_state_of(entry.at("state").get<std::string>()),
                             .attempts = entry.at("attempts").get<std::uint32_t>(),
                             .late = entry.at("late").get<std::uint32_t>(),
                             .can_undo = entry.at("can_undo").get<bool>()});
        }
        return steps;
    } catch (const std::exception& error) {
        throw Error(ErrorCode::kTableShape, Advice::kDeadLetter,
                    "the column steps of saga " + std::string(saga_id) +
                        " in outbox_saga holds what this program does not write: " + error.what());
    }
}

}  // namespace outbox::saga
