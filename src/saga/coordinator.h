#pragma once

#include <string>
#include <string_view>

#include <outbox/consumer/message.h>
#include <outbox/saga/saga.h>

#include "saga/store.h"

namespace outbox::saga {

// Event types of what a saga sends to itself, and headers of what it sends and gets.
constexpr std::string_view kTimerType = "SagaTimer";
constexpr std::string_view kAbortType = "SagaAbort";
constexpr std::string_view kResumeType = "SagaResume";
constexpr std::string_view kIdHeader = "saga_id";
constexpr std::string_view kStepHeader = "saga_step";
constexpr std::string_view kCallHeader = "saga_call";  ///< "do" or "undo".
constexpr std::string_view kLeaderHeader = "saga_leader";
constexpr std::string_view kReplyHeader = "saga_reply_to";
constexpr std::string_view kTimerHeader = "saga_timer";

// The functions of outbox/adapters/*_saga.h, where they are explained, on any database.
std::string start(Store& store, const Sagas& sagas, std::string_view name, std::string data,
                  std::string id);
SagaChange advance(Store& store, const Sagas& sagas, const Message& message);
SagaCall begin_step(Store& store, const Message& command);
std::string answer_step(Store& store, const Message& command, Event answer,
                        const EmitOptions& options);
std::string refuse_step(Store& store, const Message& command, Event answer,
                        const EmitOptions& options);

}  // namespace outbox::saga
