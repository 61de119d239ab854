#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/consumer/message.h>
#include <outbox/event.h>

namespace outbox {

inline constexpr std::size_t kMaxSagaSteps = 64;
inline constexpr std::size_t kMaxSagaNameBytes = 64;
inline constexpr std::size_t kMaxSagaDataBytes = 1'048'576;
inline constexpr std::uint32_t kMaxSagaRetries = 1'000;
inline constexpr std::int64_t kMaxSagaTimeoutMs = 315'360'000'000;  ///< Ten years.

/// In `SagaAnswer::next`: the saga is completed.
inline constexpr std::string_view kSagaEnd = "$end";

/// What a command is made from. Valid during the call.
struct SagaView {
    std::string_view id;
    std::string_view data;  ///< As `start_saga` got it, and as `SagaAnswer::keep` changed it.
    std::string_view step;
};

/// Makes the event that asks a participant to do or to undo a step: payload, topic or aggregate
/// type, event type. The saga adds its headers, and its id as key unless there is one. Called in
/// the open transaction; what it throws rolls that back.
using SagaCommand = std::function<Event(const SagaView& saga)>;

/// An answer that says that the step was done.
struct SagaAnswer {
    std::string event_type;
    std::string next = {};  ///< The step that follows; empty: the next one declared; `kSagaEnd`.
    /// The saga's data with what is to be kept of the answer; none: the data stays.
    std::function<std::string(std::string_view data, const Message& answer)> keep = {};
};

/// One step: a command to a participant, which answers by an event.
///
/// A step without compensation is the point of no return, unless `nothing_to_undo`: from then on
/// the saga only goes forward, and one that gets no answer is stuck until an operator resumes it.
struct SagaStep {
    std::string name;
    SagaCommand command;
    std::vector<SagaAnswer> done;           ///< At least one.
    std::vector<std::string> refused = {};  ///< Event types that say: refused, nothing was done.
    SagaCommand compensation = {};          ///< Asks to undo it; cannot be refused.
    std::string compensated = {};           ///< The event type that answers the compensation.
    bool nothing_to_undo = false;           ///< The step changes nothing (it asks or reads).
    std::int64_t timeout_ms = 60'000;       ///< For each attempt; 0: it waits for ever.
    std::uint32_t retries = 0;  ///< How often command or compensation are sent again when no answer
                                ///< came in time. The participant then gets an event with another
                                ///< id: `begin_saga_step` knows it by saga and step.
};

/// A saga as declared: its steps begin with the first one. A definition does not change: give what
/// is changed a new version and keep the old one as long as sagas of it are open. Thread safety:
/// any, as that of the functions in it.
class SagaDefinition {
  public:
    /// Throws `Error` kConfigInvalid/stop, naming saga, step and remedy: a name that is missing,
    /// given twice or not of 1 to 64 letters, digits and - _ . ; a version below 1; a step without
    /// command or answer; answers of a step that are the same; a cycle; a step that is never
    /// reached; a step that needs a compensation, because a later one may be refused, and has none;
    /// a negative timeout, retries without a timeout, a limit exceeded.
    SagaDefinition(std::string name, int version, std::vector<SagaStep> steps);

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] int version() const noexcept { return version_; }
    [[nodiscard]] const std::vector<SagaStep>& steps() const noexcept { return steps_; }

    /// Null when there is none.
    [[nodiscard]] const SagaStep* find(std::string_view step) const noexcept;
    /// The step that follows `step` on this answer of it; null: the saga is completed.
    [[nodiscard]] const SagaStep* following(const SagaStep& step, const SagaAnswer& answer) const;

  private:
    std::string name_;
    int version_;
    std::vector<SagaStep> steps_;
};

}  // namespace outbox
