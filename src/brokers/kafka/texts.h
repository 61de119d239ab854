#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "brokers/kafka/topics.h"

namespace outbox::kafka {

// How the sink names things and what goes wrong with them.

inline std::string topic_text(const Topic& topic) {
    return "topic " + topic.name;
}

inline std::string part_text(const Topic& topic, std::int32_t partition) {
    return topic_text(topic) + "[" + std::to_string(partition) + "]";
}

inline ErrorInfo behind_error() {
    return {ErrorCode::kSinkRebuilt,
            Advice::kRetryDestination,
            {},
            "a record that went with this one was not accepted; it goes again"};
}

inline ErrorInfo leaderless_error(const Topic& topic, std::int32_t partition) {
    return to_error({"LEADER_NOT_AVAILABLE", "no leader"}, part_text(topic, partition));
}

inline ErrorInfo silent_error(const Topic& topic, std::int32_t partition,
                              std::chrono::steady_clock::duration silence) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
    return {ErrorCode::kSinkTimeout, Advice::kRetryDestination, "_TIMED_OUT",
            part_text(topic, partition) + ": no answer for " + std::to_string(ms) +
                " ms; check that its leader runs and that enough replicas are in sync "
                "(min.insync.replicas)"};
}

}  // namespace outbox::kafka
