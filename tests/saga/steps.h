#pragma once

#include <string>
#include <vector>

#include <outbox/saga/definition.h>

namespace outbox::test {

inline SagaCommand command_to(const std::string& topic, const std::string& type) {
    return [topic, type](const SagaView& saga) {
        Event event;
        event.topic = topic;
        event.event_type = type;
        event.payload = std::string(saga.data);
        return event;
    };
}

// Can be undone and refused; its timer is due after a second.
inline SagaStep step(const std::string& name) {
    return {.name = name,
            .command = command_to("commands", name),
            .done = {{.event_type = name + "Done"}},
            .refused = {name + "Refused"},
            .compensation = command_to("commands", "undo-" + name),
            .compensated = name + "Undone",
            .timeout_ms = 1'000};
}

// Cannot be undone.
inline SagaStep final_step(const std::string& name) {
    return {.name = name,
            .command = command_to("commands", name),
            .done = {{.event_type = name + "Done"}},
            .timeout_ms = 1'000};
}

// The texts must outlive it.
inline Message message(std::string_view id, std::string_view headers_json,
                       std::string_view payload = {}) {
    Message message;
    message.id = id;
    message.headers_json = headers_json;
    message.payload = payload;
    return message;
}

}  // namespace outbox::test
