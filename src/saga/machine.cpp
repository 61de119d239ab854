#include "saga/machine.h"

#include <algorithm>
#include <string>

#include <outbox/error.h>

namespace outbox::saga {
namespace {

using What = SagaChange::What;

[[noreturn]] void refuse(ErrorCode code, const std::string& message) {
    throw Error(code, Advice::kDeadLetter, message);
}

std::string quoted(std::string_view name) {
    return "'" + std::string(name) + "'";
}

/// One reaction of one saga.
class Machine {
  public:
    Machine(const SagaDefinition& definition, Instance& instance)
        : definition_(definition), saga_(instance) {
        for (const StepRecord& record : instance.steps) {
            if (definition.find(record.name) != nullptr) continue;
            refuse(ErrorCode::kUnsupported,
                   "saga " + instance.id + " has been in step " + quoted(record.name) +
                       ", which its definition, " + quoted(definition.name()) + " version " +
                       std::to_string(definition.version()) +
                       ", does not have: a definition must not change, give the new one a new "
                       "version");
        }
    }

    Reaction begin() {
        send_forward(definition_.steps().front());
        return reaction_;
    }

    Reaction operator()(const Answer& answer) {
        const SagaStep* step = definition_.find(answer.step);
        const auto record =
            std::find_if(saga_.steps.begin(), saga_.steps.end(),
                         [&](const StepRecord& known) { return known.name == answer.step; });
        if (step == nullptr || record == saga_.steps.end()) {
            refuse(ErrorCode::kInvalidEvent,
                   "saga " + saga_.id + " has an answer for step " + quoted(answer.step) +
                       ", which it " + (step == nullptr ? "does not have" : "has not sent"));
        }
        for (const SagaAnswer& done : step->done) {
            if (done.event_type == answer.event_type) {
                on_done(*step, *record, done);
                return reaction_;
            }
        }
        if (std::find(step->refused.begin(), step->refused.end(), answer.event_type) !=
            step->refused.end()) {
            on_refused(*record, answer.event_type);
        } else if (step->compensation && step->compensated == answer.event_type) {
            on_compensated(*record);
        } else {
            refuse(ErrorCode::kInvalidEvent, "saga " + saga_.id + ": step " + quoted(answer.step) +
                                                 " is not declared to have the answer " +
                                                 quoted(answer.event_type));
        }
        return reaction_;
    }

    Reaction operator()(const Timer& timer) {
        StepRecord* record = saga_.awaited();
        if (record == nullptr || timer.number != saga_.timer || saga_.state == SagaState::kStuck ||
            is_finished(saga_.state)) {
            reaction_.what = What::kStale;
            return reaction_;
        }
        const SagaStep& step = *definition_.find(record->name);
        if (record->attempts <= step.retries) {
            ++record->attempts;
            send(step, record->state == StepState::kUndoing);
            return reaction_;
        }
        const std::string silence = "no answer within " + std::to_string(step.timeout_ms) +
                                    " ms, asked " + std::to_string(record->attempts) +
                                    (record->attempts == 1 ? " time" : " times");
        if (record->state == StepState::kUndoing) {
            stick("compensation of step " + quoted(step.name) + ": " + silence);
        } else if (const auto last = point_of_no_return(saga_); !last.empty()) {
            stick("step " + quoted(step.name) + ": " + silence + "; step " + quoted(last) +
                  " cannot be undone, so the saga cannot turn back");
        } else {
            record->state = StepState::kUnknown;
            turn_back("step " + quoted(step.name) + ": " + silence);
        }
        return reaction_;
    }

    Reaction operator()(Request request) {
        if (is_finished(saga_.state)) {
            reaction_.what = What::kStale;
        } else if (request == Request::kAbort) {
            abort();
        } else {
            resume();
        }
        return reaction_;
    }

  private:
    void on_done(const SagaStep& step, StepRecord& record, const SagaAnswer& answer) {
        switch (record.state) {
            case StepState::kSent:
                record.state = StepState::kDone;
                saga_.state = SagaState::kRunning;
                saga_.trouble.clear();
                reaction_.done = &answer;
                if (const SagaStep* next = definition_.following(step, answer)) {
                    send_forward(*next);
                } else {
                    saga_.state = SagaState::kCompleted;
                }
                return;
            case StepState::kDone:
                return late(record, What::kRepeat);
            case StepState::kUnknown:
            case StepState::kUndoing:
                // The participant answered before it saw the compensation, which is still to come.
                return late(record, What::kLate);
            case StepState::kRefused:
            case StepState::kUndone:
                // Nothing more would undo what this answer says was done. Undoing it twice is
                // harmless: the participant remembers.
                late(record, What::kLate);
                if (step.nothing_to_undo) return;
                record.state = StepState::kDone;
                if (saga_.state == SagaState::kCompensated) undo_next();
                return;
        }
    }

    void on_refused(StepRecord& record, std::string_view event_type) {
        if (record.state != StepState::kSent) {
            return late(record, record.state == StepState::kRefused ? What::kRepeat : What::kLate);
        }
        record.state = StepState::kRefused;
        turn_back("step " + quoted(record.name) + " was refused: " + std::string(event_type));
    }

    void on_compensated(StepRecord& record) {
        if (record.state != StepState::kUndoing) {
            return late(record, record.state == StepState::kUndone ? What::kRepeat : What::kLate);
        }
        record.state = StepState::kUndone;
        undo_next();
    }

    void late(StepRecord& record, What what) {
        ++record.late;
        reaction_.what = what;
    }

    void abort() {
        StepRecord* record = saga_.awaited();
        if (record == nullptr || record->state != StepState::kSent) {
            reaction_.what = What::kStale;
            return;
        }
        if (const auto last = point_of_no_return(saga_); !last.empty()) {
            reaction_.what = What::kRefused;
            saga_.trouble = "cannot be aborted: step " + quoted(last) + " cannot be undone";
            return;
        }
        record->state = StepState::kUnknown;
        turn_back("aborted by an operator");
    }

    void resume() {
        StepRecord* record = saga_.awaited();
        if (record == nullptr) {
            // Stuck at a step that nothing undoes: whoever resumes it has seen to that.
            for (StepRecord& known : saga_.steps) {
                if (known.state == StepState::kDone && !known.can_undo) {
                    known.state = StepState::kUndone;
                }
            }
            undo_next();
            return;
        }
        record->attempts = 1;
        const bool undo = record->state == StepState::kUndoing;
        saga_.state = undo ? SagaState::kCompensating : SagaState::kRunning;
        saga_.trouble.clear();
        send(*definition_.find(record->name), undo);
    }

    void turn_back(std::string cause) {
        saga_.cause = std::move(cause);
        undo_next();
    }

    // The last step first; one at a time.
    void undo_next() {
        saga_.state = SagaState::kCompensating;
        saga_.trouble.clear();
        for (auto record = saga_.steps.rbegin(); record != saga_.steps.rend(); ++record) {
            if (record->state != StepState::kDone && record->state != StepState::kUnknown) continue;
            const SagaStep& step = *definition_.find(record->name);
            if (step.nothing_to_undo) {
                record->state = StepState::kUndone;
                continue;
            }
            if (!step.compensation) {
                return stick("step " + quoted(step.name) +
                             " was done although it had been refused, and has no compensation: "
                             "undo it by hand, then resume the saga");
            }
            record->state = StepState::kUndoing;
            record->attempts = 1;
            return send(step, true);
        }
        saga_.state = SagaState::kCompensated;
    }

    void send_forward(const SagaStep& step) {
        saga_.steps.push_back(
            {.name = step.name, .can_undo = step.nothing_to_undo || step.compensation != nullptr});
        send(step, false);
    }

    void send(const SagaStep& step, bool undo) {
        ++saga_.timer;
        reaction_.send = Send{&step, undo};
    }

    void stick(std::string trouble) {
        saga_.state = SagaState::kStuck;
        saga_.trouble = std::move(trouble);
    }

    const SagaDefinition& definition_;
    Instance& saga_;
    Reaction reaction_;
};

}  // namespace

Reaction begin(const SagaDefinition& definition, Instance& instance) {
    return Machine(definition, instance).begin();
}

Reaction react(const SagaDefinition& definition, Instance& instance, const Input& input) {
    return std::visit(Machine(definition, instance), input);
}

std::string_view point_of_no_return(const Instance& instance) {
    for (const StepRecord& record : instance.steps) {
        const bool counts = record.state == StepState::kSent || record.state == StepState::kDone ||
                            record.state == StepState::kUnknown;
        if (counts && !record.can_undo) return record.name;
    }
    return {};
}

}  // namespace outbox::saga
