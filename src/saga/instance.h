#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/saga/saga.h>

namespace outbox::saga {

enum class StepState : std::uint8_t {
    kSent,     ///< The answer is awaited.
    kDone,     ///< Done; to be undone if the saga turns back.
    kRefused,  ///< Refused: nothing was done.
    kUnknown,  ///< Given up without an answer: it may have been done, so it is undone.
    kUndoing,  ///< The answer to the compensation is awaited.
    kUndone
};

/// A step whose command was sent, in the order of sending.
struct StepRecord {
    std::string name;
    StepState state = StepState::kSent;
    std::uint32_t attempts = 1;  ///< How often what is awaited was sent.
    std::uint32_t late = 0;      ///< Answers that came too late or again.
    bool can_undo = false;       ///< It has a compensation, or nothing to undo.

    bool operator==(const StepRecord&) const = default;
};

/// One saga, as a row of outbox_saga holds it.
struct Instance {
    std::string id = {};
    std::string name = {};
    std::string leader = {};  ///< Who leads it, for participants: the topic of answers at its start.
    int version = 0;
    SagaState state = SagaState::kRunning;
    std::vector<StepRecord> steps = {};
    std::string data = {};
    std::int64_t timer = 0;    ///< The number of the timer that counts.
    std::string cause = {};    ///< Why it turned back.
    std::string trouble = {};  ///< Why it is stuck, or a request was refused.

    /// The step whose answer is awaited; null: none.
    [[nodiscard]] StepRecord* awaited();
    [[nodiscard]] const StepRecord* awaited() const;

    bool operator==(const Instance&) const = default;
};

[[nodiscard]] constexpr bool is_finished(SagaState state) {
    return state == SagaState::kCompleted || state == SagaState::kCompensated;
}

[[nodiscard]] std::string_view step_state_name(StepState state);
[[nodiscard]] std::optional<SagaState> saga_state_of(std::string_view name);

/// The records as the column `steps` holds them, a JSON array. Reading throws `Error` kTableShape
/// for another text.
[[nodiscard]] std::string to_json(const std::vector<StepRecord>& steps);
[[nodiscard]] std::vector<StepRecord> steps_of_json(std::string_view saga_id,
                                                    std::string_view json);

}  // namespace outbox::saga
