#include "tests/simulation/postgres/sagas.h"

#include <memory>
#include <stdexcept>
#include <vector>

#include <outbox/adapters/libpq_saga.h>
#include <outbox/error.h>

#include "tests/simulation/postgres/client.h"

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

SagaDesk::SagaDesk(World& world, Judge& judge, std::string url, const SagaSettings& settings)
    : world_(world),
      judge_(judge),
      url_(std::move(url)),
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
    Client client(url_);
    while (true) {
        try {
            if (client.run("BEGIN")) {
                start_saga(client.handle(), sagas_, kName, "{}", "saga-" + std::to_string(number));
                if (client.run("COMMIT")) return;
            }
        } catch (const Error& error) {
            if (error.code() == ErrorCode::kConflict && error.advice() == Advice::kDeadLetter) {
                return;
            }
        }
        client.close();
        world_.sleep(100 * kMs);
    }
}

bool SagaDesk::handle(PGconn* connection, const Message& message) {
    if (message.topic == kAnswers) {
        const SagaChange change = advance_saga(connection, sagas_, message);
        if (world_.tracing()) {
            world_.trace(change.id + ": " + message.header("type").value_or("") + " -> " +
                         std::string(saga_state_name(change.state)) + " " + change.step + " " +
                         change.cause + change.trouble);
        }
        return true;
    }
    if (message.topic != kCommands) return false;
    take_part(connection, message);
    return true;
}

bool SagaDesk::refuses(const std::string& saga, const std::string& step) {
    const auto [found, is_new] = refuses_.try_emplace({saga, step}, false);
    if (is_new) found->second = world_.random().chance(settings_.refused);
    return found->second;
}

void SagaDesk::take_part(PGconn* connection, const Message& message) {
    const std::string saga = message.header("saga_id").value_or("");
    const std::string step = message.header("saga_step").value_or("");
    if (world_.random().chance(settings_.slow)) {
        world_.sleep(world_.random().between(1, settings_.timeout_ms * 2) * kMs);
    }
    const SagaCall call = begin_saga_step(connection, message);
    world_.trace("participant " + step + " of " + saga + ": " +
                 std::to_string(static_cast<int>(call)));
    const auto write = [&](const char* what) {
        const std::string sql = "INSERT INTO simulation.steps (saga, step, call) VALUES ('" + saga +
                                "', '" + step + "', '" + what + "')";
        const std::unique_ptr<PGresult, decltype(&PQclear)> result(PQexec(connection, sql.c_str()),
                                                                   &PQclear);
        if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) {
            throw std::runtime_error(PQerrorMessage(connection));
        }
    };
    switch (call) {
        case SagaCall::kDo:
            if (refuses(saga, step)) {
                refuse_saga_step(connection, message, answer(step + "Refused"));
                break;
            }
            write("do");
            answer_saga_step(connection, message, answer(step + "Taken"));
            break;
        case SagaCall::kUndo:
            write("undo");
            [[fallthrough]];
        case SagaCall::kNothingToUndo:
            answer_saga_step(connection, message, answer(step + "GivenBack"));
            break;
        case SagaCall::kRepeat:
            break;
    }
}

void SagaDesk::look(test::Pg& tables) {
    ended_ = static_cast<int>(tables.number(
        "SELECT count(*) FROM public.outbox_saga WHERE state IN ('completed', 'compensated')"));
}

void SagaDesk::finish(test::Pg& tables) {
    std::map<std::string, std::map<std::string, std::string>> did;
    for (const auto& row :
         tables.query("SELECT saga, step, string_agg(call, ' ' ORDER BY seq) FROM "
                      "simulation.steps GROUP BY saga, step")) {
        did[*row[0]][*row[1]] = *row[2];
    }
    const auto sagas =
        tables.query("SELECT saga_id, state, steps::text FROM public.outbox_saga ORDER BY saga_id");
    if (sagas.size() != static_cast<std::size_t>(settings_.sagas)) {
        judge_.violation(std::to_string(sagas.size()) + " sagas of " +
                         std::to_string(settings_.sagas));
    }
    for (const auto& row : sagas) {
        const bool completed = *row[1] == "completed";
        const bool compensated = *row[1] == "compensated";
        if (completed) ++completed_;
        if (compensated) ++compensated_;
        for (const auto& step : steps_of(settings_)) {
            const std::string calls = did[*row[0]][step.name];
            const bool fits = completed     ? calls == "do"
                              : compensated ? calls.empty() || calls == "do undo"
                                            : false;
            if (fits) continue;
            judge_.violation(*row[0] + " is " + *row[1] + " and its participant " + step.name +
                             " did '" + calls + "': " + *row[2]);
        }
    }
}

}  // namespace outbox::simulation
