#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/producer/emit.h>
#include <outbox/saga/definition.h>

/// Orchestrated sagas: one service leads, in its own database, others do the steps.
/// `start_saga(transaction, ...)` and the like are in outbox/adapters/; here is what they share.
namespace outbox {

/// Where a saga stands, as its row in outbox_sagas says.
enum class SagaState : std::uint8_t {
    kRunning,       ///< A step's answer is awaited.
    kCompensating,  ///< Steps are being undone, the last one first.
    kStuck,         ///< An operator has to act; `trouble` says why.
    kCompleted,     ///< Every step is done.
    kCompensated    ///< Every step that was or may have been done is undone.
};

/// "running", "compensating", "stuck", "completed", "compensated".
[[nodiscard]] std::string_view saga_state_name(SagaState state);

/// The sagas that a service leads. Thread safety: any; it does not change.
class Sagas {
  public:
    /// `topic`: where answers, timers and the requests of operators go. A route of the relay must
    /// bring it to this service. `definitions`: every version that may be open in the table.
    /// Throws `Error` kConfigInvalid/stop: no topic, no definition, one given twice.
    Sagas(std::string topic, std::vector<SagaDefinition> definitions, EmitOptions emit = {});

    [[nodiscard]] const std::string& topic() const noexcept { return topic_; }
    [[nodiscard]] const EmitOptions& emit_options() const noexcept { return emit_; }

    /// Null when there is none.
    [[nodiscard]] const SagaDefinition* find(std::string_view name, int version) const noexcept;
    /// The highest version; null when there is none.
    [[nodiscard]] const SagaDefinition* latest(std::string_view name) const noexcept;
    /// "1, 2"; "none".
    [[nodiscard]] std::string versions(std::string_view name) const;

  private:
    std::string topic_;
    std::vector<SagaDefinition> definitions_;
    EmitOptions emit_;
};

/// What a message did to a saga.
struct SagaChange {
    enum class What : std::uint8_t {
        kAdvanced,  ///< It went on: forward, back, to its end, or to be stuck.
        kRepeat,    ///< The step had this answer already: nothing changed.
        kLate,      ///< Recorded. The step was given up, or had another answer; where that leaves
                    ///< it done, it is compensated (again).
        kStale,     ///< A timer of something that is over.
        kRefused    ///< A request that cannot be fulfilled now; `trouble` says why.
    };
    What what = What::kAdvanced;
    std::string id;
    std::string name;
    SagaState state = SagaState::kRunning;
    bool finished = false;  ///< This message completed or compensated it.
    std::string step;       ///< What is awaited now; empty: nothing.
    std::string cause;      ///< Why it turned back.
    std::string trouble;    ///< Why it is stuck, or a request was refused.
    std::string data;
};

/// What a participant is to do with a command.
enum class SagaCall : std::uint8_t {
    kDo,             ///< Do the step, then `answer_saga_step`; or refuse it: `refuse_saga_step`.
    kUndo,           ///< Undo it, then `answer_saga_step`.
    kNothingToUndo,  ///< It was never done, or is undone: only `answer_saga_step`. It is remembered
                     ///< and a command that comes later is a kRepeat.
    kRepeat          ///< Nothing: it was answered, or undone before it came.
};

/// How many sagas of a name are in a state.
struct SagaCount {
    std::string name;
    SagaState state = SagaState::kRunning;
    std::int64_t count = 0;
    double oldest_s = 0;  ///< Longest time without progress; 0 for finished ones.
};

/// The figures in Prometheus' text format, for the service's own page of metrics: outbox_sagas and
/// outbox_saga_waiting_seconds, with the labels `saga` and `state`. Thread safety: any.
[[nodiscard]] std::string saga_metrics(std::span<const SagaCount> counts);

}  // namespace outbox
