#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <outbox/error.h>
#include <outbox/saga/definition.h>

#include "core/ascii.h"

namespace outbox {
namespace {

bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= kMaxSagaNameBytes &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
           });
}

std::string quoted(std::string_view name) {
    return "'" + std::string(name) + "'";
}

/// The checks of one definition. Steps are named by their index.
class Checks {
  public:
    Checks(const std::string& name, int version, const std::vector<SagaStep>& steps)
        : where_("saga " + quoted(name) + " version " + std::to_string(version) + ": "),
          steps_(steps) {
        if (!is_name(name)) refuse("a saga's name has 1 to 64 letters, digits and - _ .");
        if (version < 1) refuse("the version must be at least 1");
        if (steps.empty()) refuse("it has no steps");
        if (steps.size() > kMaxSagaSteps) {
            refuse("it has " + std::to_string(steps.size()) + " steps, the limit is " +
                   std::to_string(kMaxSagaSteps));
        }
    }

    void run() {
        std::set<std::string_view> names;
        for (const SagaStep& step : steps_) {
            if (!is_name(step.name)) {
                refuse("a step's name has 1 to 64 letters, digits and - _ . ; " +
                       quoted(step.name) + " is none");
            }
            if (!names.insert(step.name).second) {
                refuse("two steps have the name " + quoted(step.name));
            }
        }
        for (const SagaStep& step : steps_) check_step(step);
        for (std::size_t i = 0; i < steps_.size(); ++i) follow(i);
        check_reached();
        for (std::size_t i = 0; i < steps_.size(); ++i) check_undo(i);
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop, where_ + why);
    }
    [[noreturn]] void refuse(const SagaStep& step, const std::string& why) const {
        refuse("step " + quoted(step.name) + " " + why);
    }

    void check_step(const SagaStep& step) const {
        if (!step.command) refuse(step, "has no command");
        if (step.done.empty()) refuse(step, "has no answer that says that it is done");
        if (static_cast<bool>(step.compensation) == step.compensated.empty()) {
            refuse(step,
                   "needs both a compensation and the answer to it (compensated), or neither");
        }
        if (step.nothing_to_undo && step.compensation) {
            refuse(step, "has a compensation, and says that there is nothing to undo");
        }
        if (step.timeout_ms < 0 || step.timeout_ms > kMaxSagaTimeoutMs) {
            refuse(step, "has a timeout of " + std::to_string(step.timeout_ms) +
                             " ms: it must be 0 (it waits for ever) to " +
                             std::to_string(kMaxSagaTimeoutMs));
        }
        if (step.retries > kMaxSagaRetries) {
            refuse(step, "has " + std::to_string(step.retries) + " retries, the limit is " +
                             std::to_string(kMaxSagaRetries));
        }
        if (step.retries > 0 && step.timeout_ms == 0) {
            refuse(step, "has retries, which need a timeout");
        }
        std::set<std::string_view> types;
        const auto take = [&](std::string_view type) {
            if (type.empty()) refuse(step, "has an answer without an event type");
            if (!types.insert(type).second)
                refuse(step, "has the answer " + quoted(type) + " twice");
        };
        for (const SagaAnswer& answer : step.done) take(answer.event_type);
        for (const std::string& type : step.refused) take(type);
        if (step.compensation) take(step.compensated);
    }

    // None: the saga ends there.
    [[nodiscard]] std::optional<std::size_t> next_of(std::size_t from,
                                                     const SagaAnswer& answer) const {
        if (answer.next == kSagaEnd) return std::nullopt;
        if (answer.next.empty()) {
            return from + 1 < steps_.size() ? std::optional(from + 1) : std::nullopt;
        }
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            if (steps_[i].name == answer.next) return i;
        }
        refuse(steps_[from], "goes on with " + quoted(answer.next) + " on the answer " +
                                 quoted(answer.event_type) + ", which is no step");
    }

    // Goes every way from a step; the ways stay short enough, as steps seen to end are remembered.
    void follow(std::size_t at) {
        if (ends_.contains(at)) return;
        const auto before = std::find(path_.begin(), path_.end(), at);
        if (before != path_.end()) {
            std::string cycle;
            for (auto step = before; step != path_.end(); ++step) {
                cycle += steps_[*step].name + " -> ";
            }
            refuse("its steps are a cycle: " + cycle + steps_[at].name +
                   "; a saga must come to an end, so retry inside the step instead");
        }
        path_.push_back(at);
        for (const SagaAnswer& answer : steps_[at].done) {
            if (const auto next = next_of(at, answer)) follow(*next);
        }
        path_.pop_back();
        ends_.insert(at);
    }

    void collect(std::size_t from, std::set<std::size_t>& out) const {
        for (const SagaAnswer& answer : steps_[from].done) {
            const auto next = next_of(from, answer);
            if (next && out.insert(*next).second) collect(*next, out);
        }
    }

    void check_reached() const {
        std::set<std::size_t> reached{0};
        collect(0, reached);
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            if (!reached.contains(i)) refuse(steps_[i], "is never reached");
        }
    }

    void check_undo(std::size_t at) const {
        const SagaStep& step = steps_[at];
        if (step.compensation || step.nothing_to_undo) return;
        std::set<std::size_t> later;
        collect(at, later);
        for (const std::size_t i : later) {
            if (steps_[i].refused.empty()) continue;
            refuse(step, "needs a compensation, because step " + quoted(steps_[i].name) +
                             " after it may be refused (" + steps_[i].refused.front() +
                             "): give it one, or say nothing_to_undo");
        }
    }

    std::string where_;
    const std::vector<SagaStep>& steps_;
    std::vector<std::size_t> path_;
    std::set<std::size_t> ends_;
};

}  // namespace

SagaDefinition::SagaDefinition(std::string name, int version, std::vector<SagaStep> steps)
    : name_(std::move(name)), version_(version), steps_(std::move(steps)) {
    Checks(name_, version_, steps_).run();
}

const SagaStep* SagaDefinition::find(std::string_view step) const noexcept {
    for (const SagaStep& known : steps_) {
        if (known.name == step) return &known;
    }
    return nullptr;
}

const SagaStep* SagaDefinition::following(const SagaStep& step, const SagaAnswer& answer) const {
    if (answer.next == kSagaEnd) return nullptr;
    if (!answer.next.empty()) return find(answer.next);
    const auto next = static_cast<std::size_t>(find(step.name) - steps_.data()) + 1;
    return next < steps_.size() ? &steps_[next] : nullptr;
}

}  // namespace outbox
