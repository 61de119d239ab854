#include <utility>

#include <outbox/error.h>
#include <outbox/saga/saga.h>

#include "core/metrics_text.h"

namespace outbox {

std::string_view saga_state_name(SagaState state) {
    switch (state) {
        case SagaState::kRunning:
            return "running";
        case SagaState::kCompensating:
            return "compensating";
        case SagaState::kStuck:
            return "stuck";
        case SagaState::kCompleted:
            return "completed";
        case SagaState::kCompensated:
            break;
    }
    return "compensated";
}

Sagas::Sagas(std::string topic, std::vector<SagaDefinition> definitions, EmitOptions emit)
    : topic_(std::move(topic)), definitions_(std::move(definitions)), emit_(emit) {
    const auto refuse = [](const std::string& why) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop, why);
    };
    if (topic_.empty()) refuse("Sagas: a topic for answers and timers is needed");
    if (definitions_.empty()) refuse("Sagas: at least one definition is needed");
    for (const SagaDefinition& one : definitions_) {
        if (find(one.name(), one.version()) == &one) continue;
        refuse("Sagas: saga '" + one.name() + "' version " + std::to_string(one.version()) +
               " is given twice");
    }
}

const SagaDefinition* Sagas::find(std::string_view name, int version) const noexcept {
    for (const SagaDefinition& known : definitions_) {
        if (known.name() == name && known.version() == version) return &known;
    }
    return nullptr;
}

const SagaDefinition* Sagas::latest(std::string_view name) const noexcept {
    const SagaDefinition* latest = nullptr;
    for (const SagaDefinition& known : definitions_) {
        if (known.name() != name) continue;
        if (latest == nullptr || known.version() > latest->version()) latest = &known;
    }
    return latest;
}

std::string Sagas::versions(std::string_view name) const {
    std::string list;
    for (const SagaDefinition& known : definitions_) {
        if (known.name() != name) continue;
        list += (list.empty() ? "" : ", ") + std::to_string(known.version());
    }
    return list.empty() ? "none" : list;
}

std::string saga_metrics(std::span<const SagaCount> counts) {
    MetricsText page;
    const auto add = [&](std::string_view name, std::string_view help, const auto& value) {
        page.metric(name, "gauge", help);
        for (const SagaCount& count : counts) {
            page.sample({{"saga", count.name}, {"state", saga_state_name(count.state)}},
                        value(count));
        }
    };
    add("outbox_sagas", "Sagas in this state.",
        [](const SagaCount& count) { return std::to_string(count.count); });
    add("outbox_saga_waiting_seconds", "Longest time that one of them has made no progress.",
        [](const SagaCount& count) { return std::to_string(count.oldest_s); });
    return page.text();
}

}  // namespace outbox
