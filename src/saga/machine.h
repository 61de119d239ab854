#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "saga/instance.h"

namespace outbox::saga {

/// A participant answers.
struct Answer {
    std::string_view step;
    std::string_view event_type;
};

/// A timer is due.
struct Timer {
    std::int64_t number = 0;
};

/// An operator asks.
enum class Request : std::uint8_t { kAbort, kResume };

using Input = std::variant<Answer, Timer, Request>;

/// The command to send now, with the timer that `Instance::timer` numbers.
struct Send {
    const SagaStep* step = nullptr;
    bool undo = false;
};

struct Reaction {
    SagaChange::What what = SagaChange::What::kAdvanced;
    std::optional<Send> send;
    const SagaAnswer* done = nullptr;  ///< The answer that took the saga on; its `keep` comes
                                       ///< before the command is made.
};

/// A new saga: what it sends first. `instance` has its id, name, version and data.
Reaction begin(const SagaDefinition& definition, Instance& instance);

/// What the input does to the saga. Throws `Error` with advice dead_letter, before anything is
/// changed, for an answer that the saga cannot have (kInvalidEvent) and for records that the
/// definition does not have (kUnsupported).
Reaction react(const SagaDefinition& definition, Instance& instance, const Input& input);

/// Why the saga cannot turn back now: the name of the step that cannot be undone; empty: it can.
[[nodiscard]] std::string_view point_of_no_return(const Instance& instance);

}  // namespace outbox::saga
