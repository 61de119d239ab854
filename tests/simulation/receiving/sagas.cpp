#include "tests/simulation/receiving/sagas.h"

#include <algorithm>
#include <vector>

#include <outbox/error.h>

#include "consumer/env.h"

namespace outbox::simulation {

namespace {

constexpr const char* kAnswers = "orders-answers";
constexpr const char* kCommands = "orders-commands";
constexpr const char* kName = "order";

SagaCommand command(const std::string& type) {
    return [type](const SagaView& saga) {
        Event event;
        event.topic = kCommands;
        event.event_type = type;
        event.payload = std::string(saga.data);
        return event;
    };
}

std::vector<SagaStep> steps_of(const SagaSettings& settings) {
    std::vector<SagaStep> steps;
    for (const std::string name : {"stock", "money", "carrier"}) {
        steps.push_back({.name = name,
                         .command = command("Take"),
                         .done = {{.event_type = name + "Taken"}},
                         .refused = {name + "Refused"},
                         .compensation = command("GiveBack"),
                         .compensated = name + "GivenBack",
                         .timeout_ms = settings.timeout_ms,
                         .retries = settings.retries});
    }
    return steps;
}

Event answer(const std::string& type) {
    Event event;
    event.event_type = type;
    event.payload = "{}";
    return event;
}

}  // namespace

SagaDesk::SagaDesk(World& world, Judge& judge, Connect connect, const core::Clock& clock,
                   const SagaSettings& settings)
    : world_(world),
      judge_(judge),
      connect_(std::move(connect)),
      clock_(clock),
      settings_(settings),
      sagas_(kAnswers, {SagaDefinition(kName, 1, steps_of(settings))}) {}

void SagaDesk::start() {
    for (int number = 1; number <= settings_.sagas; ++number) {
        world_.spawn(World::kNoGroup, "customer", [this, number] { start_one(number); });
    }
}

// Until it is started: a second start is refused.
void SagaDesk::start_one(int number) {
    world_.sleep(world_.random().between(1, 3'000) * kMs);
    const consumer::CallersClock clock(clock_);
    while (true) {
        const std::unique_ptr<Connection> client = connect_();
        try {
            if (client->begin()) {
                client->start(sagas_, kName, "{}", "saga-" + std::to_string(number));
                if (client->commit()) return;
            }
        } catch (const Error& error) {
            if (error.code() == ErrorCode::kConflict && error.advice() == Advice::kDeadLetter) {
                return;
            }
        }
        client->close();
        world_.sleep(100 * kMs);
    }
}

bool SagaDesk::handle(OpenTransaction& transaction, const Message& message) {
    if (message.topic == kAnswers) {
        const SagaChange change = transaction.advance(sagas_, message);
        if (world_.tracing()) {
            world_.trace(change.id + ": " + message.header("type").value_or("") + " -> " +
                         std::string(saga_state_name(change.state)) + " " + change.step + " " +
                         change.cause + change.trouble);
        }
        return true;
    }
    if (message.topic != kCommands) return false;
    take_part(transaction, message);
    return true;
}

bool SagaDesk::refuses(const std::string& saga, const std::string& step) {
    const auto [found, is_new] = refuses_.try_emplace({saga, step}, false);
    if (is_new) found->second = world_.random().chance(settings_.refused);
    return found->second;
}

void SagaDesk::take_part(OpenTransaction& transaction, const Message& message) {
    const std::string saga = message.header("saga_id").value_or("");
    const std::string step = message.header("saga_step").value_or("");
    if (world_.random().chance(settings_.slow)) {
        world_.sleep(world_.random().between(1, settings_.timeout_ms * 2) * kMs);
    }
    const SagaCall call = transaction.begin_step(message);
    world_.trace("participant " + step + " of " + saga + ": " +
                 std::to_string(static_cast<int>(call)));
    const auto write = [&](const char* what) {
        transaction.run("INSERT INTO steps (saga, step, call) VALUES ('" + saga + "', '" + step +
                        "', '" + what + "')");
    };
    switch (call) {
        case SagaCall::kDo:
            if (refuses(saga, step)) {
                transaction.refuse_step(message, answer(step + "Refused"));
                break;
            }
            write("do");
            transaction.answer_step(message, answer(step + "Taken"));
            break;
        case SagaCall::kUndo:
            write("undo");
            [[fallthrough]];
        case SagaCall::kNothingToUndo:
            transaction.answer_step(message, answer(step + "GivenBack"));
            break;
        case SagaCall::kRepeat:
            break;
    }
}

void SagaDesk::look(const Rows& sagas) {
    ended_ = static_cast<int>(std::ranges::count_if(
        sagas, [](const auto& row) { return row[1] == "completed" || row[1] == "compensated"; }));
}

void SagaDesk::finish(const Rows& sagas, const Rows& steps) {
    std::map<std::string, std::map<std::string, std::string>> did;
    for (const auto& row : steps) {
        std::string& calls = did[row[0]][row[1]];
        calls += (calls.empty() ? "" : " ") + row[2];
    }
    if (sagas.size() != static_cast<std::size_t>(settings_.sagas)) {
        judge_.violation(std::to_string(sagas.size()) + " sagas of " +
                         std::to_string(settings_.sagas));
    }
    for (const auto& row : sagas) {
        const bool completed = row[1] == "completed";
        const bool compensated = row[1] == "compensated";
        if (completed) ++completed_;
        if (compensated) ++compensated_;
        for (const auto& step : steps_of(settings_)) {
            const std::string calls = did[row[0]][step.name];
            const bool fits = completed     ? calls == "do"
                              : compensated ? calls.empty() || calls == "do undo"
                                            : false;
            if (fits) continue;
            judge_.violation(row[0] + " is " + row[1] + " and its participant " + step.name +
                             " did '" + calls + "': " + row[2]);
        }
    }
}

}  // namespace outbox::simulation
