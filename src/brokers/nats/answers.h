#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "brokers/nats/errors.h"

namespace outbox::nats {

/// What the answer to a published message, or of JetStream's API, complains of; nothing: it does
/// not. Without parsing where all is well.
[[nodiscard]] std::optional<Fault> fault_of_answer(std::string_view json);

/// Of a stream what concerns a sink.
struct StreamInfo {
    std::string name;
    std::vector<std::string> subjects;
    std::chrono::nanoseconds duplicate_window{0};
    bool no_ack = false;
};

/// Of STREAM.INFO's answer, and of STREAM.LIST's. Empty where it is none.
[[nodiscard]] std::vector<StreamInfo> read_streams(std::string_view json);

/// Of a durable consumer what concerns its members.
struct ConsumerInfo {
    std::int64_t pending = 0;              ///< Messages that nobody was given yet.
    std::int64_t ack_pending = 0;          ///< That somebody was given, and did not acknowledge.
    std::int64_t waiting = 0;              ///< Requests of members that are there.
    std::chrono::nanoseconds ack_wait{0};  ///< After which a message is given to another.
    std::chrono::nanoseconds ack_wait_min{0};  ///< The shortest, where there are several.
    std::string ack_policy;
    std::string created;                 ///< When; another after it was removed and made anew.
    std::optional<std::uint64_t> given;  ///< The number of its last delivery.
    bool push = false;
};

/// Of CONSUMER.INFO's answer.
[[nodiscard]] std::optional<ConsumerInfo> read_consumer(std::string_view json);

}  // namespace outbox::nats
